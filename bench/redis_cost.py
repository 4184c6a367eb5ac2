"""What `session_url` adds to a call: the same searches at two servers in turn, one of which uses a Valkey server.

Both servers are processes of their own, as deployed. Prints the medians and, last, `RESULT redis_added_p50_ms=…`.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec
from msgspec import Struct

from bench.processes import Cores, child, describe_machine_load, python
from bench.request_templates import FIRST_ID, ToolCall, modern_request
from bench.search_clients import SearchClient
from bench.servers import Announcement
from tests.servers.valkey import own_valkey

_NOTES = 200
# A search finds the notes of one fleet, which is a page of 20 hits.
_FLEETS = 10
_WARM_UP = 100


class RedisCost(Struct, frozen=True):
    """The median times of a search without and with Redis, and the median of what Redis added to each."""

    without_ms: float
    with_ms: float
    added_ms: float


class MeasuredServer:
    """One server with a library, and a client that keeps its connection and its session."""

    def __init__(self, url: str, token: str, client: SearchClient) -> None:
        self._url = url
        self._token = token
        self._client = client
        self._session: str | None = None
        self._calls = 0
        self.times_ms: list[float] = []

    @classmethod
    @asynccontextmanager
    async def open(cls, directory: Path, session_url: str) -> AsyncIterator["MeasuredServer"]:
        directory.mkdir()
        command = python("bench.servers.ours", str(directory / "data"), session_url)
        with child(command, Cores.choose().servers, directory / "server.log") as process:
            server = msgspec.json.decode(process.receive(), type=Announcement)
            address = urlsplit(server.url)
            client = SearchClient(*await asyncio.open_connection(address.hostname, address.port))
            try:
                yield cls(f"{server.url}/mcp", server.accounts[0].token, client)
            finally:
                await client.close()

    async def fill(self) -> None:
        for number in range(_NOTES):
            content = f"galleon number {number} of fleet{number % _FLEETS} with a cargo of silver"
            await self._call("notes_create", {"title": f"Ship {number}", "content": content})

    async def search(self, number: int) -> None:
        session = {} if self._session is None else {"session": self._session}
        arguments = {"query": f"fleet{number % _FLEETS}", "dedupe": "demote", **session}
        started_at = time.perf_counter()
        result = await self._call("knowledge_search", arguments)
        self.times_ms.append((time.perf_counter() - started_at) * 1000)
        self._session = result["session"]

    async def _call(self, tool: str, arguments: Mapping[str, str]) -> dict[str, Any]:
        self._calls += 1
        request = modern_request(self._url, ToolCall(tool, arguments), self._token).render(FIRST_ID + self._calls)
        result: dict[str, Any] = msgspec.json.decode(await self._client.send(request))["result"]["structuredContent"]
        return result


async def measure(calls: int) -> RedisCost:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (directory / "valkey").mkdir()
        valkey = stack.enter_context(own_valkey(directory / "valkey"))
        servers = [
            await stack.enter_async_context(MeasuredServer.open(directory / name, url))
            for name, url in (("without", ""), ("with", valkey.url))
        ]
        for server in servers:
            await server.fill()
        for number in range(_WARM_UP + calls):
            # In turn the first, because what runs on the machine meanwhile affects two searches alike.
            for server in servers if number % 2 else reversed(servers):
                await server.search(number)
        without, with_redis = (server.times_ms[_WARM_UP:] for server in servers)
    added = [after - before for before, after in zip(without, with_redis, strict=True)]
    return RedisCost(statistics.median(without), statistics.median(with_redis), statistics.median(added))


@click.command()
@click.option("--calls", default=1_000, show_default=True, help="Searches at each of the two servers.")
def main(calls: int) -> None:
    click.echo(describe_machine_load())
    cost = asyncio.run(measure(calls))
    click.echo(f"knowledge_search p50: {cost.without_ms:.2f} ms without Redis, {cost.with_ms:.2f} ms with it")
    click.echo(f"RESULT redis_added_p50_ms={cost.added_ms:.2f}")


if __name__ == "__main__":
    main()
