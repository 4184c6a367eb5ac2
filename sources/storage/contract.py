"""The storage contract: a library and what may be asked of it, independent of the storage engine. The collections of a
library are in `sources.storage.collections`.

Every method acts on the library of the one user it was opened for; none takes a user. Unknown, deleted and foreign ids
all raise the same `NotFound`. A write is applied completely or not at all; repeating it with the same `idempotency_key`
returns the result of the first call. `Conflict` is raised if the expected version is not the stored one.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from auth.context import RequestContext
from config.paths import UserId
from sources import records
from sources.drafts import CharacterDraft
from sources.query import ParsedQuery

if TYPE_CHECKING:
    from sources.storage.collections import items
    from sources.storage.collections.chats import Chats
    from sources.storage.collections.collection import ItemCollection
    from sources.storage.collections.library import FollowedFiles

Order = Literal["relevance", "recent"]
Scoring = Literal["comparable", "minmax"]
Ranking = Literal["fused", "words", "meaning"]
# The namespace of conversations that were not assigned to one. It always exists.
DEFAULT_NAMESPACE = "default"
# A hundred years of months, or three of days.
PERIODS_MAX = 1_200


class Corpus(Struct, frozen=True):
    """Document frequencies of a query's terms: `frequencies[i]` of the `rows` contain term `i`."""

    rows: int
    frequencies: tuple[int, ...]


class Search(Struct, frozen=True, kw_only=True):
    """One search in one source. Filters written in the query text (`tag:work`) have already been moved to the fields
    below, so an engine only has to evaluate `query.expression`. Fields that do not apply to a source are not set.

    A query without an expression lists the items that pass the filters, newest first and with score 0; without filters
    it matches nothing. `within` searches inside a single item, where every matching passage is a hit of its own.

    `scoring="minmax"` scores each hit with tldw's per-query min-max formula over all hits, regardless of the page. The
    comparable score weights terms by how common they are in the whole library; pass `corpus` (see `Library.corpus`) if
    those frequencies are already known.

    `ranking="fused"` combines words and meaning if a model is configured and the query is prose (`ParsedQuery.prose`).
    "words" never compares meanings. "meaning" compares nothing else: it returns the nearest items, scored by their
    cosine, which is above 0, and none if meanings cannot be compared.

    An item must have all `tags`, one of `media_types`, one of `senders` (case-insensitive), and a `created_at` between
    `date_from` and `date_to`, inclusive and in the stored time form. For messages, `created_at` is the message's own.

    If nothing matches, the query is read in a way that matches more (`ParsedQuery.relaxed`), unless `is_strict`. With
    `boosts_messages`, comparable scores of messages have a second stage (`sources.search.message_boost`). With
    `is_one_of_several`, the hits are merged with those of other sources, which need fewer of them. Without
    `counts_hits`, the page has no total if there are more hits than it shows.

    `contains` is a text that the matching message or observation must contain literally (`sources.text.segmentation`).
    `namespace` is that of a conversation. `projects` are those of conversations, of which one must match, ignoring
    case: `project` in the metadata, or else the namespace.

    With `is_partial`, the caller may read only what passes the filters. Then neither the weights of terms nor
    corrections of words depend on other items, which would tell what these contain: all terms weigh the same, and
    words are searched as typed.
    """

    query: ParsedQuery
    limit: int
    offset: int = 0
    order: Order = "relevance"
    scoring: Scoring = "comparable"
    ranking: Ranking = "fused"
    deadline_ms: int
    within: str | int | None = None
    tags: tuple[str, ...] = ()
    media_types: tuple[str, ...] = ()
    date_from: str | None = None
    date_to: str | None = None
    by: Literal["both", "title", "message"] = "both"
    character_id: int | None = None
    senders: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    namespace: str | None = None
    contains: str | None = None
    fields: tuple[str, ...] = ()
    corpus: Corpus | None = None
    is_strict: bool = False
    is_partial: bool = False
    boosts_messages: bool = True
    is_one_of_several: bool = False
    counts_hits: bool = True

    @property
    def has_filters(self) -> bool:
        """Whether a search without words can list what passes its filters."""
        return bool(
            self.tags
            or self.media_types
            or self.senders
            or self.projects
            or self.namespace
            or self.date_from
            or self.date_to
            or self.character_id is not None
        )

    @property
    def known_corpus(self) -> Corpus | None:
        """The frequencies of the terms, if they need not be counted."""
        return Corpus(1, (1,) * len(self.query.terms)) if self.is_partial else self.corpus

    @property
    def is_unrestricted(self) -> bool:
        """Whether every item of the source passes the filters."""
        return (
            not self.has_filters
            and self.within is None
            and self.namespace is None
            and self.contains is None
            and self.by == "both"
        )


class MessageSearch(Struct, frozen=True, kw_only=True):
    """A case-insensitive substring search over messages; `%`, `_` and `"` have no special meaning. Without a text it
    returns every message that passes the filters. Ordered by `created_at`, then by number, newest first.

    With `in_titles`, a conversation whose title contains the text contributes all of its messages. `roles` are compared
    with the stored role. Times are inclusive and in the stored form. An unknown, deleted or foreign conversation has no
    messages.
    """

    text: str | None = None
    in_titles: bool = True
    roles: tuple[str, ...] = ()
    date_from: str | None = None
    date_to: str | None = None
    conversation_id: str | None = None
    limit: int
    deadline_ms: int


class ExactSearch(Struct, frozen=True, kw_only=True):
    """An FTS5 expression over the content of messages, without stemming: `AND OR NOT`, `"phrases"`, `prefix*`,
    `NEAR(a b, 5)`, `content:` and parentheses. Text that is not a valid expression, or has more than `phrases_max`
    phrases, is read as words that must all occur."""

    expression: str
    conversation_id: str | None = None
    phrases_max: int = 32
    limit: int
    deadline_ms: int


class MetadataFilter(Struct, frozen=True):
    """A condition on metadata: the value at a JSON path such as `$._bus.status` is one of `values`. None means
    metadata without that path."""

    path: str
    values: tuple[str | None, ...]


class CreationPosition(Struct, frozen=True):
    """A position in a list of conversations ordered by `created_at`, newest first. With an id, it is after the
    conversation of this id; without, after all conversations of that time."""

    created_at: str
    id: str = ""


class ItemFilter(Struct, frozen=True, kw_only=True):
    """Conditions on the items of a list. An item must have all `tags`, the media type, the namespace, a `created_at`
    that begins with `created`, such as `2026-01`, and a `last_modified` between `date_from` and `date_to`, inclusive
    and in the stored form. With `is_pinned`, it must be pinned."""

    tags: tuple[str, ...] = ()
    media_type: str | None = None
    namespace: str | None = None
    created: str = ""
    date_from: str | None = None
    date_to: str | None = None
    is_pinned: bool = False


class ItemsChange(Struct, frozen=True, kw_only=True):
    """A change of many items: deletes them, or replaces tags, ignoring case (by "" to remove them), adds tags, sets
    `values` of fields, and pins or unpins."""

    replaced_tags: Mapping[str, str] = {}
    added_tags: tuple[str, ...] = ()
    values: Mapping[str, Any] = {}
    is_pinned: bool | None = None
    deletes: bool = False


class ItemChange(Struct, frozen=True, kw_only=True):
    """A change of one of many items, which is skipped if the item does not have this version."""

    id: str | int
    change: ItemsChange
    version: int | None = None


class ChangeResult(Struct, frozen=True, kw_only=True):
    """The ids of the items that were changed, and of those that were not because they have changed or were deleted
    since, or cannot be changed this way; `problem` is the first reason. `undo` is the token that undoes the change."""

    changed: tuple[str | int, ...]
    skipped: tuple[str | int, ...] = ()
    problem: str = ""
    undo: str = ""


class TagCount(Struct, frozen=True):
    """A tag as it is written in one of its items, and how many items have it, in any case."""

    tag: str
    items: int


class ObservationFilter(Struct, frozen=True, kw_only=True):
    """Conditions on observations. Of each list that is not empty, one value must match, ignoring case. A file matches
    by its full path or by its base name. Times apply to `created_at`, inclusive and in the stored form."""

    projects: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    date_from: str | None = None
    date_to: str | None = None


ALL_OBSERVATIONS = ObservationFilter()


class FollowedFile(Struct, frozen=True, kw_only=True):
    """A file of a followed source as it was when it was last read. `signature` tells whether it changed since,
    `fingerprint` recognizes its content under another name. `conflicts` counts items whose edits were kept; `problem`
    says why the file could not be read completely."""

    name: bytes
    signature: str
    fingerprint: str = ""
    conflicts: int = 0
    problem: str = ""


class FollowedItem(Struct, frozen=True):
    """An item of a followed file: `key` is the id that the importer gave it, `uuid` the id of the stored item."""

    kind: str
    key: str
    uuid: str


class FollowedCounts(Struct, frozen=True, kw_only=True):
    """`items` does not include messages. `failed` counts files that could not be read completely, `conflicts` items
    whose edits were kept although they changed or disappeared at their origin."""

    files: int = 0
    items: int = 0
    conflicts: int = 0
    failed: int = 0


class LibraryUsage(Struct, frozen=True, kw_only=True):
    """What a user stores, and the quotas for it; a quota of 0 means no limit. `passages` are those with embeddings."""

    bytes: int
    max_bytes: int
    items: int
    max_items: int
    passages: int = 0
    max_passages: int = 0


class Library(Protocol):
    """One user's collections. Files are opened on first use.

    If the caller's credential is restricted to some sources, the collections of the others raise `NotFound`, and they
    do not count in `corpus` and in scores."""

    @property
    def notes(self) -> "items.Notes": ...
    @property
    def media(self) -> "items.Media": ...
    @property
    def chats(self) -> "Chats": ...
    @property
    def characters(self) -> "ItemCollection[records.Character, CharacterDraft, int]": ...
    @property
    def prompts(self) -> "items.Prompts": ...
    @property
    def observations(self) -> "items.Observations": ...
    @property
    def agents(self) -> "items.Agents": ...
    @property
    def bookmarks(self) -> "items.Bookmarks": ...
    @property
    def followed_files(self) -> "FollowedFiles": ...

    def collection(self, source: str) -> "ItemCollection[Any, Any, Any]":
        """Returns the items of a source, or the observations, by name (`sources.installed.ITEM_KINDS`). Kinds of other
        distributions have `ItemDraft` as their draft. Of `chats`, it returns the conversations."""
        ...

    async def corpus(self, query: ParsedQuery, deadline_ms: int) -> Corpus:
        """Returns how common the terms of a query are in all sources together, or in those that the caller's
        credential permits."""
        ...

    async def usage(self) -> LibraryUsage: ...

    async def require_room(self) -> None:
        """Raises QuotaExceeded if nothing can be added to the library."""
        ...


class QueueState(Struct, frozen=True, kw_only=True):
    """The queue of jobs of all users. Totals count from the start of the process; `job_interval_s` is the mean time
    between the starts of two jobs while jobs are waiting."""

    waiting: int
    waiting_background: int
    running: int
    oldest_wait_s: float
    jobs_total: int
    wait_total_s: float
    run_total_s: float
    job_interval_s: float


class EmbeddingState(Struct, frozen=True, kw_only=True):
    """The background work for semantic search. `rows_missing` and `coverage` are those of the users who wait for their
    turn; `problem` says why nothing can be embedded now."""

    is_enabled: bool = False
    users_waiting: int = 0
    rows_missing: int = 0
    coverage: float = 1.0
    passages_total: int = 0
    problem: str | None = None


class LibrariesState(Struct, frozen=True, kw_only=True):
    open: int
    open_max: int
    closing: int
    queue: QueueState
    embedding: EmbeddingState


class Libraries(Protocol):
    """The libraries of all users. A bounded number of them is open at a time."""

    def library(self, context: RequestContext) -> AbstractAsyncContextManager[Library]:
        """Returns the caller's library, which is not closed before the block ends."""
        ...

    def require_capacity(self, user_id: UserId) -> None:
        """Raises Overloaded if the user's jobs are expected to wait longer than the setting allows. Checked before a
        call starts: once it has, refusing a part of it would waste the rest."""
        ...

    def state(self) -> LibrariesState:
        """Returns figures for metrics."""
        ...

    async def stored_bytes(self, user_ids: Sequence[UserId]) -> Mapping[UserId, int]:
        """Returns how much each user stores, also those who have no library yet."""
        ...

    async def remove(self, user_id: UserId) -> None:
        """Deletes everything that a user stores. Raises Unavailable if the library stays in use."""
        ...

    async def embed(self, user_id: UserId) -> str | None:
        """Waits until all text of a user is embedded, if a model is configured, or until a quota is reached: then
        returns which one. Does not fail if the model cannot be used: see the `problem` of the state."""
        ...

    async def close(self) -> None: ...
