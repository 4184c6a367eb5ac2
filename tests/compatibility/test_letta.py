"""Promises of Letta's `conversation_search`, over HTTP and stdio."""

from pathlib import Path
from typing import Any

import pytest

from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.server.cli.program import Program
from tests.server.cli.requests import lines, modern
from tests.server.clients import text_of
from tests.server.rest.rest_client import RpcError
from tests.sources.importers.test_chatgpt_browser import CANONICAL, TEA, database, parts
from tests.sources.source_fixture import LibraryUser

EMPTY = "No matching messages."
SEPARATOR = "\n\n---\n\n"


def at(created_at: str, content: str, role: str = "user", **more: Any) -> MessageDraft:
    return MessageDraft(role=role, content=content, created_at=created_at, **more)


async def search(user: LibraryUser, **arguments: Any) -> str:
    result = await user.request("tools/call", name="conversation_search", arguments=arguments)
    assert "isError" not in result
    (block,) = result["content"]
    assert block["type"] == "text"
    return text_of(result)


def contents(text: str) -> list[str]:
    return [] if text == EMPTY else [block.partition("\n")[2] for block in text.split(SEPARATOR)]


@each_case(
    "phrase",
    [
        "Search prior conversation history",
        "Hybrid-style: text match on content and titles.",
        "roles (user/assistant/tool), start_date and end_date (ISO 8601 inclusive)",
        "Returns matching messages with timestamps and content",
    ],
)
async def test_description_contains_the_documented_phrase(ada: LibraryUser, phrase: str) -> None:
    listed = {tool["name"]: tool for tool in (await ada.request("tools/list"))["tools"]}

    assert phrase in listed["conversation_search"]["description"]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"query": "asyncio", "limit": 20}, ["asyncio in June", "asyncio in January"]),
        (
            {"roles": ["user", "assistant"], "start_date": "2025-01-01", "end_date": "2025-01-31", "limit": 50},
            ["asyncio in January"],
        ),
        ({"roles": ["assistant"]}, ["asyncio in January"]),
        ({"start_date": "2024-06-01", "end_date": "2024-06-15", "limit": 100}, ["the first half of June 2024"]),
    ],
)
async def test_documented_example_returns_its_messages(
    ada: LibraryUser, arguments: dict[str, Any], found: list[str]
) -> None:
    await ada.add_chat(
        "Talk",
        at("2024-06-15T23:59:59.999Z", "the first half of June 2024"),
        at("2025-01-31T12:00:00Z", "asyncio in January", "assistant"),
        at("2025-01-20T12:00:00Z", "a tool's result", "tool"),
        at("2025-06-01T12:00:00Z", "asyncio in June"),
    )

    assert contents(await search(ada, **arguments)) == found


@pytest.mark.parametrize(
    ("dates", "found"),
    [
        ({"start_date": "2025-03-02"}, ["evening", "noon", "midnight"]),
        ({"end_date": "2025-03-02"}, ["evening", "noon", "midnight", "the day before"]),
        ({"start_date": "2025-03-02T12:00:00"}, ["evening", "noon"]),
        ({"end_date": "2025-03-02T12:00:00"}, ["noon", "midnight", "the day before"]),
        ({"start_date": "2025-03-02T14:00:00+02:00"}, ["evening", "noon"]),
        ({"end_date": "2025-03-02T07:00:00-05:00"}, ["noon", "midnight", "the day before"]),
    ],
)
async def test_dates_are_inclusive_days_or_times_in_utc(
    ada: LibraryUser, dates: dict[str, str], found: list[str]
) -> None:
    await ada.add_chat(
        "Talk",
        at("2025-03-01T23:59:59.999Z", "the day before"),
        at("2025-03-02T00:00:00Z", "midnight"),
        at("2025-03-02T12:00:00Z", "noon"),
        at("2025-03-02T23:59:59.999Z", "evening"),
    )

    assert contents(await search(ada, **dates)) == found


@each_case(("limit", "count"), [(None, 50), ("many", 50), ("7", 7), (0, 1), (-3, 1), (1000, 200)])
async def test_limit_is_50_by_default_and_clamped_to_1_to_200(ada: LibraryUser, limit: Any, count: int) -> None:
    await ada.add_chat("Talk", *(f"message {number}" for number in range(210)))

    assert len(contents(await search(ada, **({} if limit is None else {"limit": limit})))) == count


async def test_one_role_can_be_a_plain_string(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "a question", "an answer")

    assert contents(await search(ada, roles="assistant")) == ["an answer"]


async def test_untitled_conversation_is_named_by_the_start_of_its_id(ada: LibraryUser) -> None:
    chat = await ada.add_chat(" ", at("2025-02-10T14:30:00Z", "hello", "assistant"))

    assert await search(ada) == f"[2025-02-10 14:30] assistant (conv: {chat[:8]})\nhello"


async def test_content_over_2000_characters_ends_with_three_dots(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", at("2025-02-10T14:30:00Z", "x" * 2001), at("2025-02-10T14:29:00Z", "y" * 2000))

    assert contents(await search(ada)) == ["x" * 2000 + "...", "y" * 2000]


async def test_blocks_are_separated_by_three_dashes(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", at("2025-02-10T14:30:00Z", "one"), at("2025-02-10T14:32:00Z", "two", "assistant"))

    assert await search(ada) == (
        "[2025-02-10 14:32] assistant (conv: Talk)\ntwo\n\n---\n\n[2025-02-10 14:30] user (conv: Talk)\none"
    )


async def test_regenerated_answer_is_not_history(ada: LibraryUser) -> None:
    await ada.add_chat(
        "Talk", "a question", at("2025-02-10T14:30:00Z", "a discarded answer", "assistant", is_canonical=False)
    )

    assert contents(await search(ada)) == ["a question"]


async def test_call_of_an_unknown_tool_is_an_error_that_names_it(ada: LibraryUser) -> None:
    with pytest.raises(RpcError, match="Unknown tool: conversation_find"):
        await ada.call("conversation_find")


def test_canonical_export_is_imported_and_searched_over_stdio(program: Program, tmp_path: Path) -> None:
    rows = [
        ("q", TEA, "user", parts("Grüner Tee?"), "1700000001.25", 1),
        ("a", TEA, "assistant", parts("70 degrees."), "2023-11-14T22:14:00", 2),
    ]
    export = database(tmp_path / "canonical-export.db", CANONICAL, [(TEA, None, None, "Tea")], rows)
    program.expect("import", str(export))
    searches = [{"query": "TEE"}, {"start_date": "2023-11-14T22:13:30", "end_date": "2023-11-14"}]
    calls = [
        modern(number, "tools/call", name="conversation_search", arguments=arguments)
        for number, arguments in enumerate(searches, 1)
    ]

    outcome = program.run("stdio", "--profile", "letta", stdin=lines(modern(0, "tools/list"), *calls))

    results = [message["result"] for message in sorted(outcome.messages, key=lambda message: message["id"])]
    assert [tool["name"] for tool in results[0]["tools"]] == ["conversation_search"]
    assert text_of(results[1]) == "[2023-11-14 22:13] user (conv: Tea)\nGrüner Tee?"
    assert text_of(results[2]) == "[2023-11-14 22:14] assistant (conv: Tea)\n70 degrees."
