"""Compares the meaning of a query with the passages of one collection, within the job of a search."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from sources.records import SemanticStatus
from sources.semantic.model import ModelInfo
from sources.storage.search.meaning import CountRows, NearEntry
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.vectors.kinds import TitleVectors, VectorKind
from sources.storage.sqlite.vectors.vector_memory import VectorMemory
from sources.storage.sqlite.vectors.vector_tables import VectorTables
from sources.storage.tables.sql import json_array

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from sources.storage.sqlite.vectors.vector_matrix import VectorMatrix


class QueryMeaning(Struct, frozen=True):
    """The vector of a query and the model that made it. `owner` identifies the file that is searched. `stop` says why
    some of its rows will have no vectors, if a quota is reached."""

    vector: bytes
    model: ModelInfo
    memory: VectorMemory
    owner: object
    tables: VectorTables
    stop: str | None = None

    def scan(self, connection: JobConnection, kinds: Sequence[VectorKind], item_bits: int) -> "MeaningScan":
        return MeaningScan(connection, self, kinds, item_bits)


class MeaningScan:
    """The cosines of all vectors of some kinds with one query. Items are the rowids of index entries without their
    lowest `item_bits` bits."""

    def __init__(
        self, connection: JobConnection, meaning: QueryMeaning, kinds: Sequence[VectorKind], item_bits: int
    ) -> None:
        self._connection = connection
        self._item_bits = item_bits
        self._kinds = kinds
        self._meaning = meaning
        self._snapshot = meaning.memory.snapshot(meaning.owner, meaning.tables, connection)
        self._number = self._snapshot.models.get(meaning.model.id, 0)
        self._scans: list[tuple[VectorKind, VectorMatrix, NDArray[float32]]] = []
        if self._number:
            self._scans = [self._scan(kind) for kind in kinds]
            meaning.memory.trim()

    @property
    def has_vectors(self) -> bool:
        return any(len(cosines) for _, _, cosines in self._scans)

    def status(self, count: CountRows) -> SemanticStatus:
        key = (self._meaning.model.id, *(kind.name for kind in self._kinds))
        status = self._snapshot.statuses.get(key)
        if status is None:
            status = self._snapshot.statuses[key] = self._read_status(count)
        return replace(status, reason=self._meaning.stop) if status.status == "partial" else status

    def _read_status(self, count: CountRows) -> SemanticStatus:
        tables, state, model = self._meaning.tables, self._snapshot.state, self._meaning.model
        share = min((matrix.loaded_share for _, matrix, _ in self._scans), default=1.0)
        is_current = state is not None and state.model == model.id
        if not is_current or tables.has_missing(self._connection, state, self._kinds):
            share *= tables.coverage(count, state, self._kinds, 0 if is_current else self._number).share
        # Rounded down, because 1 means that nothing is missing.
        return SemanticStatus("on" if share >= 1 else "partial", int(share * 1000) / 1000)

    def nearest(self, count: int, least: float, allowed: Collection[int] | None = None) -> list[NearEntry]:
        """Returns the nearest entries with at least this cosine, one of each item, nearest first."""
        entries = [
            NearEntry(_entry(kind, near.row), near.cosine, kind, near.vector)
            for kind, matrix, cosines in self._scans
            for near in matrix.nearest(cosines, count, least, self._item_bits, _rows(kind, allowed))
        ]
        if len(self._scans) > 1:
            entries.sort(key=lambda entry: (-entry.cosine, -entry.rowid))
        return entries[:count]

    def best_cosines(self, rowids: Sequence[int]) -> dict[int, float]:
        """Returns the cosine of the best passage of the items of these entries, by item."""
        cosines: dict[int, float] = {}
        items = [rowid >> self._item_bits for rowid in rowids]
        for kind, matrix, all_cosines in self._scans:
            sign = _sign(kind)
            own = [sign * item for item in items if sign * item > 0]
            if own:
                best = matrix.best_cosines(all_cosines, own, self._item_bits)
                cosines |= {sign * item: cosine for item, cosine in best.items()}
        return cosines

    def passage_ranges(self, entries: Sequence[NearEntry]) -> dict[int, tuple[int, int]]:
        """Returns where the nearest passages are in the texts of their entries, by the rowid of the entry."""
        ranges: dict[int, tuple[int, int]] = {}
        for kind in {entry.kind for entry in entries}:
            by_vector = {entry.vector: entry.rowid for entry in entries if entry.kind is kind}
            rows = self._connection.execute(
                f"SELECT v.id, v.start, v.end FROM json_each(?) wanted "
                f"CROSS JOIN {kind.vectors} v ON v.id = wanted.value",
                (json_array(list(by_vector)),),
            )
            ranges |= {by_vector[vector]: (start, end) for vector, start, end in rows}
        return ranges

    def _scan(self, kind: VectorKind) -> "tuple[VectorKind, VectorMatrix, NDArray[float32]]":
        meaning = self._meaning
        matrix = meaning.memory.matrix(meaning.owner, kind, self._number, meaning.model.dimension)
        matrix.refresh(self._connection, self._snapshot.version)
        return kind, matrix, matrix.cosines(meaning.vector)


def _sign(kind: VectorKind) -> int:
    """The index entries of titles have negative rowids."""
    return -1 if isinstance(kind, TitleVectors) else 1


def _entry(kind: VectorKind, row: int) -> int:
    return _sign(kind) * row


def _rows(kind: VectorKind, items: Collection[int] | None) -> Collection[int] | None:
    if items is None:
        return None
    sign = _sign(kind)
    return [sign * item for item in items if sign * item > 0]
