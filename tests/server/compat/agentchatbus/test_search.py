"""`GET /api/search`: searches messages by full-text expressions, for scripts and people."""

from urllib.parse import quote

import msgspec
import pytest
from starlette.types import Receive, Scope, Send

from server.app import build_app
from server.compat.agentchatbus.service import MessageBus
from server.metrics import Metrics
from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.server.compat.timed_out_libraries import TimedOutLibraries
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser

ROW = {
    *("message_id", "id", "thread_id", "thread_topic", "author", "seq", "created_at", "snippet"),
    *("content", "metadata"),
}


async def test_response_has_the_documented_shape(api: RestClient, ada: LibraryUser) -> None:
    draft = MessageDraft(sender="cursor-agent-abc123", content="the quick brown fox", metadata={"mood": "good"})
    thread = await ada.add_chat("My topic", draft)

    response = await api.get("/api/search?q=+brown+")

    [row] = response.json()["results"]
    assert response.status == 200
    assert set(response.json()) == {"results", "total", "query"}
    assert (response.json()["total"], response.json()["query"]) == (1, "brown")
    assert set(row) == ROW
    assert (row["thread_id"], row["thread_topic"], row["author"]) == (thread, "My topic", "cursor-agent-abc123")
    assert row["id"] == row["message_id"]
    assert row["snippet"] == "the quick <mark>brown</mark> fox"
    assert (row["content"], row["metadata"]) == ("the quick brown fox", '{"mood":"good"}')


@pytest.mark.parametrize("name", ["q", "query"])
async def test_query_can_be_given_as_q_or_query(api: RestClient, ada: LibraryUser, name: str) -> None:
    await ada.add_chat("Talk", "a fox")

    assert (await api.get(f"/api/search?{name}=fox")).json()["total"] == 1


@each_case("query", ["q=", "q=%20%20", "query="])
async def test_empty_query_is_rejected_with_400(api: RestClient, query: str) -> None:
    response = await api.get(f"/api/search?{query}")

    assert response.status == 400
    assert response.json() == {"detail": "Query parameter 'q' must not be empty"}


async def test_missing_query_is_rejected_with_fastapis_422(api: RestClient) -> None:
    response = await api.get("/api/search")

    assert response.status == 422
    assert response.json() == {"detail": [{"type": "missing", "loc": ["query", "q"], "msg": "Field required"}]}


@each_case(("parameters", "name"), [("q=fox&limit=many", "limit"), ("q=fox%00", "q")])
async def test_invalid_parameter_is_rejected_with_422(api: RestClient, parameters: str, name: str) -> None:
    response = await api.get(f"/api/search?{parameters}")

    assert response.status == 422
    assert response.json()["detail"][0]["loc"] == ["query", name]


@each_case(("limit", "count"), [("limit=2", 2), ("limit=0", 1), ("limit=-7", 1), ("limit=999", 200), ("", 50)])
async def test_limit_is_clamped(api: RestClient, ada: LibraryUser, limit: str, count: int) -> None:
    await ada.add_chat("Talk", *("a fox" for _ in range(210)))

    response = (await api.get(f"/api/search?q=fox&{limit}")).json()

    assert (len(response["results"]), response["total"]) == (count, count)


async def test_thread_id_restricts_the_search(api: RestClient, ada: LibraryUser) -> None:
    first, second = await ada.add_chat("One", "a fox"), await ada.add_chat("Two", "another fox")

    in_first = (await api.get(f"/api/search?q=fox&thread_id={first}")).json()
    in_all = (await api.get("/api/search?q=fox")).json()

    assert [row["thread_id"] for row in in_first["results"]] == [first]
    assert {row["thread_id"] for row in in_all["results"]} == {first, second}


async def test_unknown_word_returns_no_results(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "a fox")

    assert (await api.get("/api/search?q=zeppelin")).json() == {"results": [], "total": 0, "query": "zeppelin"}


@pytest.mark.parametrize("query", ['"angular signals"', "angul*", "angular AND signals", "content:signals", "ANGULAR"])
async def test_full_text_expressions_are_applied(api: RestClient, ada: LibraryUser, query: str) -> None:
    await ada.add_chat("Talk", "angular signals", "other signs")

    response = (await api.get(f"/api/search?q={quote(query)}")).json()

    assert [row["content"] for row in response["results"]] == ["angular signals"]
    assert "read_as" not in response


@pytest.mark.parametrize("query", ['"angular', "C++", "what's angular?", "10:30", "angular OR", "fox-trot"])
async def test_invalid_expression_is_searched_as_words_and_reported_in_read_as(
    api: RestClient, ada: LibraryUser, query: str
) -> None:
    await ada.add_chat("Talk", "what's angular? it is no C++, and at 10:30 we fox-trot")

    response = await api.get(f"/api/search?q={quote(query)}")

    assert response.status == 200
    assert response.json()["total"] == 1
    assert response.json()["read_as"].startswith('"')


async def test_bare_asterisk_returns_nothing_without_an_error(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "a fox")

    response = await api.get("/api/search?q=*")

    assert (response.status, response.json()["results"]) == (200, [])


async def test_snippet_escapes_markup_of_the_message(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "<img src=x onerror=alert(1)> fox </mark><script>")

    [row] = (await api.get("/api/search?q=fox")).json()["results"]

    assert row["snippet"] == "&lt;img src=x onerror=alert(1)&gt; <mark>fox</mark> &lt;/mark&gt;&lt;script&gt;"
    assert row["content"] == "<img src=x onerror=alert(1)> fox </mark><script>"


async def test_human_only_messages_are_shown_to_people(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_chat("Talk", MessageDraft(content="the password is mango", metadata={"visibility": "human_only"}))

    [row] = (await api.get("/api/search?q=mango")).json()["results"]

    assert row["snippet"] == "the password is <mark>mango</mark>"
    assert row["content"] == "the password is mango"
    assert msgspec.json.decode(row["metadata"]) == {"visibility": "human_only"}


async def test_timed_out_search_returns_503(api: RestClient) -> None:
    runtime = api.server.runtime
    bus = MessageBus(TimedOutLibraries(), runtime.settings)
    app = build_app(msgspec.structs.replace(runtime, bus=bus), Metrics())

    async def search_app(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "query_string": b"q=fox"}, receive, send)

    response = await RestClient(api.server, search_app).get("/api/search")

    assert (response.status, response.json()) == (503, {"detail": "Database operation timeout"})
    assert response.header("retry-after") == "1"


async def test_messages_are_found_by_their_owner_only(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    thread = await ada.add_chat("Secret plans", "a fox")
    await ben.add_chat("Talk", "nothing of it")

    absent = await api.get("/api/search?q=fox&thread_id=00000000-0000-4000-8000-000000000000", "ben")
    foreign = await api.get(f"/api/search?q=fox&thread_id={thread}", "ben")

    assert foreign.comparable() == absent.comparable()
    assert (await api.get("/api/search?q=fox", "ben")).json()["results"] == []
    assert (await api.get("/api/search?q=fox")).json()["total"] == 1
