"""The plans of statements."""

from typing import Any

from sources.storage.postgres.connection import LibraryConnection


def explain(connection: LibraryConnection, sql: str, *parameters: Any) -> list[str]:
    """Returns the plan of a statement with the tenant of the transaction."""
    statement, arguments = connection._statement(sql, parameters)
    rows = connection.wait(connection._connection.fetch(f"EXPLAIN {statement.text}", *arguments))
    return [line for (line,) in rows]
