"""Converts a control database that was written before release 0.1.0 to the first schema of that release.

From commit 2813d5c on, all versions of the file are supported. `auth.sqlite_control` calls this once, in one
transaction: a conversion that was interrupted is repeated as a whole. This module, its call and its tests can be
deleted in release 0.2.0, together with `sources.storage.sqlite.schema.conversion`. Data in PostgreSQL needs none.
"""

import re
import sqlite3
from collections.abc import Sequence

from config.errors import StorageError

# The schema of commit 2813d5c.
_OLDEST = 2
_NAME = re.compile(r"CREATE (?:UNIQUE |VIRTUAL )?[A-Z]+ (\w+)")
# Columns that tables of older versions lack.
_COLUMNS = (
    ("users", "files TEXT"),
    ("users", "role TEXT NOT NULL DEFAULT 'writer'"),
    ("users", "named_by TEXT NOT NULL DEFAULT 'person'"),
    ("users", "notices_seen_at REAL NOT NULL DEFAULT 0"),
    ("keys", "sources TEXT"),
    ("keys", "created_with TEXT"),
    ("account_links", "created_with TEXT"),
    ("browser_sessions", "is_new_browser INTEGER NOT NULL DEFAULT 0"),
    ("browser_sessions", "needs_passkey INTEGER NOT NULL DEFAULT 0"),
    ("oauth_grants", "auth_method TEXT NOT NULL DEFAULT 'none'"),
    ("follows", "deployment TEXT"),
    ("follows", "needs_admin INTEGER NOT NULL DEFAULT 0"),
    ("follows", "created_with TEXT"),
    ("followed_deployments", "created_with TEXT"),
)
# Changes to the rows of versions below a number.
_CHANGES = (
    (
        5,
        """UPDATE users SET role = 'admin' WHERE id IN
            (SELECT user_id FROM keys WHERE ' ' || scopes || ' ' LIKE '% admin %' AND revoked_at IS NULL)""",
    ),
    # Users of an issuer chose their names, or their identity provider did, unless the operator says otherwise.
    (9, "UPDATE users SET named_by = 'operator' WHERE issuer = '' OR role = 'admin'"),
    (
        9,
        """DELETE FROM follows WHERE deployment IN (SELECT id FROM followed_deployments WHERE mapping = 'id')
            AND user_id IN (SELECT id FROM users WHERE named_by = 'person')""",
    ),
    (
        9,
        """UPDATE follows SET needs_admin = 1 WHERE is_confined = 0 AND deployment IS NULL
            AND user_id IN (SELECT id FROM users WHERE role = 'admin')""",
    ),
    (10, "UPDATE users SET notices_seen_at = CAST(strftime('%s', 'now') AS REAL)"),
)


def convert_control(statements: Sequence[str], connection: sqlite3.Connection, version: int) -> None:
    """`statements` create the first schema."""
    if version < _OLDEST:
        raise StorageError(
            f"the control database has schema version {version}, which no version of Florilegium since 0.1.0 can read; "
            f"expected {_OLDEST} or newer"
        )
    if version < 3:
        connection.execute("ALTER TABLE departed RENAME TO deleted_users")
        connection.execute("ALTER TABLE deleted_users RENAME COLUMN departed_at TO deleted_at")
    create_missing(statements, connection)
    for table, column in _COLUMNS:
        existing = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
        if column.split()[0] not in existing:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    for below, statement in _CHANGES:
        if version < below:
            connection.execute(statement)


def create_missing(statements: Sequence[str], connection: sqlite3.Connection) -> None:
    """Runs those statements whose table, index, view or trigger does not exist."""
    existing = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    for statement in statements:
        match = _NAME.match(statement)
        assert match is not None, statement
        if match[1] not in existing:
            connection.execute(statement)
