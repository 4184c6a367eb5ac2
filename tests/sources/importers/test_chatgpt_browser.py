"""Databases of chatGPT-browser in both forms, and databases that only resemble them."""

import json
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.importers.formats.chatgpt import message_uuid
from sources.importers.registry import load_importer
from tests.cases import each_case
from tests.sources.importers.chat_files import (
    LIMITS,
    confidence,
    damaged,
    failures,
    imported_conversations,
    imported_messages,
    message_contents,
    read,
    read_or_reject,
    skip_reasons,
)
from tests.tiers import examples

IMPORTER = load_importer("chatgpt_browser")

TEA = "6a1f0c52-7d0e-4b57-9d0a-0f3f1f0c9a01"
BREAD = "6a1f0c52-7d0e-4b57-9d0a-0f3f1f0c9a02"
CONVERSATIONS = "CREATE TABLE conversations (id TEXT PRIMARY KEY, create_time TEXT, update_time TEXT, title TEXT)"
COLUMNS = "id TEXT PRIMARY KEY, conversation_id TEXT, role TEXT, content TEXT, create_time TEXT, update_time TEXT"
MAIN = (
    CONVERSATIONS,
    f"CREATE TABLE messages ({COLUMNS}, parent_id TEXT)",
    "CREATE TABLE message_metadata (message_id TEXT PRIMARY KEY, message_type TEXT, model_slug TEXT)",
    "CREATE TABLE message_children (parent_id TEXT, child_id TEXT, PRIMARY KEY (parent_id, child_id))",
)
CANONICAL = (CONVERSATIONS, f"CREATE TABLE messages ({COLUMNS}, position INTEGER)")


def database(
    path: Path, schema: Iterable[str], conversations: Iterable[tuple[Any, ...]], rows: Iterable[Any] = ()
) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in schema:
            connection.execute(statement)
        connection.executemany("INSERT INTO conversations VALUES (?, ?, ?, ?)", conversations)
        connection.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, NULL, ?)", rows)
    return path


def parts(*values: Any) -> str:
    return json.dumps(values)


def main_database(path: Path) -> Path:
    """A question with two answers, in a file where the rows of two conversations alternate."""
    rows = [
        ("q", TEA, "user", parts("Grüner Tee?"), "1700000001.25", "root"),
        ("k", BREAD, "user", parts("Rye?"), "1700000001.5", None),
        ("a", TEA, "assistant", parts("80 degrees.", {"content_type": "image_asset_pointer"}), "1700000002", "q"),
        ("b", TEA, "assistant", parts("70 degrees."), "1700000003", "q"),
        ("s", TEA, "system", parts("Be kind."), "1700000000", None),
        ("c", TEA, "tool", "[]", "1700000004", "b"),
        ("l", "nowhere", "user", parts("lost"), None, None),
    ]
    conversations = [
        (TEA, "1700000000.5", "1700000009", "Tea"),
        (BREAD, None, None, None),
        ("empty", None, None, "Empty"),
    ]
    database(path, MAIN, conversations, rows)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO message_metadata VALUES ('b', 'text', 'gpt-4o')")
    return path


@each_case(("role", "imported"), [("", ""), (None, ""), ("critic", "tool")])
def test_message_without_a_role_is_not_attributed_to_a_tool(tmp_path: Path, role: str | None, imported: str) -> None:
    path = database(tmp_path / "c.db", CANONICAL, [(TEA, 1, 1, "Tea")], [("a", TEA, role, parts("Tea?"), 1, 0)])

    [message] = imported_messages(read(IMPORTER, path))

    assert message.role == imported


def test_branches_are_kept_and_the_newest_leaf_is_canonical(tmp_path: Path) -> None:
    tea, bread = imported_conversations(read(IMPORTER, main_database(tmp_path / "chat.db")))
    assert (tea.draft.uuid, tea.draft.title) == (TEA, "Tea")
    assert (tea.draft.created_at, tea.draft.last_modified) == ("2023-11-14T22:13:20.500Z", "2023-11-14T22:13:29.000Z")
    assert [(message.role, message.content, message.is_canonical, message.model) for message in tea.messages] == [
        ("user", "Grüner Tee?", True, None),
        ("assistant", "70 degrees.", True, "gpt-4o"),
        ("assistant", "80 degrees.\n[image]", False, None),
    ]
    question = tea.messages[0].uuid
    assert [message.parent_id for message in tea.messages] == [None, question, question]
    assert tea.messages[0].created_at == "2023-11-14T22:13:21.250Z"
    assert (bread.draft.title, [message.content for message in bread.messages]) == ("", ["Rye?"])


def test_empty_and_orphaned_messages_are_skipped_and_reported(tmp_path: Path) -> None:
    events = read(IMPORTER, main_database(tmp_path / "chat.db"))
    assert sorted(skip_reasons(events)) == [
        "conversation without messages",
        "empty message",
        "message without a conversation",
        "system message",
    ]
    assert not failures(events)


def test_ids_are_the_same_as_in_the_chatgpt_export(tmp_path: Path) -> None:
    path = main_database(tmp_path / "chat.db")
    assert imported_messages(read(IMPORTER, path))[0].uuid == message_uuid(TEA, "q")
    assert read(IMPORTER, path) == read(IMPORTER, path)


def test_canonical_export_is_read_by_position(tmp_path: Path) -> None:
    rows = [
        ("c", TEA, "user", parts("third"), None, 10),
        ("a", TEA, "user", parts("first"), None, 1),
        ("b", TEA, "assistant", parts("second"), "1700000002", 2),
    ]
    path = database(tmp_path / "canonical-export.db", CANONICAL, [(TEA, "1700000000", None, "Tea")], rows)
    messages = imported_messages(read(IMPORTER, path))
    assert [(message.content, message.is_canonical) for message in messages] == [
        ("first", True),
        ("second", True),
        ("third", True),
    ]
    assert [message.parent_id for message in messages] == [None, messages[0].uuid, messages[1].uuid]
    assert [message.created_at for message in messages] == [
        "2023-11-14T22:13:20.000Z",
        "2023-11-14T22:13:22.000Z",
        "2023-11-14T22:13:22.000Z",
    ]
    assert confidence(IMPORTER, path) == 0.9


@each_case(
    ("content", "text"),
    [
        ("plain text", "plain text"),
        ("[not json", "[not json"),
        ("[1, 2]", "[1, 2]"),
        (parts("a", "b"), "a\nb"),
        (parts({"type": "text", "text": "typed"}), "typed"),
        ("[" * 5000, "[" * 5000),
    ],
)
def test_content_becomes_plain_text(tmp_path: Path, content: str, text: str) -> None:
    row = ("q", TEA, "user", content, None, None)
    assert message_contents(read(IMPORTER, database(tmp_path / "a.db", MAIN, [(TEA, None, None, "")], [row]))) == [text]


def test_file_and_folder_are_not_modified(tmp_path: Path) -> None:
    path = main_database(tmp_path / "chat #1?.db")
    before, modified = path.read_bytes(), path.stat().st_mtime_ns
    read(IMPORTER, path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, modified)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_database_in_use_is_rejected(tmp_path: Path) -> None:
    """Its newest rows are in the WAL file and would be missing without notice."""
    path = main_database(tmp_path / "chat.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("UPDATE conversations SET title = 'new'")
        connection.commit()
        with pytest.raises(InvalidParams, match=r"database is in use \(chat\.db-wal exists\)"):
            read(IMPORTER, path)


def test_failed_message_is_reported_and_the_rest_is_imported(tmp_path: Path) -> None:
    rows = [
        ("q", TEA, "user", parts("N\0L"), None, None),
        ("a", TEA, "assistant", b"\xff\xfe", None, "q"),
        ("b", TEA, "assistant", parts("fine"), None, "q"),
    ]
    events = read(IMPORTER, database(tmp_path / "a.db", MAIN, [(TEA, None, None, "")], rows))
    assert message_contents(events) == ["fine"]
    assert [location for location, _ in failures(events)] == [f"conversation {TEA}, message q"]
    assert skip_reasons(events) == ["empty message"]


def test_oversized_conversation_is_reported(tmp_path: Path) -> None:
    rows = [(str(number), TEA, "user", "x" * 400, None, None) for number in range(5)]
    rows.append(("z", BREAD, "user", "fine", None, None))
    path = database(tmp_path / "a.db", MAIN, [(TEA, None, None, ""), (BREAD, None, None, "")], rows)
    events = read(IMPORTER, path, replace(LIMITS, line_max_bytes=1_000))
    assert message_contents(events) == ["fine"]
    assert failures(events) == [(f"conversation {TEA}", "conversation is longer than 1000 characters")]


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"


@each_case(
    "create_messages",
    [
        f"CREATE VIEW messages (id, conversation_id, role, content, create_time, parent_id) AS {ENDLESS}",
        "CREATE TABLE messages (id TEXT, conversation_id TEXT)",
        "CREATE VIRTUAL TABLE messages USING fts5(id, conversation_id, role, content, create_time, parent_id)",
    ],
)
def test_database_without_the_expected_tables_is_rejected(tmp_path: Path, create_messages: str) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(CONVERSATIONS)
        connection.execute(create_messages)
    assert confidence(IMPORTER, path) == 0
    with pytest.raises(InvalidParams, match="not a chatGPT-browser database"):
        read(IMPORTER, path)


def test_database_that_takes_excessive_work_is_rejected(tmp_path: Path) -> None:
    """Without its key, one table is scanned once for each row of the other."""
    schema = [statement.replace("message_id TEXT PRIMARY KEY", "message_id TEXT") for statement in MAIN]
    rows = [(str(number), TEA, "user", "x", None, None) for number in range(4_000)]
    path = database(tmp_path / "a.db", schema, [(TEA, None, None, "")], rows)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO message_metadata SELECT 'none', '', '' FROM messages")
    with pytest.raises(InvalidParams, match="more work to read than its size explains"):
        read(IMPORTER, path)


def test_file_that_is_not_a_database_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    assert confidence(IMPORTER, path) == 0
    with pytest.raises(InvalidParams, match="database cannot be read by SQLite"):
        read(IMPORTER, path)


def _sample() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return main_database(Path(folder, "a.db")).read_bytes()


@given(damaged(_sample()) | st.binary(max_size=300))
@settings(max_examples=examples(30))
def test_damaged_database_is_read_or_rejected(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "c.db")
        path.write_bytes(data)
        assert read_or_reject(IMPORTER, path) == read_or_reject(IMPORTER, path)
