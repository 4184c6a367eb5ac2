"""The full-text search of SQLite."""

from collections.abc import Sequence

from sources.query import Expression
from sources.search.scoring import scale_to_range
from sources.search.time_boost import BoostedPeriod
from sources.storage.contract import Search
from sources.storage.search.engine import SearchConnection
from sources.storage.search.match_tiers import MatchTier
from sources.storage.search.target import SearchTarget
from sources.storage.sqlite.search.match_expression import match_text
from sources.storage.sqlite.search.match_sql import MatchSql
from sources.storage.tables.sql import SqlFilter

_NO_FILTER = SqlFilter()


class Fts5Engine:
    """Implements `SearchEngine`."""

    def sql(self, text: str) -> str:
        return text

    def filter(self, connection: SearchConnection, target: SearchTarget, search: Search) -> SqlFilter:
        return _NO_FILTER if search.is_unrestricted else target.filter(search)

    def match_text(self, expression: Expression, target: SearchTarget | None = None, fields: Sequence[str] = ()) -> str:
        if target is None:
            return match_text(expression, "")
        return match_text(expression, target.title_column, fields, target.phrase_columns)

    def scale_ranks(self, best: float, worst: float, ranks: Sequence[float | None]) -> Sequence[float]:
        """Returns where ranks lie between the worst and the best one."""
        _, _, *scores = scale_to_range([best, worst, *(worst if rank is None else rank for rank in ranks)])
        return scores

    def both(self, one: str, other: str) -> str:
        return f"({one}) AND ({other})"

    def match_statements(
        self,
        target: SearchTarget,
        tier: MatchTier,
        where: SqlFilter,
        item_bits: int,
        *,
        is_ranked: bool,
        boost: tuple[BoostedPeriod, ...] = (),
        skipped: tuple[int, ...] = (),
    ) -> MatchSql:
        return MatchSql(target, tier, where, item_bits, is_ranked, boost, skipped)


FTS5 = Fts5Engine()
