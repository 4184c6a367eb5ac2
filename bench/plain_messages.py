"""What finding messages and listing conversations costs without us: for each question the one statement that fetches
the rows of the answer, by the index that serves it best. It shapes, escapes and explains nothing.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiosqlite

from sources.storage.sqlite.connection.connection import JobConnection

_FOUND = "m.uuid, m.content, c.uuid, c.title, m.sender, m.role, m.id, m.created_at, m.metadata"
_SNIPPET = "snippet(exact_index, 0, '<mark>', '</mark>', '…', 20)"
_MATCHED = f"""
    SELECT {_FOUND}, {_SNIPPET} FROM exact_index JOIN messages m ON m.id = exact_index.rowid
        JOIN conversations c ON c.id = m.conversation_id
    WHERE exact_index MATCH :words ORDER BY {{order}} LIMIT :limit
"""
_LIVE = "m.deleted = 0 AND c.deleted = 0"
_PARTS = "SELECT {number} FROM substring_index WHERE substring_index MATCH :parts AND {number} > 0"
_NEWEST = "ORDER BY m.created_at DESC, m.id DESC LIMIT :limit"
_HOLDING = f"""
    SELECT {_FOUND} FROM messages m JOIN conversations c ON c.id = m.conversation_id
    WHERE (m.id IN ({_PARTS.format(number="rowid")}) AND m.content LIKE :text
        OR m.conversation_id IN ({_PARTS.format(number="-rowid")}) AND c.title LIKE :text)
        AND {_LIVE} AND {{narrowed}} {_NEWEST}
"""
_WALKED = f"""
    SELECT {_FOUND} FROM messages m INDEXED BY messages_by_time JOIN conversations c ON c.id = m.conversation_id
    WHERE (m.content LIKE :text OR c.title LIKE :text) AND {_LIVE} AND {{narrowed}} {_NEWEST}
"""
_LISTED = """
    SELECT c.uuid, c.session_id, c.title, c.namespace, c.created_at, c.last_modified, c.metadata,
        (SELECT count(*) FROM messages m WHERE m.conversation_id = c.id AND m.deleted = 0),
        (SELECT count(*) FROM conversations WHERE deleted = 0)
    FROM conversations c WHERE c.deleted = 0 ORDER BY c.last_modified DESC, c.id DESC LIMIT :limit OFFSET :offset
"""
_ROLE = "m.role = :role"
_DATES = "m.created_at BETWEEN :start AND :end"

STATEMENTS: Mapping[str, str] = {
    "matched": _MATCHED.format(order="exact_index.rank"),
    "matched newest": _MATCHED.format(order="exact_index.rowid DESC"),
    "holding": _HOLDING.format(narrowed="TRUE"),
    "holding role": _HOLDING.format(narrowed=_ROLE),
    "holding dates": _HOLDING.format(narrowed=_DATES),
    "walked": _WALKED.format(narrowed="TRUE"),
    "walked role": _WALKED.format(narrowed=_ROLE),
    "walked dates": _WALKED.format(narrowed=_DATES),
    "listed": _LISTED,
}


class PlainMessages:
    """One user's conversations, on a connection of the class and the thread that our own readers have."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def rows(self, statement: str, values: Mapping[str, Any]) -> Sequence[Any]:
        return list(await self._connection.execute_fetchall(STATEMENTS[statement], values))


@asynccontextmanager
async def open_plain_messages(path: Path, cache_kib: int) -> AsyncIterator[PlainMessages]:
    connecting = aiosqlite.connect(path, factory=JobConnection, isolation_level=None, cached_statements=256)
    async with connecting as connection:
        await connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        await connection.execute("PRAGMA query_only = ON")
        yield PlainMessages(connection)
