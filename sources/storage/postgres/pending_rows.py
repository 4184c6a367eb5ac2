"""Rows that a job has not sent yet. They are sent together before its next statement, because each statement waits for
the server, and an import writes many rows."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from config.postgres.connection import Parameters, Rows
from config.postgres.sql import quote_schema
from sources.storage.tables.character_table import CHARACTERS
from sources.storage.tables.conversation_tables import CONVERSATIONS, MESSAGES
from sources.storage.tables.item_table import ItemTable
from sources.storage.tables.media_table import MEDIA_ITEMS
from sources.storage.tables.note_table import NOTES
from sources.storage.tables.observation_table import OBSERVATIONS
from sources.storage.tables.prompt_table import PROMPTS
from sources.storage.tables.sql import SqlValue

_ROWS_PER_STATEMENT = 500
# PostgreSQL accepts up to 1 GiB, but needs several times the memory.
_CHARS_PER_STATEMENT = 4_000_000
# In the order in which they are sent.
_TABLES: tuple[ItemTable[Any, Any], ...] = (
    NOTES,
    CONVERSATIONS,
    MESSAGES,
    CHARACTERS,
    OBSERVATIONS,
    MEDIA_ITEMS,
    PROMPTS,
)
_KINDS = {table.name: table.kind for table in _TABLES}

_ItemRow = Mapping[str, SqlValue]


class SchemaConnection(Protocol):
    """A connection in a transaction on one schema."""

    @property
    def schema(self) -> str: ...
    def execute(self, sql: str, parameters: Parameters = (), /) -> Rows: ...
    def executemany(self, sql: str, parameters: Iterable[Parameters], /) -> Rows: ...


class PendingConflict(Exception):
    """An item that was to be inserted exists already. The transaction cannot go on: other rows were pending, too."""

    def __init__(self, kind: str, uuid: SqlValue) -> None:
        super().__init__(f"{kind} {uuid!r} already exists")


class PendingRows:
    """Items are sent before the rows that refer to them, and conversations before messages."""

    def __init__(self) -> None:
        self._items: dict[str, list[_ItemRow]] = {}
        # The parameters of other statements, by their SQL.
        self._parameters: dict[str, list[Parameters]] = {}

    def fits(self, table: str, values: _ItemRow) -> bool:
        """Whether a row has the columns of the table's other rows. If not, these must be sent first."""
        rows = self._items.get(table)
        return not rows or rows[0].keys() == values.keys()

    def add_item(self, table: str, values: _ItemRow) -> None:
        self._items.setdefault(table, []).append(values)

    def add_parameters(self, sql: str, parameters: Iterable[Parameters]) -> None:
        self._parameters.setdefault(sql, []).extend(parameters)

    def send(self, connection: SchemaConnection) -> None:
        """Raises PendingConflict if an item exists already."""
        # First, because the connection sends what is pending before each statement.
        items, self._items = self._items, {}
        parameters, self._parameters = self._parameters, {}
        for table in _KINDS:
            for batch in _batches(items.get(table, ())):
                _insert(connection, table, batch)
        for sql, listed in parameters.items():
            connection.executemany(sql, listed)


def _batches(rows: Iterable[_ItemRow]) -> Iterator[list[_ItemRow]]:
    """Yields the rows of one statement at a time."""
    batch: list[_ItemRow] = []
    chars = 0
    for row in rows:
        batch.append(row)
        chars += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(batch) == _ROWS_PER_STATEMENT or chars >= _CHARS_PER_STATEMENT:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def _insert(connection: SchemaConnection, table: str, rows: list[_ItemRow]) -> None:
    columns = ", ".join(rows[0])
    record = f"json_populate_recordset(NULL::{quote_schema(connection.schema)}.{table}, ?::json)"
    sql = f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {record} ON CONFLICT DO NOTHING RETURNING id"
    inserted = {rowid for (rowid,) in connection.execute(sql, (msgspec.json.encode(rows).decode(),))}
    for values in rows:
        if values["id"] not in inserted:
            raise PendingConflict(_KINDS[table], values["uuid"])
