"""The SQL that finds the entries of a band, in its order and nothing but their numbers. Rows are fetched by others."""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

from typing import NamedTuple

from msgspec import Struct

from sources.storage.sqlite.bands import Band
from sources.storage.sqlite.target import Filter, Target

# Added to the rank of what comes first in its band: far beyond any bm25.
_FIRST = 1e6

Statement = tuple[str, tuple[str | int, ...]]


class Place(NamedTuple):
    """An entry that was found, and its rank: the lower, the better."""

    number: int
    rank: float


class Places(Struct, frozen=True):
    """The entries of one band that pass a filter; numbers that are equal but for `item_bits` are one item's.

    bm25 is only asked for where the order or a score needs it (`is_ranked`): it is most of what a search costs.
    """

    target: Target
    band: Band
    filter: Filter
    item_bits: int
    is_ranked: bool

    def found(self, limit: int, offset: int) -> Statement:
        sql, parameters = self._entries()
        order = {
            "rank": "rank, number DESC",
            "newest": "number DESC",
            "recent": f"age DESC, number >> {self.item_bits} DESC, rank",
        }
        return f"{sql} ORDER BY {order[self.band.order]} LIMIT ? OFFSET ?", (*parameters, limit, offset)

    def extremes(self) -> Statement:
        """The best rank of an item and the worst."""
        sql, parameters = self._entries()
        # Kept apart by LIMIT: bm25 can be asked for only where the index is read, not within a grouping.
        items = f"SELECT min(rank) AS rank FROM ({sql} LIMIT -1) GROUP BY number >> {self.item_bits}"
        return f"SELECT min(rank), max(rank) FROM ({items})", parameters

    def count(self) -> Statement:
        """How many items."""
        sql, parameters = self._matching()
        item = f"DISTINCT {self._number} >> {self.item_bits}" if self.item_bits else self._number
        return f"SELECT count({item}) {sql}", parameters

    @property
    def _number(self) -> str:
        return f"{self.target.index.table}.rowid"

    def _entries(self) -> Statement:
        sql, parameters = self._matching()
        age = f", {self.target.age} AS age" if self.band.order == "recent" else ""
        rank = self.target.bm25 if self.is_ranked else "0.0"
        if self.is_ranked and self.band.first:
            rank = f"{rank} - {_FIRST} * ({self._number} IN ({self._numbers()}))"
            parameters = (self.band.first, *parameters)
        return f"SELECT {self._number} AS number, {rank} AS rank{age} {sql}", parameters

    def _matching(self) -> Statement:
        table = self.target.index.table
        join = self.target.join if self.filter or self.band.order == "recent" else ""
        sql = f"FROM {table} {join} WHERE {table} MATCH ?{self.filter.sql}"
        parameters = (self.band.match, *self.filter.parameters)
        if not self.band.excluded:
            return sql, parameters
        others = f"SELECT rowid >> {self.item_bits} FROM ({self._numbers()})"
        return f"{sql} AND {self._number} >> {self.item_bits} NOT IN ({others})", (*parameters, self.band.excluded)

    def _numbers(self) -> str:
        table = self.target.index.table
        return f"SELECT rowid FROM {table} WHERE {table} MATCH ?"


def is_first(rank: float) -> bool:
    """Whether a rank is that of an entry which comes first in its band."""
    return rank < -_FIRST / 2
