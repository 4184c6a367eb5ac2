"""Statements that the reads of a call run together, as one statement of the server.

A search reads all sources in one transaction. Each source first decides how to search, from counts that all of them
share, and then reads its best entries. Such a statement takes the server little time, but two messages and their
answers. Therefore a read stops at this statement. When all have done so, the statements are run as one, and the reads
are run again, which then find their rows.
"""

from collections.abc import Sequence

from config.postgres.connection import PostgresConnection, Row
from sources.storage.tables.sql import Statement

_JOINT_STATEMENTS = "joint statements"


class StatementPostponed(Exception):
    """A read needs the rows of a statement that is run later."""


class JointStatements:
    """The statements of the current transaction of a connection."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._is_collecting = True
        self._rows: dict[Statement, Sequence[Row]] = {}
        connection.known[_JOINT_STATEMENTS] = self

    def fetch(self, statement: Statement) -> Sequence[Row]:
        """Raises StatementPostponed until `run` is called."""
        if self._is_collecting:
            self._rows[statement] = ()
            raise StatementPostponed
        rows = self._rows.get(statement)
        return self._connection.execute(*statement).fetchall() if rows is None else rows

    def run(self) -> None:
        """Runs the statements that were postponed."""
        self._is_collecting = False
        statements, self._rows = list(self._rows), {}
        if len(statements) > 1:
            self._rows = dict(zip(statements, self._connection.fetch_together(statements), strict=True))


def fetch_jointly(connection: PostgresConnection, statement: Statement) -> Sequence[Row]:
    """Returns the rows of a statement that can be run together with those of other reads of the same call."""
    joint: JointStatements | None = connection.known.get(_JOINT_STATEMENTS)
    return connection.execute(*statement).fetchall() if joint is None else joint.fetch(statement)
