"""The rows of a library as values: what is stored, and what a search gives back. What a caller writes is a draft.

Times are ISO 8601 UTC with milliseconds (`2026-11-15T08:30:00.000Z`), so that they sort as text. Ids: notes,
conversations, messages and observations are named by a uuid; media, characters and prompts by a small integer, as the
seeds do.
"""

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

Role = Literal["user", "assistant", "system", "tool"]
Origin = Literal["client", "derived", "imported"]
T = TypeVar("T")


class Record(Struct, frozen=True, kw_only=True):
    """What every row has. `version` rises with each change; a deleted row is hidden everywhere until it is purged.
    `arrived` is of what came from elsewhere: by it the same is known when it comes again."""

    uuid: str
    tags: tuple[str, ...] = ()
    created_at: str
    last_modified: str
    version: int
    client_id: str
    content_hash: str
    metadata: Mapping[str, Any] = {}
    arrived: str | None = None


class Note(Record, frozen=True, kw_only=True):
    title: str
    content: str

    @property
    def id(self) -> str:
        return self.uuid


class Conversation(Record, frozen=True, kw_only=True):
    title: str
    namespace: str
    session_id: str
    character_id: int | None
    message_count: int

    @property
    def id(self) -> str:
        return self.uuid


# What stands after the speaker of a message that is on no path, wherever a conversation is read as text: an answer that
# was regenerated, what was said before an edit, a task that ran beside a session.
ALTERNATE_BRANCH_LABEL = " (alternate branch)"


class Message(Record, frozen=True, kw_only=True):
    """`position` counts from 0 in its conversation, `number` from 1 in the whole library: it rises with every message
    that is written, and none is given twice. `is_canonical` marks the branch a reader follows."""

    number: int = 0
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

    @property
    def is_human_only(self) -> bool:
        return bool(self.metadata) and is_human_only(self.metadata)

    @property
    def branch_label(self) -> str:
        """The words for a message that is not on the path; nothing for one that is."""
        return "" if self.is_canonical else ALTERNATE_BRANCH_LABEL


class Namespace(Struct, frozen=True):
    """A name under which conversations are grouped, and how many there are."""

    name: str
    conversations: int


class MessageHit(Struct, frozen=True, kw_only=True):
    """A message, with the title of the conversation it stands in."""

    message: Message
    title: str


class MessageHits(Struct, frozen=True):
    """`is_complete` is false where older messages were not looked at: no more of them in the time there was, or their
    index is still being made. What is given is right all the same, and is the newest."""

    hits: tuple[MessageHit, ...]
    is_complete: bool


class ExactHit(Struct, frozen=True, kw_only=True):
    """A message that matches an expression. `snippet` is HTML: the text is escaped, matches stand in `<mark>`, and `…`
    where it was cut. `rank` is bm25, lower being better, and 0 where nothing was ranked."""

    message: Message
    title: str
    snippet: str
    rank: float


class ExactHits(Struct, frozen=True, kw_only=True):
    """Best first; newest first, and no rank is known, where so many messages match that they were not ranked.

    `read_as` is set where the expression was not one, and says what was searched for instead; `is_complete` is false as
    long as the index is being made, newest messages first.
    """

    hits: tuple[ExactHit, ...]
    read_as: str | None = None
    is_ranked: bool = True
    is_complete: bool = True


class Observation(Record, frozen=True, kw_only=True):
    """What was learned in a session: short statements with their evidence. `conversation_id`, `line_start` and
    `line_end` (from 1, both included) say where it was read, if it was."""

    type: str
    title: str
    subtitle: str = ""
    narrative: str = ""
    facts: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    project: str = ""
    session_id: str = ""
    origin: Origin = "client"
    conversation_id: str | None = None
    line_start: int | None = None
    line_end: int | None = None

    @property
    def id(self) -> str:
        return self.uuid


class Character(Record, frozen=True, kw_only=True):
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


class SavedPromptArgument(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    required: bool = False


class SavedPrompt(Record, frozen=True, kw_only=True):
    """`tags` are its keywords."""

    id: int
    name: str
    author: str = ""
    details: str = ""
    system_prompt: str = ""
    user_prompt: str = ""
    arguments: tuple[SavedPromptArgument, ...] = ()


class MediaItem(Record, frozen=True, kw_only=True):
    """Without its text, which may be megabytes; `length_chars` tells how much there is."""

    id: int
    title: str
    media_type: str
    url: str = ""
    author: str = ""
    length_chars: int = 0
    chunk_count: int = 0
    has_transcript: bool = False


class MediaChunk(Struct, frozen=True, kw_only=True):
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
    is_human_only: bool = False
    field: str | None = None
    more_in_item: int = 0
    bm25: float | None = None


class HitPage(Struct, frozen=True):
    """A page of hits. `total` is exact or absent, never a guess."""

    hits: tuple[Hit, ...]
    has_more: bool
    total: int | None


class ListPage(Struct, Generic[T], frozen=True):
    rows: tuple[T, ...]
    total: int


def is_human_only(metadata: Mapping[str, Any]) -> bool:
    """Whether a message's metadata asks that agents do not read it: `visibility: human_only`, `audience: human`, or
    `human_only` with anything that does not say no. Whoever hides a secret may write `"true"` or 1 as well."""
    return (
        _says(metadata, "visibility", "human_only")
        or _says(metadata, "audience", "human")
        or not _is_no(metadata.get("human_only"))
    )


def _is_no(value: Any) -> bool:
    said = value.strip().casefold() if isinstance(value, str) else value
    return said in (None, False, "", "0", "false", "no", "off")  # 0 equals False


def _says(metadata: Mapping[str, Any], name: str, value: str) -> bool:
    said = metadata.get(name)
    return isinstance(said, str) and said.strip().casefold() == value
