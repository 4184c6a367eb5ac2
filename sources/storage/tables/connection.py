"""What the tables need of a connection, which runs one job at a time on a thread of its own."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from sources.storage.tables.sql import SqlValue

T = TypeVar("T")


class SqlRows(Protocol):
    """The rows that a statement returned."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class SqlConnection(Protocol):
    """A connection in a transaction. The names of tables are not qualified, and parameters are `?` or `?1`."""

    def execute(self, sql: str, parameters: Any = (), /) -> SqlRows: ...
    def executemany(self, sql: str, parameters: Iterable[Any], /) -> object: ...
    def executemany_later(self, sql: str, parameters: Iterable[Any], /) -> object:
        """Like `executemany`, but statements can be sent together before the next `execute`. Those that are equal are
        then run together, so they must not depend on others that are sent later."""
        ...

    # Rows of item tables, whose text is indexed

    def insert_row(self, table: str, values: Mapping[str, SqlValue]) -> int | None:
        """Returns the new rowid, or None if a unique value is already in use."""
        ...

    def update_row(self, table: str, rowid: int, values: Mapping[str, SqlValue]) -> None: ...
    def restore_row(self, table: str, rowid: int, values: Mapping[str, SqlValue]) -> None:
        """Updates a row that becomes visible again, with the rows that belong to it."""
        ...

    def delete_row(self, table: str, rowid: int) -> None:
        """The rowid of an item whose public id it is must not be used again."""
        ...


TableWork = Callable[[SqlConnection], T]
