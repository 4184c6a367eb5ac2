"""The database of the conversation-memory plugin: observations, summaries, and exchanges as chats."""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from config.errors import InvalidParams
from server.compat.conversation_memory.responses import find_conversation
from sources.drafts import ObservationDraft
from sources.importers.engine.events import observation_id
from sources.importers.engine.summary import OutcomeCounts
from sources.importers.registry import load_importer
from tests.cases import each_case
from tests.sources.importers.chat_files import (
    confidence,
    failures,
    imported_conversations,
    imported_messages,
    message_contents,
    read,
    skip_reasons,
)
from tests.sources.importers.session_files import imported_observations
from tests.sources.importers.single_files import import_here
from tests.sources.importers.tldw_files import Content, database
from tests.sources.storage.library_fixture import make_search, open_library_fixture, total_items
from tests.tiers import examples

IMPORTER = load_importer("conversation_memory")

SCHEMA = (
    (
        "CREATE TABLE observations (id TEXT PRIMARY KEY, session_id, project, prompt_number, timestamp INTEGER, type, "
        "title, subtitle, narrative, facts, concepts, files_read, files_modified, tool_name, created_at)"
    ),
    (
        "CREATE TABLE session_summaries (id PRIMARY KEY, session_id, project, request, investigated, learned, "
        "completed, next_steps, notes, created_at)"
    ),
    (
        "CREATE TABLE exchanges (id TEXT PRIMARY KEY, project, timestamp, user_message, assistant_message, "
        "archive_path, line_start, line_end, parent_uuid, is_sidechain, session_id, cwd, git_branch, claude_version, "
        "compressed_tool_summary)"
    ),
    "CREATE TABLE tool_calls (id, exchange_id, tool_name, tool_input, tool_result, is_error, timestamp)",
)
ROWS: dict[str, list[dict[str, Any]]] = {
    "observations": [
        {
            "id": "1700000000000-ab12",
            "session_id": "s1",
            "project": "kettle",
            "timestamp": 1_700_000_000_000,
            "type": "bugfix",
            "title": "The lid leaked",
            "subtitle": "In the kitchen",
            "narrative": "The seal was old.",
            "facts": '["seal from 2019"]',
            "concepts": '["sealing", 7]',
            "files_read": '["lid.py"]',
            "files_modified": "[]",
            "tool_name": "Edit",
        },
        {"id": "2", "title": ""},
    ],
    "session_summaries": [
        {"id": 1, "session_id": "s1", "project": "kettle", "request": "Fix it. Now.", "next_steps": "Boil"},
        {"id": 2},
    ],
    "exchanges": [
        {
            "id": "e2",
            "timestamp": "2026-11-15T08:05:00Z",
            "user_message": "And now?",
            "assistant_message": "",
            "archive_path": "/home/ada/.archive/kettle/s1.jsonl",
            "line_start": 10,
            "line_end": 12,
            "session_id": "s1",
            "compressed_tool_summary": "Read: lid.py",
        },
        {
            "id": "f1",
            "project": "kettle",
            "timestamp": "2026-11-15T08:00:00Z",
            "user_message": "Close the lid. Please.",
            "assistant_message": "Closed.",
            "archive_path": "/home/ada/.archive/kettle/s1.jsonl",
            "line_start": 1,
            "line_end": 5,
            "session_id": "s1",
            "git_branch": "main",
            "compressed_tool_summary": "Bash: ls | Edit: raw",
        },
    ],
    "tool_calls": [
        {
            "id": "t1",
            "exchange_id": "f1",
            "tool_name": "Bash",
            "tool_input": '{"command": "ls"}',
            "tool_result": "lid.py",
            "is_error": 0,
        },
        {"id": "t2", "exchange_id": "f1", "tool_name": "Edit", "tool_input": "raw", "tool_result": "no", "is_error": 1},
    ],
}


def memory(path: Path, content: Content = ROWS) -> Path:
    return database(path / "conversations.db", SCHEMA, content)


def test_observations_keep_every_field_and_are_marked_as_imported(tmp_path: Path) -> None:
    events = read(IMPORTER, memory(tmp_path))
    assert imported_observations(events)[0] == ObservationDraft(
        uuid=observation_id("imported", "1700000000000-ab12"),
        type="bugfix",
        title="The lid leaked",
        subtitle="In the kitchen",
        narrative="The seal was old.",
        facts=("seal from 2019",),
        concepts=("sealing",),
        files_read=("lid.py",),
        files_modified=(),
        project="kettle",
        session_id="s1",
        origin="imported",
        metadata={"imported_from": "conversation_memory", "tool": "Edit"},
        conversation_id=str(imported_conversations(events)[0].draft.uuid),
        line_start=1,
        line_end=12,
        created_at="2023-11-14T22:13:20.000Z",
    )
    assert skip_reasons(events) == ["observation without a title", "summary without text"]


def test_summary_keeps_its_parts_with_their_names(tmp_path: Path) -> None:
    summary = imported_observations(read(IMPORTER, memory(tmp_path)))[1]
    assert (summary.type, summary.title) == ("summary", "Fix it.")
    assert summary.narrative == "request: Fix it. Now.\n\nnext steps: Boil"


def test_exchanges_of_a_file_become_one_chat_without_its_path(tmp_path: Path) -> None:
    events = read(IMPORTER, memory(tmp_path))
    (chat,) = imported_conversations(events)
    assert chat.draft.title == "Close the lid."
    assert chat.draft.metadata == {
        "imported_from": "conversation_memory",
        "project": "kettle",
        "session": "s1",
        "git_branch": "main",
    }
    assert [(message.role, message.content) for message in chat.messages] == [
        ("user", "Close the lid. Please."),
        ("tool", "[Bash]\ncommand: ls\n\n[Bash: result]\nlid.py"),
        ("tool", "[Edit]\nraw\n\n[Edit: error]\nno"),
        ("assistant", "Closed."),
        ("user", "And now?"),
        # The calls themselves were not stored.
        ("tool", "Read: lid.py"),
    ]
    assert [message.metadata for message in chat.messages][3:5] == [
        {"line_start": 1, "line_end": 5},
        {"line_start": 10, "line_end": 12},
    ]
    assert "/home/ada" not in str(events)


@each_case("change", [{"session_id": "s2"}, {"session_id": None}, {"line_start": "first"}])
def test_observation_of_a_session_without_exchanges_has_no_conversation(tmp_path: Path, change: dict[str, Any]) -> None:
    rows = {**ROWS, "exchanges": [{**ROWS["exchanges"][1], **change}]}

    drafts = imported_observations(read(IMPORTER, memory(tmp_path, rows)))

    assert {(draft.conversation_id, draft.line_start) for draft in drafts} == {(UNSET, UNSET)}


def test_longest_file_of_a_session_is_the_conversation_of_its_observations(tmp_path: Path) -> None:
    task = {**ROWS["exchanges"][1], "id": "x", "archive_path": "kettle/agent-7.jsonl"}
    events = read(IMPORTER, memory(tmp_path, {**ROWS, "exchanges": [*ROWS["exchanges"], task]}))

    session = next(chat for chat in imported_conversations(events) if len(chat.messages) == 6)
    drafts = imported_observations(events)
    assert {(draft.conversation_id, draft.line_end) for draft in drafts} == {(session.draft.uuid, 12)}


async def test_path_printed_by_the_plugin_finds_the_conversation_for_its_owner_only(tmp_path: Path) -> None:
    path = "/home/ada/.archive/kettle/s1.jsonl"
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        libraries.library("ada") as ada,
        libraries.library("ben") as ben,
    ):
        await import_here(ada, memory(tmp_path), importers=[IMPORTER])
        [hit] = (await ada.observations.search(make_search("seal"))).hits
        [observation] = await ada.observations.get_many([str(hit.id)])

        chat = await find_conversation(ada.chats, path)

        assert (chat.id, chat.title) == (observation.conversation_id, "Close the lid.")
        for owner, name in ((ben, path), (ada, path.upper()), (ada, f"{path}\n"), (ada, "kettle/s1.jsonl")):
            with pytest.raises(InvalidParams, match="File not found"):
                await find_conversation(owner.chats, name)


async def test_second_import_changes_nothing_and_other_users_see_nothing(tmp_path: Path) -> None:
    path = memory(tmp_path)
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        libraries.library("ada") as ada,
        libraries.library("ben") as ben,
    ):
        first, second = [await import_here(ada, path, importers=[IMPORTER]) for _ in range(2)]
        hits = (await ada.observations.search(make_search("seal"))).hits
        assert await total_items(ben) == 0
    assert (first.kinds["messages"], first.kinds["observations"]) == (OutcomeCounts(new=6), OutcomeCounts(new=2))
    assert (second.kinds["messages"], second.kinds["observations"]) == (
        OutcomeCounts(unchanged=6),
        OutcomeCounts(unchanged=2),
    )
    assert [hit.title for hit in hits] == ["The lid leaked"]


def test_tables_of_an_unavailable_extension_are_ignored(tmp_path: Path) -> None:
    path = memory(tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "INSERT INTO sqlite_master VALUES ('table', 'vec', 'vec', 0, 'CREATE VIRTUAL TABLE vec USING vec0(x)')"
        )
    assert len(imported_observations(read(IMPORTER, path))) == 2


def test_failed_rows_are_reported_and_the_rest_is_imported(tmp_path: Path) -> None:
    rows: Content = {
        "observations": [
            {"id": "1", "title": "x", "narrative": "a\0b"},
            {"id": "2", "title": "y", "facts": "[" * 9_000},
        ],
        "exchanges": [
            {"id": "e1", "user_message": "a\0b", "archive_path": "p", "line_start": 1},
            {"id": "e2", "user_message": "fine", "archive_path": "p", "line_start": "x"},
        ],
    }
    events = read(IMPORTER, memory(tmp_path, rows))
    assert [location for location, _ in failures(events)] == ["observations, row 1", "exchange e1"]
    assert (message_contents(events), [draft.title for draft in imported_observations(events)]) == (["fine"], ["y"])


def test_only_conversation_memory_databases_are_recognized(tmp_path: Path) -> None:
    other = database(tmp_path / "other.db", ["CREATE TABLE observations (id, title)"], {})
    assert [confidence(IMPORTER, path) for path in (memory(tmp_path), other)] == [0.9, 0.0]
    with pytest.raises(InvalidParams, match="not a conversation-memory database"):
        read(IMPORTER, other)


@settings(max_examples=examples(20))
@given(stored=st.text(st.characters(codec="utf-8"), max_size=100) | st.binary(max_size=50) | st.integers(0, 1 << 62))
def test_unexpected_values_in_any_column_are_tolerated(stored: Any) -> None:
    names = ("id", "session_id", "project", "timestamp", "title", "narrative", "facts", "files_read")
    exchange: dict[str, Any] = dict.fromkeys(
        ("id", "timestamp", "user_message", "archive_path", "line_start", "session_id"), stored
    )
    rows: Content = {
        "observations": [dict.fromkeys(names, stored)],
        "exchanges": [exchange],
        "tool_calls": [{"exchange_id": stored, "tool_input": stored, "tool_result": stored}],
    }
    with TemporaryDirectory() as folder:
        path = memory(Path(folder), rows)
        assert read(IMPORTER, path) == read(IMPORTER, path)
        assert len(imported_messages(read(IMPORTER, path))) <= 2
