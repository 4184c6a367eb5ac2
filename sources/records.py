"""The built-in kinds of items with their records (see `sources.kinds`), and the hits of a search. What a caller writes
is a draft (see `sources.drafts`).

Times are ISO 8601 in UTC with milliseconds (`2026-11-15T08:30:00.000Z`), so that they sort as text. The ids of notes,
conversations, messages and observations are UUIDs; those of media, characters and prompts are integers, as in tldw.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, Protocol, TypeVar, get_args

from msgspec import Meta, Struct

from sources.kinds import Field, Item, Kind, NumberedItem

if TYPE_CHECKING:
    from sources.query import ParsedQuery


Role = Literal["user", "assistant", "system", "tool"]
Origin = Literal["client", "derived", "imported"]
T = TypeVar("T")


class Note(Item, frozen=True, kw_only=True):
    title: Annotated[str, Field("Title")] = ""
    content: Annotated[str, Field("Text (Markdown)", is_long=True, is_searched=True, is_embedded=True)] = ""


NOTE = Kind(
    name="note",
    source="notes",
    record=Note,
    content="content",
    layout="text",
    hashed=("title", "content"),
    number=1,
    prefix="N",
)


class Conversation(Item, frozen=True, kw_only=True):
    """A person can pin conversations to the top of their list, and archive those that the list no longer needs to
    show. Searches find both."""

    title: Annotated[str, Field("Title")]
    namespace: Annotated[str, Field("Namespace")]
    session_id: str
    character_id: Annotated[int | None, Field("Number of the character")]
    is_pinned: bool = False
    is_archived: bool = False
    message_count: int


CONVERSATION = Kind(
    name="conversation",
    source="chats",
    record=Conversation,
    content_label="First message",
    content_hint="the text of a conversation is in its messages; change one of them, or use chats_append",
)


# Follows the speaker of a message that is not on the canonical branch, wherever a conversation is read as text: a
# regenerated reply, a message before an edit, a subtask of a session.
ALTERNATE_BRANCH_LABEL = " (alternate branch)"
# Follows the speaker of a human-only message in exports for people, which anyone might pass on to an agent.
HUMAN_ONLY_LABEL = " (human-only)"


class Message(Item, frozen=True, kw_only=True):
    """`position` counts from 0 in the conversation. `number` counts from 1 in the whole library, increases with every
    message written, and is never reused. `is_canonical` marks the branch that a reader follows."""

    number: int = 0
    conversation_id: str
    position: int
    role: Annotated[str, Field("Role", choices=get_args(Role))]
    sender: Annotated[str, Field("Sender")]
    content: Annotated[str, Field("Text", is_long=True)]
    model: Annotated[str | None, Field("Model")] = None
    tool: str | None = None
    attachments: tuple[Mapping[str, Any], ...] = ()
    citations: tuple[Mapping[str, Any], ...] = ()
    parent_id: str | None = None
    is_canonical: bool = True

    @property
    def is_human_only(self) -> bool:
        return bool(self.metadata) and is_human_only(self.metadata)

    @property
    def branch_label(self) -> str:
        """The label of a message on an alternate branch; empty on the canonical one."""
        return "" if self.is_canonical else ALTERNATE_BRANCH_LABEL

    @property
    def labels(self) -> str:
        """The labels of a message in an export for people."""
        return self.branch_label + (HUMAN_ONLY_LABEL if self.is_human_only else "")


# Messages are no source of their own: they belong to conversations.
MESSAGE = Kind(
    name="message",
    source="messages",
    record=Message,
    title="",
    content="content",
    content_hint="a message has none",
    is_source=False,
)


class RegisteredAgent(Struct, frozen=True, kw_only=True):
    """An agent on the message bus. Its name is unique in its library; `used_at` is in the stored form."""

    id: str
    name: str
    token_hash: bytes
    used_at: str


class Namespace(Struct, frozen=True):
    """A group of conversations, and how many there are in it."""

    name: str
    conversations: int


class MessageHit(Struct, frozen=True, kw_only=True):
    """A message with the title of its conversation."""

    message: Message
    title: str


class MessageHits(Struct, frozen=True):
    """`is_complete` is false if older messages were not searched, because time ran out or their index is still being
    built. The hits are the newest ones."""

    hits: tuple[MessageHit, ...]
    is_complete: bool


class ExactHit(Struct, frozen=True, kw_only=True):
    """A message that matches an expression. `snippet` is HTML with escaped text, matches in `<mark>`, and `…` where it
    was cut. `rank` is the bm25 rank, lower is better, or 0 if the hits were not ranked."""

    message: Message
    title: str
    snippet: str
    rank: float


class ExactHits(Struct, frozen=True, kw_only=True):
    """Best first; or newest first without ranks, if too many messages match to rank them (`is_ranked` is false).

    `read_as` is set if the text was not a valid expression, and says what was searched for instead. `is_complete` is
    false while the index is being built, newest messages first.
    """

    hits: tuple[ExactHit, ...]
    read_as: str | None = None
    is_ranked: bool = True
    is_complete: bool = True


class Observation(Item, frozen=True, kw_only=True):
    """What was learned in a session: short statements with their evidence. `conversation_id`, `line_start` and
    `line_end` (from 1, both inclusive) refer to the conversation it was derived from, if any."""

    title: Annotated[str, Field("Title", is_required=True)]
    subtitle: Annotated[str, Field("Subtitle", is_searched=True, is_embedded=True)] = ""
    narrative: Annotated[str, Field("Narrative", is_long=True, is_searched=True, is_embedded=True)] = ""
    facts: Annotated[tuple[str, ...], Field("Facts", is_searched=True, is_embedded=True)] = ()
    concepts: Annotated[tuple[str, ...], Field("Concepts", is_searched=True)] = ()
    files_read: Annotated[tuple[str, ...], Field("Files read", is_searched=True)] = ()
    files_modified: Annotated[tuple[str, ...], Field("Files modified", is_searched=True)] = ()
    type: Annotated[str, Field("Type", is_required=True, is_searched=True)] = "general"
    project: Annotated[str, Field("Project", is_searched=True)] = ""
    session_id: str = ""
    origin: Origin = "client"
    conversation_id: str | None = None
    line_start: Annotated[int, Meta(ge=1)] | None = None
    line_end: Annotated[int, Meta(ge=1)] | None = None


OBSERVATION = Kind(
    name="observation",
    source="observations",
    record=Observation,
    content="narrative",
    hashed=(
        *("title", "subtitle", "narrative", "facts", "concepts", "files_read", "files_modified", "type", "project"),
    ),
    searches_tags=False,
    is_source=False,
    number=5,
    prefix="O",
)


class Character(NumberedItem, frozen=True, kw_only=True):
    """The fields of a character card, version 3. `card` holds those without a column, including unknown ones."""

    name: Annotated[str, Field("Name", is_required=True)]
    description: Annotated[str, Field("Description", is_long=True, is_searched=True, is_embedded=True)] = ""
    personality: Annotated[str, Field("Personality", is_long=True, is_searched=True, is_embedded=True)] = ""
    scenario: Annotated[str, Field("Scenario", is_long=True, is_searched=True)] = ""
    first_message: Annotated[str, Field("First message", is_long=True, is_searched=True, is_embedded=True)] = ""
    message_example: Annotated[str, Field("Example messages", is_long=True, is_searched=True)] = ""
    system_prompt: Annotated[str, Field("System prompt", is_long=True, is_searched=True)] = ""
    post_history_instructions: Annotated[
        str, Field("Instructions after the history", is_long=True, is_searched=True)
    ] = ""
    creator_notes: Annotated[str, Field("Notes of the creator", is_long=True, is_searched=True)] = ""
    creator: Annotated[str, Field("Creator", is_searched=True, is_author=True)] = ""
    character_version: Annotated[str, Field("Version")] = ""
    nickname: Annotated[str, Field("Nickname", is_searched=True)] = ""
    alternate_greetings: Annotated[tuple[str, ...], Field("Alternate greetings", is_searched=True)] = ()
    group_only_greetings: Annotated[tuple[str, ...], Field("Greetings in groups")] = ()
    card: Mapping[str, Any] = {}


CHARACTER = Kind(
    name="character",
    source="characters",
    record=Character,
    title="name",
    content="description",
    hashed=(
        *("name", "description", "personality", "scenario", "first_message", "message_example", "system_prompt"),
        *("post_history_instructions", "creator_notes", "creator", "nickname", "alternate_greetings", "tags"),
        *("group_only_greetings", "card"),
    ),
    sized=("description", "personality", "scenario", "first_message"),
    number=4,
    prefix="P",
)


class SavedPromptArgument(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    required: bool = False


class SavedPrompt(NumberedItem, frozen=True, kw_only=True):
    """A prompt saved by the user; `tags` are its keywords."""

    name: Annotated[str, Field("Name", is_required=True)]
    author: Annotated[str, Field("Author", is_searched=True, is_author=True)] = ""
    details: Annotated[str, Field("Description", is_long=True, is_searched=True, is_embedded=True)] = ""
    system_prompt: Annotated[str, Field("System prompt", is_long=True, is_searched=True, is_embedded=True)] = ""
    user_prompt: Annotated[
        str, Field("Prompt ({{name}} is a placeholder)", is_long=True, is_searched=True, is_embedded=True)
    ] = ""
    arguments: Annotated[tuple[SavedPromptArgument, ...], Field("Arguments of the prompt")] = ()


PROMPT = Kind(
    name="prompt",
    source="prompts",
    record=SavedPrompt,
    title="name",
    content="user_prompt",
    layout="columns",
    hashed=("name", "author", "details", "system_prompt", "user_prompt", "arguments", "tags"),
    reading_order=("details", "system_prompt", "user_prompt", "author", "tags"),
    tags_name="keywords",
    sized=("system_prompt", "user_prompt"),
    database="prompts",
    number=7,
    prefix="T",
)


class MediaItem(NumberedItem, frozen=True, kw_only=True):
    """The text is not included, because it may be several megabytes long; `length_chars` is its length and
    `text_weight` its weight (see `sources.text.token_estimates`), None if it is not computed yet."""

    title: Annotated[str, Field("Title")]
    media_type: Annotated[str, Field("Type")]
    url: Annotated[str, Field("Address of the original")] = ""
    author: Annotated[str, Field("Author")] = ""
    length_chars: int = 0
    text_weight: int | None = None
    chunk_count: int = 0
    has_transcript: bool = False


# The text of a media item, `content` of its draft, is stored and searched in chunks.
MEDIA = Kind(name="media", source="media", record=MediaItem, label="media item", content="content", database="media")


class MediaChunk(Struct, frozen=True, kw_only=True):
    """Characters `start` to `end` of a media item's text, with times if it is a transcript."""

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


class SemanticStatus(Struct, frozen=True, omit_defaults=True):
    """Whether a search compared meanings, and not only words.

    `on`: with all items. `partial`: only with the share `coverage` of them, because the others have no embeddings yet;
    `reason` says if a quota is why. `off`: no model is configured or installed. `unavailable`: the model cannot be used
    at the moment. `not_applicable`: the query asks for words, for example with operators or quotation marks.
    """

    status: Literal["on", "partial", "off", "unavailable", "not_applicable"]
    coverage: float | None = None
    reason: str | None = None


SEMANTIC_OFF = SemanticStatus("off")
# The status that a search of several parts reports is the first of these that one of them has.
_STATUSES = ("unavailable", "partial", "on", "not_applicable", "off")


def combine_statuses(statuses: Collection[tuple[SemanticStatus, int]]) -> SemanticStatus | None:
    """Returns the status of a search of several parts, each with its number of texts, by which its coverage counts."""
    first = min((status for status, _ in statuses), key=lambda status: _STATUSES.index(status.status), default=None)
    if first is None or first.status != "partial":
        return first
    compared = [(status, texts) for status, texts in statuses if status.status in ("partial", "on")]
    known = sum((status.coverage or 0.0 if status.status == "partial" else 1.0) * texts for status, texts in compared)
    share = known / (sum(texts for _, texts in compared) or 1)
    # Rounded down, because 1 means that nothing is missing.
    coverage = int(min(share, 0.999) * 1000) / 1000
    return SemanticStatus("partial", coverage, next((status.reason for status, _ in compared if status.reason), None))


class Hit(Struct, frozen=True, kw_only=True, gc=False):
    """One match. `text` is the matching passage. `score` is comparable across sources; `bm25` is the engine's own rank,
    lower is better. If meanings were compared, `lexical` and `cosine` are the two parts of the score, and `passage` is
    the part of `text` whose meaning is nearest, for a hit that was found by its meaning alone.

    Which of the optional fields are set depends on the source: chunk for media, conversation and message for chats,
    `field`, the one that matched, and `fields`, the texts of all of them, for characters and prompts. `text_weight` is
    the weight (see `sources.text.token_estimates`) of the whole text of media, None if it is not computed yet. A
    message that matches only through the messages before it has `via="context"` and these messages as its `context`.
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
    branch_label: str = ""
    via: Literal["context"] | None = None
    context: str = ""
    field: str | None = None
    fields: Mapping[str, str] = {}
    text_weight: int | None = None
    more_in_item: int = 0
    bm25: float | None = None
    lexical: float | None = None
    cosine: float | None = None
    passage: tuple[int, int] | None = None


class HitFacets(Struct, frozen=True):
    """The values of a hit by which results are counted."""

    created_at: str
    tags: tuple[str, ...]
    media_type: str | None
    sender: str | None


class RankedMatch(Protocol):
    """What ranking needs to know about a match. Its hit is built when it is needed: a search of all sources ranks about
    a hundred matches to show twenty.

    `part_id` is the id of the part of the item that matches, if parts have ids of their own. `hit_text` is the text of
    the hit, and `text_chars` at least the length of the text that has to be read to build it.
    """

    @property
    def id(self) -> str | int: ...
    @property
    def part_id(self) -> str | None: ...
    @property
    def score(self) -> float: ...
    @property
    def last_modified(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def bm25(self) -> float | None: ...
    @property
    def lexical(self) -> float | None: ...
    @property
    def cosine(self) -> float | None: ...
    @property
    def boosts(self) -> Mapping[str, float]:
        """The factors of the second stage of a search in chats, by feature."""
        ...

    @property
    def item_chars(self) -> int: ...
    @property
    def text_chars(self) -> int: ...
    @property
    def hit_text(self) -> str: ...
    @property
    def facets(self) -> HitFacets: ...
    def hit(self) -> Hit: ...
    def shows_same_text(self, other: Any) -> bool:
        """Whether another match, of any source, has a hit with the same text."""
        ...


class HitPage(Struct, frozen=True):
    """One page of hits. `total` is exact, or None if it is not known. `query` is what was searched for, if it is not
    the query of the search. `floor` is the least cosine of the nearest hit, if hits were found by meaning, too, and
    `texts` how many there are to compare."""

    matches: tuple[RankedMatch, ...]
    has_more: bool
    total: int | None
    semantic: SemanticStatus = SEMANTIC_OFF
    query: "ParsedQuery | None" = None
    floor: float | None = None
    texts: int = 0

    @property
    def hits(self) -> tuple[Hit, ...]:
        return tuple([match.hit() for match in self.matches])


class ListPage(Struct, Generic[T], frozen=True):
    rows: tuple[T, ...]
    total: int


def is_human_only(metadata: Mapping[str, Any]) -> bool:
    """Whether a message's metadata hides it from agents: `visibility: human_only`, `audience: human`, or `human_only`
    with any value that is not false. To be safe, values such as `"true"` and 1 count as true."""
    flag = metadata.get("human_only")
    folded = flag.strip().casefold() if isinstance(flag, str) else flag
    return (
        _has_text(metadata, "visibility", "human_only")
        or _has_text(metadata, "audience", "human")
        or folded not in (None, False, "", "0", "false", "no", "off")  # 0 equals False
    )


def _has_text(metadata: Mapping[str, Any], name: str, text: str) -> bool:
    value = metadata.get(name)
    return isinstance(value, str) and value.strip().casefold() == text


# -- import stamps -----------------------------------------------------------------------------------------------------
# Import stamps: what a row remembers of the draft that it was last imported from.
#
# A stamp is a digest of the draft, its modification time if it has one, and the version that the row got (`v3`). A row
# was edited since if it has another version, or no stamp at all.

_VERSION_MARK = " v"
# The stamp of an item that was deleted because its origin disappeared.
WITHDRAWN = "-"


def with_version(stamp: str | None, version: int) -> str:
    return f"{stamp or ''}{_VERSION_MARK}{version}"


def without_version(stamp: str | None) -> str | None:
    return stamp if stamp is None else stamp.partition(_VERSION_MARK)[0]


def version_part(stamp: str | None) -> str:
    """Returns the mark and the version. Stamps of older versions of this server have none."""
    _, mark, version = (stamp or "").partition(_VERSION_MARK)
    return mark + version


def has_edits(stamp: str | None, version: int) -> bool:
    """Whether a row of this version was edited since it was imported. False if the stamp does not tell."""
    stamped = version_part(stamp).removeprefix(_VERSION_MARK)
    return stamp is None or (stamped.isdecimal() and int(stamped) != version)
