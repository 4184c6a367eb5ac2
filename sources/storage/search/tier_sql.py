"""The SQL that finds the index entries of a match tier, in order. It selects rowids only; rows are fetched later."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from sources.search.time_boost import BoostedPeriod
from sources.storage.search.engine import CandidateRow
from sources.storage.search.match_tiers import MatchTier
from sources.storage.search.target import SearchTarget
from sources.storage.tables.sql import SqlFilter, Statement


class TierSql(Struct, frozen=True):
    """Statements over the entries of one tier that pass a filter, which are the same on all engines. Rowids that differ
    only in the lowest `item_bits` bits belong to the same item."""

    target: SearchTarget
    tier: MatchTier
    filter: SqlFilter
    item_bits: int
    is_ranked: bool
    boost: tuple[BoostedPeriod, ...] = ()
    # Items to leave out.
    skipped: tuple[int, ...] = ()

    def read_candidates(
        self, _connection: Any, _limit: int, _offset: int, _items_max: int
    ) -> Sequence[CandidateRow] | None:
        """Reading the rows of a page separately costs little if no server has to be asked."""
        return None

    def select_any(self) -> Statement:
        """Selects whether there is an entry at all."""
        sql, parameters = self._matching()
        return f"SELECT EXISTS (SELECT 1 {sql})", parameters

    def count_entries(self) -> Statement:
        sql, parameters = self._matching()
        return f"SELECT count(*) {sql}", parameters

    def count_items(self) -> Statement:
        sql, parameters = self._matching()
        return f"SELECT count(DISTINCT {self._rowid} >> {self.item_bits}) {sql}", parameters

    @property
    def _is_boosted(self) -> bool:
        return bool(self.boost) and self.is_ranked and self.tier.order == "rank"

    @property
    @abstractmethod
    def _rowid(self) -> str:
        """The SQL expression of the rowid of an entry."""

    @abstractmethod
    def _matching(self) -> Statement:
        """Returns the SQL from FROM on."""
