"""The control data of a deployment: users, keys, connections."""

import asyncio
from pathlib import Path

import asyncpg

from config.paths import DataRoot
from config.settings import Settings
from tests.servers.postgres import delete_rows_sql

_TABLES = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = 'florilegium' AND tablename <> 'control_state'"


def delete_control_data(url: str) -> None:
    """Empties the control data of a PostgreSQL database, so that tests can share it."""
    asyncio.run(_delete(url))


async def stored_control_data(settings: Settings) -> bytes:
    """Returns everything that is stored: the file, or the rows of all tables."""
    if not settings.storage_url:
        return DataRoot(Path(settings.data_dir)).control_path.read_bytes()
    connection = await asyncpg.connect(settings.storage_url, statement_cache_size=0)
    try:
        rows = [
            row
            for (name,) in await connection.fetch(_TABLES)
            for row in await connection.fetch(f'SELECT * FROM florilegium."{name}"')
        ]
    finally:
        await connection.close()
    return b"\n".join(_as_bytes(value) for row in rows for value in row)


def _as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


async def _delete(url: str) -> None:
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        await connection.execute(delete_rows_sql("florilegium", kept_table="control_state"))
    finally:
        await connection.close()
