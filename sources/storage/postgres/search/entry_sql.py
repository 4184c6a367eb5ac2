"""The entries of a match tier in the index of PostgreSQL."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from config.postgres.connection import PostgresConnection
from sources.storage.contract import Search
from sources.storage.postgres.index.entries import ENTRY_KINDS, MESSAGE_CONTEXT, EntryKind
from sources.storage.postgres.search.substring import may_contain_literal
from sources.storage.postgres.search.tsquery import MATCH, for_index, with_labels
from sources.storage.search.engine import CandidateRow, SearchTarget
from sources.storage.search.text_search import TierSql
from sources.storage.sqlite.schema.kinds import BOUNDED_TEXT, CHARS_BETWEEN, CONTEXT_CHARS
from sources.storage.sqlite.schema.kinds import MESSAGE_CONTEXT as SQLITE_MESSAGE_CONTEXT
from sources.storage.sqlite.search.targets import (
    CHATS_TARGET,
    HUMAN_ONLY_TARGET,
    KIND_TARGETS,
    MEDIA_TARGET,
    NOTES_TARGET,
    OBSERVATIONS_TARGET,
)
from sources.storage.tables.sql import SqlFilter, Statement, either, json_array
from sources.storage.tables.validation import is_storable
from sources.text.segmentation import contains_literal, literal_form

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
        """They may have been read together with those of other sources."""
        statement = self.select_candidates(limit, offset, items_max)
        rows: Sequence[CandidateRow] | None = connection.known.get(statement)
        return connection.execute(*statement).fetchall() if rows is None else rows

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
            f"SELECT {item}, count(*) FROM index_entries e WHERE e.tsv @@ {MATCH} "
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

    def _rank(self, tsv: str) -> str:
        """The weight of a label is that of the first column that has it, as a share of the greatest."""
        weights = dict(zip(reversed(self._kind.labels), reversed(self.target.weights), strict=True))
        greatest = max(self.target.weights)
        shares = ",".join(str(weights.get(label, 0.0) / greatest) for label in _LABELS)
        return f"-ts_rank(CAST('{{{shares}}}' AS REAL[]), {tsv}, {MATCH})"

    def _entries(self, created_at: str = "") -> Statement:
        sql, parameters = self._matching()
        rank, is_first = "0.0", "0"
        selected: list[str | int | float] = []
        if self.is_ranked:
            rank = self._rank("e.tsv")
            selected.append(self._for_index(self.tier.match))
        if self.tier.first:
            is_first = f"CAST(e.tsv @@ {MATCH} AS INTEGER)"
            selected.append(self._for_index(self.tier.first))
        more = f", {created_at} AS created" if created_at else ""
        more += f", {self.target.age} AS age" if self.tier.order == "recent" else ""
        columns = f"e.id AS number, CAST({rank} AS DOUBLE PRECISION) AS rank, {is_first} AS is_first{more}"
        return f"SELECT {columns} {sql}", (*selected, *parameters)

    def _matching(self) -> Statement:
        is_joined = self.filter or self.tier.order == "recent" or self._is_boosted
        join = self.target.join_on("e.id").replace("CROSS JOIN", "JOIN") if is_joined else ""
        sql = f"FROM index_entries e {join} WHERE e.tsv @@ {MATCH}{self.filter.sql}"
        parameters = (self._for_index(self.tier.match), *self.filter.parameters)
        item = f"{self._rowid} >> {self.item_bits}"
        if self.tier.excluded and not self.item_bits:
            sql = f"{sql} AND NOT e.tsv @@ {MATCH}"
            parameters = (*parameters, self._for_index(self.tier.excluded))
        elif self.tier.excluded:
            excluded = f"SELECT id >> {self.item_bits} FROM index_entries WHERE tsv @@ {MATCH}"
            sql, parameters = (
                f"{sql} AND {item} NOT IN ({excluded})",
                (*parameters, self._for_index(self.tier.excluded)),
            )
        if self.skipped:
            sql = f"{sql} AND {item} NOT IN ({LISTED_NUMBERS})"
            parameters = (*parameters, json_array(self.skipped))
        return sql, parameters


# -- dialect -----------------------------------------------------------------------------------------------------------
# Translates the SQL of search targets, which is written for SQLite, to that of PostgreSQL.

_REPLACEMENTS = (
    (SQLITE_MESSAGE_CONTEXT, MESSAGE_CONTEXT),
    ("json_each(?) wanted", LISTED_ROWS),
    # SQLite keeps the order of a CROSS JOIN and accepts a condition.
    ("CROSS JOIN", "JOIN"),
    (" INDEXED BY messages_human_only", ""),
    ("char(10)", "chr(10)"),
    ("json_array(", "json_build_array("),
)


@lru_cache(maxsize=512)
def postgres_sql(sql: str) -> str:
    for old, new in _REPLACEMENTS:
        sql = sql.replace(old, new)
    return sql


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
_PROJECT = """coalesce(CASE WHEN strpos(c.metadata, '"project"') > 0
    AND json_typeof(CAST(c.metadata AS JSON) -> 'project') = 'string'
    THEN CAST(c.metadata AS JSON) ->> 'project' END, '')"""
_LISTS = frozenset(("facts", "concepts", "files_read", "files_modified"))
_BETWEEN_VALUES = "\x01"
_BATCH_ROWS = 2_000


def resolve_filter(connection: PostgresConnection, target: SearchTarget, search: Search) -> SqlFilter:
    """Returns the conditions of a search."""
    plain = replace(search, contains=None, senders=(), projects=(), media_types=())
    conditions = target.filter(plain)
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
    return _rowid_in("r.id", found)


def _rowid_in(column: str, rowids: Sequence[int]) -> SqlFilter:
    return SqlFilter((f"{column} = ANY(CAST(? AS BIGINT[]))",), (tuple(rowids),))  # type: ignore[arg-type]  # an array


# -- targets -----------------------------------------------------------------------------------------------------------
# The search targets of PostgreSQL: those of SQLite with translated SQL.

# Contexts up to this length are read with every message that may become a hit, so that most searches need no other
# statement for them. Longer ones are read for the hits that show them.
_SHORT_CONTEXT_CHARS = 2_000
# The messages before a message, as they are indexed, and as they are written and in order. The conditions are ranges,
# as in `index/entries.py`.
_CONTEXTS = f"""
    SELECT string_agg({BOUNDED_TEXT}, ' ' ORDER BY position DESC) FILTER (WHERE chars_between <= {CONTEXT_CHARS})
            AS indexed,
        string_agg(written, chr(10) ORDER BY position) AS text
    FROM (SELECT text, written, role, position, {CHARS_BETWEEN} AS chars_between
        FROM (SELECT coalesce(p.text_seg, p.content) AS text, p.role, p.position,
                CASE p.sender WHEN '' THEN p.role ELSE p.sender END || ': ' || p.content AS written
            FROM messages p WHERE (p.conversation_id, p.position) < (m.conversation_id, m.position)
                AND p.conversation_id > m.conversation_id - 1 AND p.deleted <> 1 AND p.human_only <> 1
            ORDER BY p.conversation_id DESC, p.position DESC LIMIT 2) AS earlier) AS context_messages
"""
_CONTEXT_TEXTS = f"""
    SELECT m.uuid, coalesce(context.text, '') FROM messages m LEFT JOIN LATERAL ({_CONTEXTS}) AS context ON TRUE
    WHERE m.uuid IN (SELECT value FROM jsonb_array_elements_text(CAST(? AS JSONB)))
"""


def _translated(target: SearchTarget, candidate_sql: str = "", **changes: str) -> SearchTarget:
    return replace(target, candidate_sql=_in_order(candidate_sql or target.candidate_sql), **changes)


def _in_order(sql: str) -> str:
    return f"{postgres_sql(sql)} ORDER BY wanted.place"


def _with_contexts(sql: str) -> str:
    """Selects the context of a message as it is written after the other columns, with the same rows as the indexed
    one."""
    indexed = "CASE m.human_only WHEN 1 THEN '' ELSE coalesce(context.indexed, '') END"
    text = f"CASE WHEN length(context.text) <= {_SHORT_CONTEXT_CHARS} THEN context.text END"
    sql = postgres_sql(sql).replace(MESSAGE_CONTEXT, indexed).replace("m.is_canonical", f"m.is_canonical, {text}")
    return f"{sql} LEFT JOIN LATERAL ({_CONTEXTS}) AS context ON TRUE"


_CHATS = {"title_sql": _in_order(CHATS_TARGET.title_sql), "context_sql": _CONTEXT_TEXTS}
POSTGRES_NOTES = _translated(NOTES_TARGET)
POSTGRES_MEDIA = _translated(MEDIA_TARGET)
POSTGRES_CHATS = _translated(CHATS_TARGET, _with_contexts(CHATS_TARGET.candidate_sql), **_CHATS)
POSTGRES_HUMAN_ONLY = _translated(HUMAN_ONLY_TARGET, _with_contexts(HUMAN_ONLY_TARGET.candidate_sql), **_CHATS)
POSTGRES_KINDS = {source: _translated(target) for source, target in KIND_TARGETS.items()}
POSTGRES_OBSERVATIONS = _translated(OBSERVATIONS_TARGET)
