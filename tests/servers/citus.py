"""A Citus cluster as a further engine of the storage tests: `TEST_CITUS_URL`, a database of its coordinator.

All tests share the database, because a new one would need the extension and the list of nodes on every node. Each test
has users of its own, whose schemas stay. Drop the database afterwards.
"""

import asyncio
import os
from pathlib import Path

import asyncpg

from tests.servers.shared import SharedServer, shared_server

_NAME = "citus"
_VARIABLE = "TEST_CITUS_URL"
_SHARDING = "citus.enable_schema_based_sharding"


def has_citus() -> bool:
    return bool(os.environ.get(_VARIABLE))


def describe_citus() -> str:
    """Returns the line of the header of a test run."""
    return "citus: storage tests run on it, too" if has_citus() else f"citus: not tested, {_VARIABLE} is not set"


def citus_server() -> SharedServer:
    return shared_server(_NAME, _start)


def _start(home: Path) -> SharedServer:
    url = os.environ[_VARIABLE]
    return SharedServer(url=url, version=asyncio.run(_prepare(url)))


async def _prepare(url: str) -> str:
    """Returns the versions. Fails if the schemas of users would not be distributed."""
    connection = await asyncpg.connect(url)
    try:
        version = await connection.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'citus'")
        if version is None:
            raise RuntimeError(f"{_VARIABLE}: the database does not have the extension citus")
        if await connection.fetchval(f"SHOW {_SHARDING}") != "on":
            raise RuntimeError(f"{_VARIABLE}: run ALTER DATABASE … SET {_SHARDING} = on")
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector; CREATE EXTENSION IF NOT EXISTS pg_trgm")
        server_version = await connection.fetchval("SHOW server_version")
        nodes = await connection.fetchval("SELECT count(*) FROM pg_dist_node WHERE isactive")
    finally:
        await connection.close()
    return f"{version} on {nodes} nodes, PostgreSQL {server_version}"
