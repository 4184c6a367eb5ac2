"""Prompts. Their keywords are stored as tags."""

from sources.storage.sqlite.index.text_index import fts_ddl, fts_triggers
from sources.storage.sqlite.schema.migrations import DatabaseSchema
from sources.storage.sqlite.schema.shared import ITEM_COLUMNS, SHARED_TABLES, arrived_column, item_indexes
from sources.storage.tables.indexes import PROMPTS_INDEX
from sources.storage.tables.text_index import SegmentedTable

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
