"""What tests read and change in the database of a server, past the server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from config.paths import UserId

_TENANT = "SELECT tenant_id FROM florilegium.tenants WHERE user_id = $1"
LIBRARY = "florilegium_library"


@asynccontextmanager
async def connect(url: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def tenant_of(connection: "asyncpg.Connection[Any]", user_id: UserId) -> str:
    """Returns the tenant whose rows are the library of a user."""
    tenant: str = await connection.fetchval(_TENANT, user_id)
    return tenant


async def own_rows(connection: "asyncpg.Connection[Any]", table: str, user_id: UserId) -> tuple[str, str]:
    """Returns the full name of a table of libraries, and the condition for the rows of a user."""
    return f"{LIBRARY}.{table}", f"tenant_id = '{await tenant_of(connection, user_id)}'"
