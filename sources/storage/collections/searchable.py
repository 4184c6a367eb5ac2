"""Collections that can be searched, on any engine."""

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from sources.drafts import ConversationDraft, ObservationDraft
from sources.query import ParsedQuery
from sources.records import SEMANTIC_OFF, Conversation, HitPage, Observation, SemanticStatus
from sources.semantic.model import ModelInfo, SemanticUnavailable
from sources.semantic.service import SemanticService
from sources.storage.collections.collection import IdT, StorageSettings, StoredCollection
from sources.storage.contract import ALL_OBSERVATIONS, Corpus, ObservationFilter, Search
from sources.storage.search.engine import SearchStatistics, SearchTarget
from sources.storage.search.fused_search import NOT_APPLICABLE, FusedSearch, QueryVector, has_meaning, merge_pages
from sources.storage.search.text_search import TextSearch, search_relaxed
from sources.storage.search.vocabulary import Spelling
from sources.storage.tables.item_table import DraftT, RecordT
from sources.storage.tables.kind_tables import observation_conditions
from sources.storage.tables.sql import SqlConnection, SqlFilter

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

    target: SearchTarget
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


# -- searchable chats --------------------------------------------------------------------------------------------------
# The ranked search in conversations. For an agent, it does not read the text of a human-only message.

_HUMAN_ONLY = "SELECT 1 FROM messages WHERE human_only = 1 AND deleted = 0 LIMIT 1"


class SearchableChats(SearchableCollection[Conversation, ConversationDraft, str]):
    """`human_only_target` is what only people search, in addition to `target`."""

    human_only_target: ClassVar[SearchTarget]
    _is_agent: bool

    async def search(self, search: Search) -> HitPage:
        if self._is_agent:
            return await super().search(search)
        meaning = await self._meaning(search)

        def work(connection: SqlConnection) -> HitPage:
            targets = [self.target]
            if has_human_only_messages(connection):
                targets.append(self.human_only_target)

            def has_match(reading: Search) -> bool:
                return any(self._has_match(connection, target, reading) for target in targets)

            def run(reading: Search) -> HitPage:
                return self._search_targets(connection, reading, targets, meaning)

            return search_relaxed(search, has_match, run)

        return await self._read(work, search.deadline_ms)

    def _search_targets(
        self,
        connection: SqlConnection,
        search: Search,
        targets: Sequence[SearchTarget],
        meaning: QueryVector | SemanticStatus,
    ) -> HitPage:
        if len(targets) == 1:
            return self._search_target(connection, self.target, search, meaning)
        # Both are read from the beginning: how many of the skipped hits are of which kind is not known.
        first = replace(search, limit=search.offset + search.limit, offset=0)
        public = self._search_target(connection, self.target, first, meaning)
        if search.corpus is None and search.query.terms:
            corpus = self._statistics.source_corpus(search.query, connection, self.target.index)
            first = replace(first, corpus=corpus)
        human_only = self._search_target(connection, self.human_only_target, first, meaning)
        return merge_pages(search, public, human_only)


def has_human_only_messages(connection: SqlConnection) -> bool:
    return connection.execute(_HUMAN_ONLY).fetchone() is not None


# -- searchable observations -------------------------------------------------------------------------------------------
# The search of observations. Their terms are weighted by the library and the observations together, and do not affect
# the weights of any source.


class SearchableObservations(SearchableCollection[Observation, ObservationDraft, str]):
    async def search(self, search: Search, where: ObservationFilter = ALL_OBSERVATIONS) -> HitPage:
        conditions = observation_conditions(where, "r.id", "r.created_at")
        if search.query.expression is None or conditions is None:
            return HitPage((), has_more=False, total=0, semantic=NOT_APPLICABLE)

        meaning, statistics = await self._meaning(search), self._statistics

        def work(connection: SqlConnection) -> HitPage:
            def run(reading: Search) -> HitPage:
                corrected = self._correct(connection, self.target, reading) if reading.ranking != "meaning" else None
                if corrected is not None:
                    reading = replace(reading, query=corrected, corpus=None)
                # How common the terms are in the library and the observations together.
                terms, index = reading.query.terms, self.target.index
                library = reading.corpus or statistics.corpus(reading.query, connection)
                rows = statistics.count_rows(connection, index)
                matches = [statistics.engine.match_text(term.word) for term in terms]
                own = statistics.count_each(connection, index, matches)
                frequencies = tuple(map(sum, zip(library.frequencies, own, strict=True)))
                weighted = replace(reading, corpus=Corpus(library.rows + rows, frequencies))
                page = self._run_search(connection, self.target, weighted, meaning, conditions)
                return page if corrected is None or page.total == 0 else replace(page, query=corrected)

            def has_match(reading: Search) -> bool:
                return self._has_match(connection, self.target, reading, conditions)

            return search_relaxed(search, has_match, run)

        return await self._read(work, search.deadline_ms)
