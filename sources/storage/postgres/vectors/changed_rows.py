"""Keeps the vectors of a library consistent with its text, in the transaction that changes the text."""

import time
from collections.abc import Callable, Collection, Mapping

from config.postgres.connection import PostgresConnection
from sources.storage.postgres.vectors.vector_tables import read_digests, read_state
from sources.storage.tables.sql import Delete, Insert

_LISTED = "kind = ? AND id = ANY(CAST(? AS BIGINT[]))"
_IS_LIVE = "EXISTS (SELECT 1 FROM index_entries e WHERE e.kind = {0}.kind AND e.id = {0}.id)"
# Constants only, so that each is translated once.
_DELETE_DEAD = tuple(
    Delete(table, f"{_LISTED} AND NOT {_IS_LIVE.format(table)}") for table in ("vectors", "vector_queue")
)
_DIGESTS = f"SELECT id, min(digest) FROM vectors WHERE {_LISTED} GROUP BY id"  # noqa: S608 - constants
_DELETE = Delete("vectors", _LISTED)
_QUEUE = Insert(
    "vector_queue",
    "kind, id",
    """e.kind, e.id FROM index_entries e WHERE e.kind = ? AND e.id = ANY(CAST(? AS BIGINT[]))
    AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.kind = e.kind AND v.id = e.id)""",
    key="*",
)


def update_vectors(connection: PostgresConnection, indexed: Mapping[int, Collection[int]]) -> None:
    """Removes the vectors of rows that were deleted or whose passages changed, and adds rows without vectors to the
    queue. `indexed` are the entries of the full-text index that were made again or removed: their rowids by the number
    of their kind. Does nothing if the library has no vectors."""
    if not any(indexed.values()) or read_state(connection) is None:
        return
    for kind, changed_rowids in indexed.items():
        if not changed_rowids:
            continue
        rowids = sorted(changed_rowids)
        for statement in _DELETE_DEAD:
            connection.execute(statement, (kind, rowids))
        stored = {(kind, rowid): digest for rowid, digest in connection.execute(_DIGESTS, (kind, rowids))}
        if stored:
            # A row that is indexed again may have the passages that it had before. Then its vectors stay.
            current = read_digests(connection, stored)
            changed = [rowid for (_, rowid), digest in stored.items() if current.get((kind, rowid)) != digest]
            if changed:
                connection.execute(_DELETE, (kind, changed))
        connection.execute(_QUEUE, (kind, rowids))


# -- coverage memory ---------------------------------------------------------------------------------------------------
# The share of a library that has vectors, counted at most once in a while: counting takes time while many rows are
# waiting, and every search reports it.

_KNOWN_FOR_S = 1.0


class CoverageMemory:
    def __init__(self) -> None:
        # The share and when it was counted, by the number of a kind and that of a model.
        self._shares: dict[tuple[int, int], tuple[float, float]] = {}

    def share(self, kind: int, model: int, count: Callable[[], float]) -> float:
        now = time.monotonic()
        known = self._shares.get((kind, model))
        if known is not None and now - known[1] < _KNOWN_FOR_S:
            return known[0]
        share = count()
        self._shares[kind, model] = (share, now)
        return share
