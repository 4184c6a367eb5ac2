"""The extension pgvector: where it is installed, and why it cannot be used.

The search path is empty, so every type and operator of the extension is named with the schema it is installed in.
"""

import re
import time

from msgspec import Struct

from config.postgres.connection import PostgresConnection
from config.postgres.errors import driver_errors, is_connection_lost
from sources.semantic.model import SemanticUnavailable

# The first version with `halfvec`, and the first with iterative scans of an HNSW index.
_MIN_VERSION = (0, 7)
_ITERATIVE_SCANS = (0, 8)
# How long an absent extension is not looked for again.
_ABSENT_FOR_S = 30.0
_FIND = """SELECT n.nspname, e.extversion FROM pg_catalog.pg_extension e
    JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"""
_CREATE = "CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA florilegium"
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
        """Installs the extension, if the server has it and the role of the connection may."""
        if connection.execute(_FIND).fetchone() is None:
            _create(connection)
        self._extension, self._reason = _find(connection)
        self._checked_at = time.monotonic()


def _create(connection: PostgresConnection) -> None:
    connection.run_script("SAVEPOINT extension")
    try:
        connection.run_script(_CREATE)
    except driver_errors() as error:
        if is_connection_lost(error):
            raise
        connection.run_script("ROLLBACK TO SAVEPOINT extension")


def _find(connection: PostgresConnection) -> tuple[VectorExtension | None, str]:
    row = connection.execute(_FIND).fetchone()
    if row is None:
        return None, _ABSENT
    schema, text = row
    version = tuple(int(number) for number in re.findall(r"\d+", text)[:3])
    if version < _MIN_VERSION:
        return None, f"semantic search in PostgreSQL needs pgvector 0.7 or newer, but the database has {text}"
    doubled = schema.replace('"', '""')
    return VectorExtension(f'"{doubled}"', version), ""
