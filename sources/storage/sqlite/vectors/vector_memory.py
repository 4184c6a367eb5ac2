"""The vectors that are in memory, of all users. If they need more than they may, those that were not used for the
longest time are dropped; they are read again when they are needed."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from sources.records import SemanticStatus
from sources.semantic.model import SemanticUnavailable
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.vectors.kinds import VectorKind
from sources.storage.sqlite.vectors.vector_tables import VectorState, VectorTables

if TYPE_CHECKING:
    from sources.storage.sqlite.vectors.vector_matrix import VectorMatrix


@lru_cache
def _has_numpy() -> bool:
    return find_spec("numpy") is not None


_size_of = attrgetter("size_bytes")
# The file of a user, the kind of its vectors and their model.
_MatrixKey = tuple[int, str, int]


class VectorSnapshot(Struct):
    """What one version of a file says about its vectors, so that it is read only once."""

    version: tuple[int, int]
    state: VectorState | None
    # The numbers of models, by name.
    models: Mapping[str, int]
    # By the kinds and the model that were searched.
    statuses: dict[tuple[str, ...], SemanticStatus]


class VectorMemory:
    """`max_bytes` bounds all matrices together, and thereby each of them."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        # Least recently used first.
        self._matrices: OrderedDict[_MatrixKey, VectorMatrix] = OrderedDict()
        self._snapshots: dict[int, VectorSnapshot] = {}

    def require_usable(self) -> None:
        """Raises SemanticUnavailable if vectors cannot be compared here."""
        if not _has_numpy():
            raise SemanticUnavailable("comparing meanings needs the package numpy; install florilegium[semantic]")

    def matrix(self, owner: object, kind: VectorKind, model: int, dimension: int) -> "VectorMatrix":
        """Returns the matrix of a file, which is empty at first. `owner` identifies the file."""
        key = (id(owner), kind.name, model)
        with self._lock:
            if key not in self._matrices:
                from sources.storage.sqlite.vectors.vector_matrix import VectorMatrix  # noqa: PLC0415 - needs numpy

                self._matrices[key] = VectorMatrix(kind, model, dimension, max(1, self._max_bytes // max(1, dimension)))
            self._matrices.move_to_end(key)
            return self._matrices[key]

    def snapshot(self, owner: object, tables: VectorTables, connection: JobConnection) -> VectorSnapshot:
        """Returns what the snapshot of a connection says about the vectors of its file."""
        version = id(connection), connection.data_version()
        known = self._snapshots.get(id(owner))
        if known is None or known.version != version:
            state = tables.state(connection)
            models = tables.model_numbers(connection) if state is not None else {}
            known = self._snapshots[id(owner)] = VectorSnapshot(version, state, models, {})
        return known

    def trim(self) -> None:
        """Drops matrices until the rest fits. Must be called after a matrix grew."""
        with self._lock:
            total = sum(map(_size_of, self._matrices.values()))
            while total > self._max_bytes and len(self._matrices) > 1:
                _, dropped = self._matrices.popitem(last=False)
                total -= dropped.size_bytes

    def forget(self, owner: object) -> None:
        """Drops the matrices of a file that is closed."""
        with self._lock:
            self._snapshots.pop(id(owner), None)
            for key in [key for key in self._matrices if key[0] == id(owner)]:
                del self._matrices[key]

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return sum(map(_size_of, self._matrices.values()))
