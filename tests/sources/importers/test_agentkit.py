"""AgentKit's database: conversations with their ids, without those deleted there."""

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
from sources.importers.engine.summary import OutcomeCounts
from sources.importers.registry import all_importers, load_importer, select_importer
from tests.sources.importers.chat_files import (
    LIMITS,
    damaged,
    failures,
    imported_conversations,
    json_file,
    message_contents,
    read,
    read_or_reject,
    skip_reasons,
)
from tests.sources.importers.test_chats_in_a_library import import_chats
from tests.sources.importers.test_conversations import AT, conversation, message
from tests.sources.storage.library_fixture import open_library_fixture, total_items
from tests.tiers import examples

IMPORTER = load_importer("agentkit")

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


def test_conversation_keeps_all_fields(tmp_path: Path) -> None:
    events = read(IMPORTER, database(tmp_path / "conversations.db"))
    [chat] = imported_conversations(events)
    assert (chat.draft.uuid, chat.draft.title, chat.draft.namespace) == ("k1", "Parsnip soup", "work")
    assert (chat.draft.session_id, chat.draft.metadata) == ("s-k1", {"mood": "hungry"})
    assert (chat.draft.created_at, chat.draft.last_modified) == ("2025-10-09T19:37:47.783Z", "2025-10-09T19:37:48.123Z")
    question, answer = chat.messages
    assert (question.uuid, question.role, question.content, question.citations) == ("k1-a", "user", "Parsnip soup?", ())
    assert (answer.model, answer.tool, answer.citations) == ("gemini", "web", ({"title": "Soups"},))
    assert answer.created_at == "2025-10-09T19:37:48.123Z"


def test_messages_of_deleted_conversations_are_skipped(tmp_path: Path) -> None:
    events = read(IMPORTER, database(tmp_path / "conversations.db"))
    assert sorted(skip_reasons(events)) == ["conversation without messages", "message of a deleted conversation"]
    assert "A secret." not in message_contents(events)


async def test_database_and_exported_json_give_the_same_conversation(tmp_path: Path) -> None:
    messages = [message("k1-a", "Parsnip soup?"), message("k1-c", "And pepper?", timestamp=LATER)]
    newer = json_file(tmp_path / "k1.json", conversation(messages=messages))
    path = database(tmp_path / "conversations.db")
    async with open_library_fixture(tmp_path / "data") as libraries:
        first, second = await import_chats(libraries, "ada", path), await import_chats(libraries, "ada", path)
        third = await import_chats(libraries, "ada", newer)
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            stored = (await ada.chats.messages("k1", 10, 0)).rows
            assert await total_items(ben) == 0
    assert first.kinds == {"chats": OutcomeCounts(new=1), "messages": OutcomeCounts(new=2)}
    assert second.kinds == {"chats": OutcomeCounts(unchanged=1), "messages": OutcomeCounts(unchanged=2)}
    assert third.kinds["messages"].new == 1
    assert [stored_message.content for stored_message in stored] == ["Parsnip soup?", "With cumin.", "And pepper?"]


def test_failed_row_is_reported_and_the_rest_is_imported(tmp_path: Path) -> None:
    rows = [("a", "k1", "user", "one\0two", *[None] * 4, AT), ("b", "k1", "user", "whole", *[None] * 4, LATER)]
    events = read(IMPORTER, database(tmp_path / "conversations.db", messages=rows))
    assert message_contents(events) == ["whole"]
    assert [location for location, _ in failures(events)] == ["messages, row 1"]


def test_database_is_recognized_by_its_columns(tmp_path: Path) -> None:
    path = database(tmp_path / "anything.sqlite")
    assert select_importer(probe_file(path, LIMITS), all_importers()) is IMPORTER
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE conversations DROP COLUMN namespace")
    assert select_importer(probe_file(path, LIMITS), all_importers()) is None
    with pytest.raises(InvalidParams, match="not an AgentKit database"):
        read(IMPORTER, path)


@cache
def sample() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return database(Path(folder, "a.db")).read_bytes()


@settings(max_examples=examples(20))
@given(damaged(sample()))
def test_damaged_database_is_read_or_rejected(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.db")
        path.write_bytes(data)
        read_or_reject(IMPORTER, path)
        json.dumps(message_contents(read_or_reject(IMPORTER, path)))
