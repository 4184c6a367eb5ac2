"""Malformed input: the server reports an error where it can and keeps serving everyone else."""

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from server.transports.http import HttpTransport
from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.clients import (
    JSON_AND_EVENTS,
    LegacyClient,
    ModernClient,
    WebSocketClient,
    handshake,
    message,
    modern_headers,
    modern_params,
)
from tests.server.http_client import WAIT_MAX_S, HttpResponse, RawConnection, fetch, request_bytes
from tests.server.in_process import call_app
from tests.server.mutated_messages import LEGACY, MODERN, is_request, mutated
from tests.server.sample_catalog import Gate
from tests.tiers import examples

PING = message("ping", {}, 1)


@pytest.fixture(autouse=True)
async def still_serving(server: LiveServer) -> AsyncIterator[None]:
    """Checks after each test that the server still answers over HTTP and WebSocket."""
    yield
    response = await (await ModernClient.of(server, "survivor")).call("echo", {"text": "alive"})
    assert response.json()["result"]["structuredContent"] == {"text": "alive", "user": "survivor"}
    async with WebSocketClient.open(server.ws, await server.bearer("survivor")) as socket:
        assert (await socket.initialize())["result"]


# -- HTTP: bodies -----------------------------------------------------------------------------------------------


@each_case(
    ("body", "code"),
    [
        (b"", -32700),
        (b" \n", -32700),
        (b"{", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n{"jsonrpc":"2.0","id":2,"method":"ping"}', -32700),
        (b"null", -32600),
        (b"true", -32600),
        (b"17", -32600),
        (b'"text"', -32600),
        (b"{}", -32600),
        (b"[]", -32600),
        (b"[null]", -32600),
        (b"[" * 100_000, -32700),
        (b"[" * 100_000 + b"]" * 100_000, -32700),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, -32700),
        (b"\x00", -32700),
        (b'{"jsonrpc":"2.0",\x00"id":1}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\x01"}', -32700),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', -32700),
        (b'{"jsonrpc":"2.0","id":"\xed\xa0\x80","method":"ping"}', -32700),
        (b'{"jsonrpc":"2.0","id":"\xff","method":"ping"}', -32700),
        (b"\xff\xfe{\x00}\x00", -32700),
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}', -32700),
        (b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"method":"ping"}', -32700),
        (b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}', -32700),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":["ping"]}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"id":1,"method":"ping"}', -32600),
    ],
)
async def test_a_malformed_body_is_rejected_with_the_code_of_the_specification(
    server: LiveServer, body: bytes, code: int
) -> None:
    ada = await LegacyClient.open(server, "ada")

    response = await ada.post(body)

    assert (response.status, response.json()["error"]["code"]) == (400, code)


async def test_the_last_of_duplicate_keys_is_used(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    response = await ada.post(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"no/such","method":"ping"}')

    assert response.json() == {"jsonrpc": "2.0", "id": 2, "result": {}}


@each_case(
    "params",
    [
        {"name": "echo", "arguments": {"text": {"a": [1, {"b": None}]}}},
        {"name": "echo", "arguments": {"times": 10**30}},
        {"name": "echo", "arguments": {"times": -1}},
        {"name": "echo", "arguments": {"text": "x", "text2": "y"}},
        {"name": "echo", "arguments": {"": ""}},
        {"name": "echo", "arguments": {"text": "\x00\u202e\uffff"}},
        {"name": "\x00"},
        {"name": "e" * 100_000},
        {"name": "../../etc/passwd"},
    ],
)
async def test_unusual_arguments_are_reported_as_invalid_params(server: LiveServer, params: dict[str, Any]) -> None:
    ada = await LegacyClient.open(server, "ada")

    response = await ada.request("tools/call", params)

    assert response.status == 200
    assert "result" in response.json() or response.json()["error"]["code"] == -32602


async def test_deeply_nested_arguments_do_not_fail(server: LiveServer) -> None:
    """Code that walks the arguments has less stack left than the parser had."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask_name","arguments":%s,"_meta":%s}}'
    meta = msgspec.json.encode(modern_params(capabilities={"elicitation": {}})["_meta"])
    headers = {**modern_headers("tools/call", {"name": "ask_name"}), **await server.bearer("ada")}

    for depth in (50, 90, 95, 100, 500, *range(880, 1000, 5)):
        nested = b'{"a":' * depth + b"1" + b"}" * depth
        responses = [
            await fetch(server.url, "POST", "/mcp", headers, body % (arguments, meta))
            for arguments in (nested, b'{"text":' + nested + b"}")
        ]
        assert {response.status for response in responses} <= {200, 400}


async def test_a_deeply_nested_value_is_rejected_like_any_other(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    for depth in (50, 90, 95, 100, 500, *range(880, 1000, 5)):
        value = b"[" * depth + b"]" * depth
        response = await ada.post(b'{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":%s}}' % value)

        assert response.json()["error"]["code"] in (-32602, -32700)
        assert len(response.body) < 2_000


@each_case(
    ("method", "params"),
    [
        ("x" * 1_000_000, {}),
        ("tools/call", {"name": "x" * 1_000_000}),
        ("logging/setLevel", {"level": "x" * 1_000_000}),
    ],
)
async def test_a_long_name_is_truncated_in_the_error(server: LiveServer, method: str, params: Any) -> None:
    ada = await LegacyClient.open(server, "ada")

    response = await ada.request(method, params)

    assert response.json()["error"]["code"] in (-32601, -32602)
    assert len(response.body) < 2_000


# -- HTTP: size -------------------------------------------------------------------------------------------------


async def test_a_too_large_content_length_is_rejected_before_the_body_is_read(server: LiveServer) -> None:
    headers = {**JSON_AND_EVENTS, **await server.bearer("ada"), "Content-Length": str(10 * 1024 * 1024)}

    async with RawConnection.open(server.url) as connection:
        await connection.request("POST", "/mcp", headers)
        response = await connection.response()

    assert response.status == 413
    assert response.json()["error"]["data"] == {"limit_bytes": server.runtime.settings.body_max_bytes}


async def test_a_too_large_body_is_rejected_and_the_connection_stays_usable(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    async with RawConnection.open(server.url) as connection:
        await connection.request("POST", "/mcp", ada.headers, b"x" * 10 * 1024 * 1024)
        assert (await connection.response()).status == 413
        await connection.request("POST", "/mcp", ada.headers, msgspec.json.encode(PING))
        assert (await connection.response()).json()["result"] == {}


async def test_a_too_large_chunked_body_is_rejected(server: LiveServer) -> None:
    headers = {**JSON_AND_EVENTS, **await server.bearer("ada"), "Transfer-Encoding": "chunked"}
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"

    async with RawConnection.open(server.url) as connection:
        await connection.request("POST", "/mcp", headers, b"")
        for _ in range(160):
            await connection.send(chunk)
        assert (await connection.response()).status == 413


async def test_the_body_limit_is_exact(server: LiveServer) -> None:
    ada, limit = await LegacyClient.open(server, "ada"), server.runtime.settings.body_max_bytes
    body = msgspec.json.encode(PING)

    assert (await ada.post(body + b" " * (limit - len(body)))).status == 200
    assert (await ada.post(body + b" " * (limit - len(body) + 1))).status == 413


# -- HTTP: headers ----------------------------------------------------------------------------------------------


@each_case(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": ""}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=application/json"}, 415),
        ({"Content-Type": "application/jsonp"}, 415),
        ({"Content-Type": "application/json, text/plain"}, 415),
        ({"Content-Type": " Application/JSON ; charset=utf-8"}, 200),
        ({"Content-Type": "application/json;"}, 200),
        ({"Accept": "text/html"}, 406),
        ({"Accept": ""}, 406),
        ({"Accept": "*/*"}, 200),
        ({"Accept": "application/json"}, 200),
        ({"Accept": "text/event-stream, application/*;q=0.1"}, 200),
        ({"Accept": "\xff\xfe"}, 406),
    ],
)
async def test_content_type_and_accept_are_checked(server: LiveServer, headers: dict[str, str], status: int) -> None:
    ada = await LegacyClient.open(server, "ada")

    assert (await ada.post(PING, headers)).status == status


async def test_a_missing_accept_header_accepts_everything_and_a_missing_content_type_is_rejected(
    server: LiveServer,
) -> None:
    ada = await LegacyClient.open(server, "ada")
    without_accept = {name: value for name, value in ada.headers.items() if name != "Accept"}
    without_type = {name: value for name, value in ada.headers.items() if name != "Content-Type"}

    assert (await fetch(server.url, "POST", "/mcp", without_accept, msgspec.json.encode(PING))).status == 200
    assert (await fetch(server.url, "POST", "/mcp", without_type, msgspec.json.encode(PING))).status == 415


@each_case("header", ["Authorization", "Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Origin"])
async def test_a_repeated_unique_header_is_rejected(server: LiveServer, header: str) -> None:
    ada = await LegacyClient.open(server, "ada")
    value = ada.headers.get(header, server.url if header == "Origin" else "2025-11-25")
    twice = {**ada.headers, header: value, header.lower() + " ".strip(): value}

    response = await fetch(server.url, "POST", "/mcp", twice, msgspec.json.encode(PING))

    assert response.status == 400
    assert "expected one value, got several" in response.json()["error"]["message"]


async def test_whitespace_around_header_values_is_ignored(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")
    padded = {name: f" \t {value} \t" for name, value in ada.headers.items()}

    assert (await fetch(server.url, "POST", "/mcp", padded, msgspec.json.encode(PING))).status == 200


@each_case("session", ["", " ", "é", "x" * 8_000, "a b", "../..", "%00", '"quoted"'])
async def test_an_unusual_session_id_is_not_found(server: LiveServer, session: str) -> None:
    ada = LegacyClient(server, {**await server.bearer("ada"), "Mcp-Session-Id": session})

    assert (await ada.request("ping")).status in (400, 404)


# -- HTTP: raw bytes --------------------------------------------------------------------------------------------


@each_case(
    "raw",
    [
        b"\r\n\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /mcp\r\n\r\n",
        b"POST /mcp HTTP/9.9\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1e3\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + b"9" * 4_000 + b"\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nA\x00B: c\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
        b"GET /%ff%00/../mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET http://[::1/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
)
async def test_bytes_that_are_not_a_request_are_rejected_or_the_connection_is_closed(
    server: LiveServer, raw: bytes
) -> None:
    async with RawConnection.open(server.url) as connection:
        await connection.send(raw)
        with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError, ConnectionResetError):
            async with asyncio.timeout(0.1):
                status, _ = await connection.head()
                assert 400 <= status < 500


@each_case("fraction", [0.01, 0.3, 0.6, 0.99])
async def test_a_partial_request_is_harmless(server: LiveServer, fraction: float) -> None:
    ada = await LegacyClient.open(server, "ada")
    whole = request_bytes("POST", "/mcp", {"Host": "127.0.0.1", **ada.headers}, msgspec.json.encode(PING))

    for _ in range(20):
        async with RawConnection.open(server.url) as connection:
            await connection.send(whole[: int(len(whole) * fraction)])

    assert (await ada.request("ping")).status == 200


async def test_a_request_sent_byte_by_byte_is_served(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")
    whole = request_bytes("POST", "/mcp", {"Host": "127.0.0.1", **ada.headers}, msgspec.json.encode(PING))

    async with RawConnection.open(server.url) as connection:
        for byte in whole:
            await connection.send(bytes((byte,)))
            await asyncio.sleep(0)
        assert (await connection.response()).json()["result"] == {}


async def test_a_client_that_does_not_read_does_not_block_others(server: LiveServer) -> None:
    ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
    large = {"name": "echo", "arguments": {"text": "x" * 100, "times": 100_000}}

    async with contextlib.AsyncExitStack() as stack:
        for request_id in range(1, 4):
            await stack.enter_async_context(ada.streaming("tools/call", large, request_id))
        statuses = [(await ben.call("echo")).status for _ in range(5)]

    assert statuses == [200] * 5


async def test_a_thousand_pipelined_requests_are_answered_in_order(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")
    headers = {"Host": "127.0.0.1", **ada.headers}
    bodies = [msgspec.json.encode(message("ping", {}, n)) for n in range(1, 1001)]

    async with RawConnection.open(server.url) as connection:
        await connection.send(b"".join(request_bytes("POST", "/mcp", headers, body) for body in bodies))
        response_ids = [(await connection.response()).json()["id"] for _ in bodies]

    assert response_ids == list(range(1, 1001))


async def test_pipelined_requests_around_an_invalid_one_are_answered(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")
    headers = {"Host": "127.0.0.1", **ada.headers}
    bodies = [msgspec.json.encode(PING), b"invalid", msgspec.json.encode(PING)]

    async with RawConnection.open(server.url) as connection:
        await connection.send(b"".join(request_bytes("POST", "/mcp", headers, body) for body in bodies))
        assert [(await connection.response()).status for _ in bodies] == [200, 400, 200]


async def test_an_aborted_stream_is_harmless(server: LiveServer, gate: Gate) -> None:
    legacy, modern = await LegacyClient.open(server, "ada"), await ModernClient.of(server, "ada")
    params = {"name": "wait", "arguments": {"gate": "g"}, "_meta": {"progressToken": 1}}

    async with legacy.streaming(message("tools/call", params, 1)) as connection:
        await connection.head()
        await connection.event()
        connection.abort()
    async with modern.streaming("tools/call", params, 1, progress_token=1) as connection:
        await connection.head()
        await connection.event()
        connection.abort()
    gate.opened.set()

    assert (await legacy.request("ping")).status == 200


async def test_an_unread_response_ends_with_its_client(server: LiveServer) -> None:
    ada = await ModernClient.of(server, "ada")
    large = {"name": "echo", "arguments": {"text": "x" * 1000, "times": 20_000}}

    for request_id in range(1, 4):
        async with ada.streaming("tools/call", large, request_id) as connection:
            await connection.head()

    assert (await ada.call("echo")).status == 200


# -- WebSocket --------------------------------------------------------------------------------------------------


_UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}


class RawSocket:
    """A WebSocket client that builds its frames by hand, after a valid upgrade."""

    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, server: LiveServer, name: str = "ada") -> AsyncIterator["RawSocket"]:
        async with RawConnection.open(server.url) as connection:
            await connection.request("GET", "/mcp/ws", _UPGRADE | await server.bearer(name))
            assert (await connection.head())[0] == 101
            yield cls(connection)

    async def send(self, opcode: Opcode, data: bytes, *, fin: bool = True, mask: bool = True) -> None:
        await self._connection.send(Frame(opcode, data, fin).serialize(mask=mask))

    async def send_raw(self, raw: bytes) -> None:
        await self._connection.send(raw)

    async def receive(self) -> tuple[int, bytes]:
        """Reads the next frame and returns its opcode and data."""
        first, second = await self._connection.raw(2)
        size = second & 0x7F
        if size >= 126:
            size = int.from_bytes(await self._connection.raw(2 if size == 126 else 8), "big")
        return first & 0x0F, await self._connection.raw(size)

    async def closed(self) -> None:
        await self._connection.closed()

    async def close_code(self) -> int:
        while True:
            opcode, data = await self.receive()
            if opcode == Opcode.CLOSE:
                return int(struct.unpack("!H", data[:2])[0])


@each_case(
    ("text", "code"),
    [("", -32700), ("{", -32700), ("null", -32600), ("[]", -32600), ("17", -32600), ("[" * 100_000, -32700)],
)
async def test_a_malformed_frame_is_rejected_and_the_connection_stays_open(
    server: LiveServer, text: str, code: int
) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        await socket.connection.send(text)

        assert (await socket.receive())["error"]["code"] == code
        assert (await socket.initialize())["result"]


@each_case(
    ("headers", "body"),
    [
        ({}, b"hello"),
        ({"Transfer-Encoding": "chunked"}, b"0\r\n\r\n"),
        ({f"X-{number}": "" for number in range(200)}, None),
    ],
)
async def test_a_handshake_that_cannot_be_parsed_is_rejected_with_400(
    server: LiveServer, headers: dict[str, str], body: bytes | None
) -> None:
    async with RawConnection.open(server.url) as connection:
        await connection.request("GET", "/mcp/ws", _UPGRADE | headers, body)

        assert (await connection.response()).status == 400
        await connection.closed()


async def test_a_fragmented_message_is_reassembled(server: LiveServer) -> None:
    body = msgspec.json.encode(PING)
    async with RawSocket.open(server) as socket:
        await socket.send(Opcode.TEXT, body[:5], fin=False)
        await socket.send(Opcode.PING, b"payload")
        await socket.send(Opcode.CONT, body[5:9], fin=False)
        await socket.send(Opcode.CONT, body[9:])
        frames = [await socket.receive(), await socket.receive()]

    assert frames[0] == (Opcode.PONG, b"payload")
    assert msgspec.json.decode(frames[1][1])["result"] == {}


async def test_a_message_over_the_limit_closes_with_1009(server: LiveServer) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        with contextlib.suppress(ConnectionClosed):
            await socket.connection.send("x" * (server.runtime.settings.body_max_bytes + 1))

        assert await socket.close_code() == 1009


async def test_a_fragmented_message_over_the_limit_closes_with_1009(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, body_max_bytes=1024)) as server, RawSocket.open(server) as socket:
        await socket.send(Opcode.TEXT, b"x" * 600, fin=False)
        await socket.send(Opcode.CONT, b"x" * 600)

        assert await socket.close_code() == 1009


async def test_the_limit_applies_to_the_decompressed_message(server: LiveServer) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        assert [extension.name for extension in socket.connection.protocol.extensions] == ["permessage-deflate"]
        with contextlib.suppress(ConnectionClosed):
            await socket.connection.send(" " * 50_000_000)

        assert await socket.close_code() == 1009


async def test_a_binary_frame_closes_with_1003(server: LiveServer) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        await socket.connection.send(msgspec.json.encode(PING))

        assert await socket.close_code() == 1003


async def test_invalid_utf_8_closes_with_1007(server: LiveServer, failures: list[str]) -> None:
    async with RawSocket.open(server) as socket:
        await socket.send(Opcode.TEXT, b'{"jsonrpc":"\xff\xfe"}')

        assert await socket.close_code() == 1007
    # Only uvicorn may log it.
    assert [line for line in failures if "Invalid UTF-8 sequence received from client" not in line] == []
    failures.clear()


@each_case(
    "raw",
    [
        Frame(Opcode.TEXT, b"{}").serialize(mask=False),
        bytes((0xF1, 0x80)) + os.urandom(4),
        bytes((0x83, 0x80)) + os.urandom(4),
        bytes((0x89, 0xFE, 0x00, 0x7E)) + b"\x00" * 130,
        Frame(Opcode.CONT, b"x").serialize(mask=True),
    ],
)
async def test_a_frame_that_violates_the_protocol_closes_with_1002(server: LiveServer, raw: bytes) -> None:
    async with RawSocket.open(server) as socket:
        await socket.send_raw(raw)

        assert await socket.close_code() == 1002


@each_case("count", [1, 2, 5, 9])
async def test_a_partial_frame_is_harmless(server: LiveServer, count: int) -> None:
    whole = Frame(Opcode.TEXT, msgspec.json.encode(handshake())).serialize(mask=True)

    for _ in range(5):
        async with RawSocket.open(server) as socket:
            await socket.send_raw(whole[:count])


async def test_an_aborted_connection_cancels_its_calls(server: LiveServer, gate: Gate) -> None:
    call = msgspec.json.encode(
        message("tools/call", modern_params({"name": "wait", "arguments": {"gate": "g"}}, progress_token=1), 1)
    )
    async with RawSocket.open(server) as socket:
        await socket.send(Opcode.TEXT, call)
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)

    await asyncio.wait_for(gate.cancelled.wait(), WAIT_MAX_S)


async def test_an_aborted_connection_with_unread_responses_is_harmless(server: LiveServer) -> None:
    params = modern_params({"name": "echo", "arguments": {"text": "x" * 1000, "times": 1000}})

    for _ in range(3):
        async with RawSocket.open(server) as socket:
            for request_id in range(1, 21):
                await socket.send(Opcode.TEXT, msgspec.json.encode(message("tools/call", params, request_id)))


async def test_a_flood_of_requests_gets_one_response_each(server: LiveServer) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        await socket.initialize()
        sending = asyncio.create_task(_flood(socket, 1000))
        response_ids = [(await socket.receive())["id"] for _ in range(1000)]
        await sending

    assert sorted(response_ids) == list(range(1, 1001))


async def _flood(socket: WebSocketClient, count: int) -> None:
    for request_id in range(1, count + 1):
        await socket.send(message("ping", {}, request_id))


# -- arbitrary input --------------------------------------------------------------------------------------------

HEADER_TEXT = st.text(alphabet=st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=20)
HEADER_NAMES = st.sampled_from(
    ("mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-region", "accept", "mcp-session-id")
)


@st.composite
def _requests(draw: st.DrawFn) -> tuple[dict[str, str], Any, bool]:
    """Generates headers, a body and whether to send a session id: valid for an era, with a few mutations."""
    if draw(st.booleans()):
        return draw(st.dictionaries(HEADER_NAMES, HEADER_TEXT, max_size=1)), draw(mutated(LEGACY)), draw(st.booleans())
    body = draw(mutated(MODERN))
    params, method = body.get("params"), body.get("method")
    headers = modern_headers(method, params if isinstance(params, dict) else {}) if isinstance(method, str) else {}
    ascii_headers = {name: value for name, value in headers.items() if value.isascii() and value.isprintable()}
    return {**ascii_headers, **draw(st.dictionaries(HEADER_NAMES, HEADER_TEXT, max_size=1))}, body, False


def _responses(response: HttpResponse) -> list[Any]:
    """Returns the JSON-RPC responses in an HTTP response, without the notifications of a stream."""
    if response.header("content-type") == "text/event-stream":
        messages = response.events()
    else:
        messages = [response.json()] if response.body else []
    flat = [one for item in messages for one in (item if isinstance(item, list) else [item])]
    return [one for one in flat if "method" not in one]


@settings(max_examples=examples(75))
@given(request=_requests())
async def test_arbitrary_requests_get_one_response_under_their_id(
    server: LiveServer, request: tuple[dict[str, str], Any, bool]
) -> None:
    headers, body, with_session = request
    ada = await LegacyClient.open(server, "fuzz")
    all_headers = {**JSON_AND_EVENTS, **(ada.headers if with_session else await server.bearer("fuzz"))}
    lowered = {name.lower(): value for name, value in (*all_headers.items(), *headers.items())}

    response = await call_app(HttpTransport(server.runtime), "POST", "/mcp", lowered, msgspec.json.encode(body))

    assert response.status in (200, 202, 400, 403, 404, 406)
    if is_request(body) and response.status != 406:
        assert [one["id"] for one in _responses(response)] == [body["id"]]
    elif response.status == 202:
        assert response.body == b""


@settings(max_examples=examples(50))
@given(body=st.binary(max_size=60), headers=st.dictionaries(st.sampled_from(("accept", "mcp-name", "x")), HEADER_TEXT))
async def test_arbitrary_bytes_get_a_json_rpc_error(server: LiveServer, body: bytes, headers: dict[str, str]) -> None:
    all_headers = {**await server.bearer("fuzz"), "content-type": "application/json", **headers}

    response = await call_app(HttpTransport(server.runtime), "POST", "/mcp", all_headers, body)

    assert response.status in (202, 400, 406)
    assert response.status == 202 or "error" in response.json()


async def test_the_fuzz_test_recognizes_a_valid_response(server: LiveServer) -> None:
    """Otherwise the fuzz tests would prove nothing."""
    params = {"name": "echo", "arguments": {"text": "hi"}}
    headers = {**await server.bearer("fuzz"), **modern_headers("tools/call", params)}
    body = msgspec.json.encode(message("tools/call", modern_params(params), "q"))

    response = await call_app(HttpTransport(server.runtime), "POST", "/mcp", headers, body)

    assert (response.status, _responses(response)[0]["id"]) == (200, "q")
