"""Media items, their text, its chunks, and transcript segments."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from sources.storage.sqlite.index.text_index import fts_ddl, fts_triggers
from sources.storage.sqlite.schema.migrations import DatabaseSchema
from sources.storage.sqlite.schema.shared import ITEM_COLUMNS, SHARED_TABLES, arrived_column, item_indexes
from sources.storage.tables.indexes import CHUNK_BITS, MEDIA_INDEX
from sources.storage.tables.text_index import SegmentedTable, text_with_tags_sql

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
