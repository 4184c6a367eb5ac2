"""The entries of a match tier in an FTS5 index."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Sequence
from functools import lru_cache

from sources.storage.search.tier_sql import TierSql
from sources.storage.tables.sql import Statement, json_array


class MatchSql(TierSql, frozen=True):
    """bm25 is computed only if the order or a score needs it (`is_ranked`), because it is most of the cost of a
    search."""

    def select_entries(self, limit: int, offset: int) -> Statement:
        """Selects a page of `MatchedEntry` rows."""
        if self._is_boosted:
            return self._select_boosted(limit, offset)
        sql, parameters = self._entries()
        order = {
            "rank": f"{'is_first DESC, ' if self.tier.first else ''}rank, number DESC",
            "newest": "number DESC",
            "recent": f"{self.target.age} DESC, number >> {self.item_bits} DESC, rank, number DESC",
        }
        return f"{sql} ORDER BY {order[self.tier.order]} LIMIT ? OFFSET ?", (*parameters, limit, offset)

    def _select_boosted(self, limit: int, offset: int) -> Statement:
        """Like the order "rank", but ranks are multiplied by the boost of the time in which a row was created. The
        better of two ranks is the more negative one."""
        sql, parameters = self._entries(self.target.created_at)
        cases = " ".join("WHEN created >= ? AND created < ? THEN ?" for _ in self.boost)
        is_first = "is_first DESC, " if self.tier.first else ""
        boosted = [value for period in self.boost for value in (period.start, period.end, period.factor)]
        # LIMIT as in `select_extremes`.
        order = f"{is_first}rank * CASE {cases} ELSE 1 END, number DESC"
        boosted_sql = f"SELECT number, rank, is_first FROM ({sql} LIMIT -1) ORDER BY {order} LIMIT ? OFFSET ?"
        return boosted_sql, (*parameters, *boosted, limit, offset)

    def select_extremes(self) -> Statement:
        """Selects the best and the worst rank of an item."""
        sql, parameters = self._entries()
        # LIMIT keeps SQLite from merging the queries: bm25 is available where the index is read, but not when grouping.
        items = f"SELECT min(rank) AS rank FROM ({sql} LIMIT -1) GROUP BY number >> {self.item_bits}"
        return f"SELECT min(rank), max(rank) FROM ({items})", parameters

    def select_rowids(self) -> Statement:
        """Selects all rowids as one JSON array; fetching single rows would acquire the interpreter lock for each."""
        sql, parameters = self._matching()
        return f"SELECT json_group_array({self._rowid}) {sql}", parameters

    def count_entries_of(self, items: Sequence[int]) -> Statement:
        """Counts the entries of each of these items that match, whatever the filter is."""
        table, item = self.target.index.table, f"rowid >> {self.item_bits}"
        sql = (
            f"SELECT {item}, count(*) FROM {table} WHERE {table} MATCH ? "
            f"AND {item} IN (SELECT value FROM json_each(?)) GROUP BY 1"
        )
        return sql, (self.tier.match, json_array(items))

    def select_texts_of(self, item: int, limit: int, *, is_ranked: bool) -> Statement:
        """Selects the rowids of the entries of an item whose own text matches, and not only the title."""
        table, (_, *columns) = self.target.index.table, self.target.index.columns
        in_text, bits = f"{{{' '.join(columns)}}} : ({self.tier.match})", self.item_bits
        order = "ORDER BY rank " if is_ranked else ""
        # A range of rowids, so that the entries of other items are not read.
        sql = f"SELECT rowid FROM {table} WHERE {table} MATCH ? AND rowid BETWEEN ? AND ? {order}LIMIT ?"
        return sql, (in_text, item << bits, ((item + 1) << bits) - 1, limit)

    @property
    def _bm25(self) -> str:
        return _bm25_sql(self.target.index.table, self.target.weights)

    @property
    def _rowid(self) -> str:
        return f"{self.target.index.table}.rowid"

    def _entries(self, created_at: str = "") -> Statement:
        sql, parameters = self._matching()
        rank = self._bm25 if self.is_ranked else "0.0"
        is_first = "0"
        if self.tier.first:
            is_first = f"{self._rowid} IN ({self._rowids_of_match()})"
            parameters = (self.tier.first, *parameters)
        created = f", {created_at} AS created" if created_at else ""
        return f"SELECT {self._rowid} AS number, {rank} AS rank, {is_first} AS is_first{created} {sql}", parameters

    def _matching(self) -> Statement:
        table = self.target.index.table
        join = self.target.join if self.filter or self.tier.order == "recent" or self._is_boosted else ""
        sql = f"FROM {table} {join} WHERE {table} MATCH ?{self.filter.sql}"
        parameters = (self.tier.match, *self.filter.parameters)
        item = f"{self._rowid} >> {self.item_bits}"
        if self.tier.excluded:
            excluded = f"SELECT rowid >> {self.item_bits} FROM ({self._rowids_of_match()})"
            sql, parameters = f"{sql} AND {item} NOT IN ({excluded})", (*parameters, self.tier.excluded)
        if self.skipped:
            sql = f"{sql} AND {item} NOT IN (SELECT value FROM json_each(?))"
            parameters = (*parameters, json_array(self.skipped))
        return sql, parameters

    def _rowids_of_match(self) -> str:
        table = self.target.index.table
        return f"SELECT rowid FROM {table} WHERE {table} MATCH ?"


@lru_cache
def _bm25_sql(table: str, weights: tuple[float, ...]) -> str:
    return f"bm25({table}, {', '.join(map(str, weights))})"
