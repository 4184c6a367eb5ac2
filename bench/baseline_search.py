"""The SQL baseline of a search: one statement per source that matches, joins, orders by bm25 and limits.

It uses the columns and weights of our own search, but does not score, group, count or truncate anything.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiosqlite
from msgspec import Struct

from config.paths import DatabasePaths
from config.settings import Settings
from sources.query import parse
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.search.fts5_engine import match_text

_NOTES = """
    SELECT r.uuid, r.title, r.content, r.tags, r.created_at, r.last_modified, r.version, r.content_hash
    FROM notes_index JOIN notes r ON r.id = notes_index.rowid
    WHERE notes_index MATCH ? AND r.deleted = 0
    ORDER BY bm25(notes_index, 2.0, 1.0) LIMIT ?
"""
_MEDIA = """
    SELECT r.id, r.title, c.text, r.tags, r.created_at, r.last_modified, r.version, r.content_hash, r.media_type, r.url,
        r.length_chars, c.uuid, c.id, c.start_ms
    FROM media_index JOIN chunks c ON c.id = media_index.rowid JOIN media r ON r.id = c.id >> 20
    WHERE media_index MATCH ? AND r.deleted = 0
    ORDER BY bm25(media_index, 2.0, 1.0) LIMIT ?
"""
_CHATS = """
    SELECT c.uuid, c.title, c.tags, r.uuid, r.content, r.created_at, r.last_modified, r.version, r.content_hash,
        r.position, r.sender, r.role
    FROM chats_index JOIN messages r ON r.id = chats_index.rowid JOIN conversations c ON c.id = r.conversation_id
    WHERE chats_index MATCH ? AND r.deleted = 0 AND c.deleted = 0
    ORDER BY bm25(chats_index, 3.0, 3.0, 1.0) LIMIT ?
"""
_CHARACTERS = """
    SELECT r.id, r.name, r.description, r.personality, r.scenario, r.first_message, r.message_example, r.system_prompt,
        r.tags, r.created_at, r.last_modified, r.version, r.content_hash
    FROM characters_index JOIN characters r ON r.id = characters_index.rowid
    WHERE characters_index MATCH ? AND r.deleted = 0
    ORDER BY bm25(characters_index, 2.0, 1.0) LIMIT ?
"""
_PROMPTS = """
    SELECT r.id, r.name, r.author, r.details, r.system_prompt, r.user_prompt, r.tags, r.created_at, r.last_modified,
        r.version, r.content_hash
    FROM prompts_index JOIN prompts r ON r.id = prompts_index.rowid
    WHERE prompts_index MATCH ? AND r.deleted = 0
    ORDER BY bm25(prompts_index, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0) LIMIT ?
"""


class Statement(Struct, frozen=True):
    """`file` contains the source; `title` is the column of its index that contains titles."""

    file: str
    title: str
    sql: str


STATEMENTS: Mapping[str, Statement] = {
    "notes": Statement("chacha", "title", _NOTES),
    "media": Statement("media", "title", _MEDIA),
    "chats": Statement("chacha", "title", _CHATS),
    "characters": Statement("chacha", "name", _CHARACTERS),
    "prompts": Statement("prompts", "name", _PROMPTS),
}


class BaselineSearch:
    """The files of one user, each with a connection of the same kind as those of our own readers."""

    def __init__(self, connections: Mapping[str, aiosqlite.Connection]) -> None:
        self._connections = connections

    def match(self, source: str, query: str) -> str:
        """Returns the MATCH expression of our own search. It is parsed here, so that our search has nothing cached."""
        expression = parse(query).expression
        assert expression is not None
        return match_text(expression, STATEMENTS[source].title)

    async def rows(self, source: str, match: str, limit: int) -> Sequence[Any]:
        """Fetches the rows with one call to the connection's thread."""
        statement = STATEMENTS[source]
        return list(await self._connections[statement.file].execute_fetchall(statement.sql, (match, limit)))


@asynccontextmanager
async def open_baseline(paths: DatabasePaths, settings: Settings) -> AsyncIterator[BaselineSearch]:
    files = {"chacha": paths.chacha, "media": paths.media, "prompts": paths.prompts}
    async with AsyncExitStack() as stack:
        connections = {name: await stack.enter_async_context(_connect(path)) for name, path in files.items()}
        for connection in connections.values():
            await connection.execute(f"PRAGMA cache_size = -{settings.library_cache_kib}")
            await connection.execute("PRAGMA query_only = ON")
        yield BaselineSearch(connections)


def _connect(path: Path) -> aiosqlite.Connection:
    return aiosqlite.connect(path, factory=JobConnection, isolation_level=None, cached_statements=256)
