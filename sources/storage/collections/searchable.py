"""Collections that can be searched, on any engine."""

from typing import ClassVar

from msgspec.structs import replace

from sources.query import ParsedQuery
from sources.records import SEMANTIC_OFF, HitPage, SemanticStatus
from sources.semantic.model import ModelInfo, SemanticUnavailable
from sources.semantic.service import SemanticService
from sources.storage.collections.collection import IdT, StorageSettings, StoredCollection
from sources.storage.contract import Search
from sources.storage.search.engine import SearchStatistics
from sources.storage.search.fused_search import FusedSearch
from sources.storage.search.meaning import NOT_APPLICABLE, QueryVector, has_meaning
from sources.storage.search.readings import search_relaxed
from sources.storage.search.spelling import Spelling
from sources.storage.search.target import SearchTarget
from sources.storage.search.text_search import TextSearch
from sources.storage.tables.connection import SqlConnection
from sources.storage.tables.item_table import DraftT, RecordT
from sources.storage.tables.sql import SqlFilter

_NO_FILTER = SqlFilter()


class SearchSettings(StorageSettings, frozen=True, kw_only=True):
    """The settings that apply to every search of every user."""

    ranked_rows_max: int
    near_words_max: int
    scanned_rows_max: int
    semantic: SemanticService | None
    # The sources that are counted to weigh words and read to correct them; None for all.
    sources: frozenset[str] | None = None


class SearchableCollection(StoredCollection[RecordT, DraftT, IdT]):
    """Subclasses know the counts of the library and how meanings are compared."""

    target: ClassVar[SearchTarget]
    _search_settings: SearchSettings

    @property
    def _statistics(self) -> SearchStatistics:
        raise NotImplementedError

    async def _meaning(self, search: Search) -> QueryVector | SemanticStatus:
        """Returns the vector of the query, or why there is none: then only words are compared."""
        semantic = self._search_settings.semantic
        if semantic is None or semantic.model is None:
            return SEMANTIC_OFF
        if not has_meaning(search):
            return NOT_APPLICABLE
        try:
            return await self._query_vector(semantic, semantic.model, search.query.prose)
        except SemanticUnavailable as error:
            return SemanticStatus("unavailable", reason=error.reason)

    async def _query_vector(self, semantic: SemanticService, current: ModelInfo, text: str) -> QueryVector:
        """Embeds a query with the model whose vectors are searched: that of the settings, or the previous one until the
        current one has all of them. Raises SemanticUnavailable."""
        raise NotImplementedError

    async def search(self, search: Search) -> HitPage:
        meaning = await self._meaning(search)

        def work(connection: SqlConnection) -> HitPage:
            return search_relaxed(
                search,
                lambda reading: self._has_match(connection, self.target, reading),
                lambda reading: self._search_target(connection, self.target, reading, meaning),
            )

        return await self._read(work, search.deadline_ms)

    def _has_match(
        self,
        connection: SqlConnection,
        target: SearchTarget,
        search: Search,
        extra_filter: SqlFilter = _NO_FILTER,
    ) -> bool:
        statistics, ranked_rows_max = self._statistics, self._search_settings.ranked_rows_max
        return TextSearch(connection, target, search, statistics, ranked_rows_max, extra_filter).has_match()

    def _search_target(
        self, connection: SqlConnection, target: SearchTarget, search: Search, meaning: QueryVector | SemanticStatus
    ) -> HitPage:
        """Searches for the near words of a misspelled word too."""
        if search.ranking == "meaning":
            return self._run_search(connection, target, search, meaning)
        key = ("corrected", target.index.table, search)
        corrected = self._statistics.compute_once(connection, key, lambda: self._correct(connection, target, search))
        if corrected is None:
            return self._run_search(connection, target, search, meaning)
        page = self._run_search(connection, target, replace(search, query=corrected, corpus=None), meaning)
        return replace(page, query=corrected) if page.total != 0 else page

    def _correct(self, connection: SqlConnection, target: SearchTarget, search: Search) -> ParsedQuery | None:
        """Returns the query with near words, if it needs any."""
        statistics, words_max = self._statistics, self._search_settings.near_words_max
        return Spelling(connection, target, search, statistics, words_max).correct()

    def _run_search(
        self,
        connection: SqlConnection,
        target: SearchTarget,
        search: Search,
        meaning: QueryVector | SemanticStatus,
        extra_filter: SqlFilter = _NO_FILTER,
    ) -> HitPage:
        statistics, ranked_rows_max = self._statistics, self._search_settings.ranked_rows_max
        if not isinstance(meaning, SemanticStatus):
            fused = FusedSearch(connection, target, search, statistics, ranked_rows_max, extra_filter, meaning=meaning)
            return fused.run()
        if search.ranking == "meaning":
            return HitPage((), has_more=False, total=0, semantic=meaning)
        page = TextSearch(connection, target, search, statistics, ranked_rows_max, extra_filter).run()
        return page if meaning == SEMANTIC_OFF else replace(page, semantic=meaning)
