"""A control database that another process holds: 503 soon, for every caller, and service afterwards."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.live import live, make_settings
from tests.server.clients import ModernClient

# Processes lock a file of SQLite as a whole.
pytestmark = pytest.mark.sqlite


async def test_callers_get_503_while_another_process_holds_the_lock(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        clients = [await ModernClient.of(server, name) for name in ("ada", "ben") for _ in range(20)]
        with closing(sqlite3.connect(tmp_path / "control.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            # Each call waits for half a second. One after another they would wait for twenty.
            async with asyncio.timeout(10):
                refused = await asyncio.gather(*(client.call("server_info") for client in clients))
        served = await asyncio.gather(*(client.call("server_info") for client in clients))

    assert {response.status for response in refused} == {503}
    assert {response.status for response in served} == {200}
