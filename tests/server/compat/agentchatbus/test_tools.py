"""`msg_search` as an agent calls it: expressions, snippets, threads and human-only messages."""

from typing import Any

import jsonschema_rs
import pytest

from server.compat.agentchatbus.service import MessageBus
from server.compat.agentchatbus.tools import add_agentchatbus_tools
from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.server.clients import text_of
from tests.server.compat.timed_out_libraries import TimedOutLibraries
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser

ROW = {"message_id", "id", "thread_id", "thread_topic", "author", "seq", "created_at", "snippet"}
HIDDEN = "[human-only content hidden]"


async def snippets(user: LibraryUser, query: str, **arguments: Any) -> list[str]:
    return [row["snippet"] for row in await user.search("msg_search", query, **arguments)]


async def test_response_has_the_documented_shape(ada: LibraryUser) -> None:
    thread = await ada.add_chat("My topic", MessageDraft(sender="cursor-agent-abc123", content="the quick brown fox"))

    response = await ada.call("msg_search", query=" brown ")

    [row] = response["results"]
    assert set(response) == {"results", "total", "query"}
    assert (response["total"], response["query"]) == (1, "brown")
    assert set(row) == ROW
    assert (row["thread_id"], row["thread_topic"], row["author"]) == (thread, "My topic", "cursor-agent-abc123")
    assert row["message_id"] == row["id"]
    assert row["seq"] == 1
    assert row["created_at"].endswith("+00:00")
    assert row["snippet"] == "the quick <mark>brown</mark> fox"
    listed = ada.dispatcher.catalog.tools["msg_search"].as_listed()
    jsonschema_rs.validate(listed["outputSchema"], response)


async def test_parameters_are_those_of_agentchatbus(ada: LibraryUser) -> None:
    schema = ada.dispatcher.catalog.tools["msg_search"].as_listed()["inputSchema"]

    assert {name: declared["type"] for name, declared in schema["properties"].items()} == {
        "query": "string",
        "thread_id": "string",
        "limit": "integer",
    }
    assert schema["required"] == ["query"]
    assert schema["properties"]["limit"]["default"] == 50


@pytest.mark.parametrize(
    ("query", "authors"),
    [
        ("brown fox", ["a"]),
        ('"quick brown"', ["a"]),
        ("perf*", ["b", "c"]),
        ("fox OR performance", ["a", "b"]),
        ("perf* NOT performance", ["c"]),
        ("(fox OR performing) AND slowly", ["c"]),
        ("content:brown", ["a"]),
        ("NEAR(quick fox, 2)", ["a"]),
        ("BROWN", ["a"]),
        ("performances", []),
    ],
)
async def test_full_text_expressions_are_applied(ada: LibraryUser, query: str, authors: list[str]) -> None:
    texts = ("the quick brown fox", "good performance", "performing slowly")
    await ada.add_chat(
        "Talk", *(MessageDraft(sender=name, content=text) for name, text in zip("abc", texts, strict=True))
    )

    response = await ada.call("msg_search", query=query)

    assert sorted(row["author"] for row in response["results"]) == authors
    assert "read_as" not in response


@pytest.mark.parametrize(
    ("query", "read_as"),
    [
        ("fox-trot", '"fox-trot"'),
        ('"fox', '"fox"'),
        ("what is fox?", '"what" AND "is" AND "fox?"'),
        ("(fox", '"(fox"'),
    ],
)
async def test_invalid_expression_is_searched_as_words_and_reported_in_read_as(
    ada: LibraryUser, query: str, read_as: str
) -> None:
    await ada.add_chat("Talk", "what is a fox trot? a fox-trot is a dance")

    response = await ada.call("msg_search", query=query)

    assert response["total"] == 1
    assert response["read_as"] == read_as


@each_case("query", ["*", "?!", "AND"])
async def test_expression_without_words_returns_nothing_and_explains(ada: LibraryUser, query: str) -> None:
    await ada.add_chat("Talk", "a fox")

    response = await ada.call("msg_search", query=query)

    assert response["results"] == []
    assert response["read_as"].startswith("searched for nothing; ")


@each_case("query", ["", "   "])
async def test_empty_query_returns_the_documented_error(ada: LibraryUser, query: str) -> None:
    result = await ada.request("tools/call", name="msg_search", arguments={"query": query})

    assert text_of(result) == '{"error":"query must not be empty"}'
    assert result["structuredContent"] == {"error": "query must not be empty"}


async def test_thread_id_restricts_the_search(ada: LibraryUser) -> None:
    first, second = await ada.add_chat("One", "a fox"), await ada.add_chat("Two", "another fox")

    assert [row["thread_id"] for row in await ada.search("msg_search", "fox", thread_id=first)] == [first]
    assert {row["thread_id"] for row in await ada.search("msg_search", "fox")} == {first, second}
    assert await ada.search("msg_search", "fox", thread_id="nowhere") == []


@each_case(("limit", "count"), [(3, 3), (0, 1), (-1, 1), (1000, 200)])
async def test_limit_is_clamped(ada: LibraryUser, limit: int, count: int) -> None:
    await ada.add_chat("Talk", *("a fox" for _ in range(210)))

    response = await ada.call("msg_search", query="fox", limit=limit)

    assert (len(response["results"]), response["total"]) == (count, count)


async def test_default_limit_is_fifty(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", *("a fox" for _ in range(60)))

    assert len(await ada.search("msg_search", "fox")) == 50


async def test_better_matches_come_first(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "a fox among many other words that have nothing to do with it at all", "fox fox fox")

    assert (await snippets(ada, "fox"))[0] == "<mark>fox</mark> <mark>fox</mark> <mark>fox</mark>"


async def test_snippet_has_twenty_words_and_marks_its_truncation(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", " ".join([*("before" for _ in range(40)), "fox", *("after" for _ in range(40))]))

    [snippet] = await snippets(ada, "fox")

    assert len(snippet.strip("…").split()) == 20
    assert (snippet[0], snippet[-1]) == ("…", "…")


async def test_snippet_escapes_markup_of_the_message(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", '<script>alert("fox")</script> <mark onclick=evil()>&lt;')

    [snippet] = await snippets(ada, "fox")

    assert snippet.replace("<mark>fox</mark>", "") == (
        "&lt;script&gt;alert(&quot;&quot;)&lt;/script&gt; &lt;mark onclick=evil()&gt;&amp;lt;"
    )


@pytest.mark.parametrize(
    "metadata",
    [
        *({"visibility": "human_only"}, {"visibility": "HUMAN_ONLY"}, {"audience": "human"}),
        *({"human_only": value} for value in (True, 1, "true", " Yes ", "1", [True], {"until": "noon"})),
        {"human_only": True, "visibility": "all", "audience": "everyone"},
    ],
)
async def test_human_only_messages_are_not_found(ada: LibraryUser, ben: LibraryUser, metadata: dict[str, Any]) -> None:
    await ada.add_chat("Talk", MessageDraft(content="the password is mango", metadata=metadata))
    await ben.add_chat("Talk", "a mango for all")

    result = await ada.request("tools/call", name="msg_search", arguments={"query": "mango"})

    assert (result["structuredContent"]["results"], result["structuredContent"]["total"]) == ([], 0)
    assert await snippets(ben, "mango") == ["a <mark>mango</mark> for all"]


@pytest.mark.parametrize(
    "metadata",
    [
        *({"human_only": value} for value in (False, None, 0, "", "false", "No", "0", "off")),
        *({"visibility": "all"}, {"audience": "humans and agents"}, {"note": "human_only"}),
    ],
)
async def test_messages_not_marked_human_only_are_shown(ada: LibraryUser, metadata: dict[str, Any]) -> None:
    await ada.add_chat("Talk", MessageDraft(content="a mango", metadata=metadata))

    assert await snippets(ada, "mango") == ["a <mark>mango</mark>"]


async def test_deleted_or_edited_message_is_not_found_by_its_old_text(ada: LibraryUser) -> None:
    thread = await ada.add_chat("Talk", "a fox", "a hare")
    async with ada.libraries.library(ada.context) as library:
        fox, hare = (await library.chats.messages(thread, 2, 0)).rows
        assert len(await ada.search("msg_search", "fox OR hare")) == 2
        await library.chats.delete_message(fox.id)
        await library.chats.update_message(hare.id, MessageDraft(content="a badger"))

    assert await ada.search("msg_search", "fox OR hare") == []
    assert len(await ada.search("msg_search", "badger")) == 1


async def test_messages_written_before_and_after_indexing_are_found(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "a fox")
    assert len(await ada.search("msg_search", "fox")) == 1
    await ada.add_chat("Talk", "a second fox")

    assert len(await ada.search("msg_search", "fox")) == 2


async def test_word_inside_running_chinese_text_is_found(ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_chat("Talk", "明天下午在会议室讨论部署计划。", "午餐取消了")
    await ben.add_chat("Talk", "会议取消了")

    response = await ada.call("msg_search", query="会议室 部署")

    assert [row["snippet"] for row in response["results"]] == [
        "明天下午在<mark>会议室</mark>讨论<mark>部署</mark>计划。"
    ]
    assert "read_as" not in response


async def test_invalid_expression_of_chinese_words_is_searched_as_words(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "讨论会议室-部署计划。")

    response = await ada.call("msg_search", query="会议室-部署")

    assert (response["total"], response["read_as"]) == (1, '"会议室-部署"')
    assert "\u200b" not in response["results"][0]["snippet"]


async def test_too_long_query_is_truncated_and_reported(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "a fox")

    response = await ada.call("msg_search", query="fox " * 300)

    assert response["total"] == 1
    assert response["note"] == "the query was truncated to its first 1000 characters"


async def test_timed_out_search_returns_nothing_and_explains(own_api: RestClient) -> None:
    runtime = own_api.server.runtime
    bus = MessageBus(TimedOutLibraries(), runtime.settings)
    add_agentchatbus_tools(runtime.dispatcher.catalog, bus, runtime.settings)

    response = await (await own_api.library_user("ada")).call("msg_search", query="fox")

    assert (response["results"], response["total"], response["query"]) == ([], 0, "fox")
    assert response["note"] == "the search timed out: chats did not respond within 2000 ms"


async def test_messages_are_found_by_their_owner_only(ada: LibraryUser, ben: LibraryUser) -> None:
    thread = await ada.add_chat("Secret plans", "a fox")

    absent = await ben.call("msg_search", query="fox", thread_id="nowhere")
    assert await ben.call("msg_search", query="fox", thread_id=thread) == absent
    assert await ben.search("msg_search", "fox") == []
    assert len(await ada.search("msg_search", "fox")) == 1
