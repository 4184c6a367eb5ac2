"""What a source may ask of a library, whichever engine keeps it.

Every method belongs to the one user whose library was opened; none takes a user. Absent, deleted and foreign ids are
the same `NotFound`. A write either happened whole or not at all; a repeated one with the same `idempotency_key`
returns what the first returned. `Conflict` is raised where the expected version is not the stored one.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol

from msgspec import UNSET, Struct, UnsetType

from auth.context import RequestContext
from sources.query import ParsedQuery
from sources.records import (
    Character,
    Chunk,
    Conversation,
    Found,
    MediaItem,
    Message,
    Note,
    Page,
    Prompt,
    PromptArgument,
    Segment,
)

Order = Literal["relevance", "recent"]
Scoring = Literal["comparable", "minmax"]


class Corpus(Struct, frozen=True):
    """How common the terms of a query are: `frequencies` says for each in how many of the `rows` it occurs."""

    rows: int
    frequencies: tuple[int, ...]


class Search(Struct, frozen=True, kw_only=True):
    """One question to one source. Filters that do not apply to a source are not set for it; those that the query text
    itself names (`tag:work`) are already among the fields here, so an engine reads `query.expression` alone.

    A query without an expression lists what passes the filters, newest first and all with score 0; without filters
    either it finds nothing. `within` looks inside one item only (every passage of it, also of media, is a hit then).
    `scoring="minmax"` gives each hit the seed's score over all hits of the query, whichever page it is on. The
    comparable score weighs terms by how common they are in the whole library: by `corpus` (see `Library.corpus`), where
    somebody has counted already.

    An item needs all of `tags`, one of `media_types`, one of `senders` (any case), and a `created_at` from `date_from`
    to `date_to`, both included and in the one ISO form; a message is judged by its own.
    """

    query: ParsedQuery
    limit: int
    offset: int = 0
    order: Order = "relevance"
    scoring: Scoring = "comparable"
    deadline_ms: int
    within: str | int | None = None
    tags: tuple[str, ...] = ()
    media_types: tuple[str, ...] = ()
    date_from: str | None = None
    date_to: str | None = None
    by: Literal["both", "title", "message"] = "both"
    character_id: int | None = None
    senders: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    corpus: Corpus | None = None


class NoteDraft(Struct, frozen=True, kw_only=True):
    """To create: what is unset takes its default. To update: what is unset stays."""

    title: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tags: Sequence[str] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET


class ConversationDraft(Struct, frozen=True, kw_only=True):
    title: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    character_id: int | UnsetType | None = UNSET
    tags: Sequence[str] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET


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


class PromptDraft(Struct, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    author: str | UnsetType = UNSET
    details: str | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    user_prompt: str | UnsetType = UNSET
    arguments: Sequence[PromptArgument] | UnsetType = UNSET
    tags: Sequence[str] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET


class MediaDraft(Struct, frozen=True, kw_only=True):
    """`content` is chunked by the engine unless `chunks` come with it; `segments` make it a transcript, whose text
    is then the content and whose chunks carry milliseconds."""

    title: str | UnsetType = UNSET
    media_type: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    author: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    chunks: Sequence[Chunk] | UnsetType = UNSET
    segments: Sequence[Segment] | UnsetType = UNSET
    tags: Sequence[str] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET


class Notes(Protocol):
    async def search(self, search: Search) -> Found: ...
    async def get(self, note_id: str) -> Note: ...
    async def list(self, limit: int, offset: int) -> Page[Note]: ...
    async def create(self, draft: NoteDraft, *, idempotency_key: str | None = None) -> Note: ...
    async def create_many(self, drafts: Sequence[NoteDraft]) -> Sequence[Note]: ...
    async def update(self, note_id: str, draft: NoteDraft, expected_version: int | None = None) -> Note: ...
    async def append(self, note_id: str, text: str, expected_version: int | None = None) -> Note: ...
    async def delete(self, note_id: str, expected_version: int | None = None) -> None: ...
    async def purge(self, note_id: str) -> None: ...


class Chats(Protocol):
    async def search(self, search: Search) -> Found: ...
    async def get(self, conversation_id: str) -> Conversation: ...
    async def get_message(self, message_id: str) -> Message: ...
    async def list(self, limit: int, offset: int) -> Page[Conversation]: ...
    async def messages(self, conversation_id: str, limit: int, offset: int) -> Page[Message]: ...
    async def around(self, conversation_id: str, position: int, before: int, after: int) -> Sequence[Message]: ...
    async def create(
        self,
        draft: ConversationDraft,
        messages: Sequence[MessageDraft] = (),
        *,
        idempotency_key: str | None = None,
    ) -> Conversation: ...
    async def append(
        self, conversation_id: str, messages: Sequence[MessageDraft], *, idempotency_key: str | None = None
    ) -> Sequence[Message]: ...
    async def update(
        self, conversation_id: str, draft: ConversationDraft, expected_version: int | None = None
    ) -> Conversation: ...
    async def update_message(
        self, message_id: str, draft: MessageDraft, expected_version: int | None = None
    ) -> Message: ...
    async def delete(self, conversation_id: str, expected_version: int | None = None) -> None: ...
    async def delete_message(self, message_id: str, expected_version: int | None = None) -> None: ...
    async def purge(self, conversation_id: str) -> None: ...


class Characters(Protocol):
    async def search(self, search: Search) -> Found: ...
    async def get(self, character_id: int) -> Character: ...
    async def list(self, limit: int, offset: int) -> Page[Character]: ...
    async def create(self, draft: CharacterDraft, *, idempotency_key: str | None = None) -> Character: ...
    async def create_many(self, drafts: Sequence[CharacterDraft]) -> Sequence[Character]: ...
    async def update(
        self, character_id: int, draft: CharacterDraft, expected_version: int | None = None
    ) -> Character: ...
    async def delete(self, character_id: int, expected_version: int | None = None) -> None: ...
    async def purge(self, character_id: int) -> None: ...


class Prompts(Protocol):
    async def search(self, search: Search) -> Found: ...
    async def get(self, prompt_id: int) -> Prompt: ...
    async def get_by_name(self, name: str) -> Prompt: ...
    async def list(self, limit: int, offset: int) -> Page[Prompt]: ...
    async def create(self, draft: PromptDraft, *, idempotency_key: str | None = None) -> Prompt: ...
    async def create_many(self, drafts: Sequence[PromptDraft]) -> Sequence[Prompt]: ...
    async def update(self, prompt_id: int, draft: PromptDraft, expected_version: int | None = None) -> Prompt: ...
    async def delete(self, prompt_id: int, expected_version: int | None = None) -> None: ...
    async def purge(self, prompt_id: int) -> None: ...


class Media(Protocol):
    async def search(self, search: Search) -> Found: ...
    async def get(self, media_id: int) -> MediaItem: ...
    async def get_by_uuid(self, uuid: str) -> MediaItem: ...
    async def list(self, limit: int, offset: int) -> Page[MediaItem]: ...
    async def content(self, media_id: int, start: int = 0, length: int | None = None) -> str: ...
    async def chunks(self, media_id: int, first: int, count: int) -> Sequence[Chunk]: ...
    async def chunk_by_uuid(self, media_id: int, uuid: str) -> Chunk: ...
    async def chunk_at(self, media_id: int, offset: int) -> Chunk: ...
    async def segments(
        self, media_id: int, from_ms: int | None = None, to_ms: int | None = None
    ) -> Sequence[Segment]: ...
    async def types(self) -> Mapping[str, int]: ...
    async def create(self, draft: MediaDraft, *, idempotency_key: str | None = None) -> MediaItem: ...
    async def create_many(self, drafts: Sequence[MediaDraft]) -> Sequence[MediaItem]: ...
    async def update(self, media_id: int, draft: MediaDraft, expected_version: int | None = None) -> MediaItem: ...
    async def delete(self, media_id: int, expected_version: int | None = None) -> None: ...
    async def purge(self, media_id: int) -> None: ...


class Library(Protocol):
    """One user's five collections. Its files are opened when first used."""

    @property
    def notes(self) -> Notes: ...
    @property
    def media(self) -> Media: ...
    @property
    def chats(self) -> Chats: ...
    @property
    def characters(self) -> Characters: ...
    @property
    def prompts(self) -> Prompts: ...

    async def corpus(self, query: ParsedQuery, deadline_ms: int) -> Corpus:
        """How common the terms of a query are in all five collections together."""
        ...


class Libraries(Protocol):
    """Every user's library, a bounded number of them open at once."""

    def library(self, context: RequestContext) -> AbstractAsyncContextManager[Library]:
        """The caller's own, in use until the block ends: it is not closed meanwhile."""
        ...

    async def close(self) -> None: ...
