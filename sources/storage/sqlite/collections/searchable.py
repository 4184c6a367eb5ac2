"""The search of the SQLite collections, in one of a user's files."""

from typing import ClassVar, TypeVar

from msgspec.structs import replace

from sources.query import ParsedQuery
from sources.records import SEMANTIC_OFF, HitPage, SemanticStatus
from sources.semantic.model import ModelInfo, SemanticUnavailable
from sources.semantic.service import SemanticService
from sources.storage.collections.collection import IdT, StorageSettings, StoredCollection
from sources.storage.contract import Search
from sources.storage.search.fused_search import FusedSearch
from sources.storage.search.meaning import NOT_APPLICABLE, has_meaning
from sources.storage.search.readings import search_relaxed
from sources.storage.search.spelling import Spelling
from sources.storage.search.target import SearchTarget
from sources.storage.search.text_search import TextSearch
from sources.storage.sqlite.connection.connection import JobConnection, Work
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.index.statistics import CorpusStatistics
from sources.storage.sqlite.index.word_count import count_words
from sources.storage.sqlite.search.meaning import QueryMeaning
from sources.storage.sqlite.vectors.vector_memory import VectorMemory
from sources.storage.sqlite.vectors.vector_tables import vector_tables
from sources.storage.tables.item_table import DraftT, RecordT
from sources.storage.tables.sql import SqlFilter

T = TypeVar("T")

_NO_FILTER = SqlFilter()


class SearchSettings(StorageSettings, frozen=True, kw_only=True):
    """The settings that apply to every search of every user."""

    ranked_rows_max: int
    near_words_max: int
    scanned_rows_max: int
    semantic: SemanticService | None
    vector_memory: VectorMemory
    # The sources that are counted to weigh words and read to correct them; None for all.
    sources: frozenset[str] | None = None


class SqliteCollection(StoredCollection[RecordT, DraftT, IdT]):
    """A collection in one of the user's files, with its search."""

    target: ClassVar[SearchTarget]

    def __init__(self, database: Database, settings: SearchSettings, client_id: str) -> None:
        super().__init__(database, settings, client_id)
        self._file = database
        self._search_settings = settings

    async def _read_file(self, work: Work[T], deadline_ms: int | None = None) -> T:
        return await self._file.read(self.source, work, deadline_ms)

    @property
    def _statistics(self) -> CorpusStatistics:
        return self._file.statistics(self._search_settings.sources)

    async def search(self, search: Search) -> HitPage:
        meaning = await self._meaning(search)

        def work(connection: JobConnection) -> HitPage:
            return search_relaxed(
                search,
                lambda reading: self._has_match(connection, self.target, reading),
                lambda reading: self._search_target(connection, self.target, reading, meaning),
            )

        return await self._read_file(work, search.deadline_ms)

    def _has_match(
        self,
        connection: JobConnection,
        target: SearchTarget,
        search: Search,
        extra_filter: SqlFilter = _NO_FILTER,
    ) -> bool:
        statistics, ranked_rows_max = self._statistics, self._search_settings.ranked_rows_max
        return TextSearch(connection, target, search, statistics, ranked_rows_max, extra_filter).has_match()

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
        statistics, words_max = self._statistics, self._search_settings.near_words_max
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
        statistics, ranked_rows_max = self._statistics, self._search_settings.ranked_rows_max
        if isinstance(meaning, QueryMeaning):
            fused = FusedSearch(connection, target, search, statistics, ranked_rows_max, extra_filter, meaning=meaning)
            return fused.run()
        if search.ranking == "meaning":
            return HitPage((), has_more=False, total=0, semantic=meaning)
        page = TextSearch(connection, target, search, statistics, ranked_rows_max, extra_filter).run()
        return page if meaning == SEMANTIC_OFF else replace(page, semantic=meaning)

    async def _meaning(self, search: Search) -> QueryMeaning | SemanticStatus:
        semantic, database = self._search_settings.semantic, self._file
        if semantic is None or semantic.model is None:
            return SEMANTIC_OFF
        if not has_meaning(search):
            return NOT_APPLICABLE
        try:
            self._search_settings.vector_memory.require_usable()
            model = await self._vector_model(semantic, semantic.model)
            vector = await semantic.embed_query(search.query.prose, model.id)
        except SemanticUnavailable as error:
            return SemanticStatus("unavailable", reason=error.reason)
        tables = vector_tables(database.kind)
        stop = database.quota.embedding_stop
        return QueryMeaning(vector, model, self._search_settings.vector_memory, database, tables, stop)

    async def _vector_model(self, semantic: SemanticService, current: ModelInfo) -> ModelInfo:
        """Returns the model whose vectors are searched: the previous one until the current one has all of them."""
        database = self._file
        if database.vector_model is None:
            tables = vector_tables(database.kind)
            previous = await self._file.read(
                self.source, lambda connection: tables.previous_model(connection, current.id)
            )
            known = semantic.model_for(previous) if previous is not None else None
            database.vector_model = known.id if known is not None else current.id
        return semantic.model_for(database.vector_model) or current

    async def words(self) -> int:
        return await self._read_file(lambda connection: count_words(connection, self.target.index))
