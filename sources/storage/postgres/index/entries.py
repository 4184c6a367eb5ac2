"""The full-text index of a library: one table for all sources, with one entry per row that is indexed.

Lexemes begin with the tenant and a letter for their source, so that one GIN index serves all of them and a search never
reads the entries of another library or source, nor those of human-only messages. `index_words` has the words that
spelling is compared with; words of deleted rows stay in it until the index is built again.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct
from msgspec.json import Decoder

from config.postgres.connection import PostgresConnection, decode_rows, rows_as_json
from sources.installed import TABLE_KINDS
from sources.kinds import Kind
from sources.storage.postgres.search.tsquery import Restriction, index_tokens, make_tsvector
from sources.storage.postgres.tables import kind_digests
from sources.storage.search.vocabulary import NEAR_MAX_CHARS, NEAR_MIN_CHARS
from sources.storage.tables.kind_tables import index_columns, indexed_sql, text_index
from sources.storage.tables.sql import (
    BOUNDED_TEXT,
    CHUNK_BITS,
    CONTEXT_CHARS,
    MESSAGE_OWN,
    Delete,
    Insert,
)
from sources.text.segmentation import SEGMENT_VERSION

if TYPE_CHECKING:
    from sources.storage.postgres.connection import LibraryConnection

# Rows whose texts are in memory at once.
_BATCH_ROWS = 500
# In a library with at most this many entries, a statement of a search takes little time. Then counting a term in all
# sources takes less time than another statement, and the search of another source probably asks for it, too.
_SMALL_INDEX_ENTRIES = 5_000
# `rows` are the numbers of entries by kind, all of which are counted only in a small library. Nothing is counted if the
# first parameter says that the transaction knows them.
SIZE_SQL = f"""
    size AS MATERIALIZED (
        SELECT coalesce(sum(entries), 0) <= {_SMALL_INDEX_ENTRIES} AS is_small,
            coalesce(CAST(json_object_agg(kind, entries) AS TEXT), '{{}}') AS rows
        FROM (SELECT kind, count(*) AS entries
            FROM (SELECT kind FROM index_entries WHERE NOT CAST(?1 AS BOOLEAN) LIMIT {_SMALL_INDEX_ENTRIES + 1})
                AS first GROUP BY kind) AS counted)
"""
decode_counts = Decoder(dict[int, int]).decode
# The version of the entries: how texts are segmented, what is indexed for a message, and which fields the kinds of
# other distributions have. Entries of another version are made again in the background.
ENTRIES_VERSION = f"{SEGMENT_VERSION}.3{''.join(digest[:8] for digest in kind_digests().values())}"
STATE_COLUMNS = "value, is_small, rows, (SELECT value FROM state WHERE name = 'segment_version')"
_READ_INDEX_STATE = f"WITH {SIZE_SQL} SELECT {STATE_COLUMNS} FROM state, size WHERE name = 'writes'"
# The message before another. The conditions are ranges of the index `messages_in_order`: with equal conversations,
# PostgreSQL expects few rows in a new table, and sorts all earlier messages of the conversation for each message.
_PREVIOUS = f"""
    SELECT position, written, {BOUNDED_TEXT} AS bounded, length(text) <= {CONTEXT_CHARS} AS is_short
    FROM (SELECT coalesce(p.text_seg, p.content) AS text, p.role, p.position,
            CASE p.sender WHEN '' THEN p.role ELSE p.sender END || ': ' || p.content AS written
        FROM messages p WHERE (p.conversation_id, p.position) < (m.conversation_id, {{0}}.position)
            AND p.conversation_id > m.conversation_id - 1 AND p.deleted <> 1 AND p.human_only <> 1
        ORDER BY p.conversation_id DESC, p.position DESC LIMIT 1) AS previous
"""
# The messages before a message `m`, as they are indexed, and as they are written and in order.
CONTEXTS = f"""
    SELECT last.bounded || CASE WHEN last.is_short THEN coalesce(' ' || earlier.bounded, '') ELSE '' END AS indexed,
        coalesce(earlier.written || chr(10), '') || last.written AS written
    FROM ({_PREVIOUS.format("m")}) AS last LEFT JOIN LATERAL ({_PREVIOUS.format("last")}) AS earlier ON TRUE
"""


class IndexedRows(Struct, frozen=True):
    """Rows that are indexed: the SQL expression of their rowid, what is indexed of them, and the SQL from FROM on. The
    entries of titles have the negative rowids of conversations."""

    rowid: str
    columns: str
    matching: str
    sign: str = ""

    def own(self, rowids: Iterable[int]) -> list[int]:
        """Returns the rowids of those rows whose entries have these rowids."""
        return [abs(rowid) for rowid in rowids if (rowid < 0) == bool(self.sign)]

    @property
    def select(self) -> str:
        """Selects the rowid of the entry and the columns. The parameter has the rowids of the rows."""
        return (
            f"SELECT {self.sign}{self.rowid}, {self.columns} {self.matching} "
            f"AND {self.rowid} = ANY(CAST(? AS BIGINT[]))"
        )


_MESSAGE_COLUMNS = f"""
    '', {MESSAGE_OWN},
        CASE m.human_only WHEN 1 THEN '' ELSE coalesce((SELECT indexed FROM ({CONTEXTS}) AS context), '') END
"""
_MESSAGES, _HUMAN_ONLY_MESSAGES = [
    IndexedRows(
        "m.id",
        _MESSAGE_COLUMNS,
        "FROM messages m JOIN conversations c ON c.id = m.conversation_id "
        f"WHERE m.deleted = 0 AND c.deleted = 0 AND m.human_only = {human_only}",
    )
    for human_only in (0, 1)
]
_TITLES = IndexedRows(
    "c.id",
    "coalesce(c.title_seg, c.title), '', ''",
    "FROM conversations c WHERE c.deleted = 0 AND c.title <> ''",
    sign="-",
)
_CHUNKS = IndexedRows(
    "c.id",
    "coalesce(m.title_seg, m.title), coalesce(c.text_seg, c.text)",
    f"FROM chunks c JOIN media m ON m.id = c.id >> {CHUNK_BITS} WHERE m.deleted = 0",
)


class EntryKind(Struct, frozen=True):
    """The entries of one source. `prefix` is the letter before its lexemes, and `labels` are those of its columns, of
    which the first is a title."""

    number: int
    index: str
    prefix: str
    columns: tuple[str, ...]
    labels: str
    rows: tuple[IndexedRows, ...]
    field_prefixes: str = ""
    # Whether its words are counted for the term frequencies of the library.
    is_counted: bool = True

    @property
    def without_row(self) -> str:
        """The condition that an entry is one of these, and has no row."""
        rows = [
            f"NOT EXISTS (SELECT 1 {one.matching} AND {one.rowid} = {one.sign}index_entries.id)" for one in self.rows
        ]
        return f"kind = {self.number:d} AND {' AND '.join(rows)}"

    @property
    def without_entry(self) -> list[str]:
        """Statements that count the rows without an entry."""
        entry = f"SELECT 1 FROM index_entries e WHERE e.kind = {self.number:d} AND e.id ="
        return [f"SELECT count(*) {one.matching} AND NOT EXISTS ({entry} {one.sign}{one.rowid})" for one in self.rows]

    @property
    def collection(self) -> str:
        return self.index.removesuffix("_index")

    def restriction(self, columns: Sequence[str]) -> Restriction:
        """Returns what restricts a search to these columns: their labels, or the prefixes of their own lexemes."""
        indexes = [self.columns.index(name) for name in columns if name in self.columns]
        if self.field_prefixes:
            return Restriction(prefixes=tuple(self.field_prefixes[index] for index in indexes))
        return Restriction(labels="".join(sorted({self.labels[index] for index in indexes})))

    def tsvector(self, tenant: str, forms: Sequence[str]) -> tuple[int, str, set[str]]:
        """Returns the number of words without those of the title, the tsvector, and the words."""
        tokens = [index_tokens(form) for form in forms]
        prefixes = self.field_prefixes or [""] * len(tokens)
        columns = zip(tokens, self.labels, prefixes, strict=True)
        distinct = set().union(*tokens)
        words = {self.prefix + word for word in distinct if NEAR_MIN_CHARS <= len(word) <= NEAR_MAX_CHARS}
        return sum(map(len, tokens[1:])), make_tsvector(columns, tenant + self.prefix), words


def _entries_of(kind: Kind) -> EntryKind:
    """The entries of a kind with one table. There are four labels, which are not enough for a column of each field:
    then the words of each column have a letter of their own, too."""
    columns = index_columns(kind)
    indexed = ", ".join(indexed_sql(kind, "chr(10)", "r."))
    return EntryKind(
        kind.number,
        text_index(kind).table,
        kind.prefix,
        tuple(column.name for column in columns),
        "A" + "D" * (len(columns) - 1),
        (IndexedRows("r.id", indexed, f"FROM {kind.source} r WHERE r.deleted = 0"),),
        field_prefixes="UVWXYZ" if kind.layout == "columns" else "",
        is_counted=kind.is_source,
    )


# By table.
TABLE_ENTRIES: Mapping[str, EntryKind] = {kind.source: _entries_of(kind) for kind in TABLE_KINDS}
_CHAT_COLUMNS = ("title", "own", "context")
CHAT_ENTRIES = EntryKind(2, "chats_index", "C", _CHAT_COLUMNS, "ABD", (_MESSAGES, _TITLES))
HUMAN_ONLY_ENTRIES = EntryKind(
    3, "human_only_index", "H", _CHAT_COLUMNS, "ABD", (_HUMAN_ONLY_MESSAGES,), is_counted=False
)
MEDIA_ENTRIES = EntryKind(6, "media_index", "M", ("title", "text"), "AD", (_CHUNKS,))
ENTRY_KINDS = {kind.index: kind for kind in (*TABLE_ENTRIES.values(), CHAT_ENTRIES, HUMAN_ONLY_ENTRIES, MEDIA_ENTRIES)}


_DELETE_ENTRIES = Delete("index_entries", "kind = ? AND id = ANY(CAST(? AS BIGINT[]))")
_SAVE_ENTRIES = Insert(
    "index_entries",
    "kind, id, words, tsv",
    "CAST(? AS SMALLINT), id, words, CAST(tsv AS TSVECTOR) "
    "FROM unnest(CAST(? AS BIGINT[]), CAST(? AS INTEGER[]), CAST(? AS TEXT[])) AS entry (id, words, tsv)",
    key="kind, id",
)
_ADD_WORDS = Insert("index_words", "word", "unnest(CAST(? AS TEXT[]))", key="*")


def read_forms(connection: PostgresConnection, wanted: Mapping[EntryKind, Sequence[int]]) -> Iterator[tuple[Any, ...]]:
    """Yields the kinds and rowids of these entries, and their columns, as far as their rows exist. One statement reads
    them all."""
    # In order, so that the server plans one statement for each combination of kinds.
    queries = [
        (kind, rows.select, own)
        for kind, rowids in sorted(wanted.items(), key=lambda one: one[0].number)
        for rows in kind.rows
        if (own := rows.own(rowids))
    ]
    if len(queries) == 1:
        [(kind, sql, own)] = queries
        yield from [(kind, *row) for row in connection.execute(sql, (own,))]
    elif queries:
        sql = _select_together(tuple([sql for _, sql, _ in queries]))
        [texts] = connection.execute(sql, [own for _, _, own in queries]).fetchall()
        for (kind, _, _), text in zip(queries, texts, strict=True):
            yield from [(kind, *row) for row in decode_rows(text)]


@lru_cache
def _select_together(queries: tuple[str, ...]) -> str:
    return f"SELECT {', '.join(rows_as_json((sql, 1) for sql in queries))}"


def index_rows(connection: "LibraryConnection", kind: EntryKind, rowids: Iterable[int]) -> None:
    """Makes the entries of these rows again. Rows that do not exist or are deleted have none afterwards."""
    remaining = iter(sorted(rowids))
    while batch := list(islice(remaining, _BATCH_ROWS)):
        assert connection.tenant is not None
        entries = [
            (rowid, *kind.tsvector(connection.tenant, forms))
            for _, rowid, *forms in read_forms(connection, {kind: batch})
        ]
        existing = {rowid for rowid, *_ in entries}
        missing = [rowid for rowid in batch if rowid not in existing]
        if missing:
            connection.execute(_DELETE_ENTRIES, (kind.number, missing))
        if entries:
            ids, counts, vectors, words = zip(*entries, strict=True)
            connection.execute(_SAVE_ENTRIES, (kind.number, list(ids), list(counts), list(vectors)))
            # In order, so that two transactions cannot wait for each other.
            connection.execute(_ADD_WORDS, (sorted(set().union(*words)),))


class IndexState(Struct, frozen=True):
    """`version` is different after every write to the library. `is_small` says whether it has few entries; then `rows`
    are their numbers by kind. `segment_version` is that of the code that made the entries."""

    version: str = "0"
    is_small: bool = True
    rows: Mapping[int, int] = {}
    segment_version: str | None = None

    @classmethod
    def of(cls, version: str, is_small: bool, rows: str, segment_version: str | None) -> Self:
        return cls(version, is_small, decode_counts(rows) if is_small else {}, segment_version)


def index_state(connection: "LibraryConnection") -> IndexState:
    """Reads the state of the index once in each transaction: no other transaction can change what this one sees."""
    if connection.index_state is None:
        row = connection.execute(_READ_INDEX_STATE, (False,)).fetchone()
        connection.index_state = IndexState.of(*row) if row else IndexState()
    return connection.index_state
