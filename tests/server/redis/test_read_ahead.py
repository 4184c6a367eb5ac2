"""A call asks Redis once before it is answered: limits, session and session state in one script."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from auth.redis.connection import RedisConnection
from tests.live import LiveServer, live, make_settings
from tests.server.clients import LegacyClient, ModernClient, WebSocketClient
from tests.server.http_client import WAIT_MAX_S, fetch

RedisSettings = Mapping[str, Any]
# The commands that each process sends every second.
_PERIODIC = "state secret"


class Monitor:
    """The commands of one deployment, as the server saw them."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._lines: list[str] = []
        # The commands that scripts have run.
        self.steps: list[str] = []
        self._received = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: RedisSettings, data_dir: Path) -> AsyncIterator["Monitor"]:
        connection, monitor = RedisConnection(make_settings(data_dir, **settings)), cls(settings["redis_prefix"])
        watching = await connection.open(monitor._receive)
        watching.push("MONITOR")
        try:
            async with asyncio.timeout(WAIT_MAX_S):
                await monitor._received.wait()
            yield monitor
        finally:
            watching.close()

    async def commands(self, last: str) -> list[str]:
        """Returns the commands since the last time, up to one that names a key of this kind."""
        async with asyncio.timeout(WAIT_MAX_S):
            while not any(last in line for line in self._lines):
                self._received.clear()
                await self._received.wait()
        lines, self._lines = self._lines, []
        return lines

    def _receive(self, line: Any) -> None:
        self._received.set()
        text = line.decode()
        if self._prefix in text and _PERIODIC not in text:
            (self.steps if " lua] " in text else self._lines).append(text)


def areas(commands: list[str]) -> list[set[str]]:
    """Returns which kinds of keys each command names, without messages to other processes."""
    kinds = ("rate:user", "rate:tool", ":session:", ":session state:", ":calls:")
    return [named for command in commands if (named := {kind for kind in kinds if kind in command})]


@asynccontextmanager
async def monitored(
    tmp_path: Path, redis_settings: RedisSettings, **changes: Any
) -> AsyncIterator[tuple[LiveServer, Monitor]]:
    settings = make_settings(tmp_path, **redis_settings, **changes)
    async with live(settings) as server, Monitor.open(redis_settings, tmp_path) as monitor:
        yield server, monitor


async def test_a_search_in_a_session_waits_for_one_script(tmp_path: Path, redis_settings: RedisSettings) -> None:
    async with monitored(tmp_path, redis_settings) as (server, monitor):
        client = await ModernClient.of(server, "ada")
        await client.call("notes_create", {"title": "Treasure", "content": "galleon"})
        await monitor.commands(":calls:")
        first = (await client.call("knowledge_search", {"query": "galleon"})).json()["result"]["structuredContent"]
        await monitor.commands(":calls:")
        arguments = {"query": "galleon", "session": first["session"]}
        second = (await client.call("knowledge_search", arguments)).json()["result"]["structuredContent"]

        assert second["exhausted"]
        # The second and the third are sent with the answer, which does not wait for them.
        assert areas(await monitor.commands(":calls:")) == [
            {"rate:user", "rate:tool", ":session state:"},
            {":session state:"},
            {":calls:"},
        ]


async def test_a_call_without_a_session_waits_for_one_script(tmp_path: Path, redis_settings: RedisSettings) -> None:
    async with monitored(tmp_path, redis_settings) as (server, monitor):
        client = await ModernClient.of(server, "ada")
        seen = []
        for tool, arguments in (("server_info", {}), ("server_info", {}), ("knowledge_search", {"query": "galleon"})):
            assert (await client.call(tool, arguments)).status == 200
            seen.append(areas(await monitor.commands(":calls:")))

        limits, state, calls = {"rate:user", "rate:tool"}, {":session state:"}, {":calls:"}
        assert seen[1:] == [[limits, calls], [limits, state, state, calls]]


async def test_a_legacy_call_waits_for_one_script(tmp_path: Path, redis_settings: RedisSettings) -> None:
    async with monitored(tmp_path, redis_settings) as (server, monitor):
        client = await LegacyClient.open(server, "ada")
        await client.call("knowledge_search", {"query": "galleon"})
        await monitor.commands(":calls:")
        assert (await client.call("knowledge_search", {"query": "galleon"})).status == 200

        needed = {"rate:user", "rate:tool", ":session:", ":session state:"}
        assert areas(await monitor.commands(":calls:")) == [needed, {":session state:"}, {":calls:"}]


async def test_a_call_on_a_websocket_waits_for_one_script(tmp_path: Path, redis_settings: RedisSettings) -> None:
    async with (
        monitored(tmp_path, redis_settings) as (server, monitor),
        WebSocketClient.open(server.ws, await server.bearer("ada")) as client,
    ):
        await client.initialize()
        await client.call("knowledge_search", {"query": "galleon"})
        await monitor.commands(":calls:")
        assert "result" in await client.call("knowledge_search", {"query": "galleon"})

        assert areas(await monitor.commands(":calls:"))[0] == {"rate:user", "rate:tool", ":session state:"}


async def test_a_rest_call_waits_for_one_script(tmp_path: Path, redis_settings: RedisSettings) -> None:
    async with monitored(tmp_path, redis_settings) as (server, monitor):
        credential = await server.bearer("ada")
        await fetch(server.url, "GET", "/api/v1/account", credential)
        await monitor.commands("rate:user")
        assert (await fetch(server.url, "GET", "/api/v1/account", credential)).status == 200

        assert areas(await monitor.commands("rate:user")) == [{"rate:user", "rate:tool"}]


async def test_a_call_that_the_limit_of_the_user_refuses_takes_nothing_from_its_tool(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    limits = {"rate_user_per_minute": 0.001, "rate_user_burst": 2}
    async with monitored(tmp_path, redis_settings, **limits) as (server, monitor):
        ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
        statuses = [(await ada.call("notes_search", {"query": "galleon"})).status for _ in range(5)]
        assert statuses == [200, 200, 429, 429, 429]
        assert (await ben.call("notes_search", {"query": "galleon"})).status == 200

        taken = [step for step in monitor.steps if '"SET"' in step and "rate:tool" in step]
        assert len(taken) == 3


async def test_a_malformed_message_is_charged(tmp_path: Path, redis_settings: RedisSettings) -> None:
    limits = {"rate_user_per_minute": 0.001, "rate_user_burst": 2}
    async with monitored(tmp_path, redis_settings, **limits) as (server, _):
        headers = {**await server.bearer("ada"), "Content-Type": "application/json"}
        for body, status in ((b"{", 400), (b"[]", 400), (b"{", 429)):
            assert (await fetch(server.url, "POST", "/mcp", headers, body)).status == status
