"""The tables of the control data in PostgreSQL, in the schema `florilegium`.

They are those of `auth.control_schema` and some that only PostgreSQL needs. Both engines run the same statements. Texts
are compared by their bytes, as in SQLite.
"""

import re

from auth.control_database import ControlSchema
from auth.control_schema import CONTROL_SCHEMA

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
    # The schema of each user's library. A row is kept until the schema is dropped, also after its user is deleted.
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
POSTGRES_CONTROL_SCHEMA = ControlSchema(
    first_version=8,
    statements=tuple(
        re.sub(r"\b(TEXT|REAL|INTEGER|BLOB)\b", lambda match: _TYPES[match[1]], statement).removesuffix(
            " WITHOUT ROWID"
        )
        for statement in (*CONTROL_SCHEMA.statements, *_OWN_STATEMENTS)
    ),
)
