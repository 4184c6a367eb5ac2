"""Case-insensitive substring search over messages, newest first. Returns rowids; the caller reads the rows.

The candidates of PostgreSQL contain the text in lower case, or are not ASCII. Python decides about the latter, because
PostgreSQL folds fewer letters.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import re

from config.postgres.connection import PostgresConnection
from sources.storage.contract import MessageSearch
from sources.storage.tables.sql import SqlFilter, between, equals, placeholders
from sources.storage.tables.validation import clamp_count, is_storable

_BATCH_ROWS = 2_000
_NOT_ASCII = "octet_length({0}) <> length({0})"
_LIKE = "lower({0}) LIKE '%' || ? || '%'"


def find(connection: PostgresConnection, search: MessageSearch, *, is_agent: bool) -> tuple[int, ...]:
    limit = clamp_count(search.limit)
    if not limit or not is_storable(search.text or "") or not is_storable(search.conversation_id or ""):
        return ()
    text = (search.text or "").casefold()
    where = between("m.created_at", search.date_from, search.date_to) & equals("c.uuid", search.conversation_id)
    if search.roles:
        where &= SqlFilter((f"m.role IN ({placeholders(search.roles)})",), search.roles)
    if is_agent:
        where &= SqlFilter(("m.human_only = 0",))
    where &= _may_contain(text, in_titles=search.in_titles)
    found: list[int] = []
    position: tuple[str, int] | None = None
    while True:
        rows = _read(connection, where, position, min(_BATCH_ROWS, 2 * limit) if not text else _BATCH_ROWS)
        for rowid, _, content, title in rows:
            if not text or text in content.casefold() or (search.in_titles and text in title.casefold()):
                found.append(rowid)
        if len(found) >= limit or not rows:
            return tuple(found[:limit])
        position = rows[-1][1], rows[-1][0]


def _read(
    connection: PostgresConnection, where: SqlFilter, position: tuple[str, int] | None, limit: int
) -> list[tuple[int, str, str, str]]:
    """Returns the newest messages before a position."""
    before = SqlFilter(("(m.created_at, m.id) < (?, CAST(? AS BIGINT))",), position) if position else SqlFilter()
    conditions = where & before
    return connection.execute(
        "SELECT m.id, m.created_at, m.content, c.title "
        "FROM messages m JOIN conversations c ON c.id = m.conversation_id "
        f"WHERE m.deleted = 0 AND c.deleted = 0{conditions.sql} ORDER BY m.created_at DESC, m.id DESC LIMIT ?",
        (*conditions.parameters, limit),
    ).fetchall()


def _may_contain(text: str, *, in_titles: bool) -> SqlFilter:
    if not text:
        return SqlFilter()
    columns = ("m.content", "c.title") if in_titles else ("m.content",)
    conditions = [condition.format(column) for column in columns for condition in (_LIKE, _NOT_ASCII)]
    if not text.isascii():
        conditions = [_NOT_ASCII.format(column) for column in columns]
        return SqlFilter((f"({' OR '.join(conditions)})",))
    pattern = re.sub(r"([\\%_])", r"\\\1", text)
    return SqlFilter((f"({' OR '.join(conditions)})",), (pattern,) * len(columns))
