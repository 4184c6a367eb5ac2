"""The tables that every file has, and the columns that all item tables have in common."""

# The columns of every item table.
ITEM_COLUMNS = """
    uuid TEXT NOT NULL UNIQUE,
    tags TEXT NOT NULL DEFAULT '[]',
    metadata TEXT NOT NULL DEFAULT '{}',
    created_at TEXT NOT NULL,
    last_modified TEXT NOT NULL,
    version INTEGER NOT NULL DEFAULT 1,
    client_id TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0 CHECK (deleted IN (0, 1))
"""

SHARED_TABLES = (
    "CREATE TABLE state (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE idempotency (
        key TEXT PRIMARY KEY NOT NULL,
        digest TEXT NOT NULL,
        made TEXT NOT NULL,
        made_at TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX idempotency_by_age ON idempotency (made_at)",
)


def item_indexes(table: str) -> tuple[str, ...]:
    """Returns the index that lists items by age and the table that finds them by folded tag."""
    return (
        f"CREATE INDEX {table}_by_age ON {table} (last_modified DESC, id DESC) WHERE deleted = 0",
        f"""CREATE TABLE {table}_tags (
            folded TEXT NOT NULL,
            id INTEGER NOT NULL REFERENCES {table} (id) ON DELETE CASCADE,
            PRIMARY KEY (folded, id)
        ) STRICT, WITHOUT ROWID""",
        f"CREATE INDEX {table}_tags_of_item ON {table}_tags (id)",
    )


def arrived_column(*tables: str) -> tuple[str, ...]:
    """Adds the import stamp (see `write.upsert`) of the draft that a row was last imported from."""
    return tuple(f"ALTER TABLE {table} ADD COLUMN arrived TEXT" for table in tables)
