"""The SQL that finds the entries of a band, in its order and nothing but their numbers. Rows are fetched by others."""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

from msgspec import Struct

from sources.storage.sqlite.search.match_tiers import Band
from sources.storage.sqlite.search.target import Filter, Target

Statement = tuple[str, tuple[str | int, ...]]


# An entry that was found: its number, its rank (the lower, the better), and whether it is of those that come first.
Place = tuple[int, float, int]


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
            "rank": f"{'is_first DESC, ' if self.band.first else ''}rank, number DESC",
            "newest": "number DESC",
            "recent": f"{self.target.age} DESC, number >> {self.item_bits} DESC, rank",
        }
        return f"{sql} ORDER BY {order[self.band.order]} LIMIT ? OFFSET ?", (*parameters, limit, offset)

    def extremes(self) -> Statement:
        """The best rank of an item and the worst."""
        sql, parameters = self._entries()
        # Kept apart by LIMIT: bm25 can be asked for only where the index is read, not within a grouping.
        items = f"SELECT min(rank) AS rank FROM ({sql} LIMIT -1) GROUP BY number >> {self.item_bits}"
        return f"SELECT min(rank), max(rank) FROM ({items})", parameters

    def count(self) -> Statement:
        """How many entries."""
        sql, parameters = self._matching()
        return f"SELECT count(*) {sql}", parameters

    def numbers(self) -> Statement:
        """Their numbers, as one JSON list: a row for each would take the interpreter's lock as often."""
        sql, parameters = self._matching()
        return f"SELECT json_group_array({self._number}) {sql}", parameters

    def count_items(self) -> Statement:
        sql, parameters = self._matching()
        return f"SELECT count(DISTINCT {self._number} >> {self.item_bits}) {sql}", parameters

    @property
    def _number(self) -> str:
        return f"{self.target.index.table}.rowid"

    def _entries(self) -> Statement:
        sql, parameters = self._matching()
        rank = self.target.bm25 if self.is_ranked else "0.0"
        first = "0"
        if self.band.first:
            first = f"{self._number} IN ({self._numbers()})"
            parameters = (self.band.first, *parameters)
        return f"SELECT {self._number} AS number, {rank} AS rank, {first} AS is_first {sql}", parameters

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
