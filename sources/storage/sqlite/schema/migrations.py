"""Migrates the schema of one file, in one transaction. Rejects a file that was written by a newer version."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from config.errors import StorageError
from config.paths import DatabaseKind
from sources.records import is_human_only
from sources.storage.sqlite.index.text_index import fts_ddl, fts_triggers, save_segment_version
from sources.storage.tables.sql import (
    CHUNK_BITS,
    MEDIA_INDEX,
    PROMPTS_INDEX,
    SegmentedTable,
    TextIndex,
    text_with_tags_sql,
)

Migration = Sequence[str]


class DatabaseSchema(Struct, frozen=True):
    """The schema of one of a user's files: its migrations, the tables whose text is segmented, and whether it has the
    column `media.text_weight`.

    Existing migrations must not change, because they have already run on users' files. Only append to them.
    """

    kind: DatabaseKind
    migrations: tuple[Migration, ...]
    segmented: tuple[SegmentedTable, ...]
    has_text_weights: bool = False

    @property
    def counted_indexes(self) -> tuple[TextIndex, ...]:
        """The indexes in which the terms of a library are counted."""
        return tuple(dict.fromkeys(table.index for table in self.segmented if table.is_counted))


def schema_version(connection: sqlite3.Connection) -> int:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def is_current(schema: DatabaseSchema, version: int) -> bool:
    newest = len(schema.migrations)
    if version > newest:
        raise StorageError(
            f"the {schema.kind} library has schema {version}, written by a newer version of Florilegium; "
            f"this version supports schemas up to {newest}: upgrade Florilegium"
        )
    return version == newest


def migrate(schema: DatabaseSchema, connection: sqlite3.Connection) -> None:
    """Must run in a transaction started as a writer, so that two processes cannot both migrate."""
    version = schema_version(connection)
    if is_current(schema, version):
        return
    migrate_to(schema, connection, len(schema.migrations))
    if version == 0:
        save_segment_version(connection)


def migrate_to(schema: DatabaseSchema, connection: sqlite3.Connection, version: int) -> None:
    """Runs the migrations up to a version."""
    connection.create_function("is_human_only", 1, _is_human_only, deterministic=True)
    first = schema_version(connection)
    for number, statements in enumerate(schema.migrations[first:version], start=first + 1):
        for statement in statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number}")


def _is_human_only(metadata: str) -> bool:
    return is_human_only(msgspec.json.decode(metadata, type=dict))


# -- shared ------------------------------------------------------------------------------------------------------------
# The tables that every file has, and the columns that all item tables have in common.

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


# -- media -------------------------------------------------------------------------------------------------------------
# Media items, their text, its chunks, and transcript segments.

_TABLES = (
    f"""CREATE TABLE media (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        title TEXT NOT NULL,
        media_type TEXT NOT NULL,
        url TEXT NOT NULL,
        author TEXT NOT NULL,
        length_chars INTEGER NOT NULL,
        chunk_count INTEGER NOT NULL,
        has_transcript INTEGER NOT NULL,
        {ITEM_COLUMNS},
        title_seg TEXT
    ) STRICT""",
    *item_indexes("media"),
    "CREATE INDEX media_by_type ON media (media_type) WHERE deleted = 0",
    "CREATE TABLE texts (id INTEGER PRIMARY KEY REFERENCES media (id), content TEXT NOT NULL) STRICT",
    """CREATE TABLE chunks (
        id INTEGER PRIMARY KEY,
        uuid TEXT NOT NULL,
        start INTEGER NOT NULL,
        "end" INTEGER NOT NULL,
        start_ms INTEGER,
        end_ms INTEGER,
        speaker TEXT,
        text TEXT NOT NULL,
        text_seg TEXT
    ) STRICT""",
    """CREATE TABLE segments (
        media_id INTEGER NOT NULL REFERENCES media (id),
        position INTEGER NOT NULL,
        start_ms INTEGER NOT NULL,
        end_ms INTEGER NOT NULL,
        speaker TEXT,
        text TEXT NOT NULL,
        PRIMARY KEY (media_id, position)
    ) STRICT, WITHOUT ROWID""",
)

_OLD_CHUNKS = f"""
    INSERT OR IGNORE INTO media_index_queue SELECT id, title, text FROM media_index_source
        WHERE id >= old.id << {CHUNK_BITS} AND id < (old.id + 1) << {CHUNK_BITS}
"""

_INDEX = (
    f"""CREATE VIEW media_index_source AS
        SELECT c.id, coalesce(m.title_seg, m.title) AS title, coalesce(c.text_seg, c.text) AS text
        FROM chunks c JOIN media m ON m.id = c.id >> {CHUNK_BITS} WHERE m.deleted = 0""",
    *fts_ddl(MEDIA_INDEX),
    *fts_triggers(MEDIA_INDEX, "chunks", "text, text_seg"),
    f"CREATE TRIGGER media_changing BEFORE UPDATE OF title, title_seg, deleted ON media BEGIN {_OLD_CHUNKS}; END",
    f"CREATE TRIGGER media_removing BEFORE DELETE ON media BEGIN {_OLD_CHUNKS}; END",
)

# The weight of the item's text (see `sources.text.token_estimates`), from which searches compute what reading it costs.
# Reading all texts of a large library takes too long for a migration; `index.text_weights` computes what is missing.
_TEXT_WEIGHT = (
    "ALTER TABLE media ADD COLUMN text_weight INTEGER",
    "CREATE INDEX media_without_weight ON media (id) WHERE text_weight IS NULL",
)

MEDIA = DatabaseSchema(
    kind="media",
    migrations=((*SHARED_TABLES, *_TABLES, *_INDEX), arrived_column("media"), _TEXT_WEIGHT),
    has_text_weights=True,
    segmented=(
        SegmentedTable("media", (("title_seg", text_with_tags_sql("title")),), MEDIA_INDEX),
        SegmentedTable("chunks", (("text_seg", "text"),), MEDIA_INDEX),
    ),
)


# -- prompts -----------------------------------------------------------------------------------------------------------
# Prompts. Their keywords are stored as tags.

_PROMPTS = (
    f"""CREATE TABLE prompts (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL,
        author TEXT NOT NULL,
        details TEXT NOT NULL,
        system_prompt TEXT NOT NULL,
        user_prompt TEXT NOT NULL,
        arguments TEXT NOT NULL,
        {ITEM_COLUMNS},
        name_seg TEXT,
        author_seg TEXT,
        details_seg TEXT,
        system_prompt_seg TEXT,
        user_prompt_seg TEXT,
        tags_seg TEXT
    ) STRICT""",
    *item_indexes("prompts"),
    "CREATE INDEX prompts_by_name ON prompts (name COLLATE NOCASE) WHERE deleted = 0",
    """CREATE VIEW prompts_index_source AS
        SELECT id, coalesce(name_seg, name) AS name, coalesce(author_seg, author) AS author,
            coalesce(details_seg, details) AS details, coalesce(system_prompt_seg, system_prompt) AS system_prompt,
            coalesce(user_prompt_seg, user_prompt) AS user_prompt, coalesce(tags_seg, tags) AS keywords
        FROM prompts WHERE deleted = 0""",
    *fts_ddl(PROMPTS_INDEX),
    *fts_triggers(
        PROMPTS_INDEX,
        "prompts",
        "name, author, details, system_prompt, user_prompt, tags, name_seg, author_seg, details_seg, "
        "system_prompt_seg, user_prompt_seg, tags_seg, deleted",
    ),
)

_SEGMENTED = ("name", "author", "details", "system_prompt", "user_prompt", "tags")
PROMPTS = DatabaseSchema(
    kind="prompts",
    migrations=((*SHARED_TABLES, *_PROMPTS), arrived_column("prompts")),
    segmented=(SegmentedTable("prompts", tuple((f"{name}_seg", name) for name in _SEGMENTED), PROMPTS_INDEX),),
)
