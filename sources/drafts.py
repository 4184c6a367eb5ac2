"""Drafts: what a caller writes to a library, and the results of upserting imported drafts.

Unset fields get their default when an item is created, and stay unchanged when it is updated. A `preferred_id` is the
number that an imported item had in its own system: it becomes the id of a new item if no other item has it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from sources.records import MediaChunk, Origin, SavedPromptArgument, Segment


class Bookkeeping(Struct, frozen=True, kw_only=True):
    """Bookkeeping fields that one of our own exports contains. They apply when the item is created, and when their
    version is higher than the stored one. `arrived` is `Record.arrived`."""

    version: int
    last_modified: str
    client_id: str
    arrived: str | None = None


class ItemDraft(Struct, frozen=True, kw_only=True):
    """A draft of any kind, in particular of those that have no draft of their own: the values of its fields by name,
    and what all kinds have. `last_modified` is for imported items; see `NoteDraft`."""

    values: Mapping[str, Any] = {}
    tags: Sequence[str] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    preferred_id: int | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    last_modified: str | UnsetType = UNSET
    bookkeeping: Bookkeeping | UnsetType = UNSET


class NoteImage(Struct, frozen=True):
    """An image that a note shows. `name` is how the text refers to it."""

    name: str
    media_type: str
    data: bytes


class NoteDraft(Struct, frozen=True, kw_only=True):
    """`last_modified` is for imported notes: it applies when one is created, unless it is before `created_at`."""

    title: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tags: Sequence[str] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    last_modified: str | UnsetType = UNSET
    bookkeeping: Bookkeeping | UnsetType = UNSET


class ConversationDraft(Struct, frozen=True, kw_only=True):
    """No two live conversations have the same non-empty `session_id`. `last_modified` is for imported conversations: it
    applies when one is created, unless a message is newer. `character` is the uuid of a stored character and overrides
    `character_id`. A draft that only pins or archives does not change the modification time."""

    title: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    character_id: int | UnsetType | None = UNSET
    character: str | UnsetType = UNSET
    is_pinned: bool | UnsetType = UNSET
    is_archived: bool | UnsetType = UNSET
    tags: Sequence[str] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    last_modified: str | UnsetType = UNSET
    bookkeeping: Bookkeeping | UnsetType = UNSET


class MessageDraft(Struct, frozen=True, kw_only=True):
    role: str | UnsetType = UNSET
    sender: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    model: str | UnsetType | None = UNSET
    tool: str | UnsetType | None = UNSET
    attachments: Sequence[Mapping[str, Any]] | UnsetType = UNSET
    citations: Sequence[Mapping[str, Any]] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    parent_id: str | UnsetType | None = UNSET
    is_canonical: bool | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    bookkeeping: Bookkeeping | UnsetType = UNSET


class CharacterDraft(Struct, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    personality: str | UnsetType = UNSET
    scenario: str | UnsetType = UNSET
    first_message: str | UnsetType = UNSET
    message_example: str | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    post_history_instructions: str | UnsetType = UNSET
    creator_notes: str | UnsetType = UNSET
    creator: str | UnsetType = UNSET
    character_version: str | UnsetType = UNSET
    nickname: str | UnsetType = UNSET
    alternate_greetings: Sequence[str] | UnsetType = UNSET
    group_only_greetings: Sequence[str] | UnsetType = UNSET
    card: Mapping[str, Any] | UnsetType = UNSET
    tags: Sequence[str] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    preferred_id: int | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    bookkeeping: Bookkeeping | UnsetType = UNSET


class PromptDraft(Struct, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    author: str | UnsetType = UNSET
    details: str | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    user_prompt: str | UnsetType = UNSET
    arguments: Sequence[SavedPromptArgument] | UnsetType = UNSET
    tags: Sequence[str] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    preferred_id: int | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    bookkeeping: Bookkeeping | UnsetType = UNSET


class MediaDraft(Struct, frozen=True, kw_only=True):
    """`content` is split into chunks unless `chunks` are given. `segments` make the item a transcript: their text
    becomes the content, and the chunks have times."""

    title: str | UnsetType = UNSET
    media_type: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    author: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    chunks: Sequence[MediaChunk] | UnsetType = UNSET
    segments: Sequence[Segment] | UnsetType = UNSET
    tags: Sequence[str] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    preferred_id: int | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    bookkeeping: Bookkeeping | UnsetType = UNSET


class ObservationDraft(Struct, frozen=True, kw_only=True):
    """`title` is required; `type` defaults to "general" and `origin` to "client"."""

    type: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    subtitle: str | UnsetType = UNSET
    narrative: str | UnsetType = UNSET
    facts: Sequence[str] | UnsetType = UNSET
    concepts: Sequence[str] | UnsetType = UNSET
    files_read: Sequence[str] | UnsetType = UNSET
    files_modified: Sequence[str] | UnsetType = UNSET
    project: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    origin: Origin | UnsetType = UNSET
    conversation_id: str | UnsetType | None = UNSET
    line_start: int | UnsetType | None = UNSET
    line_end: int | UnsetType | None = UNSET
    tags: Sequence[str] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    bookkeeping: Bookkeeping | UnsetType = UNSET


# The kinds whose drafts have a type of their own, by source; importers write these. All others have `ItemDraft`.
_DRAFTS: Mapping[str, type[Struct]] = {
    "notes": NoteDraft,
    "media": MediaDraft,
    "chats": ConversationDraft,
    "messages": MessageDraft,
    "characters": CharacterDraft,
    "prompts": PromptDraft,
    "observations": ObservationDraft,
}


def make_draft(source: str, values: Mapping[str, Any], **common: Any) -> Any:
    """Returns a draft of the kind of `source` with the values of its own fields, and of those that all kinds have."""
    draft = _DRAFTS.get(source)
    return ItemDraft(values=values, **common) if draft is None else draft(**values, **common)


UpsertOutcome = Literal["new", "updated", "unchanged", "kept", "deleted", "conflict", "refused"]


class UpsertResult(Struct, frozen=True):
    """The outcome for one imported draft. "unchanged": it equals the last imported one, even if the item was edited
    since. "kept": the item is newer than the draft, and was not changed. "deleted": the item was deleted and stays
    deleted. "conflict": the item was edited in the library and changed in its source, and the edit was kept. "refused":
    the draft is invalid, `problem` says why."""

    outcome: UpsertOutcome
    problem: str = ""


class ThreadDraft(Struct, frozen=True):
    """An imported conversation with all its messages, or with those that follow the ones imported before."""

    draft: ConversationDraft
    messages: Sequence[MessageDraft] = ()


class ThreadUpsertResult(Struct, frozen=True):
    """The outcomes for a conversation and for each of its messages; `messages` is empty if the conversation was
    refused."""

    conversation: UpsertResult
    messages: Sequence[UpsertResult] = ()
