"""The bridge from stdio to a remote server: reconnecting, resuming and error messages."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from config.errors import ConfigurationError
from config.settings import Settings
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Tool
from server.server_info import ServerInfoTool
from server.transports.bridge import DELAY_MAX_S, DELAY_MIN_S, Bridge, RemoteServer, backoff
from tests.aggregator.aggregator_fixture import FakeLibraries, FakeLibrary
from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.cli.requests import INITIALIZE, INITIALIZED, modern, request

WAIT_S = 60


class Output(io.BytesIO):
    """Collects the messages that the bridge writes to stdout."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: asyncio.Queue[Any] = asyncio.Queue()

    def write(self, line: Any) -> int:
        self.messages.put_nowait(json.loads(line))
        return len(line)


class ClosedOutput(io.BytesIO):
    """A pipe without a reader."""

    def write(self, line: Any) -> int:
        raise BrokenPipeError


class BridgeClient:
    """A stdio client connected to a bridge."""

    def __init__(self, bridge: Bridge, output: Output, line_max_bytes: int) -> None:
        self._reader = asyncio.StreamReader(limit=line_max_bytes)
        self._output = output
        self.bridge = bridge
        self.running = asyncio.create_task(bridge.run(self._reader))

    def send(self, *messages: Any) -> None:
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            self._reader.feed_data(line + b"\n")

    async def receive(self) -> Any:
        async with asyncio.timeout(WAIT_S):
            return await self._output.messages.get()

    async def request(self, message: Any) -> Any:
        self.send(message)
        return await self.receive()

    async def end(self) -> None:
        self._reader.feed_eof()
        async with asyncio.timeout(WAIT_S):
            await self.running

    def unread_count(self) -> int:
        return self._output.messages.qsize()


def no_delay() -> Iterator[float]:
    while True:
        yield 0.01


@asynccontextmanager
async def client_of(
    settings: Settings, url: str, token: str = "", delays: Callable[[], Iterator[float]] = no_delay
) -> AsyncIterator[BridgeClient]:
    output = Output()
    client = BridgeClient(
        Bridge(RemoteServer.at(url, token), settings, output, delays), output, settings.body_max_bytes
    )
    try:
        yield client
    finally:
        client.running.cancel()
        await asyncio.gather(client.running, return_exceptions=True)


class NoInput(Struct, forbid_unknown_fields=True):
    """No arguments."""


class WaitTool:
    """A tool that waits until the test lets it continue."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.opened = asyncio.Event()

    async def wait(self, call: Call, args: NoInput) -> str:
        self.called.set()
        await self.opened.wait()
        return "done"

    def catalog(self, settings: Settings) -> Catalog:
        catalog = Catalog()
        catalog.add_tool(ServerInfoTool(settings, (), FakeLibraries(FakeLibrary())).as_tool())
        catalog.add_tool(Tool(name="wait", title="Wait", description="Waits.", input=NoInput, handler=self.wait))
        return catalog


@asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """Accepts connections and sends nothing."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def token_of(settings: Settings, name: str) -> str:
    """Creates a token before the server of the test runs."""
    async with live(settings) as server:
        return await server.token(name)


async def request_until_connected(client: BridgeClient, make_request: Callable[[int], Any]) -> Any:
    """Repeats a request while the bridge reports that there is no connection."""
    async with asyncio.timeout(WAIT_S):
        for number in range(100, 200):
            response = await client.request(make_request(number))
            if "result" in response:
                return response
    raise AssertionError("no connection")


class Proxy:
    """A TCP proxy between a bridge and its server, whose connections can be aborted."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._writers: list[asyncio.StreamWriter] = []

    def abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers += [writer, server_writer]
        await asyncio.gather(_copy(reader, server_writer), _copy(server_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
    writer.close()


@asynccontextmanager
async def proxy_to(server: LiveServer) -> AsyncIterator[tuple[Proxy, str]]:
    """Yields a proxy, and the URL of the server's endpoint through it."""
    proxy = Proxy(int(server.url.rpartition(":")[2]))
    listening = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    try:
        yield proxy, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    finally:
        listening.close()
        proxy.abort()


async def initialize(client: BridgeClient) -> None:
    assert (await client.request(INITIALIZE))["result"]["protocolVersion"] == "2025-11-25"
    client.send(INITIALIZED)


async def user_of(client: BridgeClient, request_id: int) -> str:
    response = await client.request(modern(request_id, "tools/call", name="server_info", arguments={}))
    user: str = response["result"]["structuredContent"]["user"]
    return user


async def test_both_eras_are_passed_on_one_connection(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with live(settings) as server, client_of(settings, server.mcp, await server.token("ada")) as client:
        await initialize(client)
        assert (await client.request(request(1, "tools/list")))["result"]["tools"]
        assert (await client.request(modern(2, "server/discover")))["result"]["resultType"] == "complete"
        assert await user_of(client, 3) == "ada"
        await client.end()
        assert client.bridge.has_connected


async def test_each_bridge_uses_its_own_token(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with live(settings) as server:
        ada, ben = await server.token("ada"), await server.token("ben")
        async with client_of(settings, server.mcp, ada) as first, client_of(settings, server.mcp, ben) as second:
            assert [await user_of(first, 1), await user_of(second, 1)] == ["ada", "ben"]


async def test_invalid_lines_get_an_error_and_the_connection_stays_open(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, body_max_bytes=2048)
    async with live(settings) as server, client_of(settings, server.mcp, await server.token("ada")) as client:
        assert (await client.request(b"invalid"))["error"]["code"] == -32700
        assert (await client.request(rb'{"id":4,"method":"x","params":{"text":"\ud83d"}}'))["id"] == 4
        assert (await client.request(b'{"id":5,"method":"x"}')) == {
            "jsonrpc": "2.0",
            "id": 5,
            "error": {"code": -32600, "message": '"jsonrpc" must be "2.0"'},
        }
        assert (await client.request(b" " * 5000))["error"]["code"] == 413
        assert await user_of(client, 1) == "ada"


async def test_pending_requests_get_an_error_and_the_session_resumes_after_a_lost_connection(tmp_path: Path) -> None:
    settings, tool = make_settings(tmp_path), WaitTool()
    async with (
        live(settings, catalog=tool.catalog(settings)) as server,
        proxy_to(server) as (proxy, url),
        client_of(settings, url, await server.token("ada")) as client,
    ):
        await initialize(client)
        client.send(request(1, "tools/call", name="wait", arguments={}))
        await asyncio.wait_for(tool.called.wait(), WAIT_S)
        proxy.abort()
        lost = await client.receive()
        assert (lost["id"], lost["error"]["code"]) == (1, 503)
        assert lost["error"]["message"].endswith("was lost")
        assert (await client.request(request(2, "tools/list")))["result"]["tools"]
        await client.end()
        assert client.unread_count() == 0, "the repeated handshake must be hidden from the client"


async def test_the_session_resumes_after_a_server_restart(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with client_of(settings, settings.resource_url, await token_of(settings, "ada")) as client:
        async with live(settings):
            await initialize(client)
        async with live(settings):
            tools = await request_until_connected(client, lambda n: request(n, "tools/list"))
            assert "knowledge_search" in [tool["name"] for tool in tools["result"]["tools"]]


async def test_a_client_that_starts_before_the_server_gets_an_error_and_is_served_later(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    token = await token_of(settings, "ada")
    async with client_of(settings, settings.resource_url, token) as client:
        early = await client.request(INITIALIZE)
        assert early["error"]["code"] == 503
        assert early["error"]["message"].endswith(": connection refused")
        assert not client.bridge.has_connected
        async with live(settings):
            response = await request_until_connected(client, lambda n: {**INITIALIZE, "id": n})
            assert response["result"]["protocolVersion"] == "2025-11-25"
            await client.end()
        assert client.bridge.has_connected


@each_case("token", ["", "flo_" + "x" * 43, "not.a.token"])
async def test_a_rejected_credential_is_reported_as_the_reason(tmp_path: Path, token: str) -> None:
    settings = make_settings(tmp_path)
    async with live(settings) as server, client_of(settings, server.mcp, token) as client:
        for request_id in (1, 2):
            error = (await client.request(modern(request_id, "tools/list")))["error"]
            assert error["code"] == 401
            assert "rejected the credential" in error["message"]
        await client.end()
        assert not client.bridge.has_connected


async def test_a_disabled_user_is_rejected_and_others_are_not(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, access_recheck_s=0.1)
    async with live(settings) as server:
        ada, ben = await server.token("ada"), await server.token("ben")
        async with client_of(settings, server.mcp, ada) as first, client_of(settings, server.mcp, ben) as second:
            assert [await user_of(first, 1), await user_of(second, 1)] == ["ada", "ben"]
            await server.runtime.registry.disable_user((await server.user("ada")).id)
            assert (await first.request(modern(2, "tools/list")))["error"]["code"] == 401
            assert await user_of(second, 2) == "ben"


async def test_pending_requests_are_answered_after_the_end_of_input(tmp_path: Path) -> None:
    settings, tool = make_settings(tmp_path), WaitTool()
    async with (
        live(settings, catalog=tool.catalog(settings)) as server,
        client_of(settings, server.mcp, await server.token("ada")) as client,
    ):
        client.send(modern(1, "tools/call", name="wait", arguments={}))
        await asyncio.wait_for(tool.called.wait(), WAIT_S)
        ending = asyncio.create_task(client.end())
        tool.opened.set()
        assert (await client.receive())["result"]["content"][0]["text"] == '"done"'
        await ending


async def test_the_wait_after_the_end_of_input_is_limited(tmp_path: Path) -> None:
    settings, tool = make_settings(tmp_path), WaitTool()
    async with live(settings, catalog=tool.catalog(settings)) as server:
        short_grace = replace(settings, shutdown_grace_s=0.05)
        async with client_of(short_grace, server.mcp, await server.token("ada")) as client:
            client.send(modern(1, "tools/call", name="wait", arguments={}))
            await asyncio.wait_for(tool.called.wait(), WAIT_S)
            await client.end()
            assert (await client.receive())["error"]["message"] == "the input ended before the server answered"


async def test_the_bridge_ends_if_the_client_no_longer_reads(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with live(settings) as server:
        bridge = Bridge(RemoteServer.at(server.mcp, await server.token("ada")), settings, ClosedOutput())
        reader = asyncio.StreamReader()
        reader.feed_data(json.dumps(modern(1, "tools/list")).encode() + b"\n")
        async with asyncio.timeout(WAIT_S):
            await bridge.run(reader)


async def test_queued_messages_are_limited_while_there_is_no_connection(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, connection_in_flight_max=2)

    async with silent_server() as port, client_of(settings, f"http://127.0.0.1:{port}/mcp") as client:
        client.send(*(modern(n, "tools/list") for n in (1, 2, 3)))
        rejected = await client.receive()
    assert (rejected["id"], rejected["error"]["message"]) == (3, "2 messages are waiting for a connection")


async def test_a_server_without_tls_is_reported_as_such(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with live(settings) as server, client_of(settings, server.mcp.replace("http", "https")) as client:
        assert "the TLS connection" in (await client.request(modern(1, "tools/list")))["error"]["message"]


async def test_a_wrong_path_is_reported_with_a_hint(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with live(settings) as server, client_of(settings, server.url) as client:
        assert "check the URL" in (await client.request(modern(1, "tools/list")))["error"]["message"]


@each_case(
    ("url", "expected"),
    [
        ("https://kb.example.com/mcp", "wss://kb.example.com/mcp/ws"),
        ("https://kb.example.com:8443/base/mcp/", "wss://kb.example.com:8443/base/mcp/ws"),
        ("http://127.0.0.1:8765/mcp", "ws://127.0.0.1:8765/mcp/ws"),
        ("http://[::1]:8765/mcp", "ws://[::1]:8765/mcp/ws"),
        ("http://localhost:8765/mcp", "ws://localhost:8765/mcp/ws"),
        ("https://kb.example.com/mcp/research", "wss://kb.example.com/mcp/research/ws"),
    ],
)
def test_the_websocket_url_is_derived_from_the_endpoint(url: str, expected: str) -> None:
    assert RemoteServer.at(url).url == expected


@each_case(
    "url",
    [
        "",
        "kb.example.com",
        "ftp://kb.example.com/mcp",
        "ws://kb.example.com/mcp",
        "https:///mcp",
        "https://user:password@kb.example.com/mcp",
        "https://kb.example.com/mcp?token=x",
        "https://kb.example.com/mcp#x",
        "https://kb.example.com:port/mcp",
        "https://[::1/mcp",
        "https://kb.example.com/m cp",
        "https://kb.example.com/mcp\r\nX: y",
    ],
)
def test_an_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(ConfigurationError, match="expected a URL such as https://host/mcp"):
        RemoteServer.at(url)


def test_an_unencrypted_url_requires_insecure() -> None:
    with pytest.raises(ConfigurationError, match="--insecure"):
        RemoteServer.at("http://kb.example.com/mcp", "secret")
    assert (
        RemoteServer.at("http://kb.example.com/mcp", "secret", allow_insecure=True).url == "ws://kb.example.com/mcp/ws"
    )


@each_case("token", ["two words", "line\nbreak", "é"])
def test_an_invalid_token_is_rejected_without_being_shown(token: str) -> None:
    with pytest.raises(ConfigurationError) as rejected:
        RemoteServer.at("https://kb.example.com/mcp", token)
    assert token not in rejected.value.message


def test_the_token_is_not_in_the_repr() -> None:
    assert "secret" not in repr(RemoteServer.at("https://kb.example.com/mcp", "secret"))


def test_delays_grow_up_to_a_limit() -> None:
    delays = list(islice(backoff(), 50))
    assert DELAY_MIN_S <= delays[0] <= DELAY_MIN_S * 1.5
    assert max(delays) <= DELAY_MAX_S
    assert delays[5] > delays[0]
