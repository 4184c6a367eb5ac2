"""Copies users, keys, accounts, connections, followed sources and the audit log."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from auth.audit import AuditFile
from auth.postgres_schema import CONTROL_SCHEMA_NAME
from auth.registry import ControlLocation, Registry
from auth.sqlite_control import storage_errors
from config.errors import StorageError
from config.paths import DataRoot
from config.postgres.connection import ConnectionOptions, PostgresConnection, Transaction
from config.postgres.errors import postgres_errors
from server.store_copy.tables import PostgresTables, SqliteTables, TableDigest, Tables, copy_tables

# Tables that others refer to come first.
CONTROL_TABLES = (
    "users",
    "keys",
    "revoked_tokens",
    "deleted_users",
    "quotas",
    "passwords",
    "passkeys",
    "account_links",
    "browser_sessions",
    "known_browsers",
    "oauth_clients",
    "oauth_grants",
    "oauth_codes",
    "oauth_tokens",
    "oauth_device_codes",
    "follows",
    "oauth_assertions",
    "followed_deployments",
    "deployment_exclusions",
)
_AUDIT_TABLES = ("events",)
_LOCK_TIMEOUT_S = 10.0
# Every write begins with this row, so that none can happen meanwhile.
_LOCK_WRITES = "SELECT revision FROM control_state WHERE id = 1 FOR UPDATE"


class _ControlTables:
    """The control data and the audit log of a deployment, in transactions that keep others from writing."""

    def __init__(self, control: Tables, audit: Tables) -> None:
        self.control = control
        self.audit = audit


async def prepare_control(location: ControlLocation) -> None:
    """Creates the tables, or migrates them to the schema of this version."""
    if isinstance(location, Path):
        DataRoot(location.parent).prepare()
        AuditFile(location.with_name("audit.db")).append(())
    async with Registry.open(location):
        pass


def copy_control(source: ControlLocation, target: ControlLocation) -> Mapping[str, TableDigest]:
    """Replaces the control data of the target. Nobody can write either of them meanwhile, and the target changes
    completely or not at all."""
    with ExitStack() as stack:
        original, copy = stack.enter_context(_open(source)), stack.enter_context(_open(target))
        _require_same_deployment(original.control, copy.control)
        digests = dict(copy_tables(original.control, copy.control, CONTROL_TABLES))
        digests |= copy_tables(original.audit, copy.audit, _AUDIT_TABLES)
        return digests


def forget_recorded_files(path: Path) -> None:
    """Lets the next process record which files each user has. In PostgreSQL users have none."""
    with storage_errors(), closing(sqlite3.connect(path)) as control, control:
        control.execute("UPDATE users SET files = NULL")


def _require_same_deployment(source: Tables, target: Tables) -> None:
    """A target with other users is another deployment, which must not be overwritten."""
    users, others = ({user_id for (user_id,) in tables.rows("users", ("id",))} for tables in (source, target))
    if others - users:
        raise StorageError(
            f"the target has {len(others - users)} users that this deployment does not have; use an empty target"
        )


@contextmanager
def _open(location: ControlLocation) -> Iterator[_ControlTables]:
    if isinstance(location, ConnectionOptions):
        with _open_postgres(location) as tables:
            yield tables
    else:
        paths = (location, location.with_name("audit.db"))
        with storage_errors(), _open_files(paths) as (control, audit):
            yield _ControlTables(control, audit)


@contextmanager
def _open_postgres(options: ConnectionOptions) -> Iterator[_ControlTables]:
    transaction = Transaction(schema=CONTROL_SCHEMA_NAME, lock_timeout_ms=round(_LOCK_TIMEOUT_S * 1000))
    with postgres_errors(), closing(PostgresConnection.connect(options)) as connection:
        connection.begin(transaction)
        try:
            connection.execute(_LOCK_WRITES)
            tables = PostgresTables(connection)
            yield _ControlTables(tables, tables)
        except BaseException:
            connection.rollback()
            raise
        connection.execute("UPDATE control_state SET revision = revision + 1 WHERE id = 1")
        connection.commit()


@contextmanager
def _open_files(paths: Sequence[Path]) -> Iterator[list[SqliteTables]]:
    with ExitStack() as stack:
        connections = [
            stack.enter_context(closing(sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S, isolation_level=None)))
            for path in paths
        ]
        for connection in connections:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
        yield [SqliteTables(connection) for connection in connections]
        for connection in connections:
            connection.execute("COMMIT")
