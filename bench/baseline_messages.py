"""The SQL baseline of the message benchmark: one statement per request, using the best index, that fetches its rows.

It does not format, escape or explain anything.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiosqlite

from sources.storage.sqlite.connection.connection import JobConnection

_COLUMNS = "m.uuid, m.content, c.uuid, c.title, m.sender, m.role, m.id, m.created_at, m.metadata"
_SNIPPET = "snippet(exact_index, 0, '<mark>', '</mark>', '…', 20)"
_FULL_TEXT = f"""
    SELECT {_COLUMNS}, {_SNIPPET} FROM exact_index JOIN messages m ON m.id = exact_index.rowid
        JOIN conversations c ON c.id = m.conversation_id
    WHERE exact_index MATCH :words ORDER BY {{order}} LIMIT :limit
"""
_LIVE = "m.deleted = 0 AND c.deleted = 0"
_TRIGRAM_MATCHES = "SELECT {number} FROM substring_index WHERE substring_index MATCH :trigrams AND {number} > 0"
_NEWEST = "ORDER BY m.created_at DESC, m.id DESC LIMIT :limit"
_SUBSTRING_BY_INDEX = f"""
    SELECT {_COLUMNS} FROM messages m JOIN conversations c ON c.id = m.conversation_id
    WHERE (m.id IN ({_TRIGRAM_MATCHES.format(number="rowid")}) AND m.content LIKE :text
        OR m.conversation_id IN ({_TRIGRAM_MATCHES.format(number="-rowid")}) AND c.title LIKE :text)
        AND {_LIVE} AND {{condition}} {_NEWEST}
"""
_SUBSTRING_BY_TIME = f"""
    SELECT {_COLUMNS} FROM messages m INDEXED BY messages_by_time JOIN conversations c ON c.id = m.conversation_id
    WHERE (m.content LIKE :text OR c.title LIKE :text) AND {_LIVE} AND {{condition}} {_NEWEST}
"""
_LIST = """
    SELECT c.uuid, c.session_id, c.title, c.namespace, c.created_at, c.last_modified, c.metadata,
        (SELECT count(*) FROM messages m WHERE m.conversation_id = c.id AND m.deleted = 0),
        (SELECT count(*) FROM conversations WHERE deleted = 0)
    FROM conversations c WHERE c.deleted = 0 ORDER BY c.last_modified DESC, c.id DESC LIMIT :limit OFFSET :offset
"""
_ROLE = "m.role = :role"
_DATES = "m.created_at BETWEEN :start AND :end"

STATEMENTS: Mapping[str, str] = {
    "full text": _FULL_TEXT.format(order="exact_index.rank"),
    "full text, newest": _FULL_TEXT.format(order="exact_index.rowid DESC"),
    "substring": _SUBSTRING_BY_INDEX.format(condition="TRUE"),
    "substring, role": _SUBSTRING_BY_INDEX.format(condition=_ROLE),
    "substring, dates": _SUBSTRING_BY_INDEX.format(condition=_DATES),
    "common substring": _SUBSTRING_BY_TIME.format(condition="TRUE"),
    "common substring, role": _SUBSTRING_BY_TIME.format(condition=_ROLE),
    "common substring, dates": _SUBSTRING_BY_TIME.format(condition=_DATES),
    "list": _LIST,
}


class BaselineMessages:
    """Runs the statements on a connection of the same kind as those of our own readers."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def rows(self, statement: str, values: Mapping[str, Any]) -> Sequence[Any]:
        return list(await self._connection.execute_fetchall(STATEMENTS[statement], values))


@asynccontextmanager
async def open_baseline_messages(path: Path, cache_kib: int) -> AsyncIterator[BaselineMessages]:
    opening = aiosqlite.connect(path, factory=JobConnection, isolation_level=None, cached_statements=256)
    async with opening as connection:
        await connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        await connection.execute("PRAGMA query_only = ON")
        yield BaselineMessages(connection)
