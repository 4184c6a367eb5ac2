"""The base classes of collections: how the tables of a user are read and written on behalf of one client."""

# About this package: Read `collection` first: items are read and written through its `_read`, `_write` and `_remove`,
# which apply deadlines and quotas, and searched in `run_search`. `items` and `chats` add what single kinds need. Each
# engine combines these classes with its own connection and statistics (`library.collection_classes`).

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial, wraps
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, Self, TypeVar, cast

from msgspec import Struct, structs

from config.errors import Conflict, NotFound
from config.settings import Settings
from config.times import format_timestamp
from sources.drafts import UpsertResult
from sources.query import ParsedQuery
from sources.query.parser import can_have_near_terms, terms_max, with_rarest_terms
from sources.records import SEMANTIC_OFF, HitPage, ListPage, SemanticStatus
from sources.semantic.model import ModelInfo, SemanticUnavailable
from sources.semantic.service import SemanticService
from sources.storage.contract import (
    ChangeResult,
    ItemChange,
    ItemFilter,
    Search,
    TagCount,
)
from sources.storage.search.engine import QueryVector, SearchStatistics, SearchTarget
from sources.storage.search.text_search import NOT_APPLICABLE, TextSearch, merge_pages, search_relaxed
from sources.storage.search.vocabulary import NEAR_WORDS_MAX, Spelling
from sources.storage.tables import validation
from sources.storage.tables.bulk import change_items, next_batch, undo_items
from sources.storage.tables.item_table import PINNED_LINK, DraftT, ItemKey, ItemTable, RecordT, WriteContext
from sources.storage.tables.kind_tables import PLAIN_TABLES, has_tags
from sources.storage.tables.sql import NOTES_INDEX, SqlConnection, SqlFilter, TableWork, TextIndex, between, equals
from sources.storage.tables.upsert import IdempotencyLimits, Upserter, run_once, withdraw_rows

# What a batch of changes may take beyond the deadline of a single write: the tags of a media item are indexed with all
# of its chunks.
BATCH_MS = 60_000
_HUMAN_ONLY = "SELECT 1 FROM messages WHERE human_only = 1 AND deleted = 0 LIMIT 1"
# The vector of a message is that of its own text, so it can be compared if only that is searched.
_EMBEDDED_FIELDS = ((), ("own",))
IdT = TypeVar("IdT", bound=ItemKey)
T = TypeVar("T")
P = ParamSpec("P")


class QuotaRoom(Protocol):
    """The quota of a user, as far as writes need it."""

    def room(self, new_items: int, *, may_exist: bool = False) -> AbstractAsyncContextManager[None]: ...


class UserDatabase(Protocol):
    """Tables of one user. Each call runs its work in one transaction. `index` is the full-text index of the rows that
    a write changes, and `extra_ms` extends the deadline of the settings."""

    @property
    def quota(self) -> QuotaRoom: ...

    async def read(self, source: str, work: TableWork[T], deadline_ms: int | None = None) -> T: ...
    async def write(self, source: str, index: TextIndex, work: TableWork[T], extra_ms: int = 0) -> T: ...


class _OwnedByUser(Protocol):
    """Data of one user. `source` is what reports of failures name."""

    source: str
    _database: UserDatabase


StoredT = TypeVar("StoredT", bound=_OwnedByUser)


def read_method(
    method: Callable[Concatenate[StoredT, SqlConnection, P], T],
) -> Callable[Concatenate[StoredT, P], Coroutine[Any, Any, T]]:
    """Makes a method that gets a connection one that callers await. It runs as a job, in one transaction."""

    @wraps(method)
    async def run(self: StoredT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.read(self.source, lambda connection: method(self, connection, *args, **kwargs))

    return run


def write_method(
    method: Callable[Concatenate[StoredT, SqlConnection, P], T],
) -> Callable[Concatenate[StoredT, P], Coroutine[Any, Any, T]]:
    """Like `read_method`, for writes that neither a quota nor an index needs to know about."""

    @wraps(method)
    async def run(self: StoredT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        def work(connection: SqlConnection) -> T:
            return method(self, connection, *args, **kwargs)

        return await self._database.write(self.source, NOTES_INDEX, work)

    return run


class StorageSettings(Struct, frozen=True, kw_only=True):
    """The settings that apply to every collection and every search of every user."""

    limits: validation.FieldLimits
    idempotency: IdempotencyLimits
    clock: Callable[[], float]
    steady_clock: Callable[[], float]
    ranked_rows_max: int
    near_words_max: int
    scanned_rows_max: int
    semantic: SemanticService | None
    # The sources that are counted to weigh words and read to correct them; None for all.
    sources: frozenset[str] | None = None

    @classmethod
    def of(
        cls,
        settings: Settings,
        clock: Callable[[], float],
        steady_clock: Callable[[], float],
        semantic: SemanticService | None,
        **more: Any,
    ) -> Self:
        """`more` are the fields that a subclass adds."""
        return cls(
            limits=validation.field_limits(settings),
            idempotency=IdempotencyLimits(settings.fixed.idempotency_ttl_s, settings.fixed.idempotency_max_keys),
            clock=clock,
            steady_clock=steady_clock,
            ranked_rows_max=settings.fixed.search_ranked_rows_max,
            near_words_max=NEAR_WORDS_MAX,
            scanned_rows_max=settings.fixed.message_scan_max_rows,
            semantic=semantic,
            **more,
        )


class StoredCollection(Generic[RecordT, DraftT, IdT]):
    """Base class of chats and of the item collections. What is said of items here applies to conversations. Each engine
    knows the counts of the library (`_statistics`) and how meanings are compared."""

    source: str
    table: ItemTable[RecordT, DraftT]
    target: SearchTarget
    # What only people search, in addition to `target`.
    human_only_target: SearchTarget | None = None
    _statistics: SearchStatistics

    def __init__(
        self, source: str, database: UserDatabase, settings: StorageSettings, client_id: str, *, is_agent: bool
    ) -> None:
        if source in PLAIN_TABLES:  # a kind that needs no more than its declaration, and no class of its own
            self.source, self.table = source, PLAIN_TABLES[source]
        self._database = database
        self._settings = settings
        self._client_id = client_id
        self._is_agent = is_agent

    async def words(self) -> int:
        """Returns how many words the texts of all items have. Human-only messages do not count."""
        raise NotImplementedError

    async def get(self, item_id: IdT) -> RecordT:
        return await self._read(lambda connection: self.table.get(connection, item_id))

    async def browse(self, where: ItemFilter, limit: int, offset: int) -> ListPage[RecordT]:
        """Returns a page of the items that meet the conditions, most recently modified first. A media type matches
        media only, and a namespace conversations only."""
        condition = self._condition(where)
        if condition is None:
            return ListPage((), 0)
        sql, parameters = f"TRUE{condition.sql}", condition.parameters
        return await self._read(lambda connection: self.table.page(connection, limit, offset, sql, parameters))

    def _condition(self, where: ItemFilter) -> SqlFilter | None:
        """Returns None if no row can match."""
        table = self.table
        columns = {"media_type": where.media_type, "namespace": where.namespace}
        # No row can have a value of a column that the table lacks, or that cannot be stored.
        if any(value is not None and not table.has_column(name) for name, value in columns.items()):
            return None
        if not all(validation.is_storable(value) for value in (*where.tags, *columns.values()) if value is not None):
            return None
        condition = has_tags(where.tags, table.name, f"{table.name}.id")
        for name, value in columns.items():
            condition &= equals(name, value)
        if where.is_pinned and table.has_column("is_pinned"):
            condition &= equals("is_pinned", 1)
        elif where.is_pinned:
            linked = f"{table.name}.id IN (SELECT id FROM {table.name}_tags WHERE folded = ?)"
            condition &= SqlFilter((linked,), (PINNED_LINK,))
        # `~` sorts after every character of a time.
        condition &= between("created_at", where.created, where.created and f"{where.created}~")
        return condition & between("last_modified", where.date_from, where.date_to)

    async def matching_ids(self, where: ItemFilter, after: int, limit: int) -> Sequence[tuple[int, IdT]]:
        """Returns the items that meet the conditions, each with its position, after a position and in order."""
        condition = self._condition(where)
        if condition is None:
            return ()
        sql = f"SELECT id, {self.table.key} FROM {self.table.name} WHERE deleted = 0{condition.sql} AND id > ?"
        parameters = (*condition.parameters, validation.clamp_count(after), validation.clamp_count(limit))
        return await self._read(
            lambda connection: connection.execute(f"{sql} ORDER BY id LIMIT ?", parameters).fetchall()
        )

    async def change_many(
        self, changes: Sequence[ItemChange], undo: str = "", *, is_atomic: bool = False
    ) -> ChangeResult:
        """Changes items in one transaction. With the token `undo` of an earlier call, both are undone together. If
        `is_atomic`, raises Conflict and changes nothing if one of the items cannot be changed."""
        self._require_batch(changes)
        extra_ms = await self._removals_ms([one.id for one in changes if one.change.deletes])
        if len(changes) > 1 and extra_ms and not is_atomic:
            # Long conversations: one transaction each, with the time that it needs.
            results = []
            for change in changes:
                results.append(await self.change_many([change], undo))
                undo = results[-1].undo
            return ChangeResult(
                changed=tuple(key for result in results for key in result.changed),
                skipped=tuple(key for result in results for key in result.skipped),
                problem=next((result.problem for result in results if result.problem), ""),
                undo=undo,
            )

        def work(connection: SqlConnection, context: WriteContext) -> ChangeResult:
            result = change_items(connection, self.table, self.source, changes, undo, context)
            if is_atomic and result.skipped:
                raise Conflict(result.problem)
            return result

        # Tags and the values of fields add nothing that a quota counts.
        return await self._remove(work, extra_ms + BATCH_MS)

    async def _removals_ms(self, keys: Sequence[ItemKey]) -> int:
        total_ms = 0
        for key in keys:
            with suppress(NotFound):
                total_ms += await self._removal_ms(cast("IdT", key))
        return total_ms

    async def undo(self, undo: str) -> ChangeResult | None:
        # By the writer: each file has a table `state`, and the reader of SQLite has all files.
        """Undoes a batch of changes in one transaction, the last one first. Returns None if there is none left."""
        batch = await self._remove(lambda connection, context: next_batch(connection, self.source, undo, context.time))
        if batch is None:
            return None
        restored = [state.key for state in batch[1] if state.is_deleted]
        extra_ms = await self._removals_ms(restored)
        async with self._database.quota.room(len(restored)):
            return await self._remove(
                lambda connection, context: undo_items(connection, self.table, self.source, undo, context),
                extra_ms + BATCH_MS,
            )

    async def created_counts(self, unit: Literal["month", "day"], within: str = "") -> Mapping[str, int]:
        """Returns how many items were created in each month or on each day, in UTC: `2026-01` or `2026-01-31`. Only
        those that begin with `within`, such as a year, and at most `PERIODS_MAX`, the newest first."""
        chars = len("2026-01") if unit == "month" else len("2026-01-31")
        return await self._read(lambda connection: self.table.created_counts(connection, chars, within))

    async def tags(self, limit: int) -> Sequence[TagCount]:
        """Returns the most frequent tags."""
        return await self._read(lambda connection: self.table.tag_counts(connection, limit))

    async def update(
        self,
        item_id: IdT,
        draft: DraftT,
        expected_version: int | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> RecordT:
        def work(connection: SqlConnection, context: WriteContext) -> RecordT:
            def write() -> Sequence[str]:
                rowid = self.table.update(connection, item_id, draft, expected_version, context)
                return [self.table.get_by_rowid(connection, rowid).uuid]

            request = ("update", item_id, draft, expected_version)
            [uuid] = self._run_once(connection, idempotency_key, request, write)
            return self.table.get_by_uuid(connection, uuid)

        return await self._write(work)

    async def delete(
        self, item_id: IdT, expected_version: int | None = None, *, idempotency_key: str | None = None
    ) -> None:
        """Hides the item from every read. Its row is kept until it is purged."""

        def work(connection: SqlConnection, context: WriteContext) -> None:
            def write() -> Sequence[str]:
                self.table.delete(connection, item_id, expected_version, context)
                return ()

            self._run_once(connection, idempotency_key, ("delete", item_id, expected_version), write)

        await self._remove(work, await self._removal_ms(item_id))

    async def restore(self, item_id: IdT) -> RecordT:
        """Makes a deleted item visible again. Raises `NotFound` if there is no deleted item of this id."""

        def work(connection: SqlConnection, context: WriteContext) -> RecordT:
            return self.table.get_by_rowid(connection, self.table.restore(connection, item_id, context))

        return await self._write(work, 1)

    async def purge(self, item_id: IdT) -> None:
        """Removes the item permanently, whether or not it was deleted before."""

        def work(connection: SqlConnection, _context: WriteContext) -> None:
            self.table.purge(connection, item_id)

        await self._remove(work, await self._removal_ms(item_id))

    async def _read(self, work: TableWork[T], deadline_ms: int | None = None) -> T:
        return await self._database.read(self.source, work, deadline_ms)

    async def _write(
        self, work: Callable[[SqlConnection, WriteContext], T], new_items: int = 0, *, may_exist: bool = False
    ) -> T:
        """Runs work that adds `new_items` items, or fewer if some of them may exist, within the user's quota."""
        async with self._database.quota.room(new_items, may_exist=may_exist):
            return await self._remove(work)

    async def _remove(self, work: Callable[[SqlConnection, WriteContext], T], extra_ms: int = 0) -> T:
        """Runs work that removes something, which a user whose quota is reached must be able to do."""
        context = self._write_context()
        return await self._database.write(
            self.source, self.table.index, lambda connection: work(connection, context), extra_ms
        )

    def _write_context(self) -> WriteContext:
        return WriteContext(self._client_id, format_timestamp(self._settings.clock()), self._settings.limits)

    async def _removal_ms(self, _item_id: IdT) -> int:
        """The time that removing an item from the indexes may take beyond the deadline of other writes."""
        return 0

    def _run_once(
        self,
        connection: SqlConnection,
        key: str | None,
        request: object,
        write: Callable[[], Sequence[str]],
    ) -> Sequence[str]:
        """Runs `write`, or returns its earlier result if this key was used before."""
        if key is None:
            return write()
        # The source is part of the request: a key that another collection has used is a conflict, not a repetition.
        key = validation.required_short_text(self._settings.limits, "idempotency_key", key)
        limits, now_s = self._settings.idempotency, self._settings.steady_clock()
        return run_once(connection, key, (self.source, request), write, limits=limits, now_s=now_s)

    def _require_batch(self, drafts: Sequence[object]) -> None:
        limit = self._settings.limits.batch_max_items
        if len(drafts) > limit:
            raise validation.invalid_field("items", expected=f"at most {limit} per call", got=f"{len(drafts)}")

    # -- search --------------------------------------------------------------------------------------------------------

    async def search(self, search: Search) -> HitPage:
        return await self._search_with_meaning(search, partial(SearchWork, self, search))

    async def _search_with_meaning(
        self, search: Search, work_with: Callable[[QueryVector | SemanticStatus], Callable[[SqlConnection], HitPage]]
    ) -> HitPage:
        semantic, query = self._settings.semantic, search.query
        current = semantic.model if semantic is not None else None
        if semantic is None or current is None:
            return await self._database.read(self.source, work_with(SEMANTIC_OFF), search.deadline_ms)
        meaning = await self._meaning(search, semantic, current)
        page = await self._database.read(self.source, work_with(meaning), search.deadline_ms)
        corrected = page.query
        if meaning == NOT_APPLICABLE or corrected is None or corrected.prose in ("", query.prose):
            return page
        # To a model, a misspelled word is nothing but its letters. Only the index tells which words these are, and few
        # queries have any: the others are not read twice.
        model = current if isinstance(meaning, SemanticStatus) else meaning.model
        with suppress(SemanticUnavailable):
            prose = await semantic.correct(query.prose, corrected.prose, model.id)
            if prose != query.prose:
                reading = structs.replace(search, query=structs.replace(query, prose=prose))
                meaning = await self._meaning(reading, semantic, current)
                return await self._database.read(self.source, work_with(meaning), search.deadline_ms)
        return page

    async def _meaning(
        self, search: Search, semantic: SemanticService, current: ModelInfo
    ) -> QueryVector | SemanticStatus:
        """Returns the vector of the query, or why there is none: then only words are compared."""
        query = search.query
        # A literal query, another order and single fields ask for words.
        if (
            not query.prose
            or query.expression is None
            or search.ranking == "words"
            or search.order != "relevance"
            or search.scoring != "comparable"
            or search.fields not in _EMBEDDED_FIELDS
        ):
            return NOT_APPLICABLE
        try:
            return await self._query_vector(semantic, current, query.prose)
        except SemanticUnavailable as error:
            return SemanticStatus("unavailable", reason=error.reason)

    async def _query_vector(self, semantic: SemanticService, current: ModelInfo, text: str) -> QueryVector:
        """Embeds a query with the model whose vectors are searched: that of the settings, or the previous one until the
        current one has all of them. Raises SemanticUnavailable."""
        raise NotImplementedError

    def run_search(self, connection: SqlConnection, search: Search, meaning: QueryVector | SemanticStatus) -> HitPage:
        """For an agent, this does not read the text of a human-only message."""
        human_only = None if self._is_agent else self.human_only_target
        if human_only is not None and has_human_only_messages(connection):
            return search_relaxed(
                search,
                lambda reading: (
                    self.text_search(connection, reading).has_match()
                    or self.text_search(connection, reading, human_only).has_match()
                ),
                lambda reading: self._search_both(connection, human_only, reading, meaning),
            )
        if search.query.relaxed is None:  # as most queries
            return self._search_target(connection, self.target, search, meaning)
        return search_relaxed(
            search,
            lambda reading: self.text_search(connection, reading).has_match(),
            lambda reading: self._search_target(connection, self.target, reading, meaning),
        )

    def _search_both(
        self,
        connection: SqlConnection,
        human_only: SearchTarget,
        search: Search,
        meaning: QueryVector | SemanticStatus,
    ) -> HitPage:
        # Both are read from the beginning: how many of the skipped hits are of which kind is not known.
        first = structs.replace(search, limit=search.offset + search.limit, offset=0)
        public = self._search_target(connection, self.target, first, meaning)
        if search.corpus is None and search.query.terms:
            corpus = self._statistics.source_corpus(search.query, connection, self.target.index)
            first = structs.replace(first, corpus=corpus)
        return merge_pages(search, public, self._search_target(connection, human_only, first, meaning))

    def text_search(
        self,
        connection: SqlConnection,
        search: Search,
        target: SearchTarget | None = None,
        meaning: QueryVector | SemanticStatus = SEMANTIC_OFF,
        extra_filter: SqlFilter | None = None,
    ) -> TextSearch:
        statistics, ranked_rows_max = self._statistics, self._settings.ranked_rows_max
        return TextSearch(connection, target or self.target, search, statistics, ranked_rows_max, extra_filter, meaning)

    def _search_target(
        self, connection: SqlConnection, target: SearchTarget, search: Search, meaning: QueryVector | SemanticStatus
    ) -> HitPage:
        """Searches for the near words of a misspelled word too."""
        is_by_words = search.ranking != "meaning"
        if is_by_words and len(search.query.terms) > terms_max(search.query) and can_have_near_terms(search.query):
            self._statistics.refresh(connection)
            corpus = search.known_corpus or self._statistics.corpus(search.query, connection)
            query = with_rarest_terms(search.query, corpus.frequencies)
            page = self._search_target(connection, target, structs.replace(search, query=query, corpus=None), meaning)
            return page if page.query is not None else structs.replace(page, query=query)
        text_search = self.text_search(connection, search, target, meaning)
        corrected = self._correct(connection, text_search) if is_by_words and not search.is_partial else None
        if corrected is None:
            return text_search.run()
        reading = structs.replace(search, query=corrected, corpus=None)
        page = self.text_search(connection, reading, target, meaning).run()
        return structs.replace(page, query=corrected) if page.total != 0 else page

    def _correct(self, connection: SqlConnection, text_search: TextSearch) -> ParsedQuery | None:
        """Returns the query with near words, if it needs any."""
        words_max = self._settings.near_words_max
        if not words_max or not text_search.lacks_words():
            return None
        return Spelling(connection, text_search, self._statistics, words_max).correct()


class SearchWork(Struct, frozen=True):
    """The job of a search. An engine that runs the searches of a call together sees what each is going to read."""

    collection: StoredCollection[Any, Any, Any]
    search: Search
    meaning: QueryVector | SemanticStatus

    def __call__(self, connection: SqlConnection) -> HitPage:
        return self.collection.run_search(connection, self.search, self.meaning)


def has_human_only_messages(connection: SqlConnection) -> bool:
    return connection.execute(_HUMAN_ONLY).fetchone() is not None


class ItemCollection(StoredCollection[RecordT, DraftT, IdT]):
    """What notes, media, characters, prompts, observations and kinds of other distributions have in common."""

    async def list(self, limit: int, offset: int) -> ListPage[RecordT]:
        """Returns a page of items, most recently modified first."""
        return await self._read(lambda connection: self.table.page(connection, limit, offset))

    async def list_after(self, uuid: str, limit: int) -> Sequence[RecordT]:
        """Returns the items whose uuid sorts after `uuid`, which need not exist, ordered by uuid. Reading a whole
        collection this way is not disturbed by concurrent writes."""
        parameters = (validation.storable_beginning(uuid), validation.clamp_count(limit))
        return await self._read(
            lambda connection: self.table.select(connection, "uuid > ? ORDER BY uuid LIMIT ?", parameters)
        )

    async def create(self, draft: DraftT, *, idempotency_key: str | None = None) -> RecordT:
        def work(connection: SqlConnection, context: WriteContext) -> RecordT:
            def write() -> Sequence[str]:
                rowid = self.table.insert(connection, draft, context)
                return [self.table.get_by_rowid(connection, rowid).uuid]

            [uuid] = self._run_once(connection, idempotency_key, draft, write)
            return self.table.get_by_uuid(connection, uuid)

        return await self._write(work, 1)

    async def create_many(self, drafts: Sequence[DraftT], *, idempotency_key: str | None = None) -> Sequence[RecordT]:
        self._require_batch(drafts)

        def work(connection: SqlConnection, context: WriteContext) -> Sequence[RecordT]:
            def write() -> Sequence[RecordT]:
                rowids = [self.table.insert(connection, draft, context) for draft in drafts]
                return self.table.get_by_rowids(connection, rowids)

            if idempotency_key is None:
                return write()
            uuids = self._run_once(connection, idempotency_key, [*drafts], lambda: [row.uuid for row in write()])
            return [self.table.get_by_uuid(connection, uuid) for uuid in uuids]

        return await self._write(work, len(drafts))

    async def upsert_many(self, drafts: Sequence[DraftT], *, keeps_edits: bool = False) -> Sequence[UpsertResult]:
        """Writes imported drafts, which must have a uuid: unknown items are created, items that changed since the last
        import are updated. With `keeps_edits`, an item that was edited since is left alone: a conflict.
        Runs in one transaction; a rejected draft does not affect the others."""
        self._require_batch(drafts)

        def work(connection: SqlConnection, context: WriteContext) -> Sequence[UpsertResult]:
            upserter = Upserter(connection, self.table, drafts, context, keeps_edits=keeps_edits)
            return [upserter.upsert(draft) for draft in drafts]

        return await self._write(work, len(drafts), may_exist=True)

    async def withdraw_many(self, uuids: Sequence[str], *, keeps_edits: bool = True) -> Sequence[str]:
        """Deletes imported items whose origin has disappeared. They are restored when they are imported again, unlike
        items that a person deleted. With `keeps_edits`, items that were edited in the library are kept; their uuids are
        returned."""
        self._require_batch(uuids)
        return await self._remove(
            lambda connection, context: withdraw_rows(connection, self.table, uuids, context, keeps_edits=keeps_edits)
        )
