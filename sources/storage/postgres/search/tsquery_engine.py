"""The full-text search of PostgreSQL."""

from collections.abc import Sequence

from config.postgres.connection import PostgresConnection
from sources.query import Expression
from sources.search.time_boost import BoostedPeriod
from sources.storage.contract import Search
from sources.storage.postgres.index.entries import ENTRY_KINDS
from sources.storage.postgres.search.dialect import postgres_sql
from sources.storage.postgres.search.entry_sql import EntrySql
from sources.storage.postgres.search.resolved_filters import resolve_filter
from sources.storage.postgres.search.tsquery import EVERYWHERE, compile_tsquery
from sources.storage.search.match_tiers import MatchTier
from sources.storage.search.target import SearchTarget
from sources.storage.tables.sql import SqlFilter


class TsqueryEngine:
    """Implements `SearchEngine`."""

    def sql(self, text: str) -> str:
        return postgres_sql(text)

    def filter(self, connection: PostgresConnection, target: SearchTarget, search: Search) -> SqlFilter:
        return resolve_filter(connection, target, search)

    def match_text(self, expression: Expression, target: SearchTarget | None = None, fields: Sequence[str] = ()) -> str:
        if target is None:
            return compile_tsquery(expression)
        labels = ENTRY_KINDS[target.index.table].column_labels
        return compile_tsquery(
            expression,
            labels.restriction(fields) if fields else EVERYWHERE,
            labels.restriction((target.title_column,)),
            labels.restriction(target.phrase_columns) if target.phrase_columns else EVERYWHERE,
        )

    def scale_ranks(self, best: float, worst: float, ranks: Sequence[float | None]) -> Sequence[float]:
        """Returns ranks divided by the best one."""
        return [(worst if rank is None else rank) / best if best else 0.0 for rank in ranks]

    def both(self, one: str, other: str) -> str:
        return f"({one}) & ({other})"

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
    ) -> EntrySql:
        return EntrySql(target, tier, where, item_bits, is_ranked, boost, skipped)


TSQUERY = TsqueryEngine()
