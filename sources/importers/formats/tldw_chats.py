"""The notes, characters and conversations of tldw, all of which it keeps in one file, ChaChaNotes.db.

A message of a conversation that was deleted is as deleted as the conversation, whatever its own row says.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET, Struct

from config.errors import InvalidParams
from sources.drafts import CharacterDraft, ConversationDraft, MessageDraft, NoteDraft
from sources.importers.engine.database_rows import Links, Row, Rows, Table, aside, json_of, known_uuid, shown, text_of
from sources.importers.engine.files import few_tags
from sources.importers.engine.imported_items import (
    FailedItem,
    ImportedCharacter,
    ImportedNote,
    ImportEvent,
    SkippedItem,
    stable_uuid,
)
from sources.importers.engine.threads import Tree, arrivals_of, line_of, require_text, threaded
from sources.importers.engine.times import moment_of
from sources.importers.formats.chatgpt_content import texts
from sources.importers.formats.tldw_rows import NAME, about, is_live

NOTES = Table(
    "notes",
    ("id", "title", "content", "created_at", "last_modified", "deleted"),
    ("conversation_id", "message_id"),
)
CHARACTERS = Table(
    "character_cards",
    (
        *("id", "name", "description", "personality", "scenario", "system_prompt", "post_history_instructions"),
        *("first_message", "message_example", "creator_notes", "alternate_greetings", "tags", "creator"),
        *("character_version", "extensions", "created_at", "deleted"),
    ),
)
CONVERSATIONS = Table(
    "conversations",
    (
        *("id", "title", "character_id", "rating", "created_at", "last_modified", "deleted"),
        *("forked_from_message_id", "parent_conversation_id"),
    ),
    ("topic_label", "source", "external_ref"),
)
MESSAGES = Table("messages", ("id", "conversation_id", "timestamp", "deleted", "sender", "parent_message_id"))
_SAID = Table("messages", ("content", "image_mime_type", "ranking"))
_MESSAGE_IMAGES = Table("message_images", ("message_id", "image_mime_type"))
_MESSAGE_METADATA = Table("message_metadata", ("message_id", "tool_calls_json"))
_NOTE_KEYWORDS = Links("note_keywords", "note_id")
_CONVERSATION_KEYWORDS = Links("conversation_keywords", "conversation_id")

_CARD_TEXTS = (
    *("description", "personality", "scenario", "system_prompt", "post_history_instructions", "first_message"),
    *("message_example", "creator_notes"),
)
_ROLES = {"user": "user", "human": "user", "you": "user", "assistant": "assistant", "system": "system", "tool": "tool"}


def note(rows: Rows, place: int) -> Iterator[ImportEvent]:
    row = rows.at(NOTES, place)
    if not is_live(row):
        yield SkippedItem("a deleted note")
        return
    content = text_of(row["content"])
    require_text(content, rows.limits)
    yield ImportedNote(
        NoteDraft(
            uuid=_uuid("notes", row["id"]),
            title=line_of(row["title"]),
            content=content,
            tags=rows.keywords(_NOTE_KEYWORDS, row["id"]),
            metadata=about(conversation=line_of(row["conversation_id"]), message=line_of(row["message_id"])),
            created_at=moment_of(row["created_at"]) or UNSET,
        )
    )


def character(rows: Rows, place: int) -> Iterator[ImportEvent]:
    row = rows.at(CHARACTERS, place)
    if not is_live(row):
        yield SkippedItem("a deleted character")
        return
    said: dict[str, Any] = {field: text_of(row[field]) for field in _CARD_TEXTS}
    for text in said.values():
        require_text(text, rows.limits)
    extensions = json_of(row["extensions"], rows.limits)
    yield ImportedCharacter(
        CharacterDraft(
            uuid=_character_uuid(row),
            name=line_of(row["name"]),
            **said,
            creator=line_of(row["creator"]),
            character_version=line_of(row["character_version"]),
            alternate_greetings=tuple(texts(json_of(row["alternate_greetings"], rows.limits))),
            tags=few_tags([line_of(tag) for tag in texts(json_of(row["tags"], rows.limits))]),
            card={"extensions": extensions} if isinstance(extensions, dict) and extensions else {},
            metadata=about(),
            created_at=moment_of(row["created_at"]) or UNSET,
        )
    )


class _Said(Struct, frozen=True):
    """A message as far as its conversation needs it; its text is read when its turn comes."""

    place: int
    key: str
    time: str
    parent: str | None
    row: Row


def conversation(rows: Rows, place: int) -> Iterator[ImportEvent]:
    row = rows.at(CONVERSATIONS, place)
    messages = rows.places_of(MESSAGES, "conversation_id", row["id"])
    if not is_live(row):
        yield SkippedItem("a deleted conversation")
        yield from (SkippedItem("a message of a deleted conversation") for _ in messages)
        return
    draft = _conversation_draft(rows, row)
    found = sorted((_said(rows, one) for one in messages), key=lambda one: (one.time, one.place))
    drafts: dict[str, MessageDraft] = {}
    yield from _live(rows, found, drafts, f"conversation {shown(row['id'])}")
    tree = Tree(_parents(found))
    # tldw keeps no mark of the branch that was last read; the newest message is on it.
    newest = next((one.key for one in reversed(found) if one.key in drafts), None)
    said = threaded(tree, tree.path_to(newest), drafts, lambda key: _uuid("messages", key), draft.created_at)
    yield from arrivals_of(draft, said)


def strays(rows: Rows) -> Iterator[ImportEvent]:
    count = rows.strays(MESSAGES, "conversation_id", CONVERSATIONS)
    yield from (SkippedItem("a message without its conversation") for _ in range(count))


def _conversation_draft(rows: Rows, row: Row) -> ConversationDraft:
    cards = rows.where(CHARACTERS, "id", row["character_id"]) if row["character_id"] is not None else ()
    card = next(filter(is_live, cards), None)
    return ConversationDraft(
        uuid=_uuid("conversations", row["id"]),
        title=line_of(row["title"]),
        character=_character_uuid(card) if card else UNSET,
        tags=rows.keywords(_CONVERSATION_KEYWORDS, row["id"]),
        metadata=about(
            character=line_of(card["name"]) if card else None,
            rating=row["rating"] if isinstance(row["rating"], int) else None,
            topic=line_of(row["topic_label"]),
            source=line_of(row["source"]),
            external_ref=line_of(row["external_ref"]),
            forked_from_message=line_of(row["forked_from_message_id"]),
            parent_conversation=line_of(row["parent_conversation_id"]),
        ),
        created_at=moment_of(row["created_at"]) or UNSET,
        last_modified=moment_of(row["last_modified"]) or UNSET,
    )


def _said(rows: Rows, place: int) -> _Said:
    row = rows.at(MESSAGES, place)
    key = line_of(row["id"]) or f"row {place}"
    return _Said(place, key, moment_of(row["timestamp"]) or "", line_of(row["parent_message_id"]) or None, row)


def _parents(found: Sequence[_Said]) -> dict[str, str | None]:
    """Most clients of tldw say nothing of what a message answers: then it is the one before it."""
    keys = {one.key for one in found}
    parents: dict[str, str | None] = {}
    before: str | None = None
    for one in found:
        parents[one.key] = one.parent if one.parent in keys else before
        before = one.key
    return parents


def _live(rows: Rows, found: Sequence[_Said], drafts: dict[str, MessageDraft], where: str) -> Iterator[ImportEvent]:
    """Puts those that are live into `drafts`, and tells of the others."""
    chars = 0
    for one in found:
        if not is_live(one.row):
            yield SkippedItem("a deleted message")
            continue
        try:
            draft = _message_draft(rows, one)
        except InvalidParams as error:
            yield FailedItem(f"{where}, message {shown(one.key)}", error.message)
            continue
        if draft is None:
            yield SkippedItem("an empty message")
            continue
        chars += len(str(draft.content))
        if chars > rows.limits.line_max_bytes:
            raise InvalidParams(f"got more than {rows.limits.line_max_bytes} characters, expected fewer")
        drafts[one.key] = draft


def _message_draft(rows: Rows, one: _Said) -> MessageDraft | None:
    said = rows.at(_SAID, one.place)
    images = [image["image_mime_type"] for image in rows.where(_MESSAGE_IMAGES, "message_id", one.row["id"])]
    kinds = [kind for image in (said["image_mime_type"], *images) if (kind := line_of(image))]
    content = text_of(said["content"])
    if not content.strip():
        content = "\n".join(f"[image: {kind}]" for kind in kinds)
    if not content:
        return None
    require_text(content, rows.limits)
    sender = line_of(one.row["sender"])
    calls = [more["tool_calls_json"] for more in rows.where(_MESSAGE_METADATA, "message_id", one.row["id"])]
    return MessageDraft(
        # Whoever is not named by a role is a character, and speaks as one.
        role=_ROLES.get(sender.lower(), "assistant"),
        sender=sender,
        content=content,
        attachments=tuple({"mime_type": kind} for kind in dict.fromkeys(kinds)),
        metadata=aside(
            ranking=said["ranking"] if isinstance(said["ranking"], int) else None,
            tool_calls=json_of(calls[0], rows.limits) if calls else None,
        ),
        created_at=one.time or UNSET,
    )


def _uuid(kind: str, key: Any) -> str:
    return known_uuid(key, stable_uuid(NAME, kind, shown(key)))


def _character_uuid(row: Row) -> str:
    """Cards are numbered in each file anew and can be renamed; when one was made tells it from those of other files."""
    return stable_uuid(NAME, "characters", f"{row['id']}/{row['created_at']}")
