"""Limits on what a file may contain: it is given up early, with an error that names the setting."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.drafts import ConversationDraft
from sources.importers.engine.batches import limit_events
from sources.importers.engine.chat_messages import conversation_in_order
from sources.importers.engine.events import SkippedItem
from sources.importers.engine.summary import ImportSummary
from sources.importers.registry import all_importers, importer_by_name
from tests.cases import each_case
from tests.sources.importers.chat_exports import PERPLEXITY_MARKDOWN, TELEGRAM
from tests.sources.importers.office_files import packed
from tests.sources.importers.single_files import LIMITS, import_here, write
from tests.sources.storage.library_fixture import open_library_fixture, total_items

GOOD: Mapping[str, Any] = {"messages": [{"role": "user", "content": "Low water?"}]}
BAD: Mapping[str, Any] = {"messages": 7}
EMPTY: Mapping[str, Any] = {"messages": []}


def lines(*values: Mapping[str, Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


async def import_file(path: Path, **limits: int) -> ImportSummary:
    """Imports a file for one user, and checks that another one gets nothing."""
    async with open_library_fixture(path.parent / "data") as libraries:
        async with libraries.library("ada") as ada:
            summary = await import_here(ada, path, limits=replace(LIMITS, **limits))
        async with libraries.library("ben") as ben:
            assert await total_items(ben) == 0
    return summary


def problems(summary: ImportSummary) -> list[str]:
    return [problem.problem for problem in summary.problems]


async def test_file_of_failed_items_is_given_up(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", lines(GOOD, *[BAD] * 20, GOOD))

    summary = await import_file(path, failed_max=10)

    assert summary.counts("chats").new == 1
    assert problems(summary)[-1] == ("11 items failed and 2 were read; the rest of the file was not read")


def test_reports_before_the_first_message_are_yielded_at_once() -> None:
    """Otherwise a list of millions of them would be read to its end before the file can be given up."""

    def messages() -> Iterator[SkippedItem]:
        yield SkippedItem("empty message")
        pytest.fail("read on")

    events = conversation_in_order("a", ConversationDraft(uuid="a"), messages(), LIMITS)

    assert next(events) == SkippedItem("empty message")


async def test_failed_items_do_not_end_a_file_with_more_good_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", lines(*[GOOD, GOOD, BAD] * 20))

    summary = await import_file(path, failed_max=10)

    assert (summary.counts("chats").new, summary.failures) == (40, 20)


async def test_file_of_skipped_items_is_given_up(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", lines(GOOD, *[EMPTY] * 20, GOOD))

    summary = await import_file(path, skipped_max=10)

    assert summary.counts("chats").new == 1
    assert problems(summary) == ["11 items were skipped and 2 were read; the rest of the file was not read"]


@each_case(
    ("importer", "name", "data"),
    [
        ("message_lists", "a.json", json.dumps([{"messages": [{"role": "user"}] * 200 + [{"text": "unread"}]}])),
        ("librechat", "a.json", json.dumps({"conversationId": "a", "messages": [{}] * 20, "title": "x" * 100})),
        ("pocket", "a.csv", "title,url,time_added,tags,status\n" + "---\n" * 20),
    ],
)
def test_list_of_skipped_items_is_given_up(tmp_path: Path, importer: str, name: str, data: str) -> None:
    limits = replace(LIMITS, skipped_max=10)
    reader = importer_by_name(importer, all_importers())
    events = reader.read(write(tmp_path / name, data.encode()), limits, lambda _: None, None)

    with pytest.raises(InvalidParams, match="was not read"):
        list(limit_events(events, limits))


@each_case(
    ("name", "data"),
    [
        ("result.json", json.dumps({**TELEGRAM, "messages": TELEGRAM["messages"] * 20}).encode()),
        ("thread.md", (PERPLEXITY_MARKDOWN + "\n---\n# And then?\n" * 20).encode()),
        ("_chat.txt", b"[05.01.24, 09:30:00] Mara: Hi\n" * 20),
    ],
)
async def test_conversation_with_too_many_messages_is_rejected(tmp_path: Path, name: str, data: bytes) -> None:
    summary = await import_file(write(tmp_path / name, data), messages_max=10)

    assert "expected at most 10 messages in a conversation" in problems(summary)[-1]


@each_case(
    ("name", "data", "problem"),
    [
        ("a.md", b"# A\n" + b"\n" * 1_000, "expected at most 1000 lines, got at least 1001"),
        ("s.md", b"x" * 1_001, "expected at most 1000 characters (item_max_chars), got 1001"),
        ("a.jsonl", lines({**GOOD, "x": [0] * 2_000}), "JSON has more than 1000 values"),
    ],
)
async def test_large_text_is_rejected_before_it_is_parsed(tmp_path: Path, name: str, data: bytes, problem: str) -> None:
    limits = {"lines_max": 1_000, "values_max": 1_000, "item_max_chars": 1_000}

    summary = await import_file(write(tmp_path / name, data), **limits)

    assert problems(summary) == [problem]


async def test_archive_with_too_many_entries_is_rejected_before_they_are_listed(tmp_path: Path) -> None:
    names = (f"vault/{number}-{'x' * 60}.md" for number in range(700))
    path = write(tmp_path / "a.zip", packed(dict.fromkeys(names, "# A")))

    summary = await import_file(path, entries_max=600)

    assert problems(summary) == ["archive: expected at most 600 files (import_max_conversations), got 700"]
