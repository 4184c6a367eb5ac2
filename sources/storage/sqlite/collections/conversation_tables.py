"""The tables of conversations and messages, and how they are searched as one source."""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import sqlite3
from collections.abc import Sequence
from typing import Any

from sources.records import Conversation, Hit, Message, is_human_only
from sources.search.scoring import MESSAGE_AND_CONTEXT
from sources.storage.contract import DEFAULT_NAMESPACE, Search
from sources.storage.sqlite.schema.chacha import CHATS_INDEX, MESSAGE_CONTEXT, MESSAGE_OWN
from sources.storage.sqlite.search.counting import Counter
from sources.storage.sqlite.search.target import (
    Candidate,
    Filter,
    Target,
    dated,
    either,
    equal,
    json_list,
    one_of,
    tagged,
)
from sources.storage.sqlite.write import validation
from sources.storage.sqlite.write.items import (
    Column,
    Derived,
    Form,
    Items,
    form_of,
    read_object,
    read_objects,
    read_texts,
)
from sources.storage.sqlite.write.validation import Limits
from sources.text.folding import fold

DEFAULT_ROLE = "user"


def _namespace(limits: Limits, field: str, value: Any) -> str:
    return validation.line(limits, field, value).strip() or DEFAULT_NAMESPACE


CONVERSATIONS = Items(
    table="conversations",
    kind="conversation",
    record=Conversation,
    key="uuid",
    columns=(
        Column("title", validation.line),
        Column("namespace", _namespace, DEFAULT_NAMESPACE),
        Column("session_id", validation.line),
        Column("character_id", validation.number_or_none, None),
    ),
    hashed=("title",),
    forms=(form_of("title"),),
    index=CHATS_INDEX,
    derived=(
        Derived(
            "message_count",
            "SELECT count(*) FROM messages m WHERE m.conversation_id = conversations.id AND m.deleted = 0",
        ),
    ),
)

MESSAGES = Items(
    table="messages",
    kind="message",
    record=Message,
    key="uuid",
    columns=(
        Column("role", validation.line, DEFAULT_ROLE),
        Column("sender", validation.line),
        Column("content", validation.text),
        Column("model", validation.line_or_none, None),
        Column("tool", validation.line_or_none, None),
        Column("attachments", validation.json, "[]", read_objects),
        Column("citations", validation.json, "[]", read_objects),
        Column("parent_id", validation.line_or_none, None),
        Column("is_canonical", validation.flag, 1, bool),
    ),
    hashed=("sender", "content"),
    forms=(Form("text_seg", lambda values: f"{values['sender']}: {values['content']}"),),
    index=CHATS_INDEX,
    derived=(
        Derived("conversation_id", "c.uuid"),
        Derived("position", "messages.position"),
        Derived("number", "messages.id"),
    ),
    joined="CROSS JOIN conversations c ON c.id = messages.conversation_id",
    alive="messages.deleted = 0 AND c.deleted = 0",
)

# As the column has it of most messages, which need not be read.
_NO_METADATA = "{}"
_HIT = "c.uuid, c.title, c.tags"
_MESSAGE_ROWS = f"""
    SELECT {_HIT}, m.content, m.created_at, m.last_modified, m.version, m.content_hash, length(m.content),
        m.uuid, m.position, m.sender, m.role, m.metadata, {MESSAGE_OWN}, {MESSAGE_CONTEXT}, m.id
    FROM json_each(?) wanted CROSS JOIN messages m ON m.id = wanted.value
        CROSS JOIN conversations c ON c.id = m.conversation_id
"""
# A title is shown with the beginning of its conversation.
_TITLE_ROWS = f"""
    SELECT {_HIT}, coalesce(first.content, ''), c.created_at, c.last_modified, c.version, c.content_hash,
        coalesce((SELECT sum(length(m.content)) FROM messages m WHERE m.conversation_id = c.id AND m.deleted = 0), 0),
        NULL, NULL, NULL, NULL, coalesce(first.metadata, '{{}}'), coalesce(c.title_seg, c.title), '', -c.id
    FROM json_each(?) wanted CROSS JOIN conversations c ON c.id = -wanted.value
        LEFT JOIN messages first ON first.id = (SELECT m.id FROM messages m
            WHERE m.conversation_id = c.id AND m.deleted = 0 ORDER BY m.position LIMIT 1)
"""


def _filter(search: Search) -> Filter:
    found = (
        tagged(search, "conversations", "c.id")
        & dated(search, "coalesce(r.created_at, c.created_at)")
        & equal("c.character_id", search.character_id)
        & equal("c.uuid", search.within)
    )
    if search.senders:
        found &= either(one_of("r.sender", search.senders), one_of("r.role", search.senders))
    if search.by != "both":
        found &= Filter(("r.id IS NULL" if search.by == "title" else "r.id IS NOT NULL",))
    return found


def _listed(search: Search) -> str:
    if search.by == "title":
        return (
            "SELECT -c.id AS number, c.last_modified AS age FROM conversations c LEFT JOIN messages r ON FALSE "
            "WHERE c.deleted = 0"
        )
    return (
        "SELECT r.id AS number, r.last_modified AS age FROM messages r "
        "JOIN conversations c ON c.id = r.conversation_id WHERE r.deleted = 0 AND c.deleted = 0"
    )


def _candidates(connection: sqlite3.Connection, numbers: Sequence[int]) -> Sequence[Candidate]:
    messages = [number for number in numbers if number > 0]
    titles = [number for number in numbers if number < 0]
    rows = {row[-1]: row for row in connection.execute(_MESSAGE_ROWS, (json_list(messages),))}
    if titles:
        rows |= {row[-1]: row for row in connection.execute(_TITLE_ROWS, (json_list(titles),))}
    return [_candidate(rows[number]) for number in numbers]


def _candidate(row: tuple[Any, ...]) -> Candidate:
    *_, own, context, number = row
    return Candidate(
        row=row,
        prominent=fold(own),
        other=fold(context),
        chars=len(own) + len(context),
        has_title=number < 0,
        age=row[5],
        identity=row[9] or row[0],
    )


def _hit(found: Candidate, _search: Search, _counter: Counter) -> Hit:
    conversation, title, tags, text, created_at, last_modified, version, content_hash, chars, *place = found.row
    message, position, sender, role, metadata, *_ = place
    return Hit(
        id=conversation,
        title=title,
        text=text,
        score=found.score,
        bm25=found.bm25,
        created_at=created_at,
        last_modified=last_modified,
        version=version,
        tags=read_texts(tags),
        content_hash=content_hash,
        item_chars=chars,
        conversation_id=conversation,
        message_id=message,
        message_index=position,
        sender=sender,
        role=role,
        is_human_only=metadata != _NO_METADATA and is_human_only(read_object(metadata)),
    )


TARGET = Target(
    index=CHATS_INDEX,
    bm25="bm25(chats_index, 3.0, 3.0, 1.0)",
    title="title",
    join="LEFT JOIN messages r ON r.id = chats_index.rowid "
    "CROSS JOIN conversations c ON c.id = coalesce(r.conversation_id, -chats_index.rowid)",
    age="coalesce(r.last_modified, c.last_modified)",
    prominence=MESSAGE_AND_CONTEXT,
    filter=_filter,
    listed=_listed,
    candidates=_candidates,
    hit=_hit,
    # A word may have been said just before; who quotes several means what was said.
    phrase_columns=("title", "own"),
)
