"""AgentKit's database: its conversations with their ids, and nothing that was deleted there."""

import json
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from config.errors import InvalidParams
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.import_runner import OutcomeCounts
from sources.importers.formats.agentkit import IMPORTER
from sources.importers.registry import importers, select_importer
from tests.sources.importers.chat_reading import (
    LIMITS,
    broken,
    chats,
    damaged,
    json_file,
    read,
    read_or_refuse,
    skipped,
    texts,
)
from tests.sources.importers.test_chats_in_a_library import take
from tests.sources.importers.test_conversations import AT, conversation, message
from tests.sources.storage.library_fixture import open_sqlite, total_items

SCHEMA = """
    CREATE TABLE conversations (
        id TEXT PRIMARY KEY, title TEXT NOT NULL, namespace TEXT NOT NULL DEFAULT 'default',
        session_id TEXT UNIQUE NOT NULL, created_at TIMESTAMP NOT NULL, updated_at TIMESTAMP NOT NULL,
        message_count INTEGER DEFAULT 0, metadata TEXT
    );
    CREATE TABLE messages (
        id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT NOT NULL, model TEXT,
        tool_used TEXT, attachments TEXT, citations TEXT, timestamp TIMESTAMP NOT NULL
    );
"""
LATER = "2025-10-09T19:37:48.123456+00:00"
CONVERSATIONS = (
    ("k1", "Parsnip soup", "work", "s-k1", AT, LATER, 2, '{"mood": "hungry"}'),
    ("k2", "Silence", "default", "s-k2", AT, AT, 0, None),
)
MESSAGES = (
    ("k1-b", "k1", "assistant", "With cumin.", "gemini", "web", "[]", '[{"title": "Soups"}]', LATER),
    ("gone", "deleted", "user", "A secret.", None, None, None, None, AT),
    ("k1-a", "k1", "user", "Parsnip soup?", None, None, None, "not json", AT),
)


def database(path: Path, conversations: Iterable[Any] = CONVERSATIONS, messages: Iterable[Any] = MESSAGES) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(SCHEMA)
        connection.executemany(f"INSERT INTO conversations VALUES ({', '.join('?' * 8)})", conversations)
        connection.executemany(f"INSERT INTO messages VALUES ({', '.join('?' * 9)})", messages)
    return path


def test_a_conversation_keeps_all_that_agentkit_knows_of_it(tmp_path: Path) -> None:
    found = read(IMPORTER, database(tmp_path / "conversations.db"))
    [chat] = chats(found)
    assert (chat.draft.uuid, chat.draft.title, chat.draft.namespace) == ("k1", "Parsnip soup", "work")
    assert (chat.draft.session_id, chat.draft.metadata) == ("s-k1", {"mood": "hungry"})
    assert (chat.draft.created_at, chat.draft.last_modified) == ("2025-10-09T19:37:47.783Z", "2025-10-09T19:37:48.123Z")
    asked, answered = chat.messages
    assert (asked.uuid, asked.role, asked.content, asked.citations) == ("k1-a", "user", "Parsnip soup?", ())
    assert (answered.model, answered.tool, answered.citations) == ("gemini", "web", ({"title": "Soups"},))
    assert answered.created_at == "2025-10-09T19:37:48.123Z"


def test_messages_of_deleted_conversations_stay_out_and_are_counted(tmp_path: Path) -> None:
    found = read(IMPORTER, database(tmp_path / "conversations.db"))
    assert sorted(skipped(found)) == ["a conversation without messages", "a message of a deleted conversation"]
    assert "A secret." not in texts(found)


async def test_the_database_and_the_exported_json_are_the_same_conversation(tmp_path: Path) -> None:
    said = [message("k1-a", "Parsnip soup?"), message("k1-c", "And pepper?", timestamp=LATER)]
    newer = json_file(tmp_path / "k1.json", conversation(messages=said))
    path = database(tmp_path / "conversations.db")
    async with open_sqlite(tmp_path / "data") as libraries:
        first, again = await take(libraries, "ada", path), await take(libraries, "ada", path)
        third = await take(libraries, "ada", newer)
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            kept = (await ada.chats.messages("k1", 10, 0)).rows
            assert await total_items(ben) == 0
    assert first.kinds == {"chats": OutcomeCounts(new=1), "messages": OutcomeCounts(new=2)}
    assert again.kinds == {"chats": OutcomeCounts(unchanged=1), "messages": OutcomeCounts(unchanged=2)}
    assert third.kinds["messages"].new == 1
    assert [one.content for one in kept] == ["Parsnip soup?", "With cumin.", "And pepper?"]


def test_a_row_that_cannot_be_kept_is_told_and_the_rest_comes(tmp_path: Path) -> None:
    rows = [("a", "k1", "user", "one\0two", *[None] * 4, AT), ("b", "k1", "user", "whole", *[None] * 4, LATER)]
    found = read(IMPORTER, database(tmp_path / "conversations.db", messages=rows))
    assert texts(found) == ["whole"]
    assert [place for place, _ in broken(found)] == ["messages, row 1"]


def test_it_is_known_by_its_columns_and_not_by_its_name(tmp_path: Path) -> None:
    path = database(tmp_path / "anything.sqlite")
    assert select_importer(probe_file(path, LIMITS), importers()) is IMPORTER
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE conversations DROP COLUMN namespace")
    assert select_importer(probe_file(path, LIMITS), importers()) is None
    with pytest.raises(InvalidParams, match="expected those of AgentKit"):
        read(IMPORTER, path)


@cache
def sample() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return database(Path(folder, "a.db")).read_bytes()


@settings(max_examples=40)
@given(damaged(sample()))
def test_a_damaged_database_is_refused_or_read_as_far_as_it_goes(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.db")
        path.write_bytes(data)
        read_or_refuse(IMPORTER, path)
        json.dumps(texts(read_or_refuse(IMPORTER, path)))
