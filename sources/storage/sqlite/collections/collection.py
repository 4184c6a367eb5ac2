"""The base classes of the SQLite collections: how one of a user's files is read and written on behalf of one client."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from config.times import format_timestamp
from sources.drafts import UpsertResult
from sources.query import ParsedQuery
from sources.records import SEMANTIC_OFF, HitPage, ListPage, SemanticStatus
from sources.semantic.model import ModelInfo, SemanticUnavailable
from sources.semantic.service import SemanticService
from sources.storage.contract import ItemFilter, Search, TagCount
from sources.storage.sqlite.connection.connection import JobConnection, Work
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.index.statistics import CorpusStatistics
from sources.storage.sqlite.index.word_count import count_words
from sources.storage.sqlite.search.fts_search import FtsSearch
from sources.storage.sqlite.search.fused_search import FusedSearch
from sources.storage.sqlite.search.meaning import NOT_APPLICABLE, QueryMeaning, has_meaning
from sources.storage.sqlite.search.readings import search_relaxed
from sources.storage.sqlite.search.spelling import Spelling
from sources.storage.sqlite.search.target import SearchTarget, has_tags
from sources.storage.sqlite.sql import SqlFilter, between, equals
from sources.storage.sqlite.vectors.vector_memory import VectorMemory
from sources.storage.sqlite.vectors.vector_tables import vector_tables
from sources.storage.sqlite.write import validation
from sources.storage.sqlite.write.idempotency import IdempotencyLimits, run_once
from sources.storage.sqlite.write.item_table import DraftT, ItemKey, ItemTable, RecordT, WriteContext
from sources.storage.sqlite.write.upsert import Upserter, withdraw_rows
from sources.storage.sqlite.write.validation import FieldLimits, clamp_count, invalid_field, is_storable

IdT = TypeVar("IdT", bound=ItemKey)
T = TypeVar("T")

_NO_FILTER = SqlFilter()


class CollectionSettings(Struct, frozen=True):
    """The settings that apply to every collection of every user."""

    limits: FieldLimits
    idempotency: IdempotencyLimits
    ranked_rows_max: int
    near_words_max: int
    scanned_rows_max: int
    clock: Callable[[], float]
    steady_clock: Callable[[], float]
    semantic: SemanticService | None
    vector_memory: VectorMemory
    # The sources that are counted to weigh words and read to correct them; None for all.
    sources: frozenset[str] | None = None


class SqliteCollection(Generic[RecordT, DraftT, IdT]):
    """Base class of chats and of the item collections."""

    source: ClassVar[str]
    target: ClassVar[SearchTarget]
    table: ItemTable[RecordT, DraftT]

    def __init__(self, database: Database, settings: CollectionSettings, client_id: str) -> None:
        self._database = database
        self._settings = settings
        self._client_id = client_id

    @property
    def _statistics(self) -> CorpusStatistics:
        return self._database.statistics(self._settings.sources)

    async def search(self, search: Search) -> HitPage:
        meaning = await self._meaning(search)

        def work(connection: JobConnection) -> HitPage:
            return search_relaxed(
                search,
                lambda reading: self._has_match(connection, self.target, reading),
                lambda reading: self._search_target(connection, self.target, reading, meaning),
            )

        return await self._read(work, search.deadline_ms)

    def _has_match(
        self,
        connection: JobConnection,
        target: SearchTarget,
        search: Search,
        extra_filter: SqlFilter = _NO_FILTER,
    ) -> bool:
        statistics, ranked_rows_max = self._statistics, self._settings.ranked_rows_max
        return FtsSearch(connection, target, search, statistics, ranked_rows_max, extra_filter).has_match()

    def _search_target(
        self,
        connection: JobConnection,
        target: SearchTarget,
        search: Search,
        meaning: QueryMeaning | SemanticStatus,
    ) -> HitPage:
        """Searches for the near words of a misspelled word too."""
        if search.ranking == "meaning":
            return self._run_search(connection, target, search, meaning)
        corrected = self._correct(connection, target, search)
        if corrected is None:
            return self._run_search(connection, target, search, meaning)
        page = self._run_search(connection, target, replace(search, query=corrected, corpus=None), meaning)
        return replace(page, query=corrected) if page.total != 0 else page

    def _correct(self, connection: JobConnection, target: SearchTarget, search: Search) -> ParsedQuery | None:
        """Returns the query with near words, if it needs any."""
        statistics, words_max = self._statistics, self._settings.near_words_max
        return Spelling(connection, target, search, statistics, words_max).correct()

    def _run_search(
        self,
        connection: JobConnection,
        target: SearchTarget,
        search: Search,
        meaning: QueryMeaning | SemanticStatus,
        extra_filter: SqlFilter = _NO_FILTER,
    ) -> HitPage:
        """`meaning` is that of the query, or why there is none: then only words are compared."""
        statistics, ranked_rows_max = self._statistics, self._settings.ranked_rows_max
        if isinstance(meaning, QueryMeaning):
            fused = FusedSearch(connection, target, search, statistics, ranked_rows_max, extra_filter, meaning=meaning)
            return fused.run()
        if search.ranking == "meaning":
            return HitPage((), has_more=False, total=0, semantic=meaning)
        page = FtsSearch(connection, target, search, statistics, ranked_rows_max, extra_filter).run()
        return page if meaning == SEMANTIC_OFF else replace(page, semantic=meaning)

    async def _meaning(self, search: Search) -> QueryMeaning | SemanticStatus:
        semantic, database = self._settings.semantic, self._database
        if semantic is None or semantic.model is None:
            return SEMANTIC_OFF
        if not has_meaning(search):
            return NOT_APPLICABLE
        try:
            self._settings.vector_memory.require_usable()
            model = await self._vector_model(semantic, semantic.model)
            vector = await semantic.embed_query(search.query.prose, model.id)
        except SemanticUnavailable as error:
            return SemanticStatus("unavailable", reason=error.reason)
        tables = vector_tables(database.kind)
        stop = database.quota.embedding_stop
        return QueryMeaning(vector, model, self._settings.vector_memory, database, tables, stop)

    async def _vector_model(self, semantic: SemanticService, current: ModelInfo) -> ModelInfo:
        """Returns the model whose vectors are searched: the previous one until the current one has all of them."""
        database = self._database
        if database.vector_model is None:
            tables = vector_tables(database.kind)
            previous = await self._read(lambda connection: tables.previous_model(connection, current.id))
            known = semantic.model_for(previous) if previous is not None else None
            database.vector_model = known.id if known is not None else current.id
        return semantic.model_for(database.vector_model) or current

    async def get(self, item_id: IdT) -> RecordT:
        return await self._read(lambda connection: self.table.get(connection, item_id))

    async def browse(self, where: ItemFilter, limit: int, offset: int) -> ListPage[RecordT]:
        condition = _item_condition(self.table, where)
        if condition is None:
            return ListPage((), 0)
        sql, parameters = f"TRUE{condition.sql}", condition.parameters
        return await self._read(lambda connection: self.table.page(connection, limit, offset, sql, parameters))

    async def tags(self, limit: int) -> Sequence[TagCount]:
        return await self._read(lambda connection: self.table.tag_counts(connection, limit))

    async def words(self) -> int:
        return await self._read(lambda connection: count_words(connection, self.target.index))

    async def update(
        self,
        item_id: IdT,
        draft: DraftT,
        expected_version: int | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> RecordT:
        def work(connection: sqlite3.Connection, context: WriteContext) -> RecordT:
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
        def work(connection: sqlite3.Connection, context: WriteContext) -> None:
            def write() -> Sequence[str]:
                self.table.delete(connection, item_id, expected_version, context)
                return ()

            self._run_once(connection, idempotency_key, ("delete", item_id, expected_version), write)

        await self._remove(work, await self._removal_ms(item_id))

    async def restore(self, item_id: IdT) -> RecordT:
        def work(connection: sqlite3.Connection, context: WriteContext) -> RecordT:
            return self.table.get_by_rowid(connection, self.table.restore(connection, item_id, context))

        return await self._write(work, 1)

    async def purge(self, item_id: IdT) -> None:
        def work(connection: sqlite3.Connection, _context: WriteContext) -> None:
            self.table.purge(connection, item_id)

        await self._remove(work, await self._removal_ms(item_id))

    async def _read(self, work: Work[T], deadline_ms: int | None = None) -> T:
        return await self._database.read(self.source, work, deadline_ms)

    async def _write(
        self, work: Callable[[sqlite3.Connection, WriteContext], T], new_items: int = 0, *, may_exist: bool = False
    ) -> T:
        """Runs work that adds `new_items` items, or fewer if some of them may exist, within the user's quota."""
        async with self._database.quota.room(new_items, may_exist=may_exist):
            return await self._remove(work)

    async def _remove(self, work: Callable[[sqlite3.Connection, WriteContext], T], extra_ms: int = 0) -> T:
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
        connection: sqlite3.Connection,
        key: str | None,
        request: object,
        write: Callable[[], Sequence[str]],
    ) -> Sequence[str]:
        """Runs `write`, or returns its earlier result if this key was used before."""
        if key is None:
            return write()
        key = validation.required_short_text(self._settings.limits, "idempotency_key", key)
        limits, now_s = self._settings.idempotency, self._settings.steady_clock()
        return run_once(connection, key, (self.source, request), write, limits=limits, now_s=now_s)

    def _require_batch(self, drafts: Sequence[object]) -> None:
        limit = self._settings.limits.batch_max_items
        if len(drafts) > limit:
            raise invalid_field("items", expected=f"at most {limit} per call", got=f"{len(drafts)}")


class SqliteItemCollection(SqliteCollection[RecordT, DraftT, IdT]):
    """Implements `ItemCollection` of the storage contract."""

    async def list(self, limit: int, offset: int) -> ListPage[RecordT]:
        return await self._read(lambda connection: self.table.page(connection, limit, offset))

    async def list_after(self, uuid: str, limit: int) -> Sequence[RecordT]:
        parameters = (uuid, clamp_count(limit))
        return await self._read(
            lambda connection: self.table.select(connection, "uuid > ? ORDER BY uuid LIMIT ?", parameters)
        )

    async def create(self, draft: DraftT, *, idempotency_key: str | None = None) -> RecordT:
        def work(connection: sqlite3.Connection, context: WriteContext) -> RecordT:
            def write() -> Sequence[str]:
                rowid = self.table.insert(connection, draft, context)
                return [self.table.get_by_rowid(connection, rowid).uuid]

            [uuid] = self._run_once(connection, idempotency_key, draft, write)
            return self.table.get_by_uuid(connection, uuid)

        return await self._write(work, 1)

    async def create_many(self, drafts: Sequence[DraftT], *, idempotency_key: str | None = None) -> Sequence[RecordT]:
        self._require_batch(drafts)

        def work(connection: sqlite3.Connection, context: WriteContext) -> Sequence[RecordT]:
            def write() -> Sequence[RecordT]:
                rowids = [self.table.insert(connection, draft, context) for draft in drafts]
                return [self.table.get_by_rowid(connection, rowid) for rowid in rowids]

            if idempotency_key is None:
                return write()
            uuids = self._run_once(connection, idempotency_key, [*drafts], lambda: [row.uuid for row in write()])
            return [self.table.get_by_uuid(connection, uuid) for uuid in uuids]

        return await self._write(work, len(drafts))

    async def upsert_many(self, drafts: Sequence[DraftT], *, keeps_edits: bool = False) -> Sequence[UpsertResult]:
        self._require_batch(drafts)

        def work(connection: sqlite3.Connection, context: WriteContext) -> Sequence[UpsertResult]:
            upserter = Upserter(connection, self.table, drafts, context, keeps_edits=keeps_edits)
            return [upserter.upsert(draft) for draft in drafts]

        return await self._write(work, len(drafts), may_exist=True)

    async def withdraw_many(self, uuids: Sequence[str], *, keeps_edits: bool = True) -> Sequence[str]:
        self._require_batch(uuids)
        return await self._remove(
            lambda connection, context: withdraw_rows(connection, self.table, uuids, context, keeps_edits=keeps_edits)
        )


def _item_condition(table: ItemTable[Any, Any], where: ItemFilter) -> SqlFilter | None:
    """Returns the SQL of the conditions, or None if no row can meet them."""
    columns = {"media_type": where.media_type, "namespace": where.namespace}
    if any(value is not None and not table.has_column(name) for name, value in columns.items()):
        return None
    if not all(is_storable(value) for value in (*where.tags, *columns.values()) if value is not None):
        return None
    condition = has_tags(where.tags, table.name, f"{table.name}.id")
    for name, value in columns.items():
        condition &= equals(name, value)
    return condition & between("last_modified", where.date_from, where.date_to)
