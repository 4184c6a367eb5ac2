"""Databases of chatGPT-browser, in both of its forms, and files that only look like one."""

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
from sources.importers.formats.chatgpt_browser import IMPORTER
from tests.sources.importers.chat_reading import (
    LIMITS,
    broken,
    certainty,
    chats,
    damaged,
    read,
    read_or_refuse,
    said,
    skipped,
    texts,
)

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


def database(path: Path, schema: Iterable[str], chats: Iterable[tuple[Any, ...]], rows: Iterable[Any] = ()) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in schema:
            connection.execute(statement)
        connection.executemany("INSERT INTO conversations VALUES (?, ?, ?, ?)", chats)
        connection.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, NULL, ?)", rows)
    return path


def parts(*texts: Any) -> str:
    return json.dumps(texts)


def main_database(path: Path) -> Path:
    """A question that was answered twice, in a file where the rows of two conversations alternate."""
    rows = [
        ("q", TEA, "user", parts("Grüner Tee?"), "1700000001.25", "root"),
        ("k", BREAD, "user", parts("Rye?"), "1700000001.5", None),
        ("a", TEA, "assistant", parts("80 degrees.", {"content_type": "image_asset_pointer"}), "1700000002", "q"),
        ("b", TEA, "assistant", parts("70 degrees."), "1700000003", "q"),
        ("s", TEA, "system", parts("Be kind."), "1700000000", None),
        ("c", TEA, "tool", "[]", "1700000004", "b"),
        ("l", "nowhere", "user", parts("lost"), None, None),
    ]
    chats = [(TEA, "1700000000.5", "1700000009", "Tea"), (BREAD, None, None, None), ("empty", None, None, "Empty")]
    database(path, MAIN, chats, rows)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO message_metadata VALUES ('b', 'text', 'gpt-4o')")
    return path


def test_the_main_database_keeps_its_branches_and_its_newest_leaf_is_current(tmp_path: Path) -> None:
    tea, bread = chats(read(IMPORTER, main_database(tmp_path / "chat.db")))
    assert (tea.draft.uuid, tea.draft.title) == (TEA, "Tea")
    assert (tea.draft.created_at, tea.draft.last_modified) == ("2023-11-14T22:13:20.500Z", "2023-11-14T22:13:29.000Z")
    assert [(one.role, one.content, one.is_canonical, one.model) for one in tea.messages] == [
        ("user", "Grüner Tee?", True, None),
        ("assistant", "70 degrees.", True, "gpt-4o"),
        ("assistant", "80 degrees.\n[image]", False, None),
    ]
    question = tea.messages[0].uuid
    assert [one.parent_id for one in tea.messages] == [None, question, question]
    assert tea.messages[0].created_at == "2023-11-14T22:13:21.250Z"
    assert (bread.draft.title, [one.content for one in bread.messages]) == ("", ["Rye?"])


def test_what_says_nothing_is_left_out_and_told(tmp_path: Path) -> None:
    arrivals = read(IMPORTER, main_database(tmp_path / "chat.db"))
    assert sorted(skipped(arrivals)) == [
        "a conversation without messages",
        "a message without its conversation",
        "a system message",
        "an empty message",
    ]
    assert not broken(arrivals)


def test_ids_are_those_that_the_export_itself_gives(tmp_path: Path) -> None:
    path = main_database(tmp_path / "chat.db")
    assert said(read(IMPORTER, path))[0].uuid == message_uuid(TEA, "q")
    assert read(IMPORTER, path) == read(IMPORTER, path)


def test_the_canonical_export_is_read_by_position(tmp_path: Path) -> None:
    rows = [
        ("c", TEA, "user", parts("third"), None, 10),
        ("a", TEA, "user", parts("first"), None, 1),
        ("b", TEA, "assistant", parts("second"), "1700000002", 2),
    ]
    path = database(tmp_path / "canonical-export.db", CANONICAL, [(TEA, "1700000000", None, "Tea")], rows)
    found = said(read(IMPORTER, path))
    assert [(one.content, one.is_canonical) for one in found] == [("first", True), ("second", True), ("third", True)]
    assert [one.parent_id for one in found] == [None, found[0].uuid, found[1].uuid]
    assert [one.created_at for one in found] == [
        "2023-11-14T22:13:20.000Z",
        "2023-11-14T22:13:22.000Z",
        "2023-11-14T22:13:22.000Z",
    ]
    assert certainty(IMPORTER, path) == 0.9


@pytest.mark.parametrize(
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
def test_content_is_plain_text(tmp_path: Path, content: str, text: str) -> None:
    row = ("q", TEA, "user", content, None, None)
    assert texts(read(IMPORTER, database(tmp_path / "a.db", MAIN, [(TEA, None, None, "")], [row]))) == [text]


def test_the_file_and_its_folder_stay_as_they_are(tmp_path: Path) -> None:
    path = main_database(tmp_path / "chat #1?.db")
    before, age = path.read_bytes(), path.stat().st_mtime_ns
    read(IMPORTER, path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, age)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_database_that_is_in_use_is_refused(tmp_path: Path) -> None:
    """Its newest rows stand beside it, and would be missing without a word."""
    path = main_database(tmp_path / "chat.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("UPDATE conversations SET title = 'new'")
        connection.commit()
        with pytest.raises(InvalidParams, match=r"chat\.db-wal lies beside it"):
            read(IMPORTER, path)


def test_a_broken_message_is_told_and_the_rest_arrives(tmp_path: Path) -> None:
    rows = [
        ("q", TEA, "user", parts("N\0L"), None, None),
        ("a", TEA, "assistant", b"\xff\xfe", None, "q"),
        ("b", TEA, "assistant", parts("fine"), None, "q"),
    ]
    arrivals = read(IMPORTER, database(tmp_path / "a.db", MAIN, [(TEA, None, None, "")], rows))
    assert texts(arrivals) == ["fine"]
    assert [place for place, _ in broken(arrivals)] == [f"conversation {TEA}, message q"]
    assert skipped(arrivals) == ["an empty message"]


def test_a_conversation_that_is_too_large_is_told(tmp_path: Path) -> None:
    rows = [(str(number), TEA, "user", "x" * 400, None, None) for number in range(5)]
    rows.append(("z", BREAD, "user", "fine", None, None))
    path = database(tmp_path / "a.db", MAIN, [(TEA, None, None, ""), (BREAD, None, None, "")], rows)
    arrivals = read(IMPORTER, path, replace(LIMITS, line_max_bytes=1_000))
    assert texts(arrivals) == ["fine"]
    assert broken(arrivals) == [(f"conversation {TEA}", "got more than 1000 characters, expected fewer")]


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"


@pytest.mark.parametrize(
    "messages",
    [
        f"CREATE VIEW messages (id, conversation_id, role, content, create_time, parent_id) AS {ENDLESS}",
        "CREATE TABLE messages (id TEXT, conversation_id TEXT)",
        "CREATE VIRTUAL TABLE messages USING fts5(id, conversation_id, role, content, create_time, parent_id)",
    ],
)
def test_tables_that_are_no_such_tables_are_refused(tmp_path: Path, messages: str) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(CONVERSATIONS)
        connection.execute(messages)
    assert certainty(IMPORTER, path) == 0
    with pytest.raises(InvalidParams, match="got other tables"):
        read(IMPORTER, path)


def test_a_file_that_asks_for_more_work_than_its_size_explains_is_refused(tmp_path: Path) -> None:
    """Without its key, one table is gone through once for each row of the other."""
    schema = [statement.replace("message_id TEXT PRIMARY KEY", "message_id TEXT") for statement in MAIN]
    rows = [(str(number), TEA, "user", "x", None, None) for number in range(4_000)]
    path = database(tmp_path / "a.db", schema, [(TEA, None, None, "")], rows)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO message_metadata SELECT 'none', '', '' FROM messages")
    with pytest.raises(InvalidParams, match="more work than its size explains"):
        read(IMPORTER, path)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    assert certainty(IMPORTER, path) == 0
    with pytest.raises(InvalidParams, match="got something that SQLite cannot read"):
        read(IMPORTER, path)


def _sample() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return main_database(Path(folder, "a.db")).read_bytes()


@given(damaged(_sample()) | st.binary(max_size=300))
@settings(max_examples=60)
def test_no_damage_raises_anything_but_a_refusal(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "c.db")
        path.write_bytes(data)
        assert read_or_refuse(IMPORTER, path) == read_or_refuse(IMPORTER, path)
