"""`GET /api/search`: messages by full-text expressions, for scripts and people."""

from urllib.parse import quote

import msgspec
import pytest
from starlette.types import Receive, Scope, Send

from server.app import build_app
from server.compat.agentchatbus.service import build_message_bus
from server.metrics import Metrics
from sources.drafts import MessageDraft
from tests.server.rest.rest_client import RestClient
from tests.server.tools.out_of_time import OutOfTime
from tests.sources.source_fixture import LibraryUser

ROW = {
    *("message_id", "id", "thread_id", "thread_topic", "author", "seq", "created_at", "snippet"),
    *("content", "metadata"),
}


async def test_an_answer_has_the_documented_shape(api: RestClient, ada: LibraryUser) -> None:
    draft = MessageDraft(sender="cursor-agent-abc123", content="the quick brown fox", metadata={"mood": "good"})
    thread = await ada.add_chat("My topic", draft)

    answer = await api.get("/api/search?q=+brown+")

    [row] = answer.json()["results"]
    assert answer.status == 200
    assert set(answer.json()) == {"results", "total", "query"}
    assert (answer.json()["total"], answer.json()["query"]) == (1, "brown")
    assert set(row) == ROW
    assert (row["thread_id"], row["thread_topic"], row["author"]) == (thread, "My topic", "cursor-agent-abc123")
    assert row["id"] == row["message_id"]
    assert row["snippet"] == "the quick <mark>brown</mark> fox"
    assert (row["content"], row["metadata"]) == ("the quick brown fox", '{"mood":"good"}')


@pytest.mark.parametrize("name", ["q", "query"])
async def test_a_query_has_two_names(api: RestClient, ada: LibraryUser, name: str) -> None:
    await ada.add_chat("Talk", "a fox")

    assert (await api.get(f"/api/search?{name}=fox")).json()["total"] == 1


@pytest.mark.parametrize("query", ["q=", "q=%20%20", "query="])
async def test_an_empty_query_is_refused(api: RestClient, query: str) -> None:
    answer = await api.get(f"/api/search?{query}")

    assert answer.status == 400
    assert answer.json() == {"detail": "Query parameter 'q' must not be empty"}


async def test_a_query_that_is_missing_is_told_as_the_original_does(api: RestClient) -> None:
    answer = await api.get("/api/search")

    assert answer.status == 422
    assert answer.json() == {"detail": [{"type": "missing", "loc": ["query", "q"], "msg": "Field required"}]}


async def test_a_limit_that_is_no_number_is_refused(api: RestClient) -> None:
    answer = await api.get("/api/search?q=fox&limit=many")

    assert answer.status == 422
    assert answer.json()["detail"][0]["loc"] == ["query", "limit"]


@pytest.mark.parametrize(
    ("limit", "shown"), [("limit=2", 2), ("limit=0", 1), ("limit=-7", 1), ("limit=999", 200), ("", 50)]
)
async def test_a_limit_is_clamped(api: RestClient, ada: LibraryUser, limit: str, shown: int) -> None:
    await ada.add_chat("Talk", *("a fox" for _ in range(210)))

    answer = (await api.get(f"/api/search?q=fox&{limit}")).json()

    assert (len(answer["results"]), answer["total"]) == (shown, shown)


async def test_a_thread_narrows_the_search(api: RestClient, ada: LibraryUser) -> None:
    first, second = await ada.add_chat("One", "a fox"), await ada.add_chat("Two", "another fox")

    one = (await api.get(f"/api/search?q=fox&thread_id={first}")).json()
    all_ = (await api.get("/api/search?q=fox")).json()

    assert [row["thread_id"] for row in one["results"]] == [first]
    assert {row["thread_id"] for row in all_["results"]} == {first, second}


async def test_a_word_nobody_said_finds_nothing(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "a fox")

    assert (await api.get("/api/search?q=zeppelin")).json() == {"results": [], "total": 0, "query": "zeppelin"}


@pytest.mark.parametrize("query", ['"angular signals"', "angul*", "angular AND signals", "content:signals", "ANGULAR"])
async def test_expressions_are_obeyed(api: RestClient, ada: LibraryUser, query: str) -> None:
    await ada.add_chat("Talk", "angular signals", "other signs")

    answer = (await api.get(f"/api/search?q={quote(query)}")).json()

    assert [row["content"] for row in answer["results"]] == ["angular signals"]
    assert "read_as" not in answer


@pytest.mark.parametrize("query", ['"angular', "C++", "what's angular?", "10:30", "angular OR", "fox-trot"])
async def test_what_is_no_expression_is_read_as_words_and_told(api: RestClient, ada: LibraryUser, query: str) -> None:
    await ada.add_chat("Talk", "what's angular? it is no C++, and at 10:30 we fox-trot")

    answer = await api.get(f"/api/search?q={quote(query)}")

    assert answer.status == 200
    assert answer.json()["total"] == 1
    assert answer.json()["read_as"].startswith('"')


async def test_a_bare_star_finds_nothing_and_raises_nothing(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "a fox")

    answer = await api.get("/api/search?q=*")

    assert (answer.status, answer.json()["results"]) == (200, [])


async def test_a_snippet_holds_no_markup_but_its_own(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "<img src=x onerror=alert(1)> fox </mark><script>")

    [row] = (await api.get("/api/search?q=fox")).json()["results"]

    assert row["snippet"] == "&lt;img src=x onerror=alert(1)&gt; <mark>fox</mark> &lt;/mark&gt;&lt;script&gt;"
    assert row["content"] == "<img src=x onerror=alert(1)> fox </mark><script>"


async def test_people_read_what_only_people_may_read(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_chat("Talk", MessageDraft(content="the password is mango", metadata={"visibility": "human_only"}))

    [row] = (await api.get("/api/search?q=mango")).json()["results"]

    assert row["snippet"] == "the password is <mark>mango</mark>"
    assert row["content"] == "the password is mango"
    assert msgspec.json.decode(row["metadata"]) == {"visibility": "human_only"}


async def test_a_search_out_of_time_is_told_with_503(api: RestClient) -> None:
    runtime = api.server.runtime
    bus = build_message_bus(OutOfTime(), runtime.settings)
    late = build_app(msgspec.structs.replace(runtime, bus=bus), Metrics())

    async def searching(scope: Scope, receive: Receive, send: Send) -> None:
        await late({**scope, "query_string": b"q=fox"}, receive, send)

    answer = await RestClient(api.server, searching).get("/api/search")

    assert (answer.status, answer.json()) == (503, {"detail": "Database operation timeout"})
    assert answer.header("retry-after") == "1"


async def test_messages_are_found_by_their_owner_alone(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    thread = await ada.add_chat("Secret plans", "a fox")
    await ben.add_chat("Talk", "nothing of it")

    absent = await api.get("/api/search?q=fox&thread_id=00000000-0000-4000-8000-000000000000", "ben")
    foreign = await api.get(f"/api/search?q=fox&thread_id={thread}", "ben")

    assert foreign.told() == absent.told()
    assert (await api.get("/api/search?q=fox", "ben")).json()["results"] == []
    assert (await api.get("/api/search?q=fox")).json()["total"] == 1
