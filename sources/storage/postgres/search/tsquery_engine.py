"""The full-text search of PostgreSQL: how the entries of a match tier are selected, and the search targets."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Callable, Hashable, Sequence
from functools import cache, lru_cache, partial

import msgspec

from config.postgres.connection import PostgresConnection, decode_rows
from sources.query import Expression
from sources.storage.contract import Search
from sources.storage.postgres.index.entries import CONTEXTS, ENTRY_KINDS, EntryKind
from sources.storage.postgres.search.substring import may_contain_literal
from sources.storage.postgres.search.tsquery import (
    EVERYWHERE,
    MATCH,
    Restriction,
    compile_tsquery,
    for_index,
    with_labels,
)
from sources.storage.search.engine import EntryRow, SearchTarget, TierSql, select_page
from sources.storage.search.targets import MessageContext, search_targets
from sources.storage.tables.dialect import POSTGRES, POSTGRES_JSON
from sources.storage.tables.sql import SqlFilter, Statement, either
from sources.storage.tables.validation import is_storable
from sources.text.segmentation import contains_literal, literal_form

_LABELS = "DCBA"


class EntrySql(TierSql, frozen=True):
    """The rank is the negative of `ts_rank`, so that lower is better, as for bm25."""

    def select_entries(self, limit: int, offset: int) -> Statement:
        sql, parameters = self._ranked_entries()
        is_first = "is_first DESC, " if self.tier.first else ""
        rank, boosted = self._boosted_rank()
        order = {
            "rank": f"{is_first}{rank}, number DESC",
            "newest": "number DESC",
            "recent": f"age DESC, number >> {self.item_bits} DESC, rank, number DESC",
        }[self.tier.order]
        page = f"SELECT number, rank, is_first FROM ({sql}) AS entry ORDER BY {order} LIMIT ? OFFSET ?"
        return page, (*parameters, *boosted, limit, offset)

    def read_entries(
        self, connection: PostgresConnection, limit: int, offset: int, items_max: int
    ) -> Sequence[EntryRow]:
        """They may have been read together with those of other sources."""
        key = self.page_key(limit, offset, items_max)
        if key in connection.known:
            return decode_rows(connection.known[key])
        return connection.execute(*self.select_candidates(limit, offset, items_max)).fetchall()

    def page_key(self, *page: int) -> Hashable:
        return self.target.index.table, self.tier, self.filter, self.item_bits, self.boost, self.skipped, page

    def select_candidates(self, limit: int, offset: int, items_max: int) -> Statement:
        page, parameters = self.select_entries(limit, offset)
        # Rows are numbered in the order of the page, which joins do not keep.
        numbered = f"SELECT number, rank, is_first, row_number() OVER () AS place FROM ({page}) AS page"
        if not self.item_bits:
            wanted = f"SELECT *, number AS value FROM ({numbered}) AS page"
        else:
            nth = f"SELECT *, row_number() OVER (PARTITION BY number >> {self.item_bits} ORDER BY place) AS nth"
            items = "SELECT *, count(*) FILTER (WHERE nth = 1) OVER (ORDER BY place) AS items"
            wanted = (
                "SELECT *, CASE WHEN nth = 1 AND items <= ? THEN number END AS value "
                f"FROM ({items} FROM ({nth} FROM ({numbered}) AS page) AS page) AS page"
            )
            parameters = (items_max, *parameters)
        return f"{select_page(self.target.select, wanted, 'number')} ORDER BY wanted.place", parameters

    def select_items(self) -> Statement:
        sql, parameters = self._matching()
        return f"SELECT coalesce(CAST(json_agg({self._item}) AS TEXT), '[]') {sql}", parameters

    def select_texts_of(self, item: int, limit: int, *, is_ranked: bool) -> Statement:
        labels = "".join(sorted(set(self._kind.labels[1:])))
        match = self._for_index(with_labels(self.tier.match, labels))
        # The range of rowids comes first: an item has few entries.
        entries = (
            "SELECT id, tsv FROM index_entries WHERE kind = ? AND id BETWEEN CAST(? AS BIGINT) AND CAST(? AS BIGINT)"
        )
        bounds = (self._kind.number, item << self.item_bits, ((item + 1) << self.item_bits) - 1)
        order = f"ORDER BY {self._rank}, e.id " if is_ranked else ""
        sql = f"SELECT e.id FROM ({entries}) AS e WHERE e.tsv @@ {MATCH} {order}LIMIT ?"
        return sql, (*bounds, match, *([match] if is_ranked else []), limit)

    @property
    def _rowid(self) -> str:
        return "e.id"

    @property
    def _kind(self) -> EntryKind:
        return ENTRY_KINDS[self.target.index.table]

    def _for_index(self, match: str) -> str:
        return for_index(match, self._kind.prefix)

    @property
    def _rank(self) -> str:
        return f"-ts_rank(CAST('{_label_weights(self._kind.labels, self.target.weights)}' AS REAL[]), e.tsv, {MATCH})"

    def _ranked_entries(self) -> Statement:
        sql, parameters = self._matching()
        rank, is_first = "NULL", "0"
        selected: list[str | int | float] = []
        if self.is_ranked:
            rank = self._rank
            selected.append(self._for_index(self.tier.match))
        if self.tier.first:
            is_first = f"CAST(e.tsv @@ {MATCH} AS INTEGER)"
            selected.append(self._for_index(self.tier.first))
        more = f", {self.target.created_at} AS created" if self.boost else ""
        more += f", {self.target.age} AS age" if self.tier.order == "recent" else ""
        columns = f"e.id AS number, CAST({rank} AS DOUBLE PRECISION) AS rank, {is_first} AS is_first{more}"
        return f"SELECT {columns} {sql}", (*selected, *parameters)

    def _all_matching(self, *, is_joined: bool) -> Statement:
        join = self.target.join_on("e.id") if is_joined else ""
        return f"FROM matched_entries e {join} WHERE e.tsv @@ {MATCH}", (self._for_index(self.tier.match),)

    def _is_not_excluded(self) -> Statement:
        parameters = (self._for_index(self.tier.excluded),)
        if not self.item_bits:
            return f"NOT e.tsv @@ {MATCH}", parameters
        excluded = f"SELECT id >> {self.item_bits} FROM matched_entries WHERE tsv @@ {MATCH}"
        return f"{self._item} NOT IN ({excluded})", parameters


@cache
def _label_weights(labels: str, weights: tuple[float, ...]) -> str:
    """The weight of a label is that of the first column that has it, as a share of the greatest."""
    by_label = dict(zip(reversed(labels), reversed(weights), strict=True))
    return f"{{{','.join(str(by_label.get(label, 0.0) / max(weights)) for label in _LABELS)}}}"


# -- resolved filters --------------------------------------------------------------------------------------------------
# Conditions that only Python can check exactly: case folding and literal comparison.
#
# SQLite calls Python for each row. PostgreSQL cannot, so the values that meet such a condition are looked up first: of
# names the different ones, of texts those that contain the letters whose case PostgreSQL folds in the same way.

# The texts in which a literal is looked up, by table. A control character between values keeps a text from matching
# across two of them.
_LITERAL_COLUMNS = {
    "conversations": ("messages", ("content",)),
    "observations": (
        "observations",
        ("title", "subtitle", "narrative", "facts", "concepts", "files_read", "files_modified", "type", "project"),
    ),
}
_METADATA = POSTGRES_JSON.format("c.metadata")
_PROJECT = f"""coalesce(CASE WHEN strpos(c.metadata, '"project"') > 0
    AND json_typeof({_METADATA} -> 'project') = 'string' THEN {_METADATA} ->> 'project' END, '')"""
_LISTS = frozenset(("facts", "concepts", "files_read", "files_modified"))
_BETWEEN_VALUES = "\x01"
_BATCH_ROWS = 2_000


_NO_FILTER = SqlFilter()


def _text_filter(connection: PostgresConnection, target: SearchTarget, search: Search) -> SqlFilter:
    conditions = SqlFilter()
    is_chats = target.table == "conversations"
    if search.contains is not None:
        conditions &= _rows_with_literal(connection, target, literal_form(search.contains))
    if search.senders and is_chats:
        sender = _one_of(connection, "messages", "sender", search.senders)
        conditions &= either(sender, _one_of(connection, "messages", "role", search.senders))
    if search.projects and is_chats:
        # The project that the metadata name, or the namespace. The different ones are read, and Python compares them.
        names = {literal_form(name) for name in search.projects if is_storable(name)}
        rows = connection.execute(f"SELECT DISTINCT {_PROJECT}, c.namespace FROM conversations c").fetchall()
        found = [row for row in rows if (literal_form(row[0]) or literal_form(row[1])) in names]
        projects, namespaces = (tuple([row[place] for row in found]) for place in (0, 1))
        listed = "SELECT project, namespace FROM unnest(CAST(? AS TEXT[]), CAST(? AS TEXT[])) AS x (project, namespace)"
        condition = f"({_PROJECT}, c.namespace) IN ({listed})"
        conditions &= SqlFilter((condition,), (projects, namespaces))  # type: ignore[arg-type]  # arrays
    if search.media_types and target.table == "media":
        conditions &= _one_of(connection, "media", "media_type", search.media_types)
    return conditions


def _one_of(connection: PostgresConnection, table: str, column: str, values: Sequence[str]) -> SqlFilter:
    folded = {value.casefold() for value in values}
    rows = connection.execute(f"SELECT DISTINCT {column} FROM {table}").fetchall()
    found = [value for (value,) in rows if value.casefold() in folded]
    return SqlFilter((f"r.{column} = ANY(CAST(? AS TEXT[]))",), (tuple(found),))  # type: ignore[arg-type]  # an array


def _rows_with_literal(connection: PostgresConnection, target: SearchTarget, literal: str) -> SqlFilter:
    if target.table not in _LITERAL_COLUMNS:
        return SqlFilter(("FALSE",))
    table, columns = _LITERAL_COLUMNS[target.table]
    found: list[int] = []
    last = 0
    # The server selects the rows that may contain the text.
    may_contain = may_contain_literal(f"({' || chr(1) || '.join(columns)})", literal)
    sql = (
        f"SELECT id, {', '.join(columns)} FROM {table} WHERE deleted = 0 AND id > ?{may_contain.sql} "
        "ORDER BY id LIMIT ?"
    )
    while rows := connection.execute(sql, (last, *may_contain.parameters, _BATCH_ROWS)).fetchall():
        for rowid, *values in rows:
            texts = [
                _BETWEEN_VALUES.join(map(str, msgspec.json.decode(value))) if name in _LISTS else value
                for name, value in zip(columns, values, strict=True)
            ]
            if contains_literal(_BETWEEN_VALUES.join(texts), literal):
                found.append(rowid)
        last = rows[-1][0]
    return SqlFilter(("r.id = ANY(CAST(? AS BIGINT[]))",), (tuple(found),))  # type: ignore[arg-type]  # an array


# -- targets -----------------------------------------------------------------------------------------------------------

# Contexts up to this length are read with every message that may become a hit, so that most searches need no other
# statement for them. Longer ones are read for the hits that show them.
_SHORT_CONTEXT_CHARS = 2_000
_CONTEXT_TABLE = f"LEFT JOIN LATERAL ({CONTEXTS}) AS context ON TRUE"
TARGETS = search_targets(
    POSTGRES,
    MessageContext(
        indexed="CASE m.human_only WHEN 1 THEN '' ELSE coalesce(context.indexed, '') END",
        select_written=f"""
            SELECT m.uuid, coalesce(context.written, '') FROM messages m {_CONTEXT_TABLE}
            WHERE m.uuid IN (SELECT value FROM {POSTGRES.listed()})
        """,
        written=f"CASE WHEN length(context.written) <= {_SHORT_CONTEXT_CHARS} THEN context.written END",
        table=_CONTEXT_TABLE,
    ),
)


# -- engine ------------------------------------------------------------------------------------------------------------


class TsqueryEngine:
    """Implements `SearchEngine`."""

    reads_ahead = True
    tier_sql = EntrySql

    def filter(self, connection: PostgresConnection, target: SearchTarget, search: Search) -> SqlFilter:
        if search.is_unrestricted:
            return _NO_FILTER
        return target.filter(search) & _text_filter(connection, target, search)

    def compiler(self, target: SearchTarget | None = None, fields: Sequence[str] = ()) -> Callable[[Expression], str]:
        if target is None:
            return compile_tsquery
        columns = (tuple(fields), (target.title_column,), target.phrase_columns)
        return partial(_compile, target.index.table, columns)

    def scale_ranks(self, best: float, worst: float, ranks: Sequence[float | None]) -> Sequence[float]:
        return [(worst if rank is None else rank) / best if best else 0.0 for rank in ranks]

    def both(self, one: str, other: str) -> str:
        return f"({one}) & ({other})"


@lru_cache(maxsize=512)
def _compile(table: str, columns: tuple[tuple[str, ...], ...], expression: Expression) -> str:
    return compile_tsquery(expression, *_restrictions(table, columns))


@cache
def _restrictions(table: str, columns: tuple[tuple[str, ...], ...]) -> list[Restriction]:
    """`columns` are those that are searched, those of titles, and those of phrases. Without any, all are."""
    return [ENTRY_KINDS[table].restriction(names) if names else EVERYWHERE for names in columns]


TSQUERY = TsqueryEngine()
