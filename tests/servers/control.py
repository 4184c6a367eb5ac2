"""Empties the control data of a PostgreSQL database, so that tests can share it."""

import asyncio

import asyncpg

_TABLES = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = 'florilegium' AND tablename <> 'control_state'"


def delete_control_data(url: str) -> None:
    asyncio.run(_delete(url))


async def _delete(url: str) -> None:
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        names = [f'florilegium."{name}"' for (name,) in await connection.fetch(_TABLES)]
        if names:
            await connection.execute(f"TRUNCATE {', '.join(names)}")
    finally:
        await connection.close()
