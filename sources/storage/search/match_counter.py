"""Compiles the expressions of one search and counts their matches."""

from collections.abc import Iterable

from sources.query import Expression
from sources.storage.contract import Search
from sources.storage.search.engine import SearchConnection, SearchStatistics
from sources.storage.search.target import SearchTarget


class MatchCounter:
    def __init__(
        self, connection: SearchConnection, target: SearchTarget, search: Search, statistics: SearchStatistics
    ) -> None:
        self._connection = connection
        self._target = target
        self._search = search
        self._statistics = statistics

    def match_text(self, expression: Expression) -> str:
        return self._statistics.engine.match_text(expression, self._target, self._search.fields)

    def both(self, one: str, other: str) -> str:
        return self._statistics.engine.both(one, other)

    def count(self, match: str) -> int:
        return self._statistics.count_matches(self._connection, self._target.index, match)

    def count_each(self, expressions: Iterable[Expression]) -> list[int]:
        matches = [self.match_text(expression) for expression in expressions]
        return self._statistics.count_each(self._connection, self._target.index, matches)
