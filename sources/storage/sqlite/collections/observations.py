"""Observations: what was learned in sessions, searchable by words and filtered by values.

Observations are not a source. Their terms are weighted by the library and the observations together, and do not affect
the weights of any source.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
from collections.abc import Sequence

from msgspec.structs import replace

from sources.drafts import ObservationDraft
from sources.query import ParsedQuery
from sources.records import HitPage, ListPage, Observation
from sources.storage.contract import ALL_OBSERVATIONS, Corpus, ObservationFilter, Search
from sources.storage.sqlite.collections.collection import SqliteItemCollection
from sources.storage.sqlite.collections.observation_table import (
    OBSERVATIONS,
    OBSERVATIONS_TARGET,
    observation_conditions,
)
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.schema.chacha import OBSERVATIONS_INDEX
from sources.storage.sqlite.search.match_expression import match_text
from sources.storage.sqlite.search.meaning import NOT_APPLICABLE
from sources.storage.sqlite.search.readings import search_relaxed
from sources.storage.sqlite.sql import placeholders
from sources.storage.sqlite.write.validation import is_storable


class SqliteObservations(SqliteItemCollection[Observation, ObservationDraft, str]):
    source = "observations"
    target = OBSERVATIONS_TARGET
    table = OBSERVATIONS

    async def search(self, search: Search, where: ObservationFilter = ALL_OBSERVATIONS) -> HitPage:
        conditions = observation_conditions(where, "r.id", "r.created_at")
        if search.query.expression is None or conditions is None:
            return HitPage((), has_more=False, total=0, semantic=NOT_APPLICABLE)

        meaning = await self._meaning(search)

        def work(connection: JobConnection) -> HitPage:
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

    async def list(self, limit: int, offset: int, where: ObservationFilter = ALL_OBSERVATIONS) -> ListPage[Observation]:
        conditions = observation_conditions(where, "id", "created_at")
        if conditions is None:
            return ListPage((), 0)
        condition, parameters = f"TRUE{conditions.sql}", conditions.parameters
        return await self._read(
            lambda connection: self.table.page(connection, limit, offset, condition, parameters, "created_at")
        )

    async def get_many(self, observation_ids: Sequence[str]) -> Sequence[Observation]:
        uuids = [uuid for uuid in dict.fromkeys(observation_ids) if is_storable(uuid)]

        def work(connection: sqlite3.Connection) -> Sequence[Observation]:
            rows = self.table.select(connection, f"uuid IN ({placeholders(uuids)})", uuids)
            by_uuid = {row.uuid: row for row in rows}
            return [by_uuid[uuid] for uuid in uuids if uuid in by_uuid]

        return await self._read(work)

    def _corpus(self, connection: JobConnection, query: ParsedQuery, library_corpus: Corpus | None) -> Corpus:
        """Returns how common the terms are in the library and the observations together."""
        statistics = self._statistics
        corpus = library_corpus or statistics.corpus(query, connection)
        rows = statistics.count(connection, f"SELECT count(*) FROM {OBSERVATIONS_INDEX.table}_docsize", ())
        matches = [match_text(term.word, "") for term in query.terms]
        own = [statistics.count_matches(connection, OBSERVATIONS_INDEX, match) for match in matches]
        return Corpus(corpus.rows + rows, tuple(map(sum, zip(corpus.frequencies, own, strict=True))))
