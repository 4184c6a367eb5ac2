"""What every file has, and what the tables of items have in common."""

# The columns of every item that no draft can set, or that all drafts can.
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
    """To list items by age, and to find them by tag; `folded` is the tag in the form in which it is compared."""
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
    """Of the draft from elsewhere that a row was last made of, its digest: by it an item that comes again unchanged is
    told from one that changed."""
    return tuple(f"ALTER TABLE {table} ADD COLUMN arrived TEXT" for table in tables)
