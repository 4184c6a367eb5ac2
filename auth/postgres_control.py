"""The control data in PostgreSQL: the schema `florilegium`, shared by all servers and the command line.

Every write locks one row first, whose number it increases. Writes therefore run one after another, as in SQLite, and
a different number means that something has changed. It is read periodically, so that a call need not wait for it:
access that another process withdraws ends within `_STALE_S` seconds, or at once if the processes share Redis; access
that this process withdraws ends at once. A command waits until no server can accept what it has withdrawn.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Self, TypeVar

from msgspec.structs import replace

from auth.control_database import CONTROL_SCHEMA, ControlConnection, ControlSchema
from config.errors import ControlDatabaseLocked, StorageError
from config.postgres.connection import (
    ConnectionOptions,
    ConnectionThreads,
    PostgresConnection,
    StatementInterrupted,
    Transaction,
)
from config.postgres.errors import driver_errors, is_lock_timeout, postgres_errors

# -- postgres schema ---------------------------------------------------------------------------------------------------
# The tables of the control data in PostgreSQL, in the schema `florilegium`.
#
# They are those of `auth.control_database` and some that only PostgreSQL needs. Both engines run the same statements.
# Texts are compared by their bytes, as in SQLite.

CONTROL_SCHEMA_NAME = "florilegium"

_TYPES = {"TEXT": 'TEXT COLLATE "C"', "REAL": "DOUBLE PRECISION", "INTEGER": "BIGINT", "BLOB": "BYTEA"}
# The audit log, which is a file of its own in SQLite.
EVENT_STATEMENTS = (
    """CREATE TABLE events (
        id INTEGER PRIMARY KEY,
        time REAL NOT NULL,
        action TEXT NOT NULL,
        user_id TEXT NOT NULL,
        client TEXT NOT NULL,
        target TEXT NOT NULL,
        address TEXT NOT NULL,
        detail TEXT NOT NULL,
        count INTEGER NOT NULL
    )""",
    "CREATE INDEX events_of_user ON events (user_id, id)",
    "CREATE INDEX events_by_time ON events (time)",
)
_OWN_STATEMENTS = (
    # People sign in with their name in any case.
    "CREATE INDEX users_by_name ON users (lower(name))",
    *EVENT_STATEMENTS,
    # The schema of each user's library in early development versions.
    """CREATE TABLE libraries (
        user_id TEXT PRIMARY KEY,
        schema_name TEXT NOT NULL UNIQUE,
        schema_version INTEGER NOT NULL,
        created_at REAL NOT NULL
    )""",
    # The libraries that `florilegium migrate-store` has copied here. With another `mark`, the original has changed.
    """CREATE TABLE store_copies (
        user_id TEXT PRIMARY KEY,
        mark TEXT NOT NULL,
        rows INTEGER NOT NULL,
        copied_at REAL NOT NULL
    )""",
    # Users with text to embed, the process that does it, and until when others leave it to that process.
    """CREATE TABLE embedding_users (
        user_id TEXT PRIMARY KEY,
        process TEXT NOT NULL,
        until REAL NOT NULL
    )""",
)
_TENANTS = (
    # Whose library a tenant of the shared tables is, and what is known about these tables.
    """CREATE TABLE tenants (
        user_id TEXT PRIMARY KEY,
        tenant_id TEXT NOT NULL UNIQUE,
        created_at REAL NOT NULL
    )""",
    "CREATE TABLE library_schema (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
)


def _in_postgres(statements: Iterable[str]) -> tuple[str, ...]:
    return tuple(
        re.sub(r"\b(TEXT|REAL|INTEGER|BLOB)\b", lambda match: _TYPES[match[1]], statement).removesuffix(
            " WITHOUT ROWID"
        )
        for statement in statements
    )


POSTGRES_CONTROL_SCHEMA = ControlSchema(
    first_version=8,
    statements=_in_postgres((*CONTROL_SCHEMA.statements, *_OWN_STATEMENTS)),
    migrations=(_in_postgres(_TENANTS), *map(_in_postgres, CONTROL_SCHEMA.migrations)),
)


T = TypeVar("T")

# With two connections, a write that waits for its turn does not hold up the reads of calls.
_THREADS = 2
_POLL_S = 0.5
# Without a successful read of the number for this long, every comparison sees a change.
_STALE_S = 4 * _POLL_S
_STATEMENT_TIMEOUT_MS = 5_000
_READ_MAX_S = _STATEMENT_TIMEOUT_MS / 1000
_IDLE_TIMEOUT_MS = 10_000
# Keeps processes that start at the same time from creating the tables twice.
_MIGRATION_LOCK = 7_305_126_184
_MIGRATION_TIMEOUT_MS = 60_000
_STATE_TABLE = (
    "CREATE TABLE IF NOT EXISTS control_state "
    "(id BIGINT PRIMARY KEY, version BIGINT NOT NULL, revision BIGINT NOT NULL)"
)
_ADVANCE = "UPDATE control_state SET revision = revision + 1 WHERE id = 1 RETURNING revision"
_REVISION = "SELECT revision FROM control_state WHERE id = 1"
_VERSION = "SELECT version FROM control_state WHERE id = 1"
_HAS_STATE = "SELECT to_regclass('florilegium.control_state') IS NOT NULL"
_HAS_EMPTY_PATH = """SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_db_role_setting s
    JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase JOIN pg_catalog.pg_roles r ON r.oid = s.setrole
    WHERE d.datname = current_database() AND r.rolname = current_user AND 'search_path=""' = ANY (s.setconfig))"""
_SET_EMPTY_PATH = """DO $$ BEGIN
    EXECUTE format('ALTER ROLE %I IN DATABASE %I SET search_path = ''''', current_user, current_database());
END $$"""


class PostgresControlDatabase:
    """An open control database."""

    def __init__(self, threads: ConnectionThreads, lock_timeout_s: float, waits_for_servers: bool) -> None:
        self._threads = threads
        self._writing = Transaction(
            schema=CONTROL_SCHEMA_NAME,
            statement_timeout_ms=_STATEMENT_TIMEOUT_MS,
            lock_timeout_ms=max(1, round(lock_timeout_s * 1000)),
            idle_timeout_ms=_IDLE_TIMEOUT_MS,
        )
        self._reading = replace(self._writing, is_read_only=True)
        self._revision = 0
        self._checked_at = float("-inf")
        self._unknown_revision = 0
        self._waits_for_servers = waits_for_servers
        # Makes a write known to other processes before they read the number. Awaited, because a client that has the
        # answer to a revocation may call another process at once.
        self.announce: Callable[[int], Awaitable[None]] | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls, options: ConnectionOptions, lock_timeout_s: float, *, waits_for_servers: bool = False
    ) -> AsyncIterator[Self]:
        threads = ConnectionThreads(options, _THREADS, "control")
        database = cls(threads, lock_timeout_s, waits_for_servers)
        try:
            await migrate_control(threads)
            await database._check_revision()

            async def poll() -> None:
                while True:
                    await asyncio.sleep(_POLL_S)
                    with suppress(StorageError):
                        await database._check_revision()

            polling = asyncio.create_task(poll())
            try:
                yield database
            finally:
                polling.cancel()
                with suppress(asyncio.CancelledError):
                    await polling
        finally:
            await threads.close()

    async def read(self, operation: Callable[[ControlConnection], T]) -> T:
        # Without this limit, calls would wait behind others for a server that does not answer.
        with _control_errors():
            async with asyncio.timeout(_READ_MAX_S):
                return await self._threads.run(self._reading, operation)

    async def write(self, operation: Callable[[ControlConnection], T]) -> T:
        def advance_and_run(connection: PostgresConnection) -> tuple[int, T]:
            [revision] = connection.execute(_ADVANCE).fetchall()[0]
            return revision, operation(connection)

        async def commit() -> T:
            revision, result = await self._threads.run(self._writing, advance_and_run)
            self._revision = max(self._revision, revision)
            if self.announce is not None:
                await self.announce(revision)
            return result

        with _control_errors():
            # Whether it is committed and becomes known must not depend on whether the caller waits for it.
            return await asyncio.shield(asyncio.ensure_future(commit()))

    async def withdraw(self, operation: Callable[[ControlConnection], T]) -> T:
        result = await self.write(operation)
        if self._waits_for_servers:
            # By then every server has read the number after this write, or does not trust what it has read before.
            await asyncio.sleep(_STALE_S)
        return result

    def revision(self) -> int:
        if time.monotonic() - self._checked_at > _STALE_S:
            self._unknown_revision -= 1
            return self._unknown_revision
        return self._revision

    def advance(self, revision: int) -> None:
        """Applies the number of a write that another process has announced."""
        self._revision = max(self._revision, revision)

    async def _check_revision(self) -> None:
        started_at = time.monotonic()
        [revision] = await self.read(lambda db: db.execute(_REVISION).fetchone())
        self._revision = max(self._revision, revision)
        self._checked_at = started_at


async def is_control_current(options: ConnectionOptions) -> bool:
    """Whether the tables exist in the version of this program. Changes nothing."""
    reading = Transaction(schema=CONTROL_SCHEMA_NAME, is_read_only=True)
    threads = ConnectionThreads(options, 1, "control")
    try:
        with _control_errors():
            return await threads.run(reading, _has_current_tables)
    finally:
        await threads.close()


async def migrate_control(threads: ConnectionThreads) -> None:
    """Creates or migrates the tables. Several processes may do so at the same time."""
    migrating = Transaction(schema=CONTROL_SCHEMA_NAME, lock_timeout_ms=_MIGRATION_TIMEOUT_MS)
    with _control_errors():
        if not await threads.run(migrating, _is_current):
            await threads.run(migrating, _migrate)


def _is_current(connection: PostgresConnection) -> bool:
    [has_empty_path] = connection.execute(_HAS_EMPTY_PATH).fetchall()[0]
    return _has_current_tables(connection) and has_empty_path


def _has_current_tables(connection: PostgresConnection) -> bool:
    # With other encodings, a database cannot store every text, or counts bytes as characters.
    [encoding] = connection.execute("SELECT current_setting('server_encoding')").fetchall()[0]
    if encoding != "UTF8":
        raise StorageError(
            f"the PostgreSQL database has the encoding {encoding}; expected UTF8: create a database with "
            "ENCODING 'UTF8' TEMPLATE template0"
        )
    return _schema_version(connection) == POSTGRES_CONTROL_SCHEMA.newest_version


def _migrate(connection: PostgresConnection) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(?)", (_MIGRATION_LOCK,))
    version, schema = _schema_version(connection), POSTGRES_CONTROL_SCHEMA
    if version > schema.newest_version:
        raise StorageError(
            f"the control data in PostgreSQL has schema version {version}, written by a newer Florilegium; "
            f"this one supports up to version {schema.newest_version}: upgrade Florilegium"
        )
    if 0 < version < schema.first_version:
        raise StorageError(
            f"the control data in PostgreSQL has schema version {version}, which no version of Florilegium since 0.1.0 "
            f"can read; expected {schema.first_version} or newer"
        )
    if version == 0:
        connection.run_script(f"CREATE SCHEMA IF NOT EXISTS {CONTROL_SCHEMA_NAME}")
        connection.execute(_STATE_TABLE)
        connection.execute("INSERT INTO control_state (id, version, revision) VALUES (1, 0, 1) ON CONFLICT DO NOTHING")
    # Second safeguard: a name without a schema is an error in every session of this role, not only in ours.
    connection.run_script(_SET_EMPTY_PATH)
    for statements in schema.migrations_after(version) if version else (schema.statements, *schema.migrations):
        for statement in statements:
            connection.execute(statement)
    connection.execute("UPDATE control_state SET version = ? WHERE id = 1", (schema.newest_version,))


def _schema_version(connection: PostgresConnection) -> int:
    """Returns 0 if there are no tables."""
    if not connection.execute(_HAS_STATE).fetchall()[0][0]:
        return 0
    row = connection.execute(_VERSION).fetchone()
    version: int = row[0] if row else 0
    return version


@contextmanager
def _control_errors() -> Iterator[None]:
    with postgres_errors():
        try:
            yield
        except StatementInterrupted:
            raise ControlDatabaseLocked from None
        except driver_errors() as error:
            if is_lock_timeout(error):
                raise ControlDatabaseLocked from error
            raise
