"""Schemas of tldw databases: columns that every version has, and those that newer versions add."""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_COMMON = "client_id TEXT DEFAULT '1', version INTEGER DEFAULT 1, deleted BOOLEAN DEFAULT 0"
_SYNCED = f"uuid TEXT UNIQUE, last_modified TEXT, prev_version INTEGER, merge_parent_uuid TEXT, {_COMMON}"
_DATED = f"created_at TEXT, last_modified TEXT, {_COMMON}"

CHACHA = (
    f"CREATE TABLE notes (id TEXT PRIMARY KEY, title TEXT, content TEXT, {_DATED})",
    f"CREATE TABLE keywords (id INTEGER PRIMARY KEY, keyword TEXT UNIQUE COLLATE NOCASE, {_DATED})",
    "CREATE TABLE note_keywords (note_id, keyword_id, created_at, PRIMARY KEY (note_id, keyword_id))",
    "CREATE TABLE conversation_keywords (conversation_id, keyword_id, PRIMARY KEY (conversation_id, keyword_id))",
    (
        "CREATE TABLE conversations (id TEXT PRIMARY KEY, root_id TEXT, forked_from_message_id TEXT, "
        f"parent_conversation_id TEXT, character_id INTEGER, title TEXT, rating INTEGER, {_DATED})"
    ),
    (
        "CREATE TABLE messages (id TEXT PRIMARY KEY, conversation_id TEXT, parent_message_id TEXT, sender TEXT, "
        f"content TEXT, image_data BLOB, image_mime_type TEXT, timestamp TEXT, ranking INTEGER, {_COMMON})"
    ),
    "CREATE INDEX messages_in ON messages (conversation_id, timestamp)",
    (
        "CREATE TABLE character_cards (id INTEGER PRIMARY KEY, name TEXT UNIQUE, description, personality, scenario, "
        "system_prompt, image BLOB, post_history_instructions, first_message, message_example, creator_notes, "
        f"alternate_greetings, tags, creator, character_version, extensions, {_DATED})"
    ),
)
NEWER_CHACHA = (
    "ALTER TABLE notes ADD COLUMN conversation_id TEXT",
    "ALTER TABLE notes ADD COLUMN message_id TEXT",
    "ALTER TABLE conversations ADD COLUMN topic_label TEXT",
    "ALTER TABLE conversations ADD COLUMN source TEXT",
    "ALTER TABLE conversations ADD COLUMN external_ref TEXT",
    "CREATE TABLE message_images (message_id, position, image_data BLOB, image_mime_type TEXT)",
    "CREATE TABLE message_metadata (message_id PRIMARY KEY, tool_calls_json TEXT, extra_json TEXT)",
)
MEDIA = (
    (
        "CREATE TABLE Media (id INTEGER PRIMARY KEY, url TEXT UNIQUE, title TEXT, type TEXT, content TEXT, "
        "author, ingestion_date TEXT, transcription_model TEXT, is_trash BOOLEAN DEFAULT 0, vector_embedding BLOB, "
        f"{_SYNCED})"
    ),
    f"CREATE TABLE Keywords (id INTEGER PRIMARY KEY, keyword TEXT UNIQUE COLLATE NOCASE, {_SYNCED})",
    "CREATE TABLE MediaKeywords (id INTEGER PRIMARY KEY, media_id, keyword_id, UNIQUE (media_id, keyword_id))",
    (
        "CREATE TABLE UnvectorizedMediaChunks (id INTEGER PRIMARY KEY, media_id, chunk_text, chunk_index, start_char, "
        f"end_char, chunk_type, {_SYNCED}, UNIQUE (media_id, chunk_index, chunk_type))"
    ),
    f"CREATE TABLE Transcripts (id INTEGER PRIMARY KEY, media_id, whisper_model, transcription, created_at, {_SYNCED})",
    (
        "CREATE TABLE DocumentVersions (id INTEGER PRIMARY KEY, media_id, version_number, prompt, analysis_content, "
        f"content, created_at, {_SYNCED}, UNIQUE (media_id, version_number))"
    ),
)
NEWER_MEDIA = (
    "ALTER TABLE Media ADD COLUMN latest_transcription_run_id INTEGER",
    "ALTER TABLE Transcripts ADD COLUMN transcription_run_id INTEGER",
)
PROMPTS = (
    (
        "CREATE TABLE Prompts (id INTEGER PRIMARY KEY, name TEXT UNIQUE, author, details, system_prompt, user_prompt, "
        f"{_SYNCED})"
    ),
    f"CREATE TABLE PromptKeywordsTable (id INTEGER PRIMARY KEY, keyword TEXT UNIQUE COLLATE NOCASE, {_SYNCED})",
    "CREATE TABLE PromptKeywordLinks (id INTEGER PRIMARY KEY, prompt_id, keyword_id, UNIQUE (prompt_id, keyword_id))",
)
SYNC_LOG = (
    "CREATE TABLE sync_log (change_id INTEGER PRIMARY KEY AUTOINCREMENT, entity TEXT, entity_id TEXT, operation TEXT, "
    "timestamp TEXT, client_id TEXT, version INTEGER, payload TEXT)"
)
Content = Mapping[str, Sequence[Mapping[str, Any]]]


def database(path: Path, schema: Sequence[str], content: Content) -> Path:
    """Creates a file with the given rows by table."""
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    with connection:
        for statement in schema:
            connection.execute(statement)
        for table, rows in content.items():
            for row in rows:
                marks = ", ".join("?" for _ in row)
                connection.execute(
                    f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})",
                    tuple(row.values()),
                )
    connection.close()
    return path
