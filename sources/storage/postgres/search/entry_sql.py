"""The entries of a match tier in the index of PostgreSQL."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import re
from collections.abc import Sequence
from functools import lru_cache

from config.postgres.connection import PostgresConnection
from sources.storage.postgres.index.entries import ENTRY_KINDS, EntryKind, is_small_index
from sources.storage.postgres.joint_read import fetch_jointly
from sources.storage.postgres.search.tsquery import for_index, with_labels
from sources.storage.search.engine import CandidateRow
from sources.storage.search.text_search import TierSql
from sources.storage.tables.sql import Statement, json_array

LISTED_NUMBERS = "SELECT CAST(value AS BIGINT) AS value FROM jsonb_array_elements_text(CAST(? AS JSONB))"
# With `place`, because PostgreSQL does not keep the order of the list.
LISTED_ROWS = (
    "(SELECT CAST(value AS BIGINT) AS value, place FROM jsonb_array_elements_text(CAST(? AS JSONB)) "
    "WITH ORDINALITY AS listed (value, place)) AS wanted"
)
_LABELS = "DCBA"
_INNER_JOIN = re.compile(r"(?<!LEFT) JOIN ")


@lru_cache
def _around_page(candidate_sql: str) -> tuple[str, str]:
    """Returns the SQL before and after the page whose candidates are selected with the columns of its entries. Entries
    without a row of the table have NULL instead."""
    before, after = _INNER_JOIN.sub(" LEFT JOIN ", candidate_sql).split(LISTED_ROWS)
    return before.replace("SELECT", "SELECT wanted.number, wanted.rank, wanted.is_first,", 1), after


class EntrySql(TierSql, frozen=True):
    """The rank is the negative of `ts_rank`, so that lower is better, as for bm25."""

    def select_entries(self, limit: int, offset: int) -> Statement:
        created_at = self.target.created_at if self._is_boosted else ""
        sql, parameters = self._entries(created_at)
        is_first = "is_first DESC, " if self.tier.first else ""
        boosted: list[str | float] = []
        rank = "rank"
        if self._is_boosted:
            cases = " ".join(["WHEN created >= ? AND created < ? THEN CAST(? AS DOUBLE PRECISION)"] * len(self.boost))
            rank = f"rank * CASE {cases} ELSE 1 END"
            boosted = [value for period in self.boost for value in (period.start, period.end, period.factor)]
        order = {
            "rank": f"{is_first}{rank}, number DESC",
            "newest": "number DESC",
            "recent": f"age DESC, number >> {self.item_bits} DESC, rank, number DESC",
        }[self.tier.order]
        page = f"SELECT number, rank, is_first FROM ({sql}) AS entry ORDER BY {order} LIMIT ? OFFSET ?"
        return page, (*parameters, *boosted, limit, offset)

    def read_candidates(
        self, connection: PostgresConnection, limit: int, offset: int, items_max: int
    ) -> Sequence[CandidateRow]:
        """In a large library, a slow source must not hold up the others."""
        statement = self.select_candidates(limit, offset, items_max)
        if is_small_index(connection):
            return fetch_jointly(connection, statement)
        return connection.execute(*statement).fetchall()

    def select_candidates(self, limit: int, offset: int, items_max: int) -> Statement:
        page, parameters = self.select_entries(limit, offset)
        before, after = _around_page(self.target.candidate_sql)
        # Rows are numbered in the order of the page.
        numbered = f"SELECT number, rank, is_first, row_number() OVER () AS place FROM ({page}) AS page"
        if not self.item_bits:
            return f"{before}(SELECT *, number AS value FROM ({numbered}) AS page) AS wanted{after}", parameters
        nth = f"SELECT *, row_number() OVER (PARTITION BY number >> {self.item_bits} ORDER BY place) AS nth"
        items = "SELECT *, count(*) FILTER (WHERE nth = 1) OVER (ORDER BY place) AS items"
        wanted = (
            "SELECT *, CASE WHEN nth = 1 AND items <= ? THEN number END AS value "
            f"FROM ({items} FROM ({nth} FROM ({numbered}) AS page) AS page) AS page"
        )
        return f"{before}({wanted}) AS wanted{after}", (items_max, *parameters)

    def select_extremes(self) -> Statement:
        sql, parameters = self._entries()
        items = f"SELECT min(rank) AS rank FROM ({sql}) AS entry GROUP BY number >> {self.item_bits}"
        return f"SELECT min(rank), max(rank) FROM ({items}) AS item", parameters

    def select_rowids(self) -> Statement:
        sql, parameters = self._matching()
        return f"SELECT coalesce(CAST(json_agg({self._rowid}) AS TEXT), '[]') {sql}", parameters

    def count_entries_of(self, items: Sequence[int]) -> Statement:
        item = f"{self._rowid} >> {self.item_bits}"
        sql = (
            f"SELECT {item}, count(*) FROM index_entries e WHERE e.tsv @@ CAST(? AS TSQUERY) "
            f"AND {item} IN ({LISTED_NUMBERS}) GROUP BY 1"
        )
        return sql, (self._for_index(self.tier.match), json_array(items))

    def select_texts_of(self, item: int, limit: int, *, is_ranked: bool) -> Statement:
        labels = "".join(sorted(set(self._kind.labels[1:])))
        match = self._for_index(with_labels(self.tier.match, labels))
        # The range of rowids comes first: an item has few entries.
        entries = (
            "SELECT id, tsv FROM index_entries WHERE kind = ? AND id BETWEEN CAST(? AS BIGINT) AND CAST(? AS BIGINT)"
        )
        bounds = (self._kind.number, item << self.item_bits, ((item + 1) << self.item_bits) - 1)
        order = f"ORDER BY {self._rank('e.tsv')}, e.id " if is_ranked else ""
        sql = f"SELECT e.id FROM ({entries}) AS e WHERE e.tsv @@ CAST(? AS TSQUERY) {order}LIMIT ?"
        return sql, (*bounds, match, *([match] if is_ranked else []), limit)

    @property
    def _rowid(self) -> str:
        return "e.id"

    @property
    def _kind(self) -> EntryKind:
        return ENTRY_KINDS[self.target.index.table]

    def _for_index(self, match: str) -> str:
        return for_index(match, self._kind.prefix)

    def _rank(self, tsv: str) -> str:
        """The weight of a label is that of the first column that has it, as a share of the greatest."""
        weights = dict(zip(reversed(self._kind.labels), reversed(self.target.weights), strict=True))
        greatest = max(self.target.weights)
        shares = ",".join(str(weights.get(label, 0.0) / greatest) for label in _LABELS)
        return f"-ts_rank(CAST('{{{shares}}}' AS REAL[]), {tsv}, CAST(? AS TSQUERY))"

    def _entries(self, created_at: str = "") -> Statement:
        sql, parameters = self._matching()
        rank, is_first = "0.0", "0"
        selected: list[str | int | float] = []
        if self.is_ranked:
            rank = self._rank("e.tsv")
            selected.append(self._for_index(self.tier.match))
        if self.tier.first:
            is_first = "CAST(e.tsv @@ CAST(? AS TSQUERY) AS INTEGER)"
            selected.append(self._for_index(self.tier.first))
        more = f", {created_at} AS created" if created_at else ""
        more += f", {self.target.age} AS age" if self.tier.order == "recent" else ""
        columns = f"e.id AS number, CAST({rank} AS DOUBLE PRECISION) AS rank, {is_first} AS is_first{more}"
        return f"SELECT {columns} {sql}", (*selected, *parameters)

    def _matching(self) -> Statement:
        is_joined = self.filter or self.tier.order == "recent" or self._is_boosted
        join = self.target.join_on("e.id").replace("CROSS JOIN", "JOIN") if is_joined else ""
        sql = f"FROM index_entries e {join} WHERE e.tsv @@ CAST(? AS TSQUERY){self.filter.sql}"
        parameters = (self._for_index(self.tier.match), *self.filter.parameters)
        item = f"{self._rowid} >> {self.item_bits}"
        if self.tier.excluded and not self.item_bits:
            sql = f"{sql} AND NOT e.tsv @@ CAST(? AS TSQUERY)"
            parameters = (*parameters, self._for_index(self.tier.excluded))
        elif self.tier.excluded:
            excluded = f"SELECT id >> {self.item_bits} FROM index_entries WHERE tsv @@ CAST(? AS TSQUERY)"
            sql, parameters = (
                f"{sql} AND {item} NOT IN ({excluded})",
                (*parameters, self._for_index(self.tier.excluded)),
            )
        if self.skipped:
            sql = f"{sql} AND {item} NOT IN ({LISTED_NUMBERS})"
            parameters = (*parameters, json_array(self.skipped))
        return sql, parameters
