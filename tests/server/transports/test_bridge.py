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
from tests.live import LiveServer, live, make_settings
from tests.server.cli.requests import INITIALIZE, INITIALIZED, modern, request

WAIT_S = 10


class Output(io.BytesIO):
    """The client's end of our stdout: whole messages, in the order they came."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: asyncio.Queue[Any] = asyncio.Queue()

    def write(self, line: Any) -> int:
        self.messages.put_nowait(json.loads(line))
        return len(line)


class ClosedOutput(io.BytesIO):
    """A pipe whose reader is gone."""

    def write(self, line: Any) -> int:
        raise BrokenPipeError


class Client:
    """A client that speaks lines, with the bridge behind it."""

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

    async def ask(self, message: Any) -> Any:
        self.send(message)
        return await self.receive()

    async def end(self) -> None:
        self._reader.feed_eof()
        async with asyncio.timeout(WAIT_S):
            await self.running

    def leftovers(self) -> int:
        return self._output.messages.qsize()


def at_once() -> Iterator[float]:
    while True:
        yield 0.01


@asynccontextmanager
async def client_of(
    settings: Settings, url: str, token: str = "", delays: Callable[[], Iterator[float]] = at_once
) -> AsyncIterator[Client]:
    output = Output()
    client = Client(Bridge(RemoteServer.at(url, token), settings, output, delays), output, settings.body_max_bytes)
    try:
        yield client
    finally:
        client.running.cancel()
        await asyncio.gather(client.running, return_exceptions=True)


class Nothing(Struct, forbid_unknown_fields=True):
    """No arguments."""


class Gate:
    """A tool that does not answer before it is let go, and tells when it was called."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.opened = asyncio.Event()

    async def run(self, call: Call, given: Nothing) -> str:
        self.called.set()
        await self.opened.wait()
        return "done"

    def catalog(self, settings: Settings) -> Catalog:
        catalog = Catalog()
        catalog.add_tool(ServerInfoTool(settings, ()).as_tool())
        catalog.add_tool(Tool(name="wait", title="Wait", description="Waits.", input=Nothing, handler=self.run))
        return catalog


@asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """Takes connections and never says a word."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def token_of(settings: Settings, name: str) -> str:
    """A token made before its server runs."""
    async with live(settings) as server:
        return await server.token(name)


async def until_answered(client: Client, question: Callable[[int], Any]) -> Any:
    """Asks again while the bridge says that there is no connection yet."""
    async with asyncio.timeout(WAIT_S):
        for number in range(100, 200):
            answer = await client.ask(question(number))
            if "result" in answer:
                return answer
    raise AssertionError("never answered")


class Cable:
    """Between a bridge and its server; it can be cut."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._writers: list[asyncio.StreamWriter] = []

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def plug_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers += [writer, far_writer]
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65_536):
            writer.write(piece)
    writer.close()


@asynccontextmanager
async def cable_to(server: LiveServer) -> AsyncIterator[tuple[Cable, str]]:
    """The cable, and the URL of the server's endpoint at its other end."""
    cable = Cable(int(server.url.rpartition(":")[2]))
    listening = await asyncio.start_server(cable.plug_in, "127.0.0.1", 0)
    try:
        yield cable, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    finally:
        listening.close()
        cable.cut()


async def initialize(client: Client) -> None:
    assert (await client.ask(INITIALIZE))["result"]["protocolVersion"] == "2025-11-25"
    client.send(INITIALIZED)


async def user_of(client: Client, request_id: int) -> str:
    answer = await client.ask(modern(request_id, "tools/call", name="server_info", arguments={}))
    user: str = answer["result"]["structuredContent"]["user"]
    return user


async def test_both_eras_pass_on_one_connection(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with live(settings) as server, client_of(settings, server.mcp, await server.token("ada")) as client:
        await initialize(client)
        assert (await client.ask(request(1, "tools/list")))["result"]["tools"]
        assert (await client.ask(modern(2, "server/discover")))["result"]["resultType"] == "complete"
        assert await user_of(client, 3) == "ada"
        await client.end()
        assert client.bridge.has_connected


async def test_each_bridge_speaks_for_the_owner_of_its_token(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with live(settings) as server:
        ada, ben = await server.token("ada"), await server.token("ben")
        async with client_of(settings, server.mcp, ada) as first, client_of(settings, server.mcp, ben) as second:
            assert [await user_of(first, 1), await user_of(second, 1)] == ["ada", "ben"]


async def test_garbage_is_answered_and_the_connection_lives(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, body_max_bytes=2048)
    async with live(settings) as server, client_of(settings, server.mcp, await server.token("ada")) as client:
        assert (await client.ask(b"garbage"))["error"]["code"] == -32700
        assert (await client.ask(b'{"id":5,"method":"x"}')) == {
            "jsonrpc": "2.0",
            "id": 5,
            "error": {"code": -32600, "message": '"jsonrpc" must be "2.0"'},
        }
        assert (await client.ask(b" " * 5000))["error"]["code"] == 413
        assert await user_of(client, 1) == "ada"


async def test_a_lost_connection_answers_what_was_in_flight_and_the_session_goes_on(tmp_path: Path) -> None:
    settings, gate = make_settings(tmp_path), Gate()
    async with (
        live(settings, catalog=gate.catalog(settings)) as server,
        cable_to(server) as (cable, url),
        client_of(settings, url, await server.token("ada")) as client,
    ):
        await initialize(client)
        client.send(request(1, "tools/call", name="wait", arguments={}))
        await asyncio.wait_for(gate.called.wait(), WAIT_S)
        cable.cut()
        lost = await client.receive()
        assert (lost["id"], lost["error"]["code"]) == (1, 503)
        assert lost["error"]["message"].endswith("was lost")
        assert (await client.ask(request(2, "tools/list")))["result"]["tools"]
        await client.end()
        assert client.leftovers() == 0, "the repeated handshake must stay unseen"


async def test_the_session_goes_on_after_the_server_was_restarted(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with client_of(settings, settings.resource_url, await token_of(settings, "ada")) as client:
        async with live(settings):
            await initialize(client)
        async with live(settings):
            tools = await until_answered(client, lambda n: request(n, "tools/list"))
            assert "knowledge_search" in [tool["name"] for tool in tools["result"]["tools"]]


async def test_a_client_that_comes_before_its_server_is_told_and_served_later(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    token = await token_of(settings, "ada")
    async with client_of(settings, settings.resource_url, token) as client:
        early = await client.ask(INITIALIZE)
        assert early["error"]["code"] == 503
        assert early["error"]["message"].endswith(": connection refused")
        assert not client.bridge.has_connected
        async with live(settings):
            answer = await until_answered(client, lambda n: {**INITIALIZE, "id": n})
            assert answer["result"]["protocolVersion"] == "2025-11-25"
            await client.end()
        assert client.bridge.has_connected


@pytest.mark.parametrize("token", ["", "flo_" + "x" * 43, "not.a.token"])
async def test_a_credential_that_is_not_accepted_is_named_as_the_reason(tmp_path: Path, token: str) -> None:
    settings = make_settings(tmp_path)
    async with live(settings) as server, client_of(settings, server.mcp, token) as client:
        for request_id in (1, 2):
            error = (await client.ask(modern(request_id, "tools/list")))["error"]
            assert error["code"] == 401
            assert "rejected the credential" in error["message"]
        await client.end()
        assert not client.bridge.has_connected


async def test_access_that_is_withdrawn_ends_the_bridge_and_nobody_elses(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, access_recheck_s=0.1)
    async with live(settings) as server:
        ada, ben = await server.token("ada"), await server.token("ben")
        async with client_of(settings, server.mcp, ada) as first, client_of(settings, server.mcp, ben) as second:
            assert [await user_of(first, 1), await user_of(second, 1)] == ["ada", "ben"]
            await server.runtime.registry.disable_user((await server.user("ada")).id)
            assert (await first.ask(modern(2, "tools/list")))["error"]["code"] == 401
            assert await user_of(second, 2) == "ben"


async def test_the_end_of_input_waits_for_what_is_in_flight(tmp_path: Path) -> None:
    settings, gate = make_settings(tmp_path), Gate()
    async with (
        live(settings, catalog=gate.catalog(settings)) as server,
        client_of(settings, server.mcp, await server.token("ada")) as client,
    ):
        client.send(modern(1, "tools/call", name="wait", arguments={}))
        await asyncio.wait_for(gate.called.wait(), WAIT_S)
        ending = asyncio.create_task(client.end())
        gate.opened.set()
        assert (await client.receive())["result"]["content"][0]["text"] == '"done"'
        await ending


async def test_the_end_of_input_does_not_wait_for_ever(tmp_path: Path) -> None:
    settings, gate = make_settings(tmp_path), Gate()
    async with live(settings, catalog=gate.catalog(settings)) as server:
        impatient = replace(settings, shutdown_grace_s=0.05)
        async with client_of(impatient, server.mcp, await server.token("ada")) as client:
            client.send(modern(1, "tools/call", name="wait", arguments={}))
            await asyncio.wait_for(gate.called.wait(), WAIT_S)
            await client.end()
            assert (await client.receive())["error"]["message"] == "the input ended before the server answered"


async def test_a_client_that_no_longer_reads_ends_the_bridge(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with live(settings) as server:
        bridge = Bridge(RemoteServer.at(server.mcp, await server.token("ada")), settings, ClosedOutput())
        reader = asyncio.StreamReader()
        reader.feed_data(json.dumps(modern(1, "tools/list")).encode() + b"\n")
        async with asyncio.timeout(WAIT_S):
            await bridge.run(reader)


async def test_messages_beyond_the_limit_are_refused_while_there_is_no_connection(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, connection_in_flight_max=2)

    async with silent_server() as port, client_of(settings, f"http://127.0.0.1:{port}/mcp") as client:
        client.send(*(modern(n, "tools/list") for n in (1, 2, 3)))
        refused = await client.receive()
    assert (refused["id"], refused["error"]["message"]) == (3, "2 messages are waiting for a connection")


async def test_a_server_that_speaks_no_tls_is_told_apart_from_one_that_is_down(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with live(settings) as server, client_of(settings, server.mcp.replace("http", "https")) as client:
        assert "the TLS connection" in (await client.ask(modern(1, "tools/list")))["error"]["message"]


async def test_a_url_that_is_not_the_endpoint_gets_a_hint(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with live(settings) as server, client_of(settings, server.url) as client:
        assert "check the URL" in (await client.ask(modern(1, "tools/list")))["error"]["message"]


@pytest.mark.parametrize(
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
def test_the_websocket_is_below_the_endpoint(url: str, expected: str) -> None:
    assert RemoteServer.at(url).url == expected


@pytest.mark.parametrize(
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
def test_a_url_that_says_more_or_less_than_where_the_server_is_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="expected a URL such as https://host/mcp"):
        RemoteServer.at(url)


def test_a_token_is_not_sent_in_the_clear_unless_that_is_wanted() -> None:
    with pytest.raises(ConfigurationError, match="--insecure"):
        RemoteServer.at("http://kb.example.com/mcp", "secret")
    assert (
        RemoteServer.at("http://kb.example.com/mcp", "secret", allow_insecure=True).url == "ws://kb.example.com/mcp/ws"
    )


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "é"])
def test_a_text_that_cannot_be_a_token_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        RemoteServer.at("https://kb.example.com/mcp", token)
    assert token not in refused.value.message


def test_a_token_is_not_part_of_what_is_logged() -> None:
    assert "secret" not in repr(RemoteServer.at("https://kb.example.com/mcp", "secret"))


def test_delays_grow_and_stay_bounded() -> None:
    delays = list(islice(backoff(), 50))
    assert DELAY_MIN_S <= delays[0] <= DELAY_MIN_S * 1.5
    assert max(delays) <= DELAY_MAX_S
    assert delays[5] > delays[0]
