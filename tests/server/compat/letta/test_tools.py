"""`conversation_search` as an agent calls it: results, formats and errors."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from server.compat.letta.tools import LettaTools, add_letta_tools
from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.server.clients import text_of
from tests.server.compat.timed_out_libraries import TimedOutLibraries
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

INCOMPLETE = "older messages were not searched; narrow the search by dates or words, or try again"
EMPTY = "No matching messages."
LETTA_PROPERTIES = {
    "query": "string",
    "roles": "array",
    "start_date": "string",
    "end_date": "string",
    "limit": "integer",
}


def at(created_at: str, content: str, role: str = "user", **more: Any) -> MessageDraft:
    return MessageDraft(role=role, content=content, created_at=created_at, **more)


async def search(user: LibraryUser, **arguments: Any) -> str:
    """Returns the text of the result, which is never a failed call."""
    result = await user.request("tools/call", name="conversation_search", arguments=arguments)
    assert "isError" not in result
    assert [block["type"] for block in result["content"]] == ["text"]
    return text_of(result)


def contents(text: str) -> list[str]:
    return [] if text == EMPTY else [block.partition("\n")[2] for block in text.split("\n\n---\n\n")]


async def test_matches_are_listed_newest_first_in_the_documented_format(ada: LibraryUser) -> None:
    await ada.add_chat(
        "Python asyncio help",
        at("2025-02-10T14:30:00Z", "How do I run two coroutines in parallel with asyncio?"),
        at("2025-02-10T14:32:00Z", "You can use asyncio.gather().", "assistant"),
        at("2025-02-10T14:33:00Z", "Thanks!"),
    )

    text = await search(ada, query="ASYNCIO.g")

    assert text == "[2025-02-10 14:32] assistant (conv: Python asyncio help)\nYou can use asyncio.gather()."
    assert contents(await search(ada, query="run two", limit=20)) == [
        "How do I run two coroutines in parallel with asyncio?"
    ]


async def test_matching_title_returns_every_message_of_its_conversation(ada: LibraryUser) -> None:
    await ada.add_chat("Python asyncio help", at("2025-02-10T14:30:00Z", "one"), at("2025-02-10T14:31:00Z", "two"))
    await ada.add_chat("Gardening", at("2025-02-10T14:32:00Z", "three"))

    assert contents(await search(ada, query="asyncio")) == ["two", "one"]


async def test_without_arguments_the_newest_messages_are_returned(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", *(at(f"2025-02-10T14:{n:02}:00Z", f"word {n}") for n in range(60)))

    results = contents(await search(ada))

    assert results == [f"word {n}" for n in range(59, 9, -1)]


@each_case(("limit", "count"), [(1, 1), (0, 1), (-5, 1), ("3", 3), ("three", 50), (1000, 200)])
async def test_limit_is_clamped(ada: LibraryUser, limit: Any, count: int) -> None:
    await ada.add_chat("Talk", *(at("2025-02-10T14:30:00Z", f"word {n}") for n in range(210)))

    assert len(contents(await search(ada, query="word", limit=limit))) == count


@each_case("text", ["%", "_", '"', "100%", "snake_case", "'; DROP"])
async def test_query_has_no_wildcards(ada: LibraryUser, text: str) -> None:
    await ada.add_chat(
        "Talk", at("2025-02-10T14:30:00Z", "plain words"), at("2025-02-10T14:31:00Z", f"it says {text} there")
    )

    assert contents(await search(ada, query=text)) == [f"it says {text} there"]


@pytest.mark.parametrize("query", ["  galleon ", "", "   "])
async def test_whitespace_around_the_query_is_ignored(ada: LibraryUser, query: str) -> None:
    await ada.add_chat("Talk", at("2025-02-10T14:30:00Z", "galleon"))

    assert contents(await search(ada, query=query)) == ["galleon"]


async def test_non_ascii_letters_match_case_insensitively(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", at("2025-02-10T14:30:00Z", "À L'ÉCOLE, STRASSE"))

    assert len(contents(await search(ada, query="école"))) == 1
    assert len(contents(await search(ada, query="straße"))) == 1


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (["user"], ["asked"]),
        (["assistant", "tool"], ["ran", "answered"]),
        ("tool", ["ran"]),
        ([], ["ran", "answered", "asked"]),
    ],
)
async def test_roles_filter_the_results(ada: LibraryUser, roles: Any, expected: list[str]) -> None:
    await ada.add_chat(
        "Talk",
        at("2025-02-10T14:30:00Z", "asked"),
        at("2025-02-10T14:31:00Z", "answered", "assistant"),
        at("2025-02-10T14:32:00Z", "ran", "tool", tool="python"),
    )

    assert contents(await search(ada, roles=roles)) == expected


@pytest.mark.parametrize(
    ("dates", "expected"),
    [
        ({"start_date": "2024-06-01", "end_date": "2024-06-15"}, ["last", "first"]),
        ({"start_date": "2024-06-15"}, ["after", "last"]),
        ({"end_date": "2024-06-01T00:00:00"}, ["first", "before"]),
        ({"end_date": "2024-05-31"}, ["before"]),
        ({"start_date": "2024-06-16T01:00:00+01:00"}, ["after"]),
        ({"start_date": "", "end_date": " "}, ["after", "last", "first", "before"]),
    ],
)
async def test_dates_filter_by_whole_utc_days(ada: LibraryUser, dates: dict[str, str], expected: list[str]) -> None:
    await ada.add_chat(
        "Talk",
        at("2024-05-31T23:59:59.999Z", "before"),
        at("2024-06-01T00:00:00Z", "first"),
        at("2024-06-15T23:59:59.999Z", "last"),
        at("2024-06-16T00:00:00Z", "after"),
    )

    assert contents(await search(ada, **dates)) == expected


async def test_old_date_range_is_found_behind_many_newer_messages(ada: LibraryUser) -> None:
    old = at("2019-03-01T10:00:00Z", "the old word")
    await ada.add_chat(
        "Talk", old, *(at(f"2025-01-01T00:{n // 60:02}:{n % 60:02}Z", f"new word {n}") for n in range(600))
    )

    assert contents(await search(ada, query="word", end_date="2020-01-01")) == ["the old word"]


async def test_no_matches_return_one_sentence(ada: LibraryUser) -> None:
    assert await search(ada, query="zeppelin") == EMPTY


@each_case(
    ("arguments", "message"),
    [
        ({"roles": ["admin", "user"]}, "Invalid role(s): ['admin']. Allowed: user, assistant, tool."),
        (
            {"start_date": "last week"},
            "Invalid start_date format: last week. Use ISO 8601 format (YYYY-MM-DD or YYYY-MM-DDTHH:MM)",
        ),
        ({"query": "x" * 1001}, "Error: query: expected at most 1000 characters, got 1001"),
    ],
)
async def test_invalid_argument_returns_a_text_with_the_correction(
    ada: LibraryUser, arguments: dict[str, Any], message: str
) -> None:
    assert await search(ada, **arguments) == message


async def test_timed_out_search_returns_an_error_text(own_api: RestClient) -> None:
    runtime = own_api.server.runtime
    add_letta_tools(runtime.dispatcher.catalog, TimedOutLibraries(), runtime.settings)

    assert (
        await search(await own_api.library_user("ada"), query="zeppelin")
        == "Error: chats did not respond within 2000 ms"
    )


async def test_unknown_argument_is_rejected(ada: LibraryUser) -> None:
    error = await ada.call_error("conversation_search", query="word", page=2)

    assert error == "page: unknown argument; expected one of query, roles, start_date, end_date, limit, format"


async def test_output_of_own_searches_is_not_found(ada: LibraryUser) -> None:
    outputs = [
        at(f"2025-02-11T14:{n // 60:02}:{n % 60:02}Z", "zeppelin again", "tool", tool="mcp__florilegium__search")
        for n in range(100)
    ]
    messages = [at(f"2025-02-10T14:{n:02}:00Z", f"zeppelin {n}") for n in range(5)]
    await ada.add_chat("Talk", *messages, *outputs)

    assert contents(await search(ada, query="zeppelin", limit=2)) == ["zeppelin 4", "zeppelin 3"]
    assert contents(await search(ada, roles=["tool"])) == []


async def test_scan_limit_is_reported_when_reached(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, conversation_search_scan_max=10) as api:
        ada = await api.library_user("ada")
        outputs = [at("2025-02-11T14:30:00Z", "zeppelin", "tool", tool="conversation_search") for _ in range(30)]
        await ada.add_chat("Talk", at("2025-02-10T14:30:00Z", "the zeppelin itself"), *outputs)

        text = await search(ada, query="zeppelin", limit=1)

    assert text == f"{EMPTY}\n\n---\n\n({INCOMPLETE})"


async def test_human_only_messages_are_not_found(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", at("2025-02-10T14:30:00Z", "mango password", metadata={"audience": "human"}))

    assert await search(ada, query="mango") == await search(ada) == EMPTY


async def test_json_format_returns_lettas_result_shape(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", at("2025-02-10T14:30:00Z", "the zeppelin itself"))

    result = await ada.request(
        "tools/call", name="conversation_search", arguments={"query": "zeppelin", "format": "json"}
    )
    response = msgspec.json.decode(text_of(result))

    assert response == result["structuredContent"]
    assert response["message"] == "Showing 1 results:"
    assert [set(one) for one in response["results"]] == [{"timestamp", "time_ago", "role", "relevance", "content"}]
    assert response["results"][0]["timestamp"] == "2025-02-10T14:30:00+00:00"
    assert response["results"][0]["time_ago"].endswith("d ago")


async def json_results(user: LibraryUser, **arguments: Any) -> list[Any]:
    response = msgspec.json.decode(await search(user, format="json", **arguments))
    return list(response["results"])


async def test_relevance_ranks_results_by_text_and_keeps_their_order(ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_chat(
        "Talk",
        at("2025-02-10T14:30:00Z", "Zeppelin, zeppelin!"),
        at("2025-02-10T14:31:00Z", "a zeppelin among many other things that fly or do not fly"),
    )
    await ada.add_chat("About the zeppelin", at("2025-02-10T14:32:00Z", "found by its title"))
    await ben.add_chat("Talk", at("2025-02-10T14:30:00Z", "zeppelin zeppelin zeppelin"))

    relevance = [one["relevance"] for one in await json_results(ada, query="zeppelin")]

    assert relevance == [
        {"rrf_score": 1 / 3, "fts_rank": 3, "search_mode": "fts"},
        {"rrf_score": 1 / 2, "fts_rank": 2, "search_mode": "fts"},
        {"rrf_score": 1.0, "fts_rank": 1, "search_mode": "fts"},
    ]


async def test_relevance_without_a_query_is_the_order_in_time(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", at("2025-02-10T14:30:00Z", "one"), at("2025-02-10T14:31:00Z", "two"))

    assert [(one["content"], one["relevance"]) for one in await json_results(ada)] == [
        ("two", {"rrf_score": 1.0, "search_mode": "timestamp"}),
        ("one", {"rrf_score": 0.5, "search_mode": "timestamp"}),
    ]


async def test_age_below_a_minute_is_given_in_seconds(api: RestClient, ada: LibraryUser) -> None:
    runtime = api.server.runtime
    catalog, now = runtime.dispatcher.catalog, datetime(2025, 2, 10, 14, 30, 12, tzinfo=UTC)
    catalog.add_tool(LettaTools(runtime.libraries, runtime.settings, catalog.tools, lambda: now).tool())
    await ada.add_chat("Talk", at("2025-02-10T14:30:00Z", "the zeppelin itself"))

    [result] = await json_results(ada, query="zeppelin")

    assert result["time_ago"] == "12s ago"


@pytest.mark.parametrize("role", ["", "  "])
async def test_empty_role_is_unknown(ada: LibraryUser, role: str) -> None:
    await ada.add_chat("Talk", at("2025-02-10T14:30:00Z", "the zeppelin itself", role))

    [result] = await json_results(ada, query="zeppelin")

    assert result["role"] == "unknown"
    assert await search(ada, query="zeppelin") == "[2025-02-10 14:30] unknown (conv: Talk)\nthe zeppelin itself"


async def test_json_format_reports_no_results(ada: LibraryUser) -> None:
    text = await search(ada, query="zeppelin", format="json")

    assert msgspec.json.decode(text) == {"message": "No results found.", "results": []}


async def test_listed_schema_is_lettas_plus_format(ada: LibraryUser) -> None:
    listed = {tool["name"]: tool for tool in (await ada.request("tools/list"))["tools"]}
    full = listed["conversation_search"]["inputSchema"]

    kinds = {name: declared["type"] for name, declared in full["properties"].items()}
    assert kinds == LETTA_PROPERTIES | {"format": "string"}
    assert full["properties"]["roles"]["items"]["enum"] == ["user", "assistant", "tool"]
    assert full["properties"]["limit"]["default"] == 50
    assert full["additionalProperties"] is False
    assert "required" not in full


async def test_history_is_searched_by_its_owner_only(ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_chat("Secret plans", at("2025-02-10T14:30:00Z", "the zeppelin itself"))

    searches: list[dict[str, Any]] = [{}, {"query": "zeppelin"}, {"query": "Secret"}, {"start_date": "2025-02-10"}]
    assert [await search(ben, **arguments) for arguments in searches] == [EMPTY] * 4
    assert [len(contents(await search(ada, **arguments))) for arguments in searches] == [1] * 4
