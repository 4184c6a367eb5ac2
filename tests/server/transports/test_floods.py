"""Floods: what one client sends, with or without a credential, does not stop the server from serving the others."""

import asyncio
import contextlib
import os
from pathlib import Path

import msgspec
import pytest
from websockets.frames import Frame, Opcode

from server.transports.bounded_http import BODY_SMALL_CHUNKS_MAX
from server.transports.bounded_websocket import WS_FRAGMENTS_MAX, WS_PINGS_PER_S
from tests.live import LiveServer, live, make_settings
from tests.server.clients import JSON_AND_EVENTS, LegacyClient, WebSocketClient, message
from tests.server.http_client import RawConnection, request_bytes
from tests.server.sample_catalog import SampleCatalog
from tests.server.transports.test_malformed import RawSocket

UPGRADE = {
    "Host": "127.0.0.1",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}
EMPTY_PING = Frame(Opcode.PING, b"").serialize(mask=True)


async def _assert_serves(server: LiveServer, user: str) -> None:
    client = await LegacyClient.open(server, user)
    assert (await client.call("echo", {"text": "hi"})).json()["result"]["structuredContent"]["user"] == user


# -- WebSocket --------------------------------------------------------------------------------------------------


async def test_a_websocket_without_a_credential_is_refused_over_http(server: LiveServer) -> None:
    async with RawConnection.open(server.url) as stranger:
        await stranger.send(request_bytes("GET", "/mcp/ws", UPGRADE))
        with contextlib.suppress(ConnectionError):
            await stranger.send(EMPTY_PING * 50_000)
        status, headers = await stranger.head()
        await stranger.closed()

    assert status == 401
    assert dict(headers)["www-authenticate"].startswith("Bearer ")
    await _assert_serves(server, "ben")


async def test_a_flood_of_pings_closes_the_connection(server: LiveServer) -> None:
    async with RawSocket.open(server) as socket:
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                await socket.send_raw(EMPTY_PING * 1000)
        await socket.closed()

    await _assert_serves(server, "ben")


async def test_pings_below_the_limit_are_answered(server: LiveServer) -> None:
    async with RawSocket.open(server) as socket:
        for number in range(WS_PINGS_PER_S):
            await socket.send(Opcode.PING, b"%d" % number)
            assert await socket.receive() == (Opcode.PONG, b"%d" % number)


async def test_too_many_fragments_close_the_connection(tmp_path: Path, samples: SampleCatalog) -> None:
    body = msgspec.json.encode(message("ping", {}, 1))
    settings = make_settings(tmp_path)
    async with live(settings, catalog=samples.catalog) as server, RawSocket.open(server) as socket:
        await socket.send(Opcode.TEXT, body[:1], fin=False)
        for byte in body[1:7]:
            await socket.send(Opcode.CONT, bytes((byte,)), fin=False)
        await socket.send(Opcode.CONT, body[7:])
        assert (await socket.receive())[0] == Opcode.TEXT

        await socket.send(Opcode.TEXT, b"[", fin=False)
        for _ in range(WS_FRAGMENTS_MAX):
            await socket.send(Opcode.CONT, b"", fin=False)
        assert await socket.close_code() == 1008


async def test_frames_faster_than_the_rate_wait_for_all_connections_of_the_user(
    tmp_path: Path, samples: SampleCatalog
) -> None:
    # Each message is a slice of its own, also when it is compressed, so the rate is checked before the next one.
    padded = {"_meta": {"padding": os.urandom(4096).hex()}}
    settings = make_settings(tmp_path, ws_frames_per_s=0.001, ws_frames_burst=2)
    async with live(settings, catalog=samples.catalog) as server:
        # The server no longer reads, so it does not answer when the connection is closed either.
        async with WebSocketClient.open(server.ws, await server.bearer("ada"), close_timeout_s=0.1) as ada:
            for number in range(5):
                await ada.send(message("ping", padded, number))
            # Calls of a connection run side by side, so their responses may come in another order.
            answers = {(await ada.receive())["id"] for _ in range(3)}
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ada.receive(), 0.2)
        async with WebSocketClient.open(server.ws, await server.bearer("ben")) as ben:
            assert (await ben.initialize())["result"]

    assert answers == {0, 1, 2}


# -- HTTP -------------------------------------------------------------------------------------------------------


async def test_pipelined_requests_without_a_credential_get_one_refusal(server: LiveServer) -> None:
    request = request_bytes("POST", "/mcp", {"Host": "127.0.0.1", **JSON_AND_EVENTS}, b"{}")
    async with RawConnection.open(server.url) as stranger:
        with contextlib.suppress(ConnectionError):
            await stranger.send(request * 2000)
        first = await stranger.response()
        rest = await stranger.closed()

    assert (first.status, first.header("connection")) == (401, "close")
    assert rest == b""
    await _assert_serves(server, "ben")


async def test_pipelined_requests_with_a_credential_are_all_answered(server: LiveServer) -> None:
    headers = {"Host": "127.0.0.1", **JSON_AND_EVENTS, **await server.bearer("ada")}
    body = msgspec.json.encode(message("initialize", {}, 1))
    async with RawConnection.open(server.url) as ada:
        sending = asyncio.create_task(ada.send(request_bytes("POST", "/mcp", headers, body) * 500))
        statuses = [(await ada.response()).status for _ in range(500)]
        await sending

    assert len(set(statuses)) == 1


async def test_a_body_of_many_tiny_chunks_is_rejected(server: LiveServer) -> None:
    headers = {"Host": "127.0.0.1", **JSON_AND_EVENTS, **await server.bearer("ada"), "Transfer-Encoding": "chunked"}
    chunks = BODY_SMALL_CHUNKS_MAX + 1
    async with RawConnection.open(server.url) as ada:
        with contextlib.suppress(ConnectionError):
            await ada.send(request_bytes("POST", "/mcp", headers, b"1\r\n \r\n" * chunks))
        assert (await ada.head())[0] == 400
        await ada.closed()

    await _assert_serves(server, "ben")


async def test_a_body_in_ordinary_chunks_is_accepted(server: LiveServer) -> None:
    headers = {"Host": "127.0.0.1", **JSON_AND_EVENTS, **await server.bearer("ada"), "Transfer-Encoding": "chunked"}
    body = msgspec.json.encode(message("ping", {"padding": "x" * 3_000_000}, 1))
    parts = [body[start : start + 1000] for start in range(0, len(body), 1000)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    async with RawConnection.open(server.url) as ada:
        await ada.send(request_bytes("POST", "/mcp", headers, chunks + b"0\r\n\r\n"))

        # The body was read and understood; only the session is missing.
        assert "initialize" in (await ada.response()).json()["error"]["message"]


async def test_a_refused_body_that_drips_in_loses_its_connection(tmp_path: Path, samples: SampleCatalog) -> None:
    settings = make_settings(tmp_path, refused_body_timeout_s=0.1)
    async with live(settings, catalog=samples.catalog) as server, RawConnection.open(server.url) as stranger:
        await stranger.request("POST", "/mcp", {**JSON_AND_EVENTS, "Content-Length": "100000"})
        assert (await stranger.response()).status == 401
        with contextlib.suppress(ConnectionError):
            for _ in range(50):
                await stranger.send(b"x")
                await asyncio.sleep(0.02)
        await stranger.closed()


async def test_a_refused_body_that_arrives_leaves_the_connection_open(server: LiveServer) -> None:
    headers = {"Host": "127.0.0.1", **JSON_AND_EVENTS, "Content-Length": "200000"}
    async with RawConnection.open(server.url) as stranger:
        await stranger.send(request_bytes("POST", "/mcp", headers))
        assert (await stranger.response()).status == 401
        await stranger.send(b"x" * 200_000)
        await stranger.request("GET", "/healthz")
        assert (await stranger.response()).status == 200
