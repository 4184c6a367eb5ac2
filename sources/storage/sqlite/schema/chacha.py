"""Notes, conversations with their messages, characters, and observations."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from sources.installed import ADDED_KINDS
from sources.storage.sqlite.index.text_index import fts_ddl, fts_triggers
from sources.storage.sqlite.schema.messages import BOUND_CONTEXTS, MESSAGE_OWN, SEPARATE_HUMAN_ONLY_MESSAGES
from sources.storage.sqlite.schema.migrations import (
    ITEM_COLUMNS,
    SHARED_TABLES,
    DatabaseSchema,
    arrived_column,
    item_indexes,
)
from sources.storage.tables.kind_tables import segmented_table
from sources.storage.tables.sql import (
    CHARACTER_FIELDS,
    CHARACTERS_INDEX,
    CHATS_INDEX,
    NOTES_INDEX,
    OBSERVATION_FIELDS,
    OBSERVATIONS_INDEX,
    SegmentedTable,
    text_with_tags_sql,
)

_NOTES = (
    f"""CREATE TABLE notes (
        id INTEGER PRIMARY KEY,
        title TEXT NOT NULL,
        {ITEM_COLUMNS},
        content TEXT NOT NULL,
        title_seg TEXT,
        content_seg TEXT
    ) STRICT""",
    *item_indexes("notes"),
    """CREATE VIEW notes_index_source AS
        SELECT id, coalesce(title_seg, title) AS title, coalesce(content_seg, content) AS content
        FROM notes WHERE deleted = 0""",
    *fts_ddl(NOTES_INDEX),
    *fts_triggers(NOTES_INDEX, "notes", "title, content, title_seg, content_seg, deleted"),
)

# As it was before human-only messages were left out. The same is true of the triggers below.
_MESSAGE_CONTEXT = """
    coalesce((SELECT group_concat(text, ' ') FROM (
        SELECT coalesce(p.text_seg, p.sender || ': ' || p.content) AS text FROM messages p
        WHERE p.conversation_id = m.conversation_id AND p.position < m.position AND p.deleted = 0
        ORDER BY p.position DESC LIMIT 2)), '')
"""
# The index entries of a message and of the two messages after it, whose context it is part of.
_MESSAGE_AND_FOLLOWING = """
    INSERT OR IGNORE INTO chats_index_queue SELECT id, title, own, context FROM message_source WHERE id IN (
        SELECT id FROM messages WHERE conversation_id = old.conversation_id AND position >= old.position
        AND deleted = 0 ORDER BY position LIMIT 3)
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
        title TEXT NOT NULL,
        namespace TEXT NOT NULL,
        session_id TEXT NOT NULL,
        character_id INTEGER,
        {ITEM_COLUMNS},
        title_seg TEXT
    ) STRICT""",
    *item_indexes("conversations"),
    f"""CREATE TABLE messages (
        id INTEGER PRIMARY KEY,
        conversation_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        role TEXT NOT NULL,
        sender TEXT NOT NULL,
        model TEXT,
        tool TEXT,
        attachments TEXT NOT NULL,
        citations TEXT NOT NULL,
        parent_id TEXT,
        is_canonical INTEGER NOT NULL,
        {ITEM_COLUMNS},
        content TEXT NOT NULL,
        text_seg TEXT
    ) STRICT""",
    # `deleted` is included so that messages can be counted without reading their rows.
    "CREATE UNIQUE INDEX messages_in_order ON messages (conversation_id, position, deleted)",
    f"""CREATE VIEW message_source AS
        SELECT m.id, '' AS title, {MESSAGE_OWN} AS own, {_MESSAGE_CONTEXT} AS context, m.conversation_id
        FROM messages m JOIN conversations c ON c.id = m.conversation_id
        WHERE m.deleted = 0 AND c.deleted = 0""",
    """CREATE VIEW title_source AS
        SELECT -id AS id, coalesce(title_seg, title) AS title, '' AS own, '' AS context, id AS conversation_id
        FROM conversations WHERE deleted = 0 AND title <> ''""",
    """CREATE VIEW chats_index_source AS
        SELECT id, title, own, context FROM message_source
        UNION ALL SELECT id, title, own, context FROM title_source""",
    *fts_ddl(CHATS_INDEX),
    """CREATE TRIGGER messages_added AFTER INSERT ON messages BEGIN
        INSERT OR IGNORE INTO chats_index_queue (id) VALUES (new.id); END""",
    f"""CREATE TRIGGER messages_changing
        BEFORE UPDATE OF sender, content, text_seg, created_at, position, deleted ON messages
        BEGIN {_MESSAGE_AND_FOLLOWING}; END""",
    f"""CREATE TRIGGER messages_removing BEFORE DELETE ON messages BEGIN {_MESSAGE_AND_FOLLOWING}; END""",
    """CREATE TRIGGER conversations_added AFTER INSERT ON conversations BEGIN
        INSERT OR IGNORE INTO chats_index_queue (id) VALUES (-new.id); END""",
    """CREATE TRIGGER conversations_renaming BEFORE UPDATE OF title, title_seg ON conversations BEGIN
        INSERT OR IGNORE INTO chats_index_queue SELECT id, title, own, context FROM title_source
            WHERE conversation_id = old.id;
        INSERT OR IGNORE INTO chats_index_queue (id) VALUES (-old.id); END""",
    f"""CREATE TRIGGER conversations_hiding BEFORE UPDATE OF deleted ON conversations
        BEGIN {_WHOLE_CONVERSATION}; END""",
    f"""CREATE TRIGGER conversations_removing BEFORE DELETE ON conversations BEGIN {_WHOLE_CONVERSATION}; END""",
)

# All text of a card, one field per line. Lists are JSON, whose punctuation is not part of any word.
CHARACTER_BODY = " || char(10) || ".join(CHARACTER_FIELDS)

_CHARACTERS = (
    f"""CREATE TABLE characters (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL,
        description TEXT NOT NULL,
        personality TEXT NOT NULL,
        scenario TEXT NOT NULL,
        first_message TEXT NOT NULL,
        message_example TEXT NOT NULL,
        system_prompt TEXT NOT NULL,
        post_history_instructions TEXT NOT NULL,
        creator_notes TEXT NOT NULL,
        creator TEXT NOT NULL,
        character_version TEXT NOT NULL,
        nickname TEXT NOT NULL,
        alternate_greetings TEXT NOT NULL,
        group_only_greetings TEXT NOT NULL,
        card TEXT NOT NULL,
        {ITEM_COLUMNS},
        name_seg TEXT,
        body_seg TEXT
    ) STRICT""",
    *item_indexes("characters"),
    f"""CREATE VIEW characters_index_source AS
        SELECT id, coalesce(name_seg, name) AS name, coalesce(body_seg, {CHARACTER_BODY}) AS body
        FROM characters WHERE deleted = 0""",
    *fts_ddl(CHARACTERS_INDEX),
    *fts_triggers(
        CHARACTERS_INDEX,
        "characters",
        ", ".join(("name", *CHARACTER_FIELDS, "name_seg", "body_seg", "deleted")),
    ),
)

_NAMESPACES = (
    "UPDATE conversations SET namespace = 'default' WHERE namespace = ''",
    # If several conversations have the same session, the newest one keeps it.
    """UPDATE conversations SET session_id = '' WHERE id IN (
        SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY session_id ORDER BY last_modified DESC, id DESC) AS place
            FROM conversations WHERE deleted = 0 AND session_id <> '')
        WHERE place > 1)""",
    """CREATE UNIQUE INDEX conversations_by_session ON conversations (session_id)
        WHERE deleted = 0 AND session_id <> ''""",
    """CREATE INDEX conversations_by_namespace ON conversations (namespace, last_modified DESC, id DESC)
        WHERE deleted = 0""",
    # Namespaces that were created explicitly, with or without conversations.
    "CREATE TABLE namespaces (name TEXT PRIMARY KEY NOT NULL) STRICT, WITHOUT ROWID",
    # To read messages newest first. The last two columns are included so that most rows need not be read.
    "CREATE INDEX messages_by_time ON messages (created_at, id, conversation_id, role) WHERE deleted = 0",
)

# All text of an observation except its title, one field per line. Lists are JSON.
OBSERVATION_BODY = " || char(10) || ".join(OBSERVATION_FIELDS)

_OBSERVATIONS = (
    f"""CREATE TABLE observations (
        id INTEGER PRIMARY KEY,
        type TEXT NOT NULL,
        title TEXT NOT NULL,
        subtitle TEXT NOT NULL,
        narrative TEXT NOT NULL,
        facts TEXT NOT NULL,
        concepts TEXT NOT NULL,
        files_read TEXT NOT NULL,
        files_modified TEXT NOT NULL,
        project TEXT NOT NULL,
        session_id TEXT NOT NULL,
        origin TEXT NOT NULL,
        conversation_id TEXT,
        line_start INTEGER,
        line_end INTEGER,
        {ITEM_COLUMNS},
        title_seg TEXT,
        body_seg TEXT
    ) STRICT""",
    *item_indexes("observations"),
    "CREATE INDEX observations_by_time ON observations (created_at, id) WHERE deleted = 0",
    # The values that filters are compared with, in folded form.
    """CREATE TABLE observations_values (
        field TEXT NOT NULL,
        folded TEXT NOT NULL,
        id INTEGER NOT NULL REFERENCES observations (id) ON DELETE CASCADE,
        PRIMARY KEY (field, folded, id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX observations_values_of_item ON observations_values (id)",
    f"""CREATE VIEW observations_index_source AS
        SELECT id, coalesce(title_seg, title) AS title, coalesce(body_seg, {OBSERVATION_BODY}) AS body
        FROM observations WHERE deleted = 0""",
    *fts_ddl(OBSERVATIONS_INDEX),
    *fts_triggers(
        OBSERVATIONS_INDEX,
        "observations",
        ", ".join(("title", *OBSERVATION_FIELDS, "title_seg", "body_seg", "deleted")),
    ),
)

# The agents on the message bus. Of their tokens, only the hashes are stored.
_AGENTS = (
    """CREATE TABLE agents (
        id TEXT PRIMARY KEY NOT NULL,
        name TEXT NOT NULL UNIQUE,
        token_hash BLOB NOT NULL,
        used_at TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
)

# The files of followed sources and the items read from them; see `sources.following`. Names are bytes, because a file
# name need not be valid UTF-8. `key` is the id that the importer gave an item, `uuid` the one under which it is stored.
_FOLLOWED_FILES = (
    """CREATE TABLE followed_files (
        follow TEXT NOT NULL,
        name BLOB NOT NULL,
        signature TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        conflicts INTEGER NOT NULL,
        problem TEXT NOT NULL,
        PRIMARY KEY (follow, name)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE followed_items (
        follow TEXT NOT NULL,
        name BLOB NOT NULL,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        uuid TEXT NOT NULL,
        PRIMARY KEY (follow, name, kind, key)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX followed_items_by_uuid ON followed_items (uuid, kind)",
)

# Pinned and archived conversations. Earlier versions marked archived threads of the message bus in their metadata.
_PINNED_AND_ARCHIVED = (
    "ALTER TABLE conversations ADD COLUMN is_pinned INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE conversations ADD COLUMN is_archived INTEGER NOT NULL DEFAULT 0",
    """UPDATE conversations SET is_archived = 1, metadata = json_remove(metadata, '$._bus.status')
        WHERE metadata LIKE '%archived%' AND json_extract(metadata, '$._bus.status') = 'archived'""",
    """CREATE INDEX conversations_by_place ON conversations (is_archived, is_pinned, last_modified DESC, id DESC)
        WHERE deleted = 0""",
)

# Images that imported notes show.
_NOTE_IMAGES = (
    """CREATE TABLE note_images (
        note INTEGER NOT NULL REFERENCES notes (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        media_type TEXT NOT NULL,
        digest TEXT NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (note, name)
    ) STRICT""",
)

CHACHA = DatabaseSchema(
    kind="chacha",
    migrations=(
        (*SHARED_TABLES, *_NOTES, *_CHATS, *_CHARACTERS),
        (*_NAMESPACES, *_OBSERVATIONS),
        arrived_column("notes", "conversations", "messages", "characters", "observations"),
        _AGENTS,
        SEPARATE_HUMAN_ONLY_MESSAGES,
        _FOLLOWED_FILES,
        _PINNED_AND_ARCHIVED,
        BOUND_CONTEXTS,
        _NOTE_IMAGES,
    ),
    segmented=(
        SegmentedTable("notes", (("title_seg", "title"), ("content_seg", text_with_tags_sql("content"))), NOTES_INDEX),
        SegmentedTable("conversations", (("title_seg", text_with_tags_sql("title")),), CHATS_INDEX),
        SegmentedTable("messages", (("text_seg", "sender || ': ' || content"),), CHATS_INDEX),
        SegmentedTable("characters", (("name_seg", "name"), ("body_seg", CHARACTER_BODY)), CHARACTERS_INDEX),
        SegmentedTable(
            "observations",
            (("title_seg", "title"), ("body_seg", OBSERVATION_BODY)),
            OBSERVATIONS_INDEX,
            is_counted=False,
        ),
        *map(segmented_table, ADDED_KINDS),
    ),
)
