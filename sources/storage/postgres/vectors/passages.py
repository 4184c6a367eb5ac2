"""The passages of rows, which are the same as on SQLite, and a number that changes with them.

A row is identified as its entry in the full-text index is: by the number of its kind and a rowid, which is negative for
the title of a conversation.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from config.postgres.connection import PostgresConnection, Rows
from sources.storage.postgres.index.entries import CHAT_ENTRIES, ENTRY_KINDS
from sources.storage.postgres.search.dialect import postgres_sql
from sources.storage.search.passages import Passage
from sources.storage.sqlite.vectors.kinds import ALL_KINDS, TITLE_VECTORS, VectorKind

# The number of a kind and the rowid of an index entry.
VectorRow = tuple[int, int]

_DIGEST_BYTES = 8
_KINDS = {ENTRY_KINDS[kind.index].number: kind for kind in ALL_KINDS if kind is not TITLE_VECTORS}


def kind_number(kinds: Sequence[VectorKind]) -> int:
    """Returns the number of the kind that these kinds have in PostgreSQL, where titles belong to messages."""
    [number] = {ENTRY_KINDS[kind.index].number for kind in kinds}
    return number


def read_passages(
    connection: PostgresConnection, rows: Iterable[VectorRow], *, has_context: bool
) -> dict[VectorRow, list[Passage]]:
    """Returns the passages of the live rows among these."""
    by_kind: dict[tuple[int, int], list[int]] = {}
    for number, rowid in rows:
        sign = -1 if rowid < 0 else 1
        by_kind.setdefault((number, sign), []).append(sign * rowid)
    translated = _TranslatedConnection(connection)
    return {
        (number, sign * rowid): passages
        for (number, sign), rowids in by_kind.items()
        for rowid, passages in _kind(number, sign).passages(translated, rowids, has_context=has_context)
    }


def read_digests(connection: PostgresConnection, rows: Iterable[VectorRow]) -> dict[VectorRow, int]:
    """Returns a number for each live row that changes with its passages. The context of a message is always part of
    them, so that a change of it does not depend on the model."""
    return {row: _digest(passages) for row, passages in read_passages(connection, rows, has_context=True).items()}


def _digest(passages: Sequence[Passage]) -> int:
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for passage in passages:
        text = passage.text.encode()
        digest.update(f"{passage.start} {passage.end} {len(text)} ".encode() + text)
    return int.from_bytes(digest.digest(), signed=True)


def _kind(number: int, sign: int) -> VectorKind:
    return TITLE_VECTORS if number == CHAT_ENTRIES.number and sign < 0 else _KINDS[number]


class _TranslatedConnection:
    """Runs the statements of the kinds, which are written for SQLite."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        return self._connection.execute(postgres_sql(sql), parameters)
