"""What a caller may write into a library, and what becomes of what comes from elsewhere.

To create: what is unset takes its default. To update: what is unset stays.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from sources.records import MediaChunk, Origin, SavedPromptArgument, Segment


class Bookkeeping(Struct, frozen=True, kw_only=True):
    """What an export of ours tells of an item beside what is in it. It counts when the item is created, and where it is
    of a higher version than what is here. `arrived` is that of the row."""

    version: int
    last_modified: str
    client_id: str
    arrived: str | None = None


class NoteDraft(Struct, frozen=True, kw_only=True):
    title: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tags: Sequence[str] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    bookkeeping: Bookkeeping | UnsetType = UNSET


class ConversationDraft(Struct, frozen=True, kw_only=True):
    """No two live conversations have the same `session_id`; those without one have the empty text. `last_modified` is
    for a conversation that comes from elsewhere: it counts when one is created, and at least as much as its messages
    do. `character` is the uuid of one that is here: where it is set, it stands for `character_id`."""

    title: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    character_id: int | UnsetType | None = UNSET
    character: str | UnsetType = UNSET
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
    uuid: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    bookkeeping: Bookkeeping | UnsetType = UNSET


class MediaDraft(Struct, frozen=True, kw_only=True):
    """`content` is chunked by the engine unless `chunks` come with it; `segments` make it a transcript, whose text
    is then the content and whose chunks carry milliseconds."""

    title: str | UnsetType = UNSET
    media_type: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    author: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    chunks: Sequence[MediaChunk] | UnsetType = UNSET
    segments: Sequence[Segment] | UnsetType = UNSET
    tags: Sequence[str] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    bookkeeping: Bookkeeping | UnsetType = UNSET


class ObservationDraft(Struct, frozen=True, kw_only=True):
    """`title` is required; `type` is "general" and `origin` is "client" where they are unset."""

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


UpsertOutcome = Literal["new", "updated", "unchanged", "deleted", "refused"]


class UpsertResult(Struct, frozen=True):
    """What became of a draft that came from elsewhere. It is "unchanged" where it is as it came the last time, whatever
    was done with the item here since; "deleted" where the item was deleted here, and stays so; "refused" with the
    `problem`, in a sentence."""

    outcome: UpsertOutcome
    problem: str = ""


class ThreadDraft(Struct, frozen=True):
    """A conversation from elsewhere, with all its messages or those that follow the ones that came before."""

    draft: ConversationDraft
    messages: Sequence[MessageDraft] = ()


class ThreadUpsertResult(Struct, frozen=True):
    """What became of a conversation and of each of its messages; of none, where the conversation was refused."""

    conversation: UpsertResult
    messages: Sequence[UpsertResult] = ()
