"""The tables of a user's three files: `chacha.db`, `media.db` and `prompts.db`.

A column `<name>_seg` holds what the index needs in place of `<name>`, if any. The texts of triggers and views must not
change without a migration: a backup with others is rejected (see `maintenance.library_check`).
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from sources.records import CHARACTER, NOTE, OBSERVATION, PROMPT
from sources.storage.sqlite.index.text_index import fts_ddl, fts_triggers
from sources.storage.sqlite.schema import kinds
from sources.storage.tables import sql
from sources.storage.tables.dialect import SQLITE
from sources.storage.tables.kind_tables import ITEM_COLUMNS, TABLE_COLUMNS, segmented_tables

# -- shared ------------------------------------------------------------------------------------------------------------

_SEGMENTED = segmented_tables(SQLITE)
_ITEM_COLUMNS = ",\n    ".join(ITEM_COLUMNS)
_COLUMNS = {table: ",\n        ".join(columns) for table, columns in TABLE_COLUMNS.items()}

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


# -- chacha ------------------------------------------------------------------------------------------------------------
# Notes, conversations with their messages, characters, observations, agents, and followed files.

_NOTES = (
    *kinds.kind_statements(NOTE),
    f"""CREATE TABLE note_images (
        note INTEGER NOT NULL REFERENCES notes (id) ON DELETE CASCADE,
        {_COLUMNS["note_images"]},
        PRIMARY KEY (note, name)
    ) STRICT""",
)

# The index entries of a message and of the messages after it, whose context it is part of.
_MESSAGE_AND_FOLLOWING = """
    INSERT OR IGNORE INTO chats_index_queue SELECT id, title, own, context FROM message_source WHERE id IN (
        SELECT id FROM messages WHERE conversation_id = old.conversation_id AND position >= old.position
        AND deleted = 0 AND human_only = 0 ORDER BY position LIMIT 3)
"""
_HUMAN_ONLY_MESSAGE = (
    "INSERT OR IGNORE INTO human_only_index_queue SELECT * FROM human_only_index_source WHERE id = old.id"
)
_HUMAN_ONLY_MESSAGES_OF_CONVERSATION = """
    INSERT OR IGNORE INTO human_only_index_queue SELECT * FROM human_only_index_source
        WHERE id IN (SELECT id FROM messages WHERE conversation_id = old.id AND human_only = 1)
"""

_WHOLE_CONVERSATION = """
    INSERT OR IGNORE INTO chats_index_queue SELECT id, title, own, context FROM message_source
        WHERE conversation_id = old.id;
    INSERT OR IGNORE INTO chats_index_queue SELECT id, title, own, context FROM title_source
        WHERE conversation_id = old.id
"""

_CHATS = (
    f"""CREATE TABLE conversations (
        id INTEGER PRIMARY KEY,
        {_COLUMNS["conversations"]},
        {_ITEM_COLUMNS},
        title_seg TEXT
    ) STRICT""",
    *kinds.item_indexes("conversations"),
    """CREATE UNIQUE INDEX conversations_by_session ON conversations (session_id)
        WHERE deleted = 0 AND session_id <> ''""",
    """CREATE INDEX conversations_by_namespace ON conversations (namespace, last_modified DESC, id DESC)
        WHERE deleted = 0""",
    """CREATE INDEX conversations_by_place ON conversations (is_archived, is_pinned, last_modified DESC, id DESC)
        WHERE deleted = 0""",
    # Namespaces that were created explicitly, with or without conversations.
    "CREATE TABLE namespaces (name TEXT PRIMARY KEY NOT NULL) STRICT, WITHOUT ROWID",
    f"""CREATE TABLE messages (
        id INTEGER PRIMARY KEY,
        conversation_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
        {_COLUMNS["messages"]},
        {_ITEM_COLUMNS},
        content TEXT NOT NULL,
        text_seg TEXT
    ) STRICT""",
    # `deleted` is included so that messages can be counted without reading their rows.
    "CREATE UNIQUE INDEX messages_in_order ON messages (conversation_id, position, deleted)",
    # To read messages newest first. The last two columns are included so that most rows need not be read.
    "CREATE INDEX messages_by_time ON messages (created_at, id, conversation_id, role) WHERE deleted = 0",
    "CREATE INDEX messages_human_only ON messages (created_at, id) WHERE human_only = 1 AND deleted = 0",
    f"""CREATE VIEW message_source AS
        SELECT m.id, '' AS title, {sql.MESSAGE_OWN} AS own, {kinds.MESSAGE_CONTEXT} AS context, m.conversation_id
        FROM messages m JOIN conversations c ON c.id = m.conversation_id
        WHERE m.deleted = 0 AND c.deleted = 0 AND m.human_only = 0""",
    """CREATE VIEW title_source AS
        SELECT -id AS id, coalesce(title_seg, title) AS title, '' AS own, '' AS context, id AS conversation_id
        FROM conversations WHERE deleted = 0 AND title <> ''""",
    """CREATE VIEW chats_index_source AS
        SELECT id, title, own, context FROM message_source
        UNION ALL SELECT id, title, own, context FROM title_source""",
    *fts_ddl(sql.CHATS_INDEX),
    """CREATE TRIGGER messages_added AFTER INSERT ON messages BEGIN
        INSERT OR IGNORE INTO chats_index_queue (id) VALUES (new.id); END""",
    # What is in the context of an answer depends on the role of its question.
    f"""CREATE TRIGGER messages_changing
        BEFORE UPDATE OF sender, content, text_seg, created_at, position, role, deleted, human_only ON messages BEGIN
        {_MESSAGE_AND_FOLLOWING};
        INSERT OR IGNORE INTO chats_index_queue (id) VALUES (old.id); END""",
    f"CREATE TRIGGER messages_removing BEFORE DELETE ON messages BEGIN {_MESSAGE_AND_FOLLOWING}; END",
    """CREATE TRIGGER conversations_added AFTER INSERT ON conversations BEGIN
        INSERT OR IGNORE INTO chats_index_queue (id) VALUES (-new.id); END""",
    """CREATE TRIGGER conversations_renaming BEFORE UPDATE OF title, title_seg ON conversations BEGIN
        INSERT OR IGNORE INTO chats_index_queue SELECT id, title, own, context FROM title_source
            WHERE conversation_id = old.id;
        INSERT OR IGNORE INTO chats_index_queue (id) VALUES (-old.id); END""",
    f"""CREATE TRIGGER conversations_hiding BEFORE UPDATE OF deleted ON conversations
        BEGIN {_WHOLE_CONVERSATION}; END""",
    f"""CREATE TRIGGER conversations_removing BEFORE DELETE ON conversations BEGIN {_WHOLE_CONVERSATION}; END""",
    f"""CREATE VIEW human_only_index_source AS
        SELECT m.id, '' AS title, {sql.MESSAGE_OWN} AS own, '' AS context
        FROM messages m JOIN conversations c ON c.id = m.conversation_id
        WHERE m.deleted = 0 AND c.deleted = 0 AND m.human_only = 1""",
    *fts_ddl(sql.HUMAN_ONLY_INDEX),
    """CREATE TRIGGER human_only_added AFTER INSERT ON messages WHEN new.human_only = 1 BEGIN
        INSERT OR IGNORE INTO human_only_index_queue (id) VALUES (new.id); END""",
    f"""CREATE TRIGGER human_only_changing
        BEFORE UPDATE OF sender, content, text_seg, created_at, deleted, human_only ON messages
        WHEN old.human_only = 1 OR new.human_only = 1 BEGIN
        {_HUMAN_ONLY_MESSAGE};
        INSERT OR IGNORE INTO human_only_index_queue (id) VALUES (old.id); END""",
    f"""CREATE TRIGGER human_only_removing BEFORE DELETE ON messages WHEN old.human_only = 1
        BEGIN {_HUMAN_ONLY_MESSAGE}; END""",
    f"""CREATE TRIGGER human_only_hiding BEFORE UPDATE OF deleted ON conversations
        BEGIN {_HUMAN_ONLY_MESSAGES_OF_CONVERSATION}; END""",
    f"""CREATE TRIGGER human_only_ending BEFORE DELETE ON conversations
        BEGIN {_HUMAN_ONLY_MESSAGES_OF_CONVERSATION}; END""",
)

_OBSERVATIONS = (
    *kinds.kind_statements(OBSERVATION),
    "CREATE INDEX observations_by_time ON observations (created_at, id) WHERE deleted = 0",
    # The values that filters are compared with, in folded form.
    """CREATE TABLE observations_values (
        field TEXT NOT NULL,
        folded TEXT NOT NULL,
        id INTEGER NOT NULL REFERENCES observations (id) ON DELETE CASCADE,
        PRIMARY KEY (field, folded, id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX observations_values_of_item ON observations_values (id)",
)

_AGENTS_AND_FILES = (
    # The agents on the message bus. Of their tokens, only the hashes are stored.
    """CREATE TABLE agents (
        id TEXT PRIMARY KEY NOT NULL,
        name TEXT NOT NULL UNIQUE,
        token_hash BLOB NOT NULL,
        used_at TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
    f"""CREATE TABLE followed_files (
        {_COLUMNS["followed_files"]},
        PRIMARY KEY (follow, name)
    ) STRICT, WITHOUT ROWID""",
    f"""CREATE TABLE followed_items (
        {_COLUMNS["followed_items"]},
        PRIMARY KEY (follow, name, kind, key)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX followed_items_by_uuid ON followed_items (uuid, kind)",
)

CHACHA = kinds.DatabaseSchema(
    kind="chacha",
    first_version=9,
    statements=(
        *SHARED_TABLES,
        *_NOTES,
        *_CHATS,
        *kinds.kind_statements(CHARACTER),
        *_OBSERVATIONS,
        *_AGENTS_AND_FILES,
    ),
    segmented=_SEGMENTED["chacha"],
)


# -- media -------------------------------------------------------------------------------------------------------------
# Media items, their text, its chunks, and transcript segments.

_MEDIA = (
    # `index.text_index` computes values of `text_weight` that are missing.
    f"""CREATE TABLE media (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        {_COLUMNS["media"]},
        {_ITEM_COLUMNS},
        title_seg TEXT
    ) STRICT""",
    *kinds.item_indexes("media"),
    "CREATE INDEX media_without_weight ON media (id) WHERE text_weight IS NULL",
    "CREATE INDEX media_by_type ON media (media_type) WHERE deleted = 0",
    "CREATE TABLE texts (id INTEGER PRIMARY KEY REFERENCES media (id), content TEXT NOT NULL) STRICT",
    f"""CREATE TABLE chunks (
        id INTEGER PRIMARY KEY,
        {_COLUMNS["chunks"]}
    ) STRICT""",
    f"""CREATE TABLE segments (
        media_id INTEGER NOT NULL REFERENCES media (id),
        {_COLUMNS["segments"]},
        PRIMARY KEY (media_id, position)
    ) STRICT, WITHOUT ROWID""",
)

_OLD_CHUNKS = f"""
    INSERT OR IGNORE INTO media_index_queue SELECT id, title, text FROM media_index_source
        WHERE id >= old.id << {sql.CHUNK_BITS} AND id < (old.id + 1) << {sql.CHUNK_BITS}
"""

_MEDIA_INDEX = (
    f"""CREATE VIEW media_index_source AS
        SELECT c.id, coalesce(m.title_seg, m.title) AS title, coalesce(c.text_seg, c.text) AS text
        FROM chunks c JOIN media m ON m.id = c.id >> {sql.CHUNK_BITS} WHERE m.deleted = 0""",
    *fts_ddl(sql.MEDIA_INDEX),
    *fts_triggers(sql.MEDIA_INDEX, "chunks", "text, text_seg"),
    f"CREATE TRIGGER media_changing BEFORE UPDATE OF title, title_seg, deleted ON media BEGIN {_OLD_CHUNKS}; END",
    f"CREATE TRIGGER media_removing BEFORE DELETE ON media BEGIN {_OLD_CHUNKS}; END",
)

MEDIA = kinds.DatabaseSchema(
    kind="media",
    first_version=3,
    statements=(*SHARED_TABLES, *_MEDIA, *_MEDIA_INDEX),
    has_text_weights=True,
    segmented=_SEGMENTED["media"],
)


# -- prompts -----------------------------------------------------------------------------------------------------------
# Prompts. Their keywords are stored as tags.

PROMPTS = kinds.DatabaseSchema(
    kind="prompts",
    first_version=2,
    statements=(
        *SHARED_TABLES,
        *kinds.kind_statements(PROMPT),
        "CREATE INDEX prompts_by_name ON prompts (name COLLATE NOCASE) WHERE deleted = 0",
    ),
    segmented=_SEGMENTED["prompts"],
)
