"""What tests read and change in the database of a server, past the server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from config.paths import UserId

_LIBRARY = "SELECT schema_name FROM florilegium.libraries WHERE user_id = $1"


@asynccontextmanager
async def connect(url: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def schema_of(connection: "asyncpg.Connection[Any]", user_id: UserId) -> str:
    """Returns the name of the schema with the library of a user."""
    name: str = await connection.fetchval(_LIBRARY, user_id)
    return name


async def own_rows(connection: "asyncpg.Connection[Any]", table: str, user_id: UserId) -> tuple[str, str]:
    """Returns the full name of a table of libraries, and the condition for the rows of a user."""
    if await connection.fetchval("SELECT to_regclass('florilegium.tenants')") is None:
        return f"{await schema_of(connection, user_id)}.{table}", "TRUE"
    tenant = await connection.fetchval("SELECT tenant_id FROM florilegium.tenants WHERE user_id = $1", user_id)
    schemas = "SELECT schemaname FROM pg_tables WHERE tablename = $1 AND schemaname LIKE 'florilegium%'"
    return f"{await connection.fetchval(schemas, table)}.{table}", f"tenant_id = '{tenant}'"
