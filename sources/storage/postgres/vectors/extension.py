"""The extension pgvector: where it is installed, and why it cannot be used."""

import time

from msgspec import Struct

from config.postgres.connection import PostgresConnection
from sources.semantic.model import SemanticUnavailable
from sources.storage.postgres.extensions import find_extension

# The first version with `halfvec`, and the first with iterative scans of an HNSW index.
_MIN_VERSION = (0, 7)
_ITERATIVE_SCANS = (0, 8)
# How long an absent extension is not looked for again.
_ABSENT_FOR_S = 30.0
_ABSENT = (
    "semantic search in PostgreSQL needs the extension pgvector; install it on the database server and run "
    "`CREATE EXTENSION vector` as an administrator of the database"
)


class VectorExtension(Struct, frozen=True):
    """`schema` is a quoted identifier."""

    schema: str
    version: tuple[int, ...]

    @property
    def vector_type(self) -> str:
        """Half the size of `vector`, and exact for the numbers that vectors consist of: -127 to 127."""
        return f"{self.schema}.halfvec"

    @property
    def has_iterative_scans(self) -> bool:
        return self.version >= _ITERATIVE_SCANS

    def product(self, one: str, other: str) -> str:
        """Returns the SQL expression of the negative inner product, which the index orders by."""
        return f"{one} OPERATOR({self.schema}.<#>) {other}"


class VectorExtensionMemory:
    """What is known about the extension. All libraries of a process share it."""

    def __init__(self) -> None:
        self._extension: VectorExtension | None = None
        self._reason = ""
        self._checked_at = float("-inf")

    @property
    def is_known(self) -> bool:
        return self._extension is not None or time.monotonic() - self._checked_at < _ABSENT_FOR_S

    def require(self) -> VectorExtension:
        """Raises SemanticUnavailable with the reason."""
        if self._extension is None:
            raise SemanticUnavailable(self._reason)
        return self._extension

    def check(self, connection: PostgresConnection) -> None:
        """Looks for the extension, or installs it."""
        installed = find_extension(connection, "vector")
        self._checked_at = time.monotonic()
        if installed is None:
            self._reason = _ABSENT
        elif installed.version < _MIN_VERSION:
            version = ".".join(map(str, installed.version))
            self._reason = f"semantic search in PostgreSQL needs pgvector 0.7 or newer, but the database has {version}"
        else:
            self._extension = VectorExtension(installed.schema, installed.version)
