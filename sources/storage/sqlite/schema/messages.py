"""Messages in the schema: what is indexed for them, and the column and the full-text index of human-only ones.

Agents search `chats_index`, which contains no text of a human-only message, not even as the context of another one.
Neither a hit, nor a count, nor a rank can therefore depend on such a text. People search both indexes.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from sources.storage.sqlite.index.text_index import fts_ddl
from sources.storage.tables.sql import HUMAN_ONLY_INDEX

# A message `m` is indexed with its sender, its content and its date, for queries such as "what did Ana say in May".
MESSAGE_OWN = """
    coalesce(m.text_seg, m.sender || ': ' || m.content) || ' '
    || CAST(substr(m.created_at, 9, 2) AS INTEGER) || ' ' || CASE substr(m.created_at, 6, 2)
        WHEN '01' THEN 'January' WHEN '02' THEN 'February' WHEN '03' THEN 'March' WHEN '04' THEN 'April'
        WHEN '05' THEN 'May' WHEN '06' THEN 'June' WHEN '07' THEN 'July' WHEN '08' THEN 'August'
        WHEN '09' THEN 'September' WHEN '10' THEN 'October' WHEN '11' THEN 'November' ELSE 'December' END
    || ' ' || substr(m.created_at, 1, 4)
"""
# And, with a lower weight, with a context: the two messages before it that agents may read.
#
# A short message often makes sense only together with these ("The blue one, on Friday"). A long one says what it is
# about, and its words in the entries of its neighbours would only hide where they were written. So a message of more
# than CONTEXT_CHARS ends the context, and no word of it is in there; of a question that long, its answer has the
# beginning. 99 % of the messages between people are shorter: the bound is for answers of assistants, logs and letters.
# A name before each message is left out: it would make every reply to a person a match for the name.
CONTEXT_CHARS = 400
BOUNDED_TEXT = f"""
    CASE WHEN length(text) <= {CONTEXT_CHARS} THEN text
        WHEN role = 'user' AND m.role = 'assistant' THEN
            rtrim(substr(text, 1, {CONTEXT_CHARS}), replace(substr(text, 1, {CONTEXT_CHARS}), ' ', ''))
        ELSE '' END
"""
# The length of the message between a message of the context and the one that is indexed.
CHARS_BETWEEN = "lag(length(text), 1, 0) OVER (ORDER BY position DESC)"
MESSAGE_CONTEXT = f"""
    CASE m.human_only WHEN 1 THEN '' ELSE coalesce((SELECT group_concat(text, ' ') FROM (
        SELECT {BOUNDED_TEXT} AS text, {CHARS_BETWEEN} AS chars_between FROM (
            SELECT coalesce(p.text_seg, p.content) AS text, p.role, p.position FROM messages p
            WHERE p.conversation_id = m.conversation_id AND p.position < m.position AND p.deleted = 0
                AND p.human_only = 0
            ORDER BY p.position DESC LIMIT 2)
        ORDER BY position DESC) WHERE chars_between <= {CONTEXT_CHARS}), '') END
"""
# As it was before contexts were bounded.
_WHOLE_CONTEXT = """
    CASE m.human_only WHEN 1 THEN '' ELSE coalesce((SELECT group_concat(text, ' ') FROM (
        SELECT coalesce(p.text_seg, p.sender || ': ' || p.content) AS text FROM messages p
        WHERE p.conversation_id = m.conversation_id AND p.position < m.position AND p.deleted = 0 AND p.human_only = 0
        ORDER BY p.position DESC LIMIT 2)), '') END
"""
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

# Fills the column. The indexes still contain these messages, and their views still describe that.
_MARK_MESSAGES = (
    "ALTER TABLE messages ADD COLUMN human_only INTEGER NOT NULL DEFAULT 0",
    # The condition on the text spares most rows the call.
    "UPDATE messages SET human_only = 1 WHERE metadata LIKE '%human%' AND is_human_only(metadata)",
    "CREATE INDEX messages_human_only ON messages (created_at, id) WHERE human_only = 1 AND deleted = 0",
    """INSERT OR IGNORE INTO chats_index_queue SELECT id, title, own, context FROM message_source
        WHERE conversation_id IN (SELECT conversation_id FROM messages WHERE human_only = 1)""",
    # Earlier versions made a title of the first message even if it was human-only. The hash is that of an empty title.
    """UPDATE conversations SET title = '', title_seg = NULL, version = version + 1,
        content_hash = 'e3b0c44298fc1c149afbf4c8996fb924'
        WHERE title <> '' AND EXISTS (SELECT 1 FROM messages m WHERE m.conversation_id = conversations.id
            AND m.human_only = 1
            AND title IN (m.content, substr(m.content, 1, 50) || '...'))""",
)

_INDEX_PUBLIC_MESSAGES = (
    "DROP VIEW message_source",
    f"""CREATE VIEW message_source AS
        SELECT m.id, '' AS title, {MESSAGE_OWN} AS own, {_WHOLE_CONTEXT} AS context, m.conversation_id
        FROM messages m JOIN conversations c ON c.id = m.conversation_id
        WHERE m.deleted = 0 AND c.deleted = 0 AND m.human_only = 0""",
    "DROP TRIGGER messages_changing",
    f"""CREATE TRIGGER messages_changing
        BEFORE UPDATE OF sender, content, text_seg, created_at, position, deleted, human_only ON messages BEGIN
        {_MESSAGE_AND_FOLLOWING};
        INSERT OR IGNORE INTO chats_index_queue (id) VALUES (old.id); END""",
    "DROP TRIGGER messages_removing",
    f"CREATE TRIGGER messages_removing BEFORE DELETE ON messages BEGIN {_MESSAGE_AND_FOLLOWING}; END",
    """INSERT INTO chats_index (chats_index, rowid, title, own, context)
        SELECT 'delete', id, title, own, context FROM chats_index_queue WHERE title IS NOT NULL""",
    """INSERT INTO chats_index (rowid, title, own, context) SELECT now.id, now.title, now.own, now.context
        FROM chats_index_queue queued CROSS JOIN message_source now ON now.id = queued.id""",
    """INSERT INTO chats_index (rowid, title, own, context) SELECT now.id, now.title, now.own, now.context
        FROM chats_index_queue queued CROSS JOIN title_source now ON now.conversation_id = -queued.id""",
    "DELETE FROM chats_index_queue",
)

_INDEX_HUMAN_ONLY_MESSAGES = (
    f"""CREATE VIEW human_only_index_source AS
        SELECT m.id, '' AS title, {MESSAGE_OWN} AS own, '' AS context
        FROM messages m JOIN conversations c ON c.id = m.conversation_id
        WHERE m.deleted = 0 AND c.deleted = 0 AND m.human_only = 1""",
    *fts_ddl(HUMAN_ONLY_INDEX),
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
    "INSERT INTO human_only_index (human_only_index) VALUES ('rebuild')",
)

SEPARATE_HUMAN_ONLY_MESSAGES = (*_MARK_MESSAGES, *_INDEX_PUBLIC_MESSAGES, *_INDEX_HUMAN_ONLY_MESSAGES)

# Nearly every entry changes, so the index is built again as a whole, which takes less time than replacing entries.
BOUND_CONTEXTS = (
    "DROP VIEW message_source",
    f"""CREATE VIEW message_source AS
        SELECT m.id, '' AS title, {MESSAGE_OWN} AS own, {MESSAGE_CONTEXT} AS context, m.conversation_id
        FROM messages m JOIN conversations c ON c.id = m.conversation_id
        WHERE m.deleted = 0 AND c.deleted = 0 AND m.human_only = 0""",
    # What is in the context of an answer depends on the role of its question.
    "DROP TRIGGER messages_changing",
    f"""CREATE TRIGGER messages_changing
        BEFORE UPDATE OF sender, content, text_seg, created_at, position, role, deleted, human_only ON messages BEGIN
        {_MESSAGE_AND_FOLLOWING};
        INSERT OR IGNORE INTO chats_index_queue (id) VALUES (old.id); END""",
    "INSERT INTO chats_index (chats_index) VALUES ('rebuild')",
)
