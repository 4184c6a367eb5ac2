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
