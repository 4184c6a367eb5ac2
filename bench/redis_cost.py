"""What `session_url` adds to a call: the same searches at two servers in turn, one of which uses a Valkey server.

Prints the medians and, last, `RESULT redis_added_p50_ms=…`.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import click
import httpx2

from tests.live import LiveServer, live, make_settings
from tests.server.clients import message, modern_headers, modern_params
from tests.servers.valkey import own_valkey

_NOTES = 200
_WARM_UP = 100
# Never reached here, so that every call takes from its buckets.
_LIMITS = {
    "rate_user_per_minute": 1e8,
    "rate_user_burst": 10_000_000,
    "rate_tool_per_minute": 1e8,
    "rate_tool_burst": 10_000_000,
}


class MeasuredServer:
    """One server with a library, and a client that keeps its connection and its session."""

    def __init__(self, server: LiveServer, client: httpx2.AsyncClient, credential: dict[str, str]) -> None:
        self._url = server.mcp
        self._client = client
        self._credential = credential
        self._session: str | None = None
        self.times_ms: list[float] = []

    @classmethod
    @asynccontextmanager
    async def open(cls, directory: Path, session_url: str) -> AsyncIterator["MeasuredServer"]:
        settings = make_settings(directory, session_url=session_url, **_LIMITS)
        async with live(settings) as server, httpx2.AsyncClient() as client:
            measured = cls(server, client, await server.bearer("ada"))
            for number in range(_NOTES):
                content = f"galleon number {number} with a cargo of silver"
                await measured.call("notes_create", title=f"Ship {number}", content=content)
            yield measured

    async def call(self, tool: str, **arguments: str) -> dict[str, object]:
        params = modern_params({"name": tool, "arguments": arguments})
        headers = {**modern_headers("tools/call", params), **self._credential}
        response = await self._client.post(self._url, json=message("tools/call", params, 1), headers=headers)
        result: dict[str, object] = response.json()["result"]["structuredContent"]
        return result

    async def search(self, number: int) -> None:
        session = {} if self._session is None else {"session": self._session}
        started_at = time.perf_counter()
        result = await self.call("knowledge_search", query=f"galleon {number % _NOTES}", dedupe="demote", **session)
        self.times_ms.append((time.perf_counter() - started_at) * 1000)
        self._session = str(result["session"])


async def measure(calls: int) -> tuple[float, float]:
    """Returns the median time of a search without and with Redis, in milliseconds."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (directory / "valkey").mkdir()
        valkey = stack.enter_context(own_valkey(directory / "valkey"))
        servers = [
            await stack.enter_async_context(MeasuredServer.open(directory / name, url))
            for name, url in (("without", ""), ("with", valkey.url))
        ]
        for number in range(_WARM_UP + calls):
            for server in servers:
                await server.search(number)
        without, with_redis = (statistics.median(server.times_ms[_WARM_UP:]) for server in servers)
    return without, with_redis


@click.command()
@click.option("--calls", default=1_000, show_default=True, help="Searches at each of the two servers.")
def main(calls: int) -> None:
    without, with_redis = asyncio.run(measure(calls))
    click.echo(f"knowledge_search p50: {without:.2f} ms without Redis, {with_redis:.2f} ms with it")
    click.echo(f"RESULT redis_added_p50_ms={with_redis - without:.2f}")


if __name__ == "__main__":
    main()
