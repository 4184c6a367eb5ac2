"""What all tables share: building SQL, the connection a job gets, full-text indexes and the order of results."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

import msgspec
from msgspec import Struct

from sources.installed import ITEM_KINDS
from sources.records import MESSAGE, OBSERVATION
from sources.storage.tables.dialect import Dialect
from sources.text.folding import folds_bytewise
from sources.text.segmentation import literal_form, segment

SqlValue = str | int | float | None
Statement = tuple[str, tuple[str | int | float, ...]]

# SQLite limits the length of LIKE patterns.
_LIKE_MAX_CHARS = 10_000


class SqlFilter(Struct, frozen=True):
    """Conditions that rows must meet, and the parameters of their placeholders."""

    conditions: tuple[str, ...] = ()
    parameters: tuple[str | int, ...] = ()

    def __and__(self, other: "SqlFilter") -> "SqlFilter":
        if not self.conditions or not other.conditions:
            return self if self.conditions else other
        return SqlFilter(self.conditions + other.conditions, self.parameters + other.parameters)

    @property
    def sql(self) -> str:
        """The conditions as text to append to a WHERE clause."""
        return "".join(f" AND {condition}" for condition in self.conditions)


def placeholders(values: Sequence[object]) -> str:
    """Returns what is between the parentheses of `IN (...)`. PostgreSQL does not accept an empty list."""
    return ", ".join("?" * len(values)) or "SELECT NULL WHERE FALSE"


def json_array(values: Sequence[int | str]) -> str:
    """Returns the parameter for `Dialect.listed`. The SQL is the same for any number of values, so that the statement
    is prepared once."""
    return msgspec.json.encode(values).decode()


def equals(column: str, value: str | int | None) -> SqlFilter:
    return SqlFilter() if value is None else SqlFilter((f"{column} = ?",), (value,))


def metadata_in(dialect: Dialect, column: str, path: str, values: Sequence[str | None]) -> SqlFilter:
    """The value at a JSON path in a metadata column is one of `values`. None means no value."""
    value = dialect.json_value(column)
    texts = tuple(text for text in values if text is not None)
    condition = SqlFilter((f"{value} IN ({placeholders(texts)})",), (path, *texts))
    return either(condition, SqlFilter((f"{value} IS NULL",), (path,))) if None in values else condition


def between(column: str, low: str | None, high: str | None) -> SqlFilter:
    """Both bounds are inclusive and optional."""
    condition = SqlFilter()
    if low:
        condition &= SqlFilter((f"{column} >= ?",), (low,))
    if high:
        condition &= SqlFilter((f"{column} <= ?",), (high,))
    return condition


def one_of_ignoring_case(column: str, values: Sequence[str]) -> SqlFilter:
    """Uses the SQL function `casefold`, which every connection registers."""
    if not values:
        return SqlFilter()
    return SqlFilter((f"casefold({column}) IN ({placeholders(values)})",), tuple(value.casefold() for value in values))


def contains(expression: str, text: str | None) -> SqlFilter:
    """Requires the text of an expression to contain another text literally."""
    if text is None:
        return SqlFilter()
    return SqlFilter((f"contains_literal({expression}, ?)",), (literal_form(text),))


def contains_ignoring_case(column: str, folded: str) -> SqlFilter:
    """Requires a column to contain a case-folded text. Folding a text costs ten times as much as searching it, so it is
    done only if one of the two is not ASCII."""
    if not folded.isascii() or len(folded) > _LIKE_MAX_CHARS:
        return SqlFilter((f"instr(casefold({column}), ?)",), (folded,))
    is_not_ascii = f"length(CAST({column} AS BLOB)) <> length({column})"
    in_ascii = contains_ascii(column, folded)
    [condition] = in_ascii.conditions
    has_other_case = f"({is_not_ascii} AND instr(casefold({column}), ?))"
    return SqlFilter((f"({condition} OR {has_other_case})",), (*in_ascii.parameters, folded))


def contains_ascii(column: str, text: str) -> SqlFilter:
    """Requires a column to contain an ASCII text, in any case."""
    pattern = re.sub(r"([\\%_])", r"\\\1", text)
    return SqlFilter((f"{column} LIKE '%' || ? || '%' ESCAPE '\\'",), (pattern,))


def either(one: SqlFilter, other: SqlFilter) -> SqlFilter:
    """Joins two filters of one condition each with OR."""
    [first], [second] = one.conditions, other.conditions
    return SqlFilter((f"({first} OR {second})",), one.parameters + other.parameters)


# -- changes -----------------------------------------------------------------------------------------------------------
# Statements that change the rows of one table. They are texts, so that SQLite runs them as they are, and know their
# parts, from which PostgreSQL renders statements that name the tenant. It runs no others that change rows.


class Insert(str):
    """Inserts `values`, which are parameters if nothing else is given, or what `select` returns: a query without its
    first word. If a row with the same `key` exists, its other columns are updated, if `condition` is met; with the key
    `*`, the existing row stays."""

    __slots__ = ("columns", "condition", "key", "returning", "select", "table", "values")

    table: str
    columns: str
    select: str
    values: str
    key: str
    condition: str
    returning: str

    def __new__(
        cls,
        table: str,
        columns: str,
        select: str = "",
        *,
        values: str = "",
        key: str = "",
        condition: str = "",
        returning: str = "",
    ) -> Self:
        values = values or placeholders(columns.split(", "))
        rows = f"SELECT {select}" if select else f"VALUES ({values})"
        end = conflict_clause(columns, key, key, condition) + (f" RETURNING {returning}" if returning else "")
        insert = super().__new__(cls, f"INSERT INTO {table} ({columns}) {rows}{end}")
        insert.table, insert.columns, insert.select, insert.values = table, columns, select, values
        insert.key, insert.condition, insert.returning = key, condition, returning
        return insert


def conflict_clause(columns: str, key: str, unique: str, condition: str) -> str:
    """`unique` are the columns of the unique index with the key."""
    if not key or key == "*":
        return " ON CONFLICT DO NOTHING" if key else ""
    keys = key.split(", ")
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns.split(", ") if name not in keys)
    return f" ON CONFLICT ({unique}) DO UPDATE SET {changes}{f' WHERE {condition}' if condition else ''}"


class Update(str):
    __slots__ = ("assignments", "condition", "table")

    table: str
    assignments: str
    condition: str

    def __new__(cls, table: str, assignments: str, condition: str) -> Self:
        update = super().__new__(cls, f"UPDATE {table} SET {assignments} WHERE {condition}")
        update.table, update.assignments, update.condition = table, assignments, condition
        return update


class Delete(str):
    """`using` is a table that the condition needs besides the one whose rows are deleted."""

    __slots__ = ("condition", "returning", "table", "using")

    table: str
    condition: str
    using: str
    returning: str

    def __new__(cls, table: str, condition: str = "TRUE", *, using: str = "", returning: str = "") -> Self:
        end = f" RETURNING {returning}" if returning else ""
        text = f"DELETE FROM {table}{f' USING {using}' if using else ''} WHERE {condition}{end}"
        delete = super().__new__(cls, text)
        delete.table, delete.condition, delete.using, delete.returning = table, condition, using, returning
        return delete


# Where a library remembers single values.
SAVE_STATE = Insert("state", "name, value", key="name")


# -- connection --------------------------------------------------------------------------------------------------------
# What the tables need of a connection, which runs one job at a time on a thread of its own.

T = TypeVar("T")


_KIND_NAMES = {kind.table: kind.name for kind in (*ITEM_KINDS.values(), OBSERVATION, MESSAGE)}


class PendingConflict(Exception):
    """An item that was to be inserted exists already. The transaction cannot go on: other rows were pending, too."""

    def __init__(self, table: str, uuid: SqlValue) -> None:
        super().__init__(f"{_KIND_NAMES[table]} {uuid!r} already exists")


class SqlRows(Protocol):
    """The rows that a statement returned."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class SqlConnection(Protocol):
    """A connection in a transaction. The names of tables are not qualified, and parameters are `?` or `?1`. Rows are
    changed by an `Insert`, `Update` or `Delete`."""

    @property
    def dialect(self) -> Dialect: ...

    def execute(self, sql: str, parameters: Any = (), /) -> SqlRows: ...
    def executemany(self, sql: str, parameters: Iterable[Any], /) -> object: ...
    def executemany_later(self, sql: str, parameters: Iterable[Any], /) -> object:
        """Like `executemany`, but statements can be sent together before the next `execute`. Those that are equal are
        then run together, so they must not depend on others that are sent later."""
        ...

    # Rows of item tables, whose text is indexed

    def insert_row(self, table: str, values: Mapping[str, SqlValue]) -> int | None:
        """Returns the new rowid, or None if a unique value is already in use. Rows that follow each other can be sent
        together before the next `execute`, which then raises PendingConflict instead."""
        ...

    def update_row(self, table: str, rowid: int, values: Mapping[str, SqlValue]) -> None: ...
    def restore_row(self, table: str, rowid: int, values: Mapping[str, SqlValue]) -> None:
        """Updates a row that becomes visible again, with the rows that belong to it."""
        ...

    def delete_row(self, table: str, rowid: int) -> None:
        """The rowid of an item whose public id it is must not be used again."""
        ...


TableWork = Callable[[SqlConnection], T]


# -- text index --------------------------------------------------------------------------------------------------------
# Full-text indexes as the tables know them: which columns are indexed, and in what form a text is.

# Everything except ASCII and the Latin-1 letters, signs and punctuation that FTS5's tokenizer folds as `segment` does.
_FOLDED_DIFFERENTLY = re.compile(
    r"[^\x00-\x7f\xa0-\xa9\xab-\xac\xae-\xb1\xb4-\xb8\xbb-\xcf\xd1-\xd7\xd9-\xef\xf1-\xf7\xf9-\xff"
    r"\u2010-\u2027\u2030-\u205e\u20ac]"
)


class TextIndex(Struct, frozen=True):
    """A full-text index. In SQLite, `<table>_source` is the view of what it must contain, and `<table>_queue` holds
    changed rows."""

    table: str
    columns: tuple[str, ...]
    # The views of which `<table>_source` is a union, each with the condition that finds a queued row in it: SQLite can
    # look up single rows in a part, but not in the union.
    parts: tuple[tuple[str, str], ...] = ()
    # Indexes of other rows of the same tables. They are updated together with this one.
    companions: tuple["TextIndex", ...] = ()

    @property
    def collection(self) -> str:
        return self.table.removesuffix("_index")


class SegmentedTable(Struct, frozen=True):
    """A table with index form columns, each with the SQL expression of its text."""

    table: str
    forms: tuple[tuple[str, str], ...]
    index: TextIndex
    # Whether its rows are counted for the term frequencies of the library.
    is_counted: bool = True


# Between a text and the tags that are indexed with it. It is part of no word, and no text with it is indexed as it is:
# tags are in the index form only.
_TAGS_SEPARATOR = "\n\u00ad"


def text_with_tags(text: str, tags: str) -> str:
    """Returns what is indexed for a text and a JSON array of tags."""
    return text if tags == "[]" else f"{text}{_TAGS_SEPARATOR}{tags}"


def text_with_tags_sql(column: str, dialect: Dialect) -> str:
    """The SQL expression of `text_with_tags` for a column of an item table."""
    separator = f"{dialect.character(10)} || {dialect.character(173)}"
    return f"{column} || CASE tags WHEN '[]' THEN '' ELSE {separator} || tags END"


def index_form(text: str) -> str | None:
    """Returns what is indexed instead of the text, or None if FTS5 produces the same tokens from the text itself.

    So most Western prose is stored only once. The form is stored with the row because the index must be given the exact
    text to remove, and because scoring counts words in it without segmenting again.
    """
    form = segment(text)
    # Spelled identifiers and parts of words make a form longer than its text. If a text `folds_bytewise`, which none
    # with tags does, a form of the same length is its fold.
    if len(form) != len(text):
        return form
    is_folded = text.isascii() or (
        "\u00ad" not in text and folds_bytewise(text) and not _FOLDED_DIFFERENTLY.search(text)
    )
    return None if is_folded else form


# -- indexes -----------------------------------------------------------------------------------------------------------
# The full-text indexes of a library, the fields that they join, and the numbers of chunks.

NOTES_INDEX = TextIndex("notes_index", ("title", "content"))
MEDIA_INDEX = TextIndex("media_index", ("title", "text"))

_MESSAGE_COLUMNS = ("title", "own", "context")
# The human-only messages, by their rowid. It has the columns of the other index; only `own` has text. Agents search
# the other one, which contains no text of a human-only message.
HUMAN_ONLY_INDEX = TextIndex("human_only_index", _MESSAGE_COLUMNS)
# Messages have their rowid, titles of conversations have their negative rowid: both are ranked together. Titles come
# first, because FTS5 also writes what it has collected to the file when a rowid is below the one before.
CHATS_INDEX = TextIndex(
    "chats_index",
    _MESSAGE_COLUMNS,
    parts=(("title_source", "now.conversation_id = -queued.id"), ("message_source", "now.id = queued.id")),
    companions=(HUMAN_ONLY_INDEX,),
)

# The rowid of a chunk is its item's rowid shifted left, plus its index. A search can thus tell which chunks belong
# together without reading their rows. An item can have a million chunks.
CHUNK_BITS = 20
CHUNKS_MAX = 1 << CHUNK_BITS

# -- indexed messages --------------------------------------------------------------------------------------------------
# What is indexed for a message, as SQL expressions. The context is joined differently by each engine.

# A message `m` is indexed with its sender, its content and its date, for queries such as "what did Ana say in May".
MESSAGE_OWN = """
    coalesce(m.text_seg, m.sender || ': ' || m.content) || ' '
    || CAST(substr(m.created_at, 9, 2) AS INTEGER) || ' ' || CASE substr(m.created_at, 6, 2)
        WHEN '01' THEN 'January' WHEN '02' THEN 'February' WHEN '03' THEN 'March' WHEN '04' THEN 'April'
        WHEN '05' THEN 'May' WHEN '06' THEN 'June' WHEN '07' THEN 'July' WHEN '08' THEN 'August'
        WHEN '09' THEN 'September' WHEN '10' THEN 'October' WHEN '11' THEN 'November' ELSE 'December' END
    || ' ' || substr(m.created_at, 1, 4)
"""
# And, with a lower weight, with a context: the two messages before it that agents may read.
#
# A short message often makes sense only together with these ("The blue one, on Friday"). A long one says what it is
# about, and its words in the entries of its neighbours would only hide where they were written. So a message of more
# than CONTEXT_CHARS ends the context, and no word of it is in there; of a question that long, its answer has the
# beginning. 99 % of the messages between people are shorter: the bound is for answers of assistants, logs and letters.
# A name before each message is left out: it would make every reply to a person a match for the name.
CONTEXT_CHARS = 400
BOUNDED_TEXT = f"""
    CASE WHEN length(text) <= {CONTEXT_CHARS} THEN text
        WHEN role = 'user' AND m.role = 'assistant' THEN
            rtrim(substr(text, 1, {CONTEXT_CHARS}), replace(substr(text, 1, {CONTEXT_CHARS}), ' ', ''))
        ELSE '' END
"""
# The length of the message between a message of the context and the one that is indexed.
CHARS_BETWEEN = "lag(length(text), 1, 0) OVER (ORDER BY position DESC)"
