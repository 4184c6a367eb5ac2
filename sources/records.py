"""The rows of a library as values: what is stored, what a caller may write, and what a search gives back.

Times are ISO 8601 UTC with milliseconds (`2026-11-15T08:30:00.000Z`), so that they sort as text. Ids: notes,
conversations and messages are named by a uuid; media, characters and prompts by a small integer, as the seeds do.
"""

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

Role = Literal["user", "assistant", "system", "tool"]
T = TypeVar("T")


class Row(Struct, frozen=True, kw_only=True):
    """What every row has. `version` rises with each change; a deleted row is hidden everywhere until it is purged."""

    uuid: str
    tags: tuple[str, ...] = ()
    created_at: str
    last_modified: str
    version: int
    client_id: str
    content_hash: str
    metadata: Mapping[str, Any] = {}


class Note(Row, frozen=True, kw_only=True):
    title: str
    content: str

    @property
    def id(self) -> str:
        return self.uuid


class Conversation(Row, frozen=True, kw_only=True):
    title: str
    namespace: str
    session_id: str
    character_id: int | None
    message_count: int

    @property
    def id(self) -> str:
        return self.uuid


class Message(Row, frozen=True, kw_only=True):
    """`position` counts from 0 in its conversation; `is_canonical` marks the branch a reader follows."""

    conversation_id: str
    position: int
    role: str
    sender: str
    content: str
    model: str | None = None
    tool: str | None = None
    attachments: tuple[Mapping[str, Any], ...] = ()
    citations: tuple[Mapping[str, Any], ...] = ()
    parent_id: str | None = None
    is_canonical: bool = True

    @property
    def id(self) -> str:
        return self.uuid


class Character(Row, frozen=True, kw_only=True):
    """All fields of a character card, version 3; `card` keeps what has no column, unknown fields too."""

    id: int
    name: str
    description: str = ""
    personality: str = ""
    scenario: str = ""
    first_message: str = ""
    message_example: str = ""
    system_prompt: str = ""
    post_history_instructions: str = ""
    creator_notes: str = ""
    creator: str = ""
    character_version: str = ""
    nickname: str = ""
    alternate_greetings: tuple[str, ...] = ()
    group_only_greetings: tuple[str, ...] = ()
    card: Mapping[str, Any] = {}


class PromptArgument(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    required: bool = False


class Prompt(Row, frozen=True, kw_only=True):
    """`tags` are its keywords."""

    id: int
    name: str
    author: str = ""
    details: str = ""
    system_prompt: str = ""
    user_prompt: str = ""
    arguments: tuple[PromptArgument, ...] = ()


class MediaItem(Row, frozen=True, kw_only=True):
    """Without its text, which may be megabytes; `length_chars` tells how much there is."""

    id: int
    title: str
    media_type: str
    url: str = ""
    author: str = ""
    length_chars: int = 0
    chunk_count: int = 0
    has_transcript: bool = False


class Chunk(Struct, frozen=True, kw_only=True):
    """A passage of a media item: characters `start` to `end` of its text; times where it was spoken."""

    index: int
    uuid: str
    text: str
    start: int
    end: int
    start_ms: int | None = None
    end_ms: int | None = None
    speaker: str | None = None


class Segment(Struct, frozen=True, kw_only=True):
    """One timed line of a transcript."""

    start_ms: int
    end_ms: int
    text: str
    speaker: str | None = None


class Hit(Struct, frozen=True, kw_only=True):
    """One match. `text` is the passage that matched, for snippets; `score` is comparable across sources, `bm25` is what
    the engine itself made of it, lower being better.

    Which of the lower fields are set depends on the source: chunk for media, conversation and message for chats,
    field for characters and prompts.
    """

    id: str | int
    title: str
    text: str
    score: float
    holds_all_terms: bool
    created_at: str
    last_modified: str
    version: int
    tags: tuple[str, ...]
    content_hash: str
    item_chars: int
    media_type: str | None = None
    url: str | None = None
    chunk_index: int | None = None
    chunk_uuid: str | None = None
    start_ms: int | None = None
    conversation_id: str | None = None
    message_id: str | None = None
    message_index: int | None = None
    sender: str | None = None
    role: str | None = None
    field: str | None = None
    more_in_item: int = 0
    bm25: float | None = None


class Found(Struct, frozen=True):
    """A page of hits. `total` is exact or absent, never a guess."""

    hits: tuple[Hit, ...]
    has_more: bool
    total: int | None


class Page(Struct, Generic[T], frozen=True):
    rows: tuple[T, ...]
    total: int
