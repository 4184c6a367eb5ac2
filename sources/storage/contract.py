"""The storage contract: what a source may ask of a library, independent of the storage engine.

Every method acts on the library of the one user it was opened for; none takes a user. Unknown, deleted and foreign ids
all raise the same `NotFound`. A write is applied completely or not at all; repeating it with the same `idempotency_key`
returns the result of the first call. `Conflict` is raised if the expected version is not the stored one.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct

from auth.context import RequestContext
from config.paths import UserId
from sources import records
from sources.drafts import (
    CharacterDraft,
    ConversationDraft,
    MediaDraft,
    MessageDraft,
    NoteDraft,
    NoteImage,
    ObservationDraft,
    PromptDraft,
    ThreadDraft,
    ThreadUpsertResult,
    UpsertResult,
)
from sources.query import ParsedQuery

RecordT = TypeVar("RecordT")
DraftT_contra = TypeVar("DraftT_contra", contravariant=True)
IdT_contra = TypeVar("IdT_contra", contravariant=True)

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


class BrowsableCollection(Protocol[RecordT]):
    """The methods for people who look through a collection. Those of chats are about conversations."""

    async def browse(self, where: ItemFilter, limit: int, offset: int) -> records.ListPage[RecordT]:
        """Returns a page of the items that meet the conditions, most recently modified first. A media type matches
        media only, and a namespace conversations only."""
        ...

    async def tags(self, limit: int) -> Sequence[TagCount]:
        """Returns the most frequent tags."""
        ...

    async def created_counts(self, unit: Literal["month", "day"], within: str = "") -> Mapping[str, int]:
        """Returns how many items were created in each month or on each day, in UTC: `2026-01` or `2026-01-31`. Only
        those that begin with `within`, such as a year, and at most `PERIODS_MAX`, the newest first."""
        ...

    async def matching_ids(self, where: ItemFilter, after: int, limit: int) -> Sequence[tuple[int, str | int]]:
        """Returns the items that meet the conditions, each with its position, after a position and in order."""
        ...

    async def change_many(
        self, changes: Sequence[ItemChange], undo: str = "", *, is_atomic: bool = False
    ) -> ChangeResult:
        """Changes items in one transaction. With the token `undo` of an earlier call, both are undone together. If
        `is_atomic`, raises Conflict and changes nothing if one of the items cannot be changed."""
        ...

    async def undo(self, undo: str) -> ChangeResult | None:
        """Undoes a batch of changes in one transaction, the last one first. Returns None if there is none left."""
        ...

    async def words(self) -> int:
        """Returns how many words the texts of all items have. Human-only messages do not count."""
        ...


class ItemCollection(BrowsableCollection[RecordT], Protocol[RecordT, DraftT_contra, IdT_contra]):
    """The methods that notes, media, characters, prompts and observations have in common."""

    async def search(self, search: Search) -> records.HitPage: ...
    async def get(self, item_id: IdT_contra) -> RecordT: ...
    async def list(self, limit: int, offset: int) -> records.ListPage[RecordT]:
        """Returns a page of items, most recently modified first."""
        ...

    async def list_after(self, uuid: str, limit: int) -> Sequence[RecordT]:
        """Returns the items whose uuid sorts after `uuid`, which need not exist, ordered by uuid. Reading a whole
        collection this way is not disturbed by concurrent writes."""
        ...

    async def create(self, draft: DraftT_contra, *, idempotency_key: str | None = None) -> RecordT: ...
    async def create_many(
        self, drafts: Sequence[DraftT_contra], *, idempotency_key: str | None = None
    ) -> Sequence[RecordT]: ...
    async def upsert_many(
        self, drafts: Sequence[DraftT_contra], *, keeps_edits: bool = False
    ) -> Sequence[UpsertResult]:
        """Writes imported drafts, which must have a uuid: unknown items are created, items that changed since the last
        import are updated. With `keeps_edits`, an item that was edited since is left alone: a conflict.
        Runs in one transaction; a rejected draft does not affect the others."""
        ...

    async def withdraw_many(self, uuids: Sequence[str], *, keeps_edits: bool = True) -> Sequence[str]:
        """Deletes imported items whose origin has disappeared. They are restored when they are imported again, unlike
        items that a person deleted. With `keeps_edits`, items that were edited in the library are kept; their uuids are
        returned."""
        ...

    async def update(
        self,
        item_id: IdT_contra,
        draft: DraftT_contra,
        expected_version: int | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> RecordT: ...
    async def delete(
        self, item_id: IdT_contra, expected_version: int | None = None, *, idempotency_key: str | None = None
    ) -> None:
        """Hides the item from every read. Its row is kept until it is purged."""
        ...

    async def restore(self, item_id: IdT_contra) -> RecordT:
        """Makes a deleted item visible again. Raises `NotFound` if there is no deleted item of this id."""
        ...

    async def purge(self, item_id: IdT_contra) -> None:
        """Removes the item permanently, whether or not it was deleted before."""
        ...


class Notes(ItemCollection[records.Note, NoteDraft, str], Protocol):
    async def append(
        self,
        item_id: str,
        text: str,
        expected_version: int | None = None,
        *,
        separator: str = "",
        idempotency_key: str | None = None,
    ) -> records.Note:
        """Appends a text to the content, after `separator` unless the content is empty or already ends with it."""
        ...

    async def known_ids(self, item_ids: Sequence[str]) -> Set[str]:
        """Returns those of the ids that a note has, or had before it was deleted."""
        ...

    async def set_images(self, images: Mapping[str, Sequence[NoteImage]]) -> None:
        """Replaces the images of these notes, within the user's quota. Ids of notes that do not exist are ignored."""
        ...

    async def image_names(self, item_id: str) -> Sequence[str]:
        """Returns the names of a note's images, none if the note does not exist."""
        ...

    async def image(self, item_id: str, name: str) -> NoteImage: ...


class Prompts(ItemCollection[records.SavedPrompt, PromptDraft, int], Protocol):
    async def get_by_name(self, name: str) -> records.SavedPrompt:
        """Returns the prompt of this exact name, or else one whose name differs only in case. Of several, the one
        modified last."""
        ...

    async def save(
        self, draft: PromptDraft, expected_version: int | None = None, *, idempotency_key: str | None = None
    ) -> records.SavedPrompt:
        """Updates the prompt that `get_by_name` returns, or creates one. An expected version of 0 means that no prompt
        of this name exists yet."""
        ...


class Media(ItemCollection[records.MediaItem, MediaDraft, int], Protocol):
    async def get_by_uuid(self, uuid: str) -> records.MediaItem: ...
    async def content(self, item_id: int, start: int = 0, length: int | None = None) -> str: ...
    async def chunks(self, item_id: int, first: int, count: int) -> Sequence[records.MediaChunk]: ...
    async def chunk_by_uuid(self, item_id: int, uuid: str) -> records.MediaChunk: ...
    async def chunk_at(self, item_id: int, offset: int) -> records.MediaChunk:
        """Returns the chunk that contains the character at `offset`, or the nearest one."""
        ...

    async def segments(
        self, item_id: int, from_ms: int | None = None, to_ms: int | None = None
    ) -> Sequence[records.Segment]:
        """Returns the transcript lines that overlap the time range, inclusive."""
        ...

    async def types(self) -> Mapping[str, int]:
        """Returns the number of items of each media type."""
        ...


class Observations(ItemCollection[records.Observation, ObservationDraft, str], Protocol):
    """What was learned in sessions. Observations are not a source: a search over all sources does not include them, and
    they do not affect how terms are weighted there."""

    async def search(self, search: Search, where: ObservationFilter = ALL_OBSERVATIONS) -> records.HitPage:
        """Returns nothing for a query without words; use `list` instead."""
        ...

    async def list(
        self, limit: int, offset: int, where: ObservationFilter = ALL_OBSERVATIONS
    ) -> records.ListPage[records.Observation]:
        """Returns a page of observations, newest `created_at` first."""
        ...

    async def get_many(self, observation_ids: Sequence[str]) -> Sequence[records.Observation]:
        """Returns the observations that exist, in the order of the ids."""
        ...


class Chats(BrowsableCollection[records.Conversation], Protocol):
    """Conversations and their messages. Agents get no content of human-only messages, from none of the methods."""

    async def search(self, search: Search) -> records.HitPage: ...
    async def find_messages(self, search: MessageSearch) -> records.MessageHits: ...
    async def match_messages(self, search: ExactSearch) -> records.ExactHits: ...
    async def get(self, item_id: str) -> records.Conversation: ...
    async def get_by_session(self, session_id: str) -> records.Conversation: ...
    async def get_message(self, message_id: str) -> records.Message: ...
    async def list(
        self,
        limit: int,
        offset: int,
        *,
        namespace: str | None = None,
        search: str | None = None,
        is_pinned: bool | None = None,
        is_archived: bool | None = None,
    ) -> records.ListPage[records.Conversation]:
        """Returns a page of conversations, most recently modified first. `search` is a case-insensitive part of a title
        or a part of an id."""
        ...

    async def list_created(
        self,
        limit: int,
        *,
        namespace: str,
        after: CreationPosition | None = None,
        metadata: MetadataFilter | None = None,
        is_archived: bool | None = None,
    ) -> records.ListPage[records.Conversation]:
        """Returns conversations of a namespace, newest `created_at` first, then by id. `total` counts all of them,
        including those before the position `after`."""
        ...

    async def change_token(self) -> str:
        """Returns a text that is different after every change of a conversation or message. It may also differ if
        something else has changed."""
        ...

    async def ids(self, after: str, limit: int) -> Sequence[str]:
        """Returns the conversation ids that sort after `after`, which need not exist, in order."""
        ...

    async def namespaces(self) -> Sequence[records.Namespace]:
        """Returns all namespaces by name, always including the default one."""
        ...

    async def namespace_counts(self, conversation_ids: Sequence[str]) -> Mapping[str, int]:
        """Returns how many of these conversations each namespace has."""
        ...

    async def create_namespace(self, name: str) -> records.Namespace: ...
    async def rename_namespace(self, name: str, new_name: str) -> records.Namespace:
        """Renames a namespace and moves its conversations. The default namespace cannot be renamed."""
        ...

    async def delete_namespace(self, name: str) -> int:
        """Moves the conversations of a namespace to the default one, which itself cannot be deleted. Returns how many
        were moved."""
        ...

    async def messages(self, conversation_id: str, limit: int, offset: int) -> records.ListPage[records.Message]: ...
    async def messages_after(
        self, conversation_id: str, number: int, limit: int, metadata: MetadataFilter | None = None
    ) -> Sequence[records.Message]:
        """Returns the messages with a greater number, in order."""
        ...

    async def count_before(self, message_id: str) -> int:
        """Returns how many messages of its conversation come before a message."""
        ...

    async def messages_around(
        self, conversation_id: str, position: int, before: int, after: int
    ) -> Sequence[records.Message]:
        """Returns the message at a position with its neighbours, in order; only the neighbours if it was deleted."""
        ...

    async def create(
        self,
        draft: ConversationDraft,
        messages: Sequence[MessageDraft] = (),
        *,
        idempotency_key: str | None = None,
    ) -> records.Conversation: ...
    async def get_or_create(self, draft: ConversationDraft, namespace_max: int) -> tuple[records.Conversation, bool]:
        """Returns the first conversation with the title of the draft in its namespace, or creates it, and whether it
        was created. Concurrent calls create one conversation. Raises `Conflict` if the namespace already has
        `namespace_max` conversations."""
        ...

    async def upsert_many(
        self, threads: Sequence[ThreadDraft], *, keeps_edits: bool = False
    ) -> Sequence[ThreadUpsertResult]:
        """Writes imported conversations. Messages are identified by uuid; new ones are appended in the given order.
        `keeps_edits` is that of `ItemCollection.upsert_many`."""
        ...

    async def withdraw_many(self, uuids: Sequence[str], *, keeps_edits: bool = True) -> Sequence[str]:
        """Withdraws conversations, as `ItemCollection.withdraw_many`. One with messages that were edited or added here
        counts as edited."""
        ...

    async def withdraw_messages(
        self, uuids: Sequence[str], *, outside: Sequence[str] = (), keeps_edits: bool = True
    ) -> Sequence[str]:
        """Withdraws messages, except those in the conversations `outside`."""
        ...

    async def append(
        self,
        conversation_id: str,
        messages: Sequence[MessageDraft],
        *,
        idempotency_key: str | None = None,
        expected_last_number: int | None = None,
    ) -> Sequence[records.Message]:
        """Appends messages. Raises `Conflict` if the last message of the conversation does not have the expected
        number."""
        ...

    async def last_message_number(self, conversation_id: str) -> int:
        """Returns the number of the last message written to the conversation, even if it was deleted since; 0 if there
        is none."""
        ...

    async def update(
        self,
        item_id: str,
        draft: ConversationDraft,
        expected_version: int | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> records.Conversation: ...
    async def update_message(
        self, message_id: str, draft: MessageDraft, expected_version: int | None = None
    ) -> records.Message: ...
    async def delete(
        self, item_id: str, expected_version: int | None = None, *, idempotency_key: str | None = None
    ) -> None: ...
    async def delete_message(self, message_id: str, expected_version: int | None = None) -> None: ...
    async def restore(self, item_id: str) -> records.Conversation: ...
    async def purge(self, item_id: str) -> None: ...


class Agents(Protocol):
    """The agents that are registered on the message bus. Times are in the stored form."""

    async def register(
        self, name: str, token_hash: bytes, *, time: str, idle_since: str, limit: int
    ) -> records.RegisteredAgent:
        """Adds an agent with a new id. If the name is in use, a number is appended. First removes agents that were last
        used before `idle_since`, and the least recently used ones if there are `limit` agents or more."""
        ...

    async def find(self, agent_id: str) -> records.RegisteredAgent | None: ...
    async def set_used(self, agent_id: str, time: str) -> None: ...


class Bookmarks(Protocol):
    """Texts by name: positions in external files and databases up to which they have been imported, and the searches
    that a person has saved. A lease says who reads a file or database at the moment."""

    async def get(self, name: str) -> str | None: ...
    async def set(self, name: str, text: str) -> None: ...
    async def change(self, name: str, change: Callable[[str | None], str]) -> None:
        """Replaces a text in one transaction. What `change` raises leaves it as it is."""
        ...

    async def claim(self, name: str, owner: str, lifetime_s: float, *, instead_of: str = "") -> str:
        """Takes or extends a lease that one owner at a time has, or takes over that of `instead_of`. Returns the owner,
        which is another one if the lease is held."""
        ...

    async def release(self, name: str, owner: str) -> None: ...


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


class FollowedFiles(Protocol):
    """What is known about the files of followed sources. `follow` is the id of the followed source."""

    async def files(self, follow: str, folder: bytes = b"") -> Sequence[FollowedFile]:
        """Returns all files, or those in a folder (which ends with a slash), ordered by name."""
        ...

    async def find(self, follow: str, names: Sequence[bytes]) -> Sequence[FollowedFile]: ...
    async def items(
        self, follow: str, name: bytes, kind: str | None = None, keys: Sequence[str] = ()
    ) -> Sequence[FollowedItem]:
        """Returns all items of a file, or those of a kind with these keys."""
        ...

    async def other_owners(
        self, follow: str, names: Sequence[bytes], uuids: Sequence[str]
    ) -> frozenset[tuple[str, str]]:
        """Returns the kind and uuid of those stored items that come from other followed files than these, too."""
        ...

    async def file_of(self, follow: str, item: FollowedItem) -> bytes | None:
        """Returns the file that contains a stored item, whatever its key is."""
        ...

    async def counts(self, follow: str) -> FollowedCounts: ...
    async def problems(self, follow: str, limit: int) -> Sequence[FollowedFile]:
        """Returns files with a conflict or a problem, ordered by name."""
        ...

    async def save(
        self, follow: str, file: FollowedFile, items: Sequence[FollowedItem], *, moved_from: bytes | None = None
    ) -> None:
        """Replaces what is known about a file. With `moved_from`, that other file is forgotten."""
        ...

    async def save_part(
        self, follow: str, file: FollowedFile, items: Sequence[FollowedItem], removed: Sequence[FollowedItem]
    ) -> None:
        """Saves a file of which a part was read: its other items stay."""
        ...

    async def remove(self, follow: str, names: Sequence[bytes]) -> None: ...
    async def retain(self, follows: Sequence[str]) -> None:
        """Forgets the files of all other followed sources."""
        ...


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
    def notes(self) -> Notes: ...
    @property
    def media(self) -> Media: ...
    @property
    def chats(self) -> Chats: ...
    @property
    def characters(self) -> ItemCollection[records.Character, CharacterDraft, int]: ...
    @property
    def prompts(self) -> Prompts: ...
    @property
    def observations(self) -> Observations: ...
    @property
    def agents(self) -> Agents: ...
    @property
    def bookmarks(self) -> Bookmarks: ...
    @property
    def followed_files(self) -> FollowedFiles: ...

    def collection(self, source: str) -> ItemCollection[Any, Any, Any]:
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
