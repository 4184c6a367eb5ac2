"""Clients that keep their connections are spread evenly over the workers, also after one was replaced."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from tests.live import NO_RATE_LIMITS
from tests.server.clients import message, modern_headers, modern_params
from tests.server.http_client import RawConnection
from tests.server.workers.deployment import WAIT_MAX_S, WorkersDeployment, run_workers
from tests.server.workers.test_transports import shared_services
from tests.servers.shared import SharedServer

WORKERS = 3
CLIENTS = 30
REQUESTS_MAX = 60
# Calls of each client while the shares are measured: fewer than a connection allows, so that clients of a worker that
# is faster, on busy cores, do not begin new connections meanwhile.
CALLS = 40
# The difference of the shares of two workers, as a part of the larger one.
DIFFERENCE_MAX = 0.2


class LongLivedClient:
    """Calls on one connection for as long as the server keeps it open."""

    def __init__(self, deployment: WorkersDeployment, credential: dict[str, str]) -> None:
        params = modern_params({"name": "server_info", "arguments": {}})
        self._headers = {**modern_headers("tools/call", params), **credential}
        self._body = msgspec.json.encode(message("tools/call", params, 1))
        self._deployment = deployment
        self._stack = AsyncExitStack()
        self._connection: RawConnection | None = None
        self.connections = self.losses = 0

    async def call(self, count: int) -> None:
        """Calls until the server has answered so often. A connection that was lost with its worker is replaced."""
        while count:
            try:
                if self._connection is None:
                    self._connection = await self._stack.enter_async_context(RawConnection.open(self._deployment.url))
                    self.connections += 1
                await self._connection.request("POST", "/mcp", self._headers, self._body)
                response = await self._connection.response()
            except (OSError, EOFError):
                self.losses += 1
                await self.close()
                continue
            assert (response.status, b"isError" in response.body) == (200, False)
            count -= 1
            if response.header("connection") == "close":
                await self.close()

    async def close(self) -> None:
        self._connection = None
        await self._stack.aclose()


async def calls_by_worker(deployment: WorkersDeployment) -> list[float]:
    """Returns the calls that the workers, all of which serve, have answered since each was started."""
    calls = dict.fromkeys(map(str, range(WORKERS)), 0.0)
    for sample in await deployment.metrics():
        if sample.name == "florilegium_mcp_calls_total":
            calls[sample.labels["worker"]] += sample.value
    return list(calls.values())


async def measure_shares(deployment: WorkersDeployment, clients: list[LongLivedClient]) -> list[float]:
    before = await calls_by_worker(deployment)
    await asyncio.gather(*(client.call(CALLS) for client in clients))
    return [now - earlier for now, earlier in zip(await calls_by_worker(deployment), before, strict=True)]


@pytest.mark.slow("kills processes")
def test_long_lived_clients_are_spread_evenly_also_after_a_worker_was_replaced(
    tmp_path: Path, database_url: str, valkey_server: SharedServer
) -> None:
    async def run(deployment: WorkersDeployment) -> None:
        credential = await deployment.bearer("ada")
        clients = [LongLivedClient(deployment, credential) for _ in range(CLIENTS)]
        first = await measure_shares(deployment, clients)
        os.kill(deployment.workers()[0], signal.SIGKILL)
        # Its clients connect to the other workers, because the new one does not serve yet.
        await asyncio.gather(*(client.call(1) for client in clients))
        await deployment.wait_until_all_serve()
        lost, connections = sum(client.losses for client in clients), sum(client.connections for client in clients)
        # Until each connection was closed once, and its client has another.
        await asyncio.gather(*(client.call(REQUESTS_MAX) for client in clients))
        second = await measure_shares(deployment, clients)
        restarts = [
            sample.value for sample in await deployment.metrics() if sample.name == "florilegium_worker_restarts_total"
        ]
        for client in clients:
            await client.close()

        assert sum(client.connections for client in clients) >= connections + CLIENTS
        assert sum(client.losses for client in clients) == lost, "connections are closed with a response"
        assert sorted(restarts) == [0, 0, 1]
        for shares in (first, second):
            assert sum(shares) == CALLS * CLIENTS
            assert max(shares) - min(shares) <= DIFFERENCE_MAX * max(shares), (first, second)

    services = {**shared_services(database_url, valkey_server, tmp_path), **NO_RATE_LIMITS}
    # Clients are idle until a worker was replaced.
    changes = {"connection_max_requests": REQUESTS_MAX, "idle_timeout_s": WAIT_MAX_S}
    with run_workers(tmp_path, count=WORKERS, **changes, **services) as deployment:
        asyncio.run(run(deployment))
