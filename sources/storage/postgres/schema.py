"""Creates the tables of all libraries and the role of tenants, and says which tenant a user is.

The tables are created by the first process that needs them. A library is a row of `tenants` with a random id, and a few
rows of `state`. Early development versions had one schema for each user: such a library is moved when it is first used.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import base64
import os
import time
from collections.abc import Sequence

from msgspec import Struct

from auth.library_files import NO_OWNER
from auth.postgres_control import CONTROL_SCHEMA_NAME
from config.errors import Conflict, StorageError
from config.paths import UserId
from config.postgres.connection import PostgresConnection
from sources.installed import ADDED_KINDS
from sources.storage.postgres.connection import WRITES, LibraryConnection
from sources.storage.postgres.index.entries import ENTRIES_VERSION
from sources.storage.postgres.index.index_update import index_all
from sources.storage.postgres.tables import (
    LIBRARY_SCHEMA,
    LIBRARY_STATEMENTS,
    TENANT_ROLE,
    TENANT_SETTING,
    TENANT_TABLES,
    added_columns,
    kind_digests,
    kind_table,
)
from sources.storage.postgres.vectors.vector_tables import hnsw_index_prefix
from sources.storage.tables.sql import Delete


class LibraryMigration(Struct, frozen=True):
    """`compatible_with` is the lowest version that can still use the tables after this migration. A migration that only
    adds what older servers ignore keeps it, so that servers of two releases can run during an upgrade; what they no
    longer need is removed in a later release."""

    statements: tuple[str, ...]
    compatible_with: int


FIRST_VERSION = 3
LIBRARY_MIGRATIONS: tuple[LibraryMigration, ...] = ()

# -- tables ------------------------------------------------------------------------------------------------------------

# Keeps processes that start at the same time from creating the tables twice.
_MIGRATION_LOCK = 7_305_126_185
_VERSION, _COMPATIBLE_WITH, _KIND = "version", "compatible_with", "kind:"
_READ_SCHEMA = "SELECT name, value FROM library_schema"
_SAVE_SCHEMA = (
    "INSERT INTO library_schema (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
# Other databases of the server may have the same role, and create it at the same time.
_CREATE_ROLE = f"""DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = '{TENANT_ROLE}') THEN
        CREATE ROLE {TENANT_ROLE} NOLOGIN;
    END IF;
    IF NOT pg_has_role(current_user, '{TENANT_ROLE}', 'MEMBER') THEN
        GRANT {TENANT_ROLE} TO CURRENT_USER;
    END IF;
EXCEPTION WHEN insufficient_privilege OR duplicate_object OR unique_violation THEN NULL;
END $$"""
_PRIVILEGES = "SELECT, INSERT, UPDATE, DELETE"
# Also for tables that are created later. The control schema has the types of extensions; its tables stay closed.
_GRANT = f"""
    GRANT USAGE ON SCHEMA {LIBRARY_SCHEMA}, {CONTROL_SCHEMA_NAME} TO {TENANT_ROLE};
    GRANT {_PRIVILEGES} ON ALL TABLES IN SCHEMA {LIBRARY_SCHEMA} TO {TENANT_ROLE};
    ALTER DEFAULT PRIVILEGES IN SCHEMA {LIBRARY_SCHEMA} GRANT {_PRIVILEGES} ON TABLES TO {TENANT_ROLE}
"""
# Whether the role exists; whether this role may take it; whether this role is exempt from row-level security.
_ROLES = f"""
    SELECT tenant.oid IS NOT NULL, coalesce(pg_has_role(own.oid, tenant.oid,
            CASE WHEN CAST(current_setting('server_version_num') AS INTEGER) < 160000 THEN 'MEMBER' ELSE 'SET' END)
            AND has_schema_privilege(tenant.oid, '{CONTROL_SCHEMA_NAME}', 'USAGE'), FALSE),
        own.rolsuper OR own.rolbypassrls
    FROM pg_catalog.pg_roles own LEFT JOIN pg_catalog.pg_roles tenant ON tenant.rolname = '{TENANT_ROLE}'
    WHERE own.rolname = current_user
"""

# -- tenants -----------------------------------------------------------------------------------------------------------

# Seven letters are 35 bits. Another id is made if one is in use.
_ID_CHARS = 7
_FIND = """
    SELECT (SELECT tenant_id FROM tenants WHERE user_id = ?1),
        (SELECT schema_name FROM libraries WHERE user_id = ?1 AND schema_version < {})
"""
# Deleting a user begins with disabling, which waits for this lock and then finds the library.
_HAS_ACCESS = "SELECT 1 FROM users WHERE id = ? AND disabled_at IS NULL FOR SHARE"
_INSERT = (
    "INSERT INTO tenants (user_id, tenant_id, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING user_id"
)
# What the row of a library in an earlier layout has after it was moved: servers of that layout then refuse to use it,
# instead of creating an empty library.
_MOVED = 1_000
_OLD_COLUMNS = """
    SELECT old.table_name::text, old.column_name::text FROM information_schema.columns old
    JOIN information_schema.columns new ON new.table_schema = ? AND new.table_name = old.table_name
        AND new.column_name = old.column_name
    WHERE old.table_schema = ? ORDER BY old.table_name, old.column_name
"""
_OLD_TABLES = "SELECT tablename::text FROM pg_catalog.pg_tables WHERE schemaname = ?"
_OWN_INDEXES = """
    SELECT indexname::text FROM pg_catalog.pg_indexes WHERE schemaname = ? AND starts_with(indexname, CAST(? AS TEXT))
"""
# The new library makes its index and its vectors itself.
_NOT_MOVED = ("index_entries", "index_words", "vectors", "vector_queue")
_STATE_NOT_MOVED = "name NOT IN ('vectors', 'segment_version', 'compatible_with') AND name NOT LIKE '%lease'"


class LibrarySchemas:
    """The methods run in transactions of the control data. With `has_owners`, a library is created only for a user
    who is neither deleted nor disabled: a call that began before that must not create a deleted library again."""

    def __init__(
        self, migrations: Sequence[LibraryMigration] = LIBRARY_MIGRATIONS, *, has_owners: bool = False
    ) -> None:
        self._has_owners = has_owners
        self._migrations = migrations
        self._newest = FIRST_VERSION + len(migrations)
        # Whether transactions take the role of tenants. Without it, row-level security must apply to the server's own.
        self.has_role = True

    def prepare(self, connection: PostgresConnection) -> None:
        """Creates or migrates the tables. Raises StorageError if this version of the server cannot use them."""
        _, self.has_role, _ = connection.execute(_ROLES).fetchall()[0]
        if self._is_current(connection) and self.has_role:
            return
        connection.execute("SELECT pg_advisory_xact_lock(?)", (_MIGRATION_LOCK,))
        if not self._is_current(connection):
            self._create_tables(connection)
        connection.run_script(_CREATE_ROLE)
        exists, *_ = connection.execute(_ROLES).fetchall()[0]
        if exists:
            connection.run_script(_GRANT)
        _, self.has_role, is_exempt = connection.execute(_ROLES).fetchall()[0]
        if not self.has_role and is_exempt:
            raise StorageError(
                f"the PostgreSQL user of storage_url bypasses row-level security; grant it the role {TENANT_ROLE}, or "
                "use another"
            )

    def find(self, user_id: UserId, connection: LibraryConnection) -> tuple[str | None, str | None]:
        """Returns the tenant of a user, or the schema of a library that has not been moved."""
        [(tenant, old_schema)] = connection.execute(_FIND.format(_MOVED), (user_id,)).fetchall()
        return tenant, old_schema

    def open(self, user_id: UserId, connection: LibraryConnection) -> tuple[str, bool]:
        """Returns the tenant of a user, and whether the library is new. Creates the library, or moves that of an
        earlier version, and then leaves the transaction in it."""
        while True:
            found, old_schema = self.find(user_id, connection)
            if found is not None:
                return found, False
            if self._has_owners and not old_schema and not connection.execute(_HAS_ACCESS, (user_id,)).fetchone():
                raise Conflict(NO_OWNER)
            tenant = base64.b32encode(os.urandom(5)).decode().lower()[:_ID_CHARS]
            # Waits for another process that is doing the same.
            if connection.execute(_INSERT, (user_id, tenant, time.time())).fetchone() is not None:
                break
        state = {"segment_version": ENTRIES_VERSION}
        if old_schema is not None:
            self._move(user_id, tenant, old_schema, connection)
        else:
            state[WRITES] = "0"
        rows = ", ".join(f"('{tenant}', '{name}', '{value}')" for name, value in state.items())
        # In one message with what enters the library.
        connection.enter_library(
            tenant,
            f"INSERT INTO {LIBRARY_SCHEMA}.state (tenant_id, name, value) VALUES {rows}",
            has_role=self.has_role,
        )
        if WRITES not in state:
            index_all(connection)
        return tenant, True

    def remove(self, user_id: UserId, connection: LibraryConnection) -> list[str]:
        """Returns the statements that drop the library's own indexes. They cannot run in a transaction."""
        tenant, old_schema = self.find(user_id, connection)
        connection.execute("DELETE FROM tenants WHERE user_id = ?", (user_id,))
        connection.execute("DELETE FROM libraries WHERE user_id = ?", (user_id,))
        if old_schema is not None:
            connection.run_script(f'DROP SCHEMA IF EXISTS "{old_schema}" CASCADE')
        indexes: list[str] = []
        if tenant is not None:
            rows = connection.execute(_OWN_INDEXES, (LIBRARY_SCHEMA, hnsw_index_prefix(tenant)))
            indexes = [f"DROP INDEX CONCURRENTLY IF EXISTS {LIBRARY_SCHEMA}.{name}" for (name,) in rows]
            existing = {name for (name,) in connection.execute(_OLD_TABLES, (LIBRARY_SCHEMA,))}
            connection.enter_library(tenant, has_role=self.has_role)
            # Also those of kinds that are no longer installed. The state first, so that writers wait, and see then that
            # the library is gone.
            for table in ("state", *reversed(TENANT_TABLES), *sorted(existing - set(TENANT_TABLES))):
                if table in existing:
                    connection.execute(Delete(table))
            connection.leave_library()
        return indexes

    def _is_current(self, connection: PostgresConnection) -> bool:
        saved: dict[str, str] = dict(connection.execute(_READ_SCHEMA).fetchall())
        version = int(saved.get(_VERSION, 0))
        # A newer server may have migrated the tables while this one is still running.
        if version > self._newest and int(saved.get(_COMPATIBLE_WITH, version)) > self._newest:
            raise StorageError(
                f"the libraries have schema {version}, written by a newer version of Florilegium; this version "
                f"supports schemas up to {self._newest}: upgrade Florilegium"
            )
        has_kinds = all(saved.get(f"{_KIND}{table}") == digest for table, digest in kind_digests().items())
        return version >= self._newest and has_kinds

    def _create_tables(self, connection: PostgresConnection) -> None:
        saved: dict[str, str] = dict(connection.execute(_READ_SCHEMA).fetchall())
        version = int(saved.get(_VERSION, 0))
        statements = [] if version else [f"CREATE SCHEMA {LIBRARY_SCHEMA}", *LIBRARY_STATEMENTS]
        state: dict[str, int | str] = {}
        for migration in self._migrations[max(0, version - FIRST_VERSION) :]:
            statements += migration.statements
            state[_COMPATIBLE_WITH] = migration.compatible_with
        if version < self._newest:
            state = {_VERSION: self._newest, _COMPATIBLE_WITH: FIRST_VERSION, **state}
        for kind in ADDED_KINDS:
            name, digest = f"{_KIND}{kind.source}", kind_digests()[kind.source]
            if saved.get(name) != digest:
                statements += [added_columns(kind)] if name in saved else kind_table(kind)
                state[name] = digest
        connection.run_script("; ".join(statements))
        connection.executemany(_SAVE_SCHEMA, [(name, str(value)) for name, value in state.items()])

    def _move(self, user_id: UserId, tenant: str, schema: str, connection: LibraryConnection) -> None:
        """Moves a library of an earlier layout into the shared tables, in the transaction of the caller."""
        # Writers of that layout wait for this row, and then find no library.
        connection.run_script(
            f"SET LOCAL {TENANT_SETTING} = '{tenant}'; "
            f"SELECT 1 FROM \"{schema}\".state WHERE name = '{WRITES}' FOR UPDATE"
        )
        columns: dict[str, list[str]] = {}
        for table, column in connection.execute(_OLD_COLUMNS, (LIBRARY_SCHEMA, schema)):
            columns.setdefault(table, []).append(f'"{column}"')
        for table in TENANT_TABLES:
            if table in columns and table not in _NOT_MOVED:
                names = ", ".join(columns[table])
                where = f" WHERE {_STATE_NOT_MOVED}" if table == "state" else ""
                connection.run_script(
                    f"INSERT INTO {LIBRARY_SCHEMA}.{table} (tenant_id, {names}) "
                    f"SELECT '{tenant}', {names} FROM \"{schema}\".{table}{where}"
                )
        connection.execute("UPDATE libraries SET schema_version = ? WHERE user_id = ?", (_MOVED, user_id))
        # The tables of kinds that are not installed stay where they are.
        tables = {name for (name,) in connection.execute(_OLD_TABLES, (schema,))}
        if tables <= set(TENANT_TABLES):
            connection.run_script(f'DROP SCHEMA "{schema}" CASCADE')
