"""The search of observations. Their terms are weighted by the library and the observations together, and do not affect
the weights of any source."""

from msgspec.structs import replace

from sources.drafts import ObservationDraft
from sources.query import ParsedQuery
from sources.records import HitPage, Observation
from sources.storage.collections.searchable import SearchableCollection
from sources.storage.contract import ALL_OBSERVATIONS, Corpus, ObservationFilter, Search
from sources.storage.search.meaning import NOT_APPLICABLE
from sources.storage.search.readings import search_relaxed
from sources.storage.tables.connection import SqlConnection
from sources.storage.tables.observation_table import observation_conditions


class SearchableObservations(SearchableCollection[Observation, ObservationDraft, str]):
    async def search(self, search: Search, where: ObservationFilter = ALL_OBSERVATIONS) -> HitPage:
        conditions = observation_conditions(where, "r.id", "r.created_at")
        if search.query.expression is None or conditions is None:
            return HitPage((), has_more=False, total=0, semantic=NOT_APPLICABLE)

        meaning = await self._meaning(search)

        def work(connection: SqlConnection) -> HitPage:
            def run(reading: Search) -> HitPage:
                corrected = self._correct(connection, self.target, reading) if reading.ranking != "meaning" else None
                if corrected is not None:
                    reading = replace(reading, query=corrected, corpus=None)
                weighted = replace(reading, corpus=self._corpus(connection, reading.query, reading.corpus))
                page = self._run_search(connection, self.target, weighted, meaning, conditions)
                return page if corrected is None or page.total == 0 else replace(page, query=corrected)

            def has_match(reading: Search) -> bool:
                return self._has_match(connection, self.target, reading, conditions)

            return search_relaxed(search, has_match, run)

        return await self._read(work, search.deadline_ms)

    def _corpus(self, connection: SqlConnection, query: ParsedQuery, library_corpus: Corpus | None) -> Corpus:
        """Returns how common the terms are in the library and the observations together."""
        statistics, index = self._statistics, self.target.index
        corpus = library_corpus or statistics.corpus(query, connection)
        rows = statistics.count_rows(connection, index)
        matches = [statistics.engine.match_text(term.word) for term in query.terms]
        own = statistics.count_each(connection, index, matches)
        return Corpus(corpus.rows + rows, tuple(map(sum, zip(corpus.frequencies, own, strict=True))))
