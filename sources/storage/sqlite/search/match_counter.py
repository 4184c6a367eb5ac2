"""Writes FTS5 expressions for one search and counts their matches."""

from sources.query import Expression
from sources.storage.contract import Search
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.index.statistics import CorpusStatistics
from sources.storage.sqlite.search.match_expression import match_text
from sources.storage.sqlite.search.target import SearchTarget


class MatchCounter:
    def __init__(
        self, connection: JobConnection, target: SearchTarget, search: Search, statistics: CorpusStatistics
    ) -> None:
        self._connection = connection
        self._target = target
        self._search = search
        self._statistics = statistics

    def match_text(self, expression: Expression) -> str:
        return match_text(expression, self._target.title_column, self._search.fields, self._target.phrase_columns)

    def count(self, match: str) -> int:
        return self._statistics.count_matches(self._connection, self._target.index, match)
