"""The full-text search of SQLite."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Callable, Collection, Sequence
from functools import cache, lru_cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from sources.query import AllOf, AnyOf, Expression, Prefix, Title, Without, Word
from sources.records import OBSERVATION, SemanticStatus
from sources.search.scoring import scale_to_range
from sources.semantic.model import ModelInfo
from sources.storage.contract import Search
from sources.storage.search.engine import (
    CountRows,
    EntryRow,
    NearEntry,
    SearchConnection,
    SearchTarget,
    TierSql,
    select_page,
)
from sources.storage.search.targets import MessageContext, search_targets
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.index.text_index import MESSAGE_CONTEXT
from sources.storage.sqlite.vectors.vector_tables import VectorMemory, VectorTables
from sources.storage.tables.dialect import SQLITE
from sources.storage.tables.kind_tables import OBSERVATION_LISTS
from sources.storage.tables.sql import (
    SqlFilter,
    Statement,
    contains,
    either,
    one_of_ignoring_case,
    placeholders,
)
from sources.storage.tables.validation import is_storable
from sources.storage.vector_kinds import TitleVectors, VectorKind
from sources.text.segmentation import literal_form

if TYPE_CHECKING:
    from sources.storage.sqlite.vectors.vector_matrix import Comparison, VectorMatrix


# -- match expression --------------------------------------------------------------------------------------------------
# Compiles a query expression to an FTS5 MATCH expression. Every token is quoted, so user input is never syntax.


# A search compiles its words several times in each source.
@lru_cache(maxsize=1024)
def match_text(
    expression: Expression, title: str, columns: tuple[str, ...] = (), phrase_columns: tuple[str, ...] = ()
) -> str:
    """`title` is the column of titles. `columns` restricts the whole search, `phrase_columns` restricts phrases of
    several words; all columns are searched if they are empty."""
    match = _compile(expression, title, phrase_columns)
    return f"{{{' '.join(columns)}}} : ({match})" if columns else match


def _compile(expression: Expression, title: str, phrase_columns: tuple[str, ...]) -> str:
    match expression:
        case Word():
            match = _compile_word(expression)
            is_phrase = phrase_columns and " " in expression.text
            return f"{{{' '.join(phrase_columns)}}} : ({match})" if is_phrase else match
        case Title(word=word):
            return f"{{{title}}} : ({_compile(word, title, ())})"
        case AnyOf(parts=parts) | AllOf(parts=parts):
            operator = " OR " if isinstance(expression, AnyOf) else " AND "
            compiled = [_compile(part, title, phrase_columns) for part in parts]
            return compiled[0] if len(compiled) == 1 else f"({operator.join(compiled)})"
        case Without(keep=keep, drop=drop):
            return f"({_compile(keep, title, phrase_columns)} NOT {_compile(drop, title, phrase_columns)})"


# The sources differ in the columns of titles and phrases, which most words do not need. Queries repeat the pairs of
# letters of their script, and the common words of their language.
@lru_cache(maxsize=2_048)
def _compile_word(word: Word) -> str:
    quoted: list[str] = []
    for phrase in word.alternatives:
        tokens = " ".join(phrase.tokens).replace('"', '""')
        quoted.append(f'"{tokens}"*' if isinstance(phrase, Prefix) else f'"{tokens}"')
    return quoted[0] if len(quoted) == 1 else f"({' OR '.join(quoted)})"


# -- match sql ---------------------------------------------------------------------------------------------------------
# The entries of a match tier in an FTS5 index.


@cache
def _rank_sql(table: str, weights: tuple[float, ...]) -> str:
    return f"bm25({table}, {', '.join(map(str, weights))})"


class MatchSql(TierSql, frozen=True):
    """bm25 is computed only if the order or a score needs it (`is_ranked`), because it is most of the cost of a
    search."""

    def read_entries(
        self, connection: SearchConnection, limit: int, offset: int, _items_max: int
    ) -> Sequence[EntryRow]:
        """Reads candidates with their entries, unless items have several entries: most of these are not candidates."""
        table, tier, target = self.target.index.table, self.tier, self.target
        matching, parameters = self._matching()
        rank = _rank_sql(table, target.weights) if self.is_ranked else "NULL"
        is_first, order = "0", "rank, value DESC"
        if tier.first:
            is_first = f"{table}.rowid IN (SELECT rowid FROM {table} WHERE {table} MATCH ?)"
            order = "is_first DESC, rank, value DESC"
            parameters = (tier.first, *parameters)
        columns = f"{table}.rowid AS value, {rank} AS rank, {is_first} AS is_first"
        if self.boost:
            # LIMIT as in `_ranked_entries`.
            rank, boosted = self._boosted_rank()
            order = order.replace("rank,", f"{rank},")
            entries = f"SELECT {columns}, {target.created_at} AS created {matching} LIMIT -1"
            page = f"SELECT value, rank, is_first FROM ({entries})"
            parameters = (*parameters, *boosted)
        else:
            page = f"SELECT {columns} {matching}"
            if tier.order == "newest":
                order = "value DESC"
            elif tier.order == "recent":
                order = f"{target.age} DESC, value >> {self.item_bits} DESC, rank, value DESC"
        page = f"{page} ORDER BY {order} LIMIT ? OFFSET ?"
        sql = page if self.item_bits else select_page(target.select, page)
        rows: Sequence[EntryRow] = connection.execute(sql, (*parameters, limit, offset)).fetchall()
        return rows

    def select_items(self) -> Statement:
        matching, parameters = self._matching()
        return f"SELECT json_group_array({self._item}) {matching}", parameters

    def select_texts_of(self, item: int, limit: int, *, is_ranked: bool) -> Statement:
        table, (_, *columns) = self.target.index.table, self.target.index.columns
        in_text, bits = f"{{{' '.join(columns)}}} : ({self.tier.match})", self.item_bits
        order = "ORDER BY rank " if is_ranked else ""
        # A range of rowids, so that the entries of other items are not read.
        sql = f"SELECT rowid FROM {table} WHERE {table} MATCH ? AND rowid BETWEEN ? AND ? {order}LIMIT ?"
        return sql, (in_text, item << bits, ((item + 1) << bits) - 1, limit)

    @property
    def _rowid(self) -> str:
        return f"{self.target.index.table}.rowid"

    def _ranked_entries(self) -> Statement:
        matching, parameters = self._matching()
        # LIMIT keeps SQLite from merging the queries: bm25 is available where the index is read, but not when grouping.
        rank = _rank_sql(self.target.index.table, self.target.weights)
        return f"SELECT {self._rowid} AS number, {rank} AS rank {matching} LIMIT -1", parameters

    def _all_matching(self, *, is_joined: bool) -> Statement:
        table = self.target.index.table
        sql = f"FROM {table} {self.target.join if is_joined else ''} WHERE {table} MATCH ?"
        if self.tier.within:
            # Without the sign, SQLite would search the index once for each of these rows.
            sql = f"{sql} AND +{self._rowid} IN (SELECT rowid FROM {table} WHERE {table} MATCH ?)"
            return sql, (self.tier.match, self.tier.within)
        return sql, (self.tier.match,)

    def _is_not_excluded(self) -> Statement:
        table = self.target.index.table
        excluded = f"SELECT rowid >> {self.item_bits} FROM (SELECT rowid FROM {table} WHERE {table} MATCH ?)"
        return f"{self._item} NOT IN ({excluded})", (self.tier.excluded,)


_NO_FILTER = SqlFilter()

# A control character between the values keeps a text from matching across two of them. Lists are JSON.
_OBSERVATION_TEXT = " || char(1) || ".join(
    f"(SELECT coalesce(group_concat(value, char(1)), '') FROM json_each(r.{name}))"
    if name in OBSERVATION_LISTS
    else f"r.{name}"
    for name in ("title", *OBSERVATION.searched)
)
# The SQL expression of the text in which `Search.contains` is looked up, of the sources that support it.
_LITERAL_TEXTS = {"conversations": "r.content", "observations": _OBSERVATION_TEXT}
_PROJECT_IN_METADATA = "CASE json_type(metadata, '$.project') WHEN 'text' THEN json_extract(metadata, '$.project') END"
_PROJECT = f"coalesce(nullif(literal_form({_PROJECT_IN_METADATA}), ''), literal_form(namespace))"


def _text_filter(target: SearchTarget, search: Search) -> SqlFilter:
    """The conditions on folded and literal texts, with functions that every connection registers."""
    conditions = contains(_LITERAL_TEXTS.get(target.table, "NULL"), search.contains)
    if target.table == "media":
        conditions &= one_of_ignoring_case("r.media_type", search.media_types)
    elif target.table == "conversations":
        if search.projects:
            # A subquery, so that the projects are compared once per conversation and not once per message.
            names = tuple(literal_form(name) for name in search.projects if is_storable(name))
            condition = f"c.id IN (SELECT id FROM conversations WHERE {_PROJECT} IN ({placeholders(names)}))"
            conditions &= SqlFilter((condition,), names)
        if search.senders:
            sender, role = (one_of_ignoring_case(column, search.senders) for column in ("r.sender", "r.role"))
            conditions &= either(sender, role)
    return conditions


class Fts5Engine:
    """Implements `SearchEngine`."""

    reads_ahead = False
    tier_sql = MatchSql

    def filter(self, connection: SearchConnection, target: SearchTarget, search: Search) -> SqlFilter:
        return _NO_FILTER if search.is_unrestricted else target.filter(search) & _text_filter(target, search)

    def compiler(self, target: SearchTarget | None = None, fields: Sequence[str] = ()) -> Callable[[Expression], str]:
        if target is None:
            return partial(match_text, title="")
        return partial(
            match_text, title=target.title_column, columns=tuple(fields), phrase_columns=target.phrase_columns
        )

    def scale_ranks(self, best: float, worst: float, ranks: Sequence[float | None]) -> Sequence[float]:
        """Returns where ranks lie between the worst and the best one."""
        _, _, *scores = scale_to_range([best, worst, *(worst if rank is None else rank for rank in ranks)])
        return scores

    def both(self, one: str, other: str) -> str:
        return f"({one}) AND ({other})"


FTS5 = Fts5Engine()

# The messages that it is taken from, as they are written and in order.
_SELECT_WRITTEN = """
    SELECT m.uuid, (SELECT coalesce(group_concat(text, char(10)), '') FROM (
        SELECT CASE p.sender WHEN '' THEN p.role ELSE p.sender END || ': ' || p.content AS text FROM (
            SELECT p.* FROM messages p WHERE p.conversation_id = m.conversation_id
                AND p.position < m.position AND p.deleted = 0 AND p.human_only = 0
            ORDER BY p.position DESC LIMIT 2) p
        ORDER BY p.position))
    FROM json_each(?) wanted CROSS JOIN messages m ON m.uuid = wanted.value
"""
TARGETS = search_targets(SQLITE, MessageContext(MESSAGE_CONTEXT, _SELECT_WRITTEN))


# -- meaning -----------------------------------------------------------------------------------------------------------
# Compares the meaning of a query with the passages of one collection, within the job of a search.


_name_of, _nearness_of = attrgetter("name"), attrgetter("cosine", "rowid")


class QueryMeaning(Struct, frozen=True):
    """The vector of a query and the model that made it. `owner` identifies the file that is searched. `stop` says why
    some of its rows will have no vectors, if a quota is reached."""

    vector: bytes
    model: ModelInfo
    memory: VectorMemory
    owner: object
    tables: VectorTables
    stop: str | None = None

    def scan(self, connection: JobConnection, kinds: Sequence[VectorKind], item_bits: int) -> "MeaningScan":
        return MeaningScan(connection, self, kinds, item_bits)


class MeaningScan:
    """The cosines of all vectors of some kinds with one query. Items are the rowids of index entries without their
    lowest `item_bits` bits."""

    def __init__(
        self, connection: JobConnection, meaning: QueryMeaning, kinds: Sequence[VectorKind], item_bits: int
    ) -> None:
        self._connection = connection
        self._item_bits = item_bits
        self._kinds = kinds
        self._meaning = meaning
        self._snapshot = meaning.memory.snapshot(meaning.owner, meaning.tables, connection)
        self._number = self._snapshot.models.get(meaning.model.id, 0)
        # Of each kind: the sign of the rowids of its index entries, which are negative for titles.
        self._scans: list[tuple[int, VectorMatrix, Comparison]] = []
        self.has_vectors = False
        if self._number:
            has_grown = False
            for kind in kinds:
                matrix = meaning.memory.matrix(meaning.owner, kind, self._number, meaning.model.dimension)
                has_grown = matrix.refresh(connection, self._snapshot.version) or has_grown
                sign = -1 if isinstance(kind, TitleVectors) else 1
                self._scans.append((sign, matrix, matrix.compare(meaning.vector)))
                self.has_vectors = self.has_vectors or len(matrix) > 0
            if has_grown:  # trimming visits the matrices of all users
                meaning.memory.trim()

    def status(self, count: CountRows) -> SemanticStatus:
        key = (self._meaning.model.id, *map(_name_of, self._kinds))
        status = self._snapshot.statuses.get(key)
        if status is None:
            tables, state, model = self._meaning.tables, self._snapshot.state, self._meaning.model
            share = 1.0
            for _, matrix, _ in self._scans:
                share = min(share, matrix.loaded_share)
            is_current = state is not None and state.model == model.id
            if not is_current or tables.has_missing(self._connection, state, self._kinds):
                share *= tables.coverage(count, state, self._kinds, 0 if is_current else self._number).share
            # Rounded down, because 1 means that nothing is missing.
            status = self._snapshot.statuses[key] = SemanticStatus(
                "on" if share >= 1 else "partial", int(share * 1000) / 1000
            )
        return replace(status, reason=self._meaning.stop) if status.status == "partial" else status

    def nearest(
        self, count: int, least: float, floor: float, allowed: Collection[int] | None = None
    ) -> list[NearEntry]:
        greatest = (matrix.greatest(comparison) for _, matrix, comparison in self._scans)
        if floor and floor > max(greatest, default=0.0):
            return []
        entries: list[NearEntry] = []
        for sign, matrix, comparison in self._scans:
            own = allowed if allowed is None else [sign * item for item in allowed if sign * item > 0]
            found = matrix.nearest(comparison, count, least, self._item_bits, own)
            entries += [NearEntry(sign * row, cosine, passage) for row, cosine, passage in found]
        if len(self._scans) > 1:
            entries.sort(key=_nearness_of, reverse=True)
        return entries[:count]

    def best_cosines(self, rowids: Sequence[int]) -> list[float]:
        if len(self._scans) == 1 or min(rowids, default=0) > 0:  # no titles
            _, matrix, comparison = self._scans[0]
            return matrix.best_cosines(comparison, rowids, self._item_bits)
        best = [0.0] * len(rowids)
        for sign, matrix, comparison in self._scans:
            own = [place for place, rowid in enumerate(rowids) if sign * rowid > 0]
            found = matrix.best_cosines(comparison, [sign * rowids[place] for place in own], self._item_bits)
            for place, cosine in zip(own, found, strict=True):
                best[place] = cosine
        return best
