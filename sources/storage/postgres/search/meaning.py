"""Compares the meaning of a query with the passages of one collection, in PostgreSQL.

All vectors of the collection are compared, unless it has so many that an HNSW index was built: then the index finds the
nearest, of which it can miss some.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import time
from collections.abc import Collection, Sequence

from msgspec import Struct

from sources.records import SemanticStatus
from sources.semantic.model import PRODUCT_SCALE, ModelInfo
from sources.storage.postgres.connection import LibraryConnection
from sources.storage.postgres.vectors.vector_tables import (
    VectorExtension,
    count_missing,
    encode_vector,
    kind_number,
    stored_vectors,
)
from sources.storage.search.engine import CountRows, NearEntry
from sources.storage.vector_kinds import VectorKind

# An HNSW index returns at most this many passages at once.
_INDEX_MAX = 1_000
# Several of the nearest passages may belong to one item.
_PASSAGES_PER_ITEM = 4
# How many candidates the index keeps while it is searched, for each passage that is wanted. More are more exact.
_CANDIDATES_PER_PASSAGE = 4
_CANDIDATES_MIN = 100

# Rowid, number of the passage, its start and end, inner product.
_Near = tuple[int, int, int, int, float]

# How long a coverage is known: counting takes time while many rows are waiting, and every search reports it.
_KNOWN_FOR_S = 1.0
# The share of a library that has vectors and when it was counted, by the number of a kind and that of a model.
CoverageMemory = dict[tuple[int, int], tuple[float, float]]


class LibraryQueryVector(Struct, frozen=True):
    """Implements `QueryVector`. `stop` says why some rows will have no vectors, if a quota is reached."""

    vector: bytes
    model: ModelInfo
    extension: VectorExtension
    coverage: CoverageMemory
    stop: str | None = None

    def scan(self, connection: LibraryConnection, kinds: Sequence[VectorKind], item_bits: int) -> "LibraryScan":
        return LibraryScan(connection, self, kinds, item_bits)


class LibraryScan:
    """Implements `PassageScan`."""

    def __init__(
        self, connection: LibraryConnection, query: LibraryQueryVector, kinds: Sequence[VectorKind], item_bits: int
    ) -> None:
        self._connection = connection
        self._query = query
        self._item_bits = item_bits
        self._kind = kind_number(kinds)
        self._stored = stored_vectors(connection, query.model.id)
        self._state = self._stored.state
        self._model = self._state.numbers.get(query.model.id, 0) if self._state is not None else 0
        self._vector = encode_vector(query.vector)
        extension = query.extension
        # In a subquery, so that the text is converted once and not for every row.
        value = f"(SELECT CAST(CAST(? AS TEXT) AS {extension.vector_type}))"
        # As constants, because PostgreSQL must see that an index of this library, kind and model can be used.
        self._rows = (
            f"FROM vectors v WHERE v.tenant_id = '{connection.tenant}' AND v.kind = {self._kind:d} "
            f"AND v.model = {self._model:d}"
        )
        self._product = f"-({extension.product('v.vector', value)})"
        self._distance = extension.product(
            f"CAST(v.vector AS {extension.vector_type}({query.model.dimension:d}))", value
        )

    @property
    def has_vectors(self) -> bool:
        return self._model > 0 and self._kind in self._stored.stored

    def status(self, count: CountRows) -> SemanticStatus:
        state, model = self._state, self._model
        is_current = state is not None and state.model == self._query.model.id
        if is_current and self._kind not in self._stored.queued:
            return SemanticStatus("on", 1.0)

        now, coverage = time.monotonic(), self._query.coverage
        share, counted_at = coverage.get((self._kind, model), (0.0, float("-inf")))
        if now - counted_at >= _KNOWN_FOR_S:
            old_model = 0 if is_current else model
            # Not counted by `count`, which remembers counts until text changes.
            share = count_missing(self._connection, state if model else None, self._kind, old_model).share
            coverage[self._kind, model] = (share, now)
        # Rounded down, because 1 means that nothing is missing.
        known = int(share * 1000) / 1000
        return SemanticStatus("on") if known >= 1 else SemanticStatus("partial", known, self._query.stop)

    def nearest(
        self, count: int, least: float, floor: float, allowed: Collection[int] | None = None
    ) -> list[NearEntry]:
        if not self._model:
            return []
        found = None
        # An index knows nothing of the allowed items.
        if allowed is None and self._state is not None and (self._model, self._kind) in self._state.indexes:
            found = self._find_by_index(count, least)
        if found is None:
            # Compares all vectors, or those of the allowed items.
            item = f"id >> {self._item_bits}"
            condition, listed = "", []
            if allowed is not None:
                condition, listed = f" AND v.{item} = ANY(CAST(? AS BIGINT[]))", [list(allowed)]
            compared = (
                f"SELECT v.id, v.passage, v.char_start, v.char_end, {self._product} AS product {self._rows}{condition}"
            )
            best = (
                f"SELECT DISTINCT ON ({item}) * FROM ({compared}) AS compared WHERE product >= ? "
                f"ORDER BY {item}, product DESC, id DESC, passage"
            )
            # Slightly less than the least product, because the exact limit is that of a rounded cosine.
            threshold = float(least * PRODUCT_SCALE - 1)
            rows = self._connection.execute(
                f"SELECT id, passage, char_start, char_end, product FROM ({best}) AS best "
                "ORDER BY product DESC, id DESC LIMIT ?",
                (self._vector, *listed, threshold, count),
            )
            found = rows.fetchall()
        entries = []
        for rowid, _, start, end, product in found:
            if (cosine := product / PRODUCT_SCALE) >= least:
                entries.append(NearEntry(rowid, cosine, (start, end)))
        return entries if entries and entries[0].cosine >= floor else []

    def best_cosines(self, rowids: Sequence[int]) -> list[float]:
        if not self._model or not rowids:
            return [0.0] * len(rowids)
        bits = self._item_bits
        items = sorted({rowid >> bits for rowid in rowids})
        condition = "v.id = item.id" if not bits else f"v.id >= item.id << {bits} AND v.id < (item.id + 1) << {bits}"
        # For each item by itself: then the primary key finds its vectors, however many others there are.
        sql = (
            "SELECT item.id, best.product FROM unnest(CAST(? AS BIGINT[])) AS item (id) "
            f"JOIN LATERAL (SELECT max({self._product}) AS product {self._rows} AND {condition}) AS best ON TRUE "
            "WHERE best.product IS NOT NULL"
        )
        rows = self._connection.execute(sql, (items, self._vector))
        cosines = {item: max(0.0, product / PRODUCT_SCALE) for item, product in rows}
        return [cosines.get(rowid >> bits, 0.0) for rowid in rowids]

    def _find_by_index(self, count: int, least: float) -> Sequence[_Near] | None:
        """Returns None if the index cannot return enough items."""
        wanted = count * _PASSAGES_PER_ITEM
        while wanted <= _INDEX_MAX:
            candidates = min(_INDEX_MAX, max(_CANDIDATES_MIN, wanted * _CANDIDATES_PER_PASSAGE))
            settings = f"set_config('hnsw.ef_search', '{candidates:d}', TRUE)"
            if self._query.extension.has_iterative_scans:
                settings += ", set_config('hnsw.iterative_scan', 'relaxed_order', TRUE)"
            self._connection.execute(f"SELECT {settings}")
            index_rows = self._connection.execute(
                f"SELECT v.id, v.passage, v.char_start, v.char_end, {self._product} {self._rows} "
                f"ORDER BY {self._distance} LIMIT ?",
                (self._vector, self._vector, wanted),
            )
            rows = index_rows.fetchall()
            # The best passage of each item, nearest first and in the order of an exact scan.
            best: dict[int, _Near] = {}
            for row in sorted(rows, key=lambda row: (-row[4], -row[0], row[1])):
                best.setdefault(row[0] >> self._item_bits, row)
            items = list(best.values())
            is_complete = len(rows) < wanted or rows[-1][4] < least * PRODUCT_SCALE
            if len(items) >= count or is_complete:
                return items[:count]
            wanted *= _PASSAGES_PER_ITEM
        return None
