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
from config.settings import Settings
from server.compat.conversation_memory.conversation_paths import find_conversation
from sources.drafts import ObservationDraft
from sources.importers.engine.discovery import find
from sources.importers.engine.ids import observation_id
from sources.importers.engine.import_runner import ImportProgress, OutcomeCounts, limits_of, run_import
from sources.importers.formats.conversation_memory import IMPORTER
from tests.sources.importers.chat_reading import broken, certainty, chats, read, said, skipped, texts
from tests.sources.importers.session_files import observed
from tests.sources.importers.tldw_files import Content, database
from tests.sources.storage.library_fixture import make_search, open_sqlite, total_items

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
        "archive_path, line_start, line_end, parent_uuid, is_sidechain, session_id, cwd, git_branch, claude_version)"
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


def test_observations_come_with_every_field_and_say_that_they_were_imported(tmp_path: Path) -> None:
    arrivals = read(IMPORTER, memory(tmp_path))
    assert observed(arrivals)[0] == ObservationDraft(
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
        conversation_id=str(chats(arrivals)[0].draft.uuid),
        line_start=1,
        line_end=12,
        created_at="2023-11-14T22:13:20.000Z",
    )
    assert skipped(arrivals) == ["an observation without a title", "a summary without text"]


def test_a_summary_keeps_its_parts_under_their_names(tmp_path: Path) -> None:
    summary = observed(read(IMPORTER, memory(tmp_path)))[1]
    assert (summary.type, summary.title) == ("summary", "Fix it.")
    assert summary.narrative == "request: Fix it. Now.\n\nnext steps: Boil"


def test_the_exchanges_of_a_file_are_one_chat_and_its_place_is_nobodys_to_know(tmp_path: Path) -> None:
    arrivals = read(IMPORTER, memory(tmp_path))
    (chat,) = chats(arrivals)
    assert chat.draft.title == "Close the lid."
    assert chat.draft.metadata == {
        "imported_from": "conversation_memory",
        "project": "kettle",
        "session": "s1",
        "git_branch": "main",
    }
    assert [(one.role, one.content) for one in chat.messages] == [
        ("user", "Close the lid. Please."),
        ("tool", "[Bash]\ncommand: ls\n\n[Bash: result]\nlid.py"),
        ("tool", "[Edit]\nraw\n\n[Edit: error]\nno"),
        ("assistant", "Closed."),
        ("user", "And now?"),
    ]
    assert [one.metadata for one in chat.messages][3:] == [
        {"line_start": 1, "line_end": 5},
        {"line_start": 10, "line_end": 12},
    ]
    assert "/home/ada" not in str(arrivals)


@pytest.mark.parametrize("change", [{"session_id": "s2"}, {"session_id": None}, {"line_start": "first"}])
def test_an_observation_of_a_session_that_has_no_exchanges_here_leads_nowhere(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    rows = {**ROWS, "exchanges": [{**ROWS["exchanges"][1], **change}]}

    found = observed(read(IMPORTER, memory(tmp_path, rows)))

    assert {(one.conversation_id, one.line_start) for one in found} == {(UNSET, UNSET)}


def test_of_several_files_of_a_session_the_longest_is_where_it_was_learned(tmp_path: Path) -> None:
    task = {**ROWS["exchanges"][1], "id": "x", "archive_path": "kettle/agent-7.jsonl"}
    arrivals = read(IMPORTER, memory(tmp_path, {**ROWS, "exchanges": [*ROWS["exchanges"], task]}))

    session = next(chat for chat in chats(arrivals) if len(chat.messages) == 5)
    assert {(one.conversation_id, one.line_end) for one in observed(arrivals)} == {(session.draft.uuid, 12)}


async def test_the_path_that_the_plugin_printed_reads_the_conversation_of_its_owner_alone(tmp_path: Path) -> None:
    path = "/home/ada/.archive/kettle/s1.jsonl"
    async with (
        open_sqlite(tmp_path / "data") as libraries,
        libraries.library("ada") as ada,
        libraries.library("ben") as ben,
    ):
        founds = list(find([memory(tmp_path)], limits_of(Settings()), [IMPORTER]))
        await run_import(ada, founds, Settings(), ImportProgress())
        [hit] = (await ada.observations.search(make_search("seal"))).hits
        [learned] = await ada.observations.get_many([str(hit.id)])

        chat = await find_conversation(ada.chats, path)

        assert (chat.id, chat.title) == (learned.conversation_id, "Close the lid.")
        for owner, name in ((ben, path), (ada, path.upper()), (ada, f"{path}\n"), (ada, "kettle/s1.jsonl")):
            with pytest.raises(InvalidParams, match="File not found"):
                await find_conversation(owner.chats, name)


async def test_a_second_import_changes_nothing_and_nobody_else_sees_it(tmp_path: Path) -> None:
    path = memory(tmp_path)
    async with (
        open_sqlite(tmp_path / "data") as libraries,
        libraries.library("ada") as ada,
        libraries.library("ben") as ben,
    ):
        founds = list(find([path], limits_of(Settings()), [IMPORTER]))
        first = await run_import(ada, founds, Settings(), ImportProgress())
        second = await run_import(ada, founds, Settings(), ImportProgress())
        found = await ada.observations.search(make_search("seal"))
        assert await total_items(ben) == 0
    assert (first.kinds["messages"], first.kinds["observations"]) == (OutcomeCounts(new=5), OutcomeCounts(new=2))
    assert (second.kinds["messages"], second.kinds["observations"]) == (
        OutcomeCounts(unchanged=5),
        OutcomeCounts(unchanged=2),
    )
    assert [hit.title for hit in found.hits] == ["The lid leaked"]


def test_a_file_with_tables_of_an_extension_that_is_not_here_is_read(tmp_path: Path) -> None:
    path = memory(tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "INSERT INTO sqlite_master VALUES ('table', 'vec', 'vec', 0, 'CREATE VIRTUAL TABLE vec USING vec0(x)')"
        )
    assert len(observed(read(IMPORTER, path))) == 2


def test_what_cannot_be_kept_is_told_and_the_rest_comes(tmp_path: Path) -> None:
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
    arrivals = read(IMPORTER, memory(tmp_path, rows))
    assert [place for place, _ in broken(arrivals)] == ["observations, row 1", "exchange e1"]
    assert (texts(arrivals), [one.title for one in observed(arrivals)]) == (["fine"], ["y"])


def test_only_its_databases_are_recognised(tmp_path: Path) -> None:
    other = database(tmp_path / "other.db", ["CREATE TABLE observations (id, title)"], {})
    assert [certainty(IMPORTER, path) for path in (memory(tmp_path), other)] == [0.9, 0.0]
    with pytest.raises(InvalidParams, match="expected those of conversation-memory"):
        read(IMPORTER, other)


@settings(max_examples=40, deadline=None)
@given(stored=st.text(st.characters(codec="utf-8"), max_size=100) | st.binary(max_size=50) | st.integers(0, 1 << 62))
def test_any_value_in_any_column_is_read_or_told(stored: Any) -> None:
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
        assert len(said(read(IMPORTER, path))) <= 2
