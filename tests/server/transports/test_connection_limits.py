"""What one client can hold: connections, unfinished bodies, unread responses and what a session keeps."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from server.transports.client_connections import ClientConnections
from tests.live import NO_RATE_LIMITS, LiveServer, live, make_settings
from tests.server.clients import JSON_AND_EVENTS, LegacyClient, ModernClient, WebSocketClient, handshake, message
from tests.server.http_client import WAIT_MAX_S, RawConnection, fetch, request_bytes
from tests.server.sample_catalog import Gate, SampleCatalog


async def _post_headers(server: LiveServer, name: str) -> dict[str, str]:
    return {"Host": "127.0.0.1", **JSON_AND_EVENTS, **await server.bearer(name)}


# The clients of these tests have one address. As a proxy, it has no limit of its own.
PROXY = {"trusted_proxies": ("127.0.0.1",)}


# -- connections ------------------------------------------------------------------------------------------------


# An address has half of the connections, and a proxy all of them.
@pytest.mark.parametrize("limits", [{"connections_max": 4}, {"connections_max": 2, **PROXY}], ids=str)
async def test_connections_over_the_limit_are_refused(
    tmp_path: Path, samples: SampleCatalog, limits: dict[str, Any]
) -> None:
    settings = make_settings(tmp_path, **limits)
    async with live(settings, catalog=samples.catalog) as server:
        async with RawConnection.open(server.url) as first, RawConnection.open(server.url) as second:
            for connection in (first, second):
                await connection.request("GET", "/healthz")
                assert (await connection.response()).status == 200
            async with RawConnection.open(server.url) as third:
                status, headers = await third.head()
                await third.closed()
        async with asyncio.timeout(WAIT_MAX_S):
            while (await fetch(server.url, "GET", "/healthz")).status != 200:
                await asyncio.sleep(0.01)

    assert (status, dict(headers)["retry-after"]) == (503, "1")


def test_connections_of_a_network_of_ipv6_are_limited(tmp_path: Path) -> None:
    """One customer of a provider has all addresses of a /64 network."""
    connections = ClientConnections(make_settings(tmp_path, connections_max=4))
    transport = asyncio.Transport()

    first, second, third, other = (
        connections.open(address, transport)
        for address in ("2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:2:3::", "2001:db8:1:3::1")
    )

    assert first is not None
    assert second is not None
    assert third is None
    assert other is not None
    first.close()
    assert connections.open("2001:db8:1:2::4", transport) is not None


async def test_connections_of_one_user_are_limited_and_others_are_served(
    tmp_path: Path, samples: SampleCatalog
) -> None:
    async with (
        live(make_settings(tmp_path, connections_max=3, **PROXY), catalog=samples.catalog) as server,
        WebSocketClient.open(server.ws, await server.bearer("ada")) as socket,
    ):
        await socket.initialize()
        refused = await LegacyClient(server, await server.bearer("ada")).post(handshake())
        served = await LegacyClient(server, await server.bearer("ben")).post(handshake())

    assert (refused.status, refused.header("connection")) == (503, "close")
    assert served.status == 200


# -- time -------------------------------------------------------------------------------------------------------


async def test_a_body_that_drips_in_loses_its_connection(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path, client_timeout_s=0.2), catalog=samples.catalog) as server:
        headers = {**await _post_headers(server, "ada"), "Content-Length": "100000"}
        async with RawConnection.open(server.url) as connection:
            await connection.send(request_bytes("POST", "/mcp", headers))
            dripping = asyncio.create_task(_drip(connection))
            await connection.closed()
            dripping.cancel()


async def _drip(connection: RawConnection) -> None:
    while True:
        await connection.send(b" ")
        await asyncio.sleep(0.02)


@pytest.mark.slow("sends a body slowly")
async def test_a_slow_body_that_makes_progress_is_accepted(tmp_path: Path, samples: SampleCatalog) -> None:
    """Each part arrives long before the timeout, and the whole body after it."""
    body = msgspec.json.encode(message("initialize", {"padding": "x" * 400_000}, 1))
    async with live(make_settings(tmp_path, client_timeout_s=1.0), catalog=samples.catalog) as server:
        headers = await _post_headers(server, "ada")
        raw = request_bytes("POST", "/mcp", headers, body)
        async with RawConnection.open(server.url) as connection:
            for start in range(0, len(raw), 100_000):
                await connection.send(raw[start : start + 100_000])
                await asyncio.sleep(0.25)

            assert "protocolVersion" in (await connection.response()).json()["error"]["message"]


async def _ask_without_reading(server: LiveServer, user: str, count: int) -> int:
    """Requests responses of 1 MB each, reads none of them until the server has closed the connection, and returns how
    many bytes arrived. The user may have one connection only, so another one is refused until then."""
    client = await LegacyClient.open(server, user)
    params = {"name": "echo", "arguments": {"text": "x" * 1000, "times": 1000}}
    headers = {"Host": "127.0.0.1", **JSON_AND_EVENTS, **client.headers, "Accept": "application/json"}
    requests = [
        request_bytes("POST", "/mcp", headers, msgspec.json.encode(message("tools/call", params, number)))
        for number in range(count)
    ]
    async with RawConnection.open(server.url) as connection:
        sending = asyncio.create_task(connection.send(b"".join(requests)))
        await connection.head()
        async with asyncio.timeout(WAIT_MAX_S):
            while (await client.request("ping", {})).status == 503:
                await asyncio.sleep(0.01)
        received = await connection.closed()
        await asyncio.gather(sending, return_exceptions=True)
        return len(received)


# asyncio stops writing at 64 KiB, so every response that waits for its reader exceeds the second limit.
@pytest.mark.parametrize("limit", [{"client_timeout_s": 0.1}, {"requests_max_bytes": 4 * 65_536}], ids=str)
async def test_a_client_that_does_not_read_loses_its_connection(
    tmp_path: Path, samples: SampleCatalog, limit: dict[str, Any]
) -> None:
    settings = make_settings(tmp_path, **NO_RATE_LIMITS, **limit, connections_max=3, **PROXY)
    async with live(settings, catalog=samples.catalog) as server:
        assert await _ask_without_reading(server, "ada", 40) < 40_000_000
        assert (await LegacyClient.open(server, "ben")).session_id


# -- bytes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_bytes", "is_shared"), [(160_000, False), (15_000, True)])
async def test_bytes_of_bodies_in_flight_are_limited(
    tmp_path: Path, samples: SampleCatalog, max_bytes: int, is_shared: bool
) -> None:
    body = msgspec.json.encode(handshake()) + b" " * 9_000
    settings = make_settings(tmp_path, body_max_bytes=10_000, requests_max_bytes=max_bytes)
    async with live(settings, catalog=samples.catalog) as server, RawConnection.open(server.url) as unfinished:
        raw = request_bytes("POST", "/mcp", await _post_headers(server, "ada"), body)
        await unfinished.send(raw[:-1])
        await _until_counted(server, await server.bearer("ada"), body)
        refused = await fetch(server.url, "POST", "/mcp", await _post_headers(server, "ada"), body)
        other = await fetch(server.url, "POST", "/mcp", await _post_headers(server, "ben"), body)
        await unfinished.send(raw[-1:])
        finished = await unfinished.response()
        again = await fetch(server.url, "POST", "/mcp", await _post_headers(server, "ada"), body)

    assert (refused.status, refused.header("retry-after")) == (503, "1")
    assert other.status == (503 if is_shared else 200)
    assert (finished.status, again.status) == (200, 200)


async def _until_counted(server: LiveServer, headers: dict[str, str], body: bytes) -> None:
    """Waits until the server has read the unfinished body, so that another one is refused."""
    async with asyncio.timeout(WAIT_MAX_S):
        while (await fetch(server.url, "POST", "/mcp", {**JSON_AND_EVENTS, **headers}, body)).status != 503:
            await asyncio.sleep(0.01)


async def test_bytes_of_websocket_messages_in_flight_are_limited(tmp_path: Path, samples: SampleCatalog) -> None:
    gate: Gate = samples.gates["g"]
    padded = {"name": "wait", "arguments": {"gate": "g"}, "_meta": {"padding": "x" * 9_000}}
    settings = make_settings(tmp_path, body_max_bytes=10_000, requests_max_bytes=60_000)
    async with (
        live(settings, catalog=samples.catalog) as server,
        WebSocketClient.open(server.ws, await server.bearer("ada")) as ada,
    ):
        await ada.initialize()
        await ada.send(message("tools/call", padded, "a"))
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)
        await ada.send(message("tools/call", padded, "b"))
        refused = await ada.response("b")
        gate.opened.set()
        served = await ada.response("a")
        await ada.send(message("tools/call", padded, "c"))
        again = await ada.response("c")

    assert refused["error"]["code"] == 503
    assert "result" in served
    assert "result" in again


def _nested_lists(size: int) -> bytes:
    """JSON that takes about 50 times its size when it is decoded."""
    group = b"[" * 50 + b"]" * 50
    return b"[" + b",".join([group] * (size // 101)) + b"]"


def _call_with_junk(junk: bytes, number: int) -> bytes:
    """A call that waits, and keeps its arguments meanwhile."""
    call = {"name": "wait", "arguments": {"gate": "g"}, "_meta": {"junk": msgspec.Raw(junk)}}
    return msgspec.json.encode(message("tools/call", call, number))


async def test_memory_of_decoded_bodies_in_flight_is_limited(tmp_path: Path, samples: SampleCatalog) -> None:
    """Each body fits into the limit several times, and its objects fit once."""
    gate: Gate = samples.gates["g"]
    settings = make_settings(tmp_path, body_max_bytes=100_000, requests_max_bytes=16_000_000)
    async with live(settings, catalog=samples.catalog) as server:
        clients = {name: await LegacyClient.open(server, name) for name in ("ada", "ben")}
        body = _call_with_junk(_nested_lists(30_000), 1)
        waiting = asyncio.create_task(clients["ada"].post(msgspec.Raw(body)))
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)
        refused = await clients["ada"].post(msgspec.Raw(body))
        gate.opened.set()
        others = await clients["ben"].post(msgspec.Raw(body))
        served = await waiting
        again = await clients["ada"].post(msgspec.Raw(body))
        never = await clients["ada"].post(msgspec.Raw(_call_with_junk(_nested_lists(99_000), 2)))

    assert (refused.status, refused.header("retry-after")) == (503, "1")
    assert [response.status for response in (served, others, again)] == [200, 200, 200]
    assert never.status == 413
    assert "the decoded request is larger than 4000000 bytes" in never.body.decode()


async def test_memory_of_a_decoded_websocket_message_is_limited(tmp_path: Path, samples: SampleCatalog) -> None:
    samples.gates["g"].opened.set()
    settings = make_settings(tmp_path, body_max_bytes=100_000, requests_max_bytes=16_000_000)
    async with (
        live(settings, catalog=samples.catalog) as server,
        WebSocketClient.open(server.ws, await server.bearer("ada")) as ada,
    ):
        await ada.initialize()
        await ada.send(msgspec.Raw(_call_with_junk(_nested_lists(99_000), 1)))
        refused = await ada.response(1)
        await ada.send(msgspec.Raw(_call_with_junk(_nested_lists(30_000), 2)))
        served = await ada.response(2)

    assert refused["error"]["code"] == 413
    assert "result" in served


async def test_a_text_with_the_marks_of_json_is_not_larger_than_another(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, requests_max_bytes=4096)
    async with live(settings) as server:
        ada = await ModernClient.of(server, "ada")
        text = '{"a":[1,2]},' * (settings.body_max_bytes // 20)
        note = (await ada.call("notes_create", {"title": "Table", "content": text[: settings.item_max_chars]})).json()

    assert "isError" not in note["result"]


async def test_a_session_keeps_the_names_of_capabilities_only(server: LiveServer) -> None:
    capabilities = {"elicitation": {"form": {}}, "experimental": {"padding": ["x" * 1000] * 1000}}
    ada = LegacyClient(server, await server.bearer("ada"))
    response = await ada.post(handshake(capabilities=capabilities))

    principal = await server.runtime.authenticator.authenticate((await server.bearer("ada"))["Authorization"])
    session = await server.runtime.sessions.find(response.header("mcp-session-id") or "", principal)

    assert session.capabilities == {"elicitation": {}}


async def test_a_subscription_to_a_long_uri_is_rejected(server: LiveServer) -> None:
    uri = "test://" + "x" * server.runtime.dispatcher.options.uri_max_chars
    legacy = await (await LegacyClient.open(server, "ada")).request("resources/subscribe", {"uri": uri})
    modern = await (await ModernClient.of(server, "ada")).request(
        "subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}}
    )

    assert legacy.json()["error"]["code"] == -32602
    assert "expected at most 2000 characters" in modern.body.decode()


async def test_long_origins_are_not_cached(server: LiveServer) -> None:
    cache = server.runtime.admission._origins._problem
    before = cache.cache_info().currsize
    for number in range(20):
        headers = {"Origin": f"https://{number}.example/" + "x" * 10_000}
        assert (await fetch(server.url, "POST", "/mcp", headers, b"{}")).status == 403

    assert cache.cache_info().currsize == before
