"""What a source may ask of a library, whichever engine keeps it.

Every method belongs to the one user whose library was opened; none takes a user. Absent, deleted and foreign ids are
the same `NotFound`. A write either happened whole or not at all; a repeated one with the same `idempotency_key`
returns what the first returned. `Conflict` is raised where the expected version is not the stored one.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from msgspec import Struct

from auth.context import RequestContext
from sources.drafts import (
    CharacterDraft,
    ConversationDraft,
    MediaDraft,
    MessageDraft,
    NoteDraft,
    ObservationDraft,
    PromptDraft,
    ThreadDraft,
    ThreadUpsertResult,
    UpsertResult,
)
from sources.query import ParsedQuery
from sources.records import (
    Character,
    Conversation,
    ExactHits,
    HitPage,
    ListPage,
    MediaChunk,
    MediaItem,
    Message,
    MessageHits,
    Namespace,
    Note,
    Observation,
    SavedPrompt,
    Segment,
)

Order = Literal["relevance", "recent"]
Scoring = Literal["comparable", "minmax"]
# Where conversations are that were put nowhere else; it is always there.
DEFAULT_NAMESPACE = "default"


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


class MessageSearch(Struct, frozen=True, kw_only=True):
    """Messages that hold a text as it stands, in any case: `%`, `_` and `"` are characters like others. Without a text,
    all that pass the filters. Newest `created_at` first, of equal ones the higher number.

    With `in_titles`, a title that holds the text stands for every message of its conversation. Roles are those stored,
    any of them; times are from `date_from` to `date_to`, both included and in the one ISO form. A conversation that is
    absent, deleted or somebody else's has no messages.
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
    """An FTS5 expression over the content of messages, words unstemmed: `AND OR NOT`, `"phrases"`, `prefix*`,
    `NEAR(a b, 5)`, `content:` and parentheses. What is no expression is read as words that all have to be there."""

    expression: str
    conversation_id: str | None = None
    limit: int
    deadline_ms: int


class ObservationFilter(Struct, frozen=True, kw_only=True):
    """What an observation must be: of each filter that is set, one of its values, in any case. A file is named by its
    whole path or by its name alone. Times are those of `created_at`, both included and in the one ISO form."""

    projects: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    date_from: str | None = None
    date_to: str | None = None


EVERY_OBSERVATION = ObservationFilter()


class Notes(Protocol):
    async def search(self, search: Search) -> HitPage: ...
    async def get(self, note_id: str) -> Note: ...
    async def list(self, limit: int, offset: int) -> ListPage[Note]: ...
    async def list_after(self, uuid: str, limit: int) -> Sequence[Note]:
        """In the order of the uuids, those that follow one, which need not be there: for whoever reads all, while
        others write."""
        ...

    async def create(self, draft: NoteDraft, *, idempotency_key: str | None = None) -> Note: ...
    async def create_many(self, drafts: Sequence[NoteDraft]) -> Sequence[Note]: ...
    async def upsert_many(self, drafts: Sequence[NoteDraft]) -> Sequence[UpsertResult]:
        """Drafts with a uuid, from elsewhere: what is not there is created, what came otherwise than the last time is
        updated. One transaction; a draft that is refused keeps no other from being taken."""
        ...

    async def update(
        self,
        note_id: str,
        draft: NoteDraft,
        expected_version: int | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Note: ...
    async def append(
        self,
        note_id: str,
        text: str,
        expected_version: int | None = None,
        *,
        separator: str = "",
        idempotency_key: str | None = None,
    ) -> Note:
        """`separator` comes between the text and what is there, unless there is nothing or it ends with it."""
        ...

    async def delete(
        self, note_id: str, expected_version: int | None = None, *, idempotency_key: str | None = None
    ) -> None: ...
    async def purge(self, note_id: str) -> None: ...


class Chats(Protocol):
    async def search(self, search: Search) -> HitPage: ...
    async def messages_with(self, search: MessageSearch) -> MessageHits: ...
    async def match_messages(self, search: ExactSearch) -> ExactHits: ...
    async def get(self, conversation_id: str) -> Conversation: ...
    async def get_by_session(self, session_id: str) -> Conversation: ...
    async def get_message(self, message_id: str) -> Message: ...
    async def list(
        self, limit: int, offset: int, *, namespace: str | None = None, search: str | None = None
    ) -> ListPage[Conversation]:
        """Newest `last_modified` first; `search` is part of a title, in any case, or of an id."""
        ...

    async def ids(self, after: str, limit: int) -> Sequence[str]:
        """Of conversations, in the order of the ids: those that follow one, which need not be there."""
        ...

    async def namespaces(self) -> Sequence[Namespace]:
        """By name; the default one is always among them."""
        ...

    async def create_namespace(self, name: str) -> Namespace: ...
    async def rename_namespace(self, name: str, new_name: str) -> Namespace:
        """With its conversations. The default one keeps its name."""
        ...

    async def delete_namespace(self, name: str) -> int:
        """Its conversations move to the default one, which cannot be deleted; how many did."""
        ...

    async def messages(self, conversation_id: str, limit: int, offset: int) -> ListPage[Message]: ...
    async def around(self, conversation_id: str, position: int, before: int, after: int) -> Sequence[Message]: ...
    async def create(
        self,
        draft: ConversationDraft,
        messages: Sequence[MessageDraft] = (),
        *,
        idempotency_key: str | None = None,
    ) -> Conversation: ...
    async def upsert_many(self, threads: Sequence[ThreadDraft]) -> Sequence[ThreadUpsertResult]:
        """Messages are known by their uuids: new ones follow those that are there, in the order in which they come."""
        ...

    async def append(
        self,
        conversation_id: str,
        messages: Sequence[MessageDraft],
        *,
        idempotency_key: str | None = None,
        expected_last_number: int | None = None,
    ) -> Sequence[Message]:
        """`Conflict` where the conversation's last message has not the number that was expected."""
        ...

    async def last_number(self, conversation_id: str) -> int:
        """Of the last message that was ever written to it, also if that was deleted; 0 where none was."""
        ...

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
    async def search(self, search: Search) -> HitPage: ...
    async def get(self, character_id: int) -> Character: ...
    async def list(self, limit: int, offset: int) -> ListPage[Character]: ...
    async def list_after(self, uuid: str, limit: int) -> Sequence[Character]: ...
    async def create(self, draft: CharacterDraft, *, idempotency_key: str | None = None) -> Character: ...
    async def create_many(self, drafts: Sequence[CharacterDraft]) -> Sequence[Character]: ...
    async def upsert_many(self, drafts: Sequence[CharacterDraft]) -> Sequence[UpsertResult]: ...
    async def update(
        self, character_id: int, draft: CharacterDraft, expected_version: int | None = None
    ) -> Character: ...
    async def delete(self, character_id: int, expected_version: int | None = None) -> None: ...
    async def purge(self, character_id: int) -> None: ...


class Prompts(Protocol):
    async def search(self, search: Search) -> HitPage: ...
    async def get(self, prompt_id: int) -> SavedPrompt: ...
    async def get_by_name(self, name: str) -> SavedPrompt: ...
    async def list(self, limit: int, offset: int) -> ListPage[SavedPrompt]: ...
    async def list_after(self, uuid: str, limit: int) -> Sequence[SavedPrompt]: ...
    async def create(self, draft: PromptDraft, *, idempotency_key: str | None = None) -> SavedPrompt: ...
    async def create_many(self, drafts: Sequence[PromptDraft]) -> Sequence[SavedPrompt]: ...
    async def save(
        self, draft: PromptDraft, expected_version: int | None = None, *, idempotency_key: str | None = None
    ) -> SavedPrompt:
        """The one that `get_by_name` finds is updated; where there is none, it is created, and its version is 1. An
        expected version of 0 is that of a prompt that is not there."""
        ...

    async def upsert_many(self, drafts: Sequence[PromptDraft]) -> Sequence[UpsertResult]: ...
    async def update(self, prompt_id: int, draft: PromptDraft, expected_version: int | None = None) -> SavedPrompt: ...
    async def delete(self, prompt_id: int, expected_version: int | None = None) -> None: ...
    async def purge(self, prompt_id: int) -> None: ...


class Media(Protocol):
    async def search(self, search: Search) -> HitPage: ...
    async def get(self, media_id: int) -> MediaItem: ...
    async def get_by_uuid(self, uuid: str) -> MediaItem: ...
    async def list(self, limit: int, offset: int) -> ListPage[MediaItem]: ...
    async def content(self, media_id: int, start: int = 0, length: int | None = None) -> str: ...
    async def chunks(self, media_id: int, first: int, count: int) -> Sequence[MediaChunk]: ...
    async def chunk_by_uuid(self, media_id: int, uuid: str) -> MediaChunk: ...
    async def chunk_at(self, media_id: int, offset: int) -> MediaChunk: ...
    async def segments(
        self, media_id: int, from_ms: int | None = None, to_ms: int | None = None
    ) -> Sequence[Segment]: ...
    async def types(self) -> Mapping[str, int]: ...
    async def list_after(self, uuid: str, limit: int) -> Sequence[MediaItem]: ...
    async def create(self, draft: MediaDraft, *, idempotency_key: str | None = None) -> MediaItem: ...
    async def create_many(self, drafts: Sequence[MediaDraft]) -> Sequence[MediaItem]: ...
    async def upsert_many(self, drafts: Sequence[MediaDraft]) -> Sequence[UpsertResult]: ...
    async def update(self, media_id: int, draft: MediaDraft, expected_version: int | None = None) -> MediaItem: ...
    async def delete(self, media_id: int, expected_version: int | None = None) -> None: ...
    async def purge(self, media_id: int) -> None: ...


class Observations(Protocol):
    """What was learned. It is no source of a search over all: its words weigh nothing there."""

    async def search(self, search: Search, narrowing: ObservationFilter = EVERY_OBSERVATION) -> HitPage:
        """A search without words finds nothing: `list` is for that."""
        ...

    async def get(self, observation_id: str) -> Observation: ...
    async def get_many(self, observation_ids: Sequence[str]) -> Sequence[Observation]:
        """Those that there are, in the order of the ids."""
        ...

    async def list(
        self, limit: int, offset: int, narrowing: ObservationFilter = EVERY_OBSERVATION
    ) -> ListPage[Observation]:
        """Newest `created_at` first."""
        ...

    async def list_after(self, uuid: str, limit: int) -> Sequence[Observation]: ...
    async def create(self, draft: ObservationDraft, *, idempotency_key: str | None = None) -> Observation: ...
    async def create_many(
        self, drafts: Sequence[ObservationDraft], *, idempotency_key: str | None = None
    ) -> Sequence[Observation]: ...
    async def upsert_many(self, drafts: Sequence[ObservationDraft]) -> Sequence[UpsertResult]: ...
    async def delete(self, observation_id: str, expected_version: int | None = None) -> None: ...
    async def purge(self, observation_id: str) -> None: ...


class Bookmarks(Protocol):
    """How far things outside the library were read, under names that whoever reads them gives."""

    async def get(self, name: str) -> str | None: ...
    async def put(self, name: str, text: str) -> None: ...


class Library(Protocol):
    """One user's five collections, and what was learned. Its files are opened when first used."""

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
    @property
    def observations(self) -> Observations: ...
    @property
    def bookmarks(self) -> Bookmarks: ...

    async def corpus(self, query: ParsedQuery, deadline_ms: int) -> Corpus:
        """How common the terms of a query are in all five collections together."""
        ...


class Libraries(Protocol):
    """Every user's library, a bounded number of them open at once."""

    def library(self, context: RequestContext) -> AbstractAsyncContextManager[Library]:
        """The caller's own, in use until the block ends: it is not closed meanwhile."""
        ...

    async def close(self) -> None: ...
