"""The full-text search of PostgreSQL."""

from collections.abc import Sequence
from functools import lru_cache

from config.postgres.connection import PostgresConnection
from sources.query import Expression
from sources.search.scoring import BoostedPeriod
from sources.storage.contract import Search
from sources.storage.postgres.index.entries import ENTRY_KINDS
from sources.storage.postgres.search.entry_sql import EntrySql, postgres_sql, resolve_filter
from sources.storage.postgres.search.tsquery import EVERYWHERE, Restriction, compile_tsquery
from sources.storage.search.engine import SearchTarget
from sources.storage.search.text_search import MatchTier
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
        table = target.index.table
        return compile_tsquery(
            expression,
            _restriction(table, tuple(fields)),
            _restriction(table, (target.title_column,)),
            _restriction(table, target.phrase_columns),
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


@lru_cache(maxsize=512)
def _restriction(table: str, columns: tuple[str, ...]) -> Restriction:
    """Returns the restriction of a search to columns of an index, or to none without columns."""
    return ENTRY_KINDS[table].column_labels.restriction(columns) if columns else EVERYWHERE


TSQUERY = TsqueryEngine()
