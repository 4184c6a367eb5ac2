"""The schemas of users: which one belongs to a user, and how it is created, migrated and removed.

The names are random, and the table `libraries` of the control data maps users to them. A library is created in one
transaction and migrated in one transaction per migration, each of which holds a lock: several processes may try at the
same time, and a migration that was interrupted continues where it stopped.
"""

import base64
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct

from auth.postgres_schema import CONTROL_SCHEMA_NAME
from config.errors import StorageError
from config.paths import UserId
from config.postgres.sql import qualify, quote_schema
from sources.storage.postgres.connection import WRITES, LibraryConnection
from sources.storage.postgres.index.entries import ENTRIES_VERSION
from sources.storage.postgres.schema import LIBRARY_MIGRATIONS, LibraryMigration

_ID_BYTES = 16
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(?, 0))"
_FIND = "SELECT schema_name, schema_version FROM libraries WHERE user_id = ?"
_INSERT = "INSERT INTO libraries (user_id, schema_name, schema_version, created_at) VALUES (?, ?, ?, ?)"
_SET_VERSION = "UPDATE libraries SET schema_version = ? WHERE user_id = ?"
_SAVE_STATE = "INSERT INTO state (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
# The lowest schema version that a server must know to use the library.
_COMPATIBLE_WITH = "compatible_with"
_FIND_COMPATIBLE_WITH = f"SELECT value FROM state WHERE name = '{_COMPATIBLE_WITH}'"  # noqa: S608 - a constant


class LibrarySchema(Struct, frozen=True):
    name: str
    version: int


class LibrarySchemas:
    """The methods run in transactions of the control data. `find` and `migrate` raise StorageError if this version of
    the server cannot use the library."""

    def __init__(self, migrations: Sequence[LibraryMigration] = LIBRARY_MIGRATIONS) -> None:
        self._migrations = migrations

    def is_current(self, schema: LibrarySchema) -> bool:
        return schema.version >= len(self._migrations)

    def find(self, user_id: UserId, connection: LibraryConnection) -> LibrarySchema | None:
        row = connection.execute(_FIND, (user_id,)).fetchone()
        if row is None:
            return None
        schema = LibrarySchema(*row)
        if schema.version > len(self._migrations):
            self._require_compatible(connection, schema)
        return schema

    def create(self, user_id: UserId, connection: LibraryConnection) -> LibrarySchema:
        """Creates the library of a user unless another process has done so meanwhile."""
        connection.execute(_LOCK, (user_id,))
        existing = self.find(user_id, connection)
        if existing is not None:
            return existing
        schema = self._create_tables(connection)
        state: dict[str, int | str] = {
            WRITES: 0,
            "segment_version": ENTRIES_VERSION,
            _COMPATIBLE_WITH: self._migrations[-1].compatible_with,
        }
        _save_state(connection, schema, state)
        connection.execute(_INSERT, (user_id, schema.name, schema.version, time.time()))
        return schema

    def _create_tables(self, connection: LibraryConnection) -> LibrarySchema:
        schema = LibrarySchema(_new_name(), len(self._migrations))
        connection.run_script(f"CREATE SCHEMA {quote_schema(schema.name)}")
        _run_statements(connection, schema, [sql for migration in self._migrations for sql in migration.statements])
        return schema

    def migrate(self, user_id: UserId, connection: LibraryConnection) -> LibrarySchema:
        """Runs the next migration of a library, if there is one."""
        connection.execute(_LOCK, (user_id,))
        schema = self.find(user_id, connection)
        if schema is None:
            return self.create(user_id, connection)
        if self.is_current(schema):
            return schema
        migration = self._migrations[schema.version]
        _run_statements(connection, schema, migration.statements)
        _save_state(connection, schema, {_COMPATIBLE_WITH: migration.compatible_with})
        connection.execute(_SET_VERSION, (schema.version + 1, user_id))
        return LibrarySchema(schema.name, schema.version + 1)

    def remove(self, user_id: UserId, connection: LibraryConnection) -> None:
        connection.execute(_LOCK, (user_id,))
        row = connection.execute(_FIND, (user_id,)).fetchone()
        if row is not None:
            connection.run_script(f"DROP SCHEMA IF EXISTS {quote_schema(row[0])} CASCADE")
            connection.execute("DELETE FROM libraries WHERE user_id = ?", (user_id,))

    def _require_compatible(self, connection: LibraryConnection, schema: LibrarySchema) -> None:
        """A newer server may have migrated the library while this one is still running."""
        with _in_schema(connection, schema):
            row = connection.execute(_FIND_COMPATIBLE_WITH).fetchone()
        if row is None or int(row[0]) > len(self._migrations):
            raise StorageError(
                f"the library has schema {schema.version}, written by a newer version of Florilegium; this version "
                f"supports schemas up to {len(self._migrations)}: upgrade Florilegium"
            )


def _run_statements(connection: LibraryConnection, schema: LibrarySchema, statements: Sequence[str]) -> None:
    """Runs statements without parameters in one message."""
    connection.run_script("; ".join(qualify(statement, schema.name).text for statement in statements))


@contextmanager
def _in_schema(connection: LibraryConnection, schema: LibrarySchema) -> Iterator[None]:
    connection.schema = schema.name
    try:
        yield
    finally:
        connection.schema = CONTROL_SCHEMA_NAME


def _save_state(connection: LibraryConnection, schema: LibrarySchema, state: Mapping[str, int | str]) -> None:
    with _in_schema(connection, schema):
        connection.executemany(_SAVE_STATE, [(name, str(value)) for name, value in state.items()])


def _new_name() -> str:
    return "u_" + base64.b32encode(os.urandom(_ID_BYTES)).decode().rstrip("=").lower()
