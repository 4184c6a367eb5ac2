"""The control database: users, keys, accounts, connections and followed sources, which all processes share.

It is a file of SQLite (`auth.sqlite_control`) or a schema of PostgreSQL (`auth.postgres_control`). Each operation is
one function that gets a connection, in one transaction. Operations use only SQL that both engines understand.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Migration = Sequence[str]


class ControlRows(Protocol):
    """The rows of a statement. `rowcount` is the number of rows that it changed."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...

    def close(self) -> None: ...


class ControlConnection(Protocol):
    def execute(self, sql: str, parameters: Any = (), /) -> ControlRows: ...

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> ControlRows: ...


class ControlDatabase(Protocol):
    """An open control database."""

    async def read(self, operation: Callable[[ControlConnection], T], /) -> T: ...

    async def write(self, operation: Callable[[ControlConnection], T], /) -> T:
        """Runs the operation in one transaction. No other write runs at the same time, in any process."""
        ...

    async def withdraw(self, operation: Callable[[ControlConnection], T], /) -> T:
        """Like `write`, for operations that withdraw access: they also succeed on a full disk if possible."""
        ...

    def revision(self) -> int:
        """Returns a number that changes after any process has changed the database. Takes microseconds."""
        ...
