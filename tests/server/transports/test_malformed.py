"""Whatever is sent to it, the server answers what can be answered and goes on serving everybody else."""

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from server.transports.http import HttpTransport
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

pytestmark = pytest.mark.asyncio(loop_scope="module")

PING = message("ping", {}, 1)


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def still_serving(server: LiveServer) -> AsyncIterator[None]:
    """After each test the same server answers a normal call on both doors."""
    yield
    answer = await (await ModernClient.of(server, "survivor")).call("echo", {"text": "alive"})
    assert answer.json()["result"]["structuredContent"] == {"text": "alive", "user": "survivor"}
    async with WebSocketClient.open(server.ws, await server.bearer("survivor")) as socket:
        assert (await socket.initialize())["result"]


# -- HTTP: bodies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
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
    ids=lambda value: ascii(value[:24]) if isinstance(value, bytes) else str(value),
)
async def test_a_body_that_is_no_message_is_refused_with_the_code_of_the_specification(
    server: LiveServer, body: bytes, code: int
) -> None:
    ada = await LegacyClient.open(server, "ada")

    answer = await ada.post(body)

    assert (answer.status, answer.json()["error"]["code"]) == (400, code)


async def test_of_a_key_that_comes_twice_the_last_one_counts(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    answer = await ada.post(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"no/such","method":"ping"}')

    assert answer.json() == {"jsonrpc": "2.0", "id": 2, "result": {}}


@pytest.mark.parametrize(
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
async def test_odd_arguments_are_answered_as_the_callers_mistake(server: LiveServer, params: dict[str, Any]) -> None:
    ada = await LegacyClient.open(server, "ada")

    answer = await ada.request("tools/call", params)

    assert answer.status == 200
    assert "result" in answer.json() or answer.json()["error"]["code"] == -32602


async def test_arguments_nested_just_below_what_can_be_parsed_are_answered(server: LiveServer) -> None:
    """Each layer that walks them has less stack left than the parser had."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask_name","arguments":%s,"_meta":%s}}'
    meta = msgspec.json.encode(modern_params(capabilities={"elicitation": {}})["_meta"])
    headers = {**modern_headers("tools/call", {"name": "ask_name"}), **await server.bearer("ada")}

    for depth in (50, 90, 95, 100, 500, *range(880, 1000, 5)):
        nested = b'{"a":' * depth + b"1" + b"}" * depth
        answers = [
            await fetch(server.url, "POST", "/mcp", headers, body % (arguments, meta))
            for arguments in (nested, b'{"text":' + nested + b"}")
        ]
        assert {answer.status for answer in answers} <= {200, 400}


async def test_a_value_nested_just_below_what_can_be_parsed_is_refused_as_any_other(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    for depth in (50, 90, 95, 100, 500, *range(880, 1000, 5)):
        value = b"[" * depth + b"]" * depth
        answer = await ada.post(b'{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":%s}}' % value)

        assert answer.json()["error"]["code"] in (-32602, -32700)
        assert len(answer.body) < 2_000


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("x" * 1_000_000, {}),
        ("tools/call", {"name": "x" * 1_000_000}),
        ("logging/setLevel", {"level": "x" * 1_000_000}),
    ],
    ids=["method", "tool", "level"],
)
async def test_a_long_name_is_not_repeated_at_length_in_the_answer(
    server: LiveServer, method: str, params: Any
) -> None:
    ada = await LegacyClient.open(server, "ada")

    answer = await ada.request(method, params)

    assert answer.json()["error"]["code"] in (-32601, -32602)
    assert len(answer.body) < 2_000


# -- HTTP: size -------------------------------------------------------------------------------------------------


async def test_a_body_declared_too_large_is_refused_before_it_is_read(server: LiveServer) -> None:
    headers = {**JSON_AND_EVENTS, **await server.bearer("ada"), "Content-Length": str(10 * 1024 * 1024)}

    async with RawConnection.open(server.url) as wire:
        await wire.request("POST", "/mcp", headers)
        answer = await wire.answer()

    assert answer.status == 413
    assert answer.json()["error"]["data"] == {"limit_bytes": server.runtime.settings.body_max_bytes}


async def test_a_body_that_is_sent_too_large_is_refused_and_the_connection_goes_on(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    async with RawConnection.open(server.url) as wire:
        await wire.request("POST", "/mcp", ada.headers, b"x" * 10 * 1024 * 1024)
        assert (await wire.answer()).status == 413
        await wire.request("POST", "/mcp", ada.headers, msgspec.json.encode(PING))
        assert (await wire.answer()).json()["result"] == {}


async def test_a_body_that_grows_too_large_in_chunks_is_refused_on_the_way(server: LiveServer) -> None:
    headers = {**JSON_AND_EVENTS, **await server.bearer("ada"), "Transfer-Encoding": "chunked"}
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"

    async with RawConnection.open(server.url) as wire:
        await wire.request("POST", "/mcp", headers, b"")
        for _ in range(160):
            await wire.send(chunk)
        assert (await wire.answer()).status == 413


async def test_a_body_of_just_the_limit_is_read_and_one_byte_more_is_not(server: LiveServer) -> None:
    ada, limit = await LegacyClient.open(server, "ada"), server.runtime.settings.body_max_bytes
    body = msgspec.json.encode(PING)

    assert (await ada.post(body + b" " * (limit - len(body)))).status == 200
    assert (await ada.post(body + b" " * (limit - len(body) + 1))).status == 413


# -- HTTP: headers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
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
async def test_media_types_are_checked(server: LiveServer, headers: dict[str, str], status: int) -> None:
    ada = await LegacyClient.open(server, "ada")

    assert (await ada.post(PING, headers)).status == status


async def test_an_absent_accept_header_accepts_everything_and_an_absent_content_type_is_none(
    server: LiveServer,
) -> None:
    ada = await LegacyClient.open(server, "ada")
    without_accept = {name: value for name, value in ada.headers.items() if name != "Accept"}
    without_type = {name: value for name, value in ada.headers.items() if name != "Content-Type"}

    assert (await fetch(server.url, "POST", "/mcp", without_accept, msgspec.json.encode(PING))).status == 200
    assert (await fetch(server.url, "POST", "/mcp", without_type, msgspec.json.encode(PING))).status == 415


@pytest.mark.parametrize(
    "doubled", ["Authorization", "Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Origin"]
)
async def test_a_header_that_decides_something_and_comes_twice_is_refused(server: LiveServer, doubled: str) -> None:
    ada = await LegacyClient.open(server, "ada")
    value = ada.headers.get(doubled, server.url if doubled == "Origin" else "2025-11-25")
    twice = {**ada.headers, doubled: value, doubled.lower() + " ".strip(): value}

    answer = await fetch(server.url, "POST", "/mcp", twice, msgspec.json.encode(PING))

    assert answer.status == 400
    assert "expected one value, got several" in answer.json()["error"]["message"]


async def test_blanks_around_header_values_change_nothing(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")
    padded = {name: f" \t {value} \t" for name, value in ada.headers.items()}

    assert (await fetch(server.url, "POST", "/mcp", padded, msgspec.json.encode(PING))).status == 200


@pytest.mark.parametrize("session", ["", " ", "é", "x" * 8_000, "a b", "../..", "%00", '"quoted"'])
async def test_an_odd_session_id_is_not_found_like_any_other(server: LiveServer, session: str) -> None:
    ada = LegacyClient(server, {**await server.bearer("ada"), "Mcp-Session-Id": session})

    assert (await ada.request("ping")).status in (400, 404)


# -- HTTP: the wire ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
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
    ids=lambda raw: ascii(raw[:40]),
)
async def test_bytes_that_are_no_request_are_refused_or_cut_off(server: LiveServer, raw: bytes) -> None:
    async with RawConnection.open(server.url) as wire:
        await wire.send(raw)
        with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError, ConnectionResetError):
            async with asyncio.timeout(0.1):
                status, _ = await wire.head()
                assert 400 <= status < 500


@pytest.mark.parametrize("part", [0.01, 0.3, 0.6, 0.99])
async def test_half_a_request_and_then_nothing_does_no_harm(server: LiveServer, part: float) -> None:
    ada = await LegacyClient.open(server, "ada")
    whole = request_bytes("POST", "/mcp", {"Host": "127.0.0.1", **ada.headers}, msgspec.json.encode(PING))

    for _ in range(20):
        async with RawConnection.open(server.url) as wire:
            await wire.send(whole[: int(len(whole) * part)])

    assert (await ada.request("ping")).status == 200


async def test_a_client_that_sends_a_byte_at_a_time_is_served(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")
    whole = request_bytes("POST", "/mcp", {"Host": "127.0.0.1", **ada.headers}, msgspec.json.encode(PING))

    async with RawConnection.open(server.url) as wire:
        for byte in whole:
            await wire.send(bytes((byte,)))
            await asyncio.sleep(0)
        assert (await wire.answer()).json()["result"] == {}


async def test_a_client_that_does_not_read_holds_up_nobody_else(server: LiveServer) -> None:
    ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
    large = {"name": "echo", "arguments": {"text": "x" * 100, "times": 100_000}}

    async with contextlib.AsyncExitStack() as stack:
        for request_id in range(1, 4):
            await stack.enter_async_context(ada.streaming("tools/call", large, request_id))
        answers = [(await ben.call("echo")).status for _ in range(5)]

    assert answers == [200] * 5


async def test_a_thousand_pipelined_requests_are_answered_in_their_order(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")
    headers = {"Host": "127.0.0.1", **ada.headers}
    bodies = [msgspec.json.encode(message("ping", {}, n)) for n in range(1, 1001)]

    async with RawConnection.open(server.url) as wire:
        await wire.send(b"".join(request_bytes("POST", "/mcp", headers, body) for body in bodies))
        answered = [(await wire.answer()).json()["id"] for _ in bodies]

    assert answered == list(range(1, 1001))


async def test_pipelined_requests_before_and_after_a_bad_one_are_answered(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")
    headers = {"Host": "127.0.0.1", **ada.headers}
    bodies = [msgspec.json.encode(PING), b"rubbish", msgspec.json.encode(PING)]

    async with RawConnection.open(server.url) as wire:
        await wire.send(b"".join(request_bytes("POST", "/mcp", headers, body) for body in bodies))
        assert [(await wire.answer()).status for _ in bodies] == [200, 400, 200]


async def test_an_abrupt_end_in_the_middle_of_a_stream_does_no_harm(server: LiveServer, gate: Gate) -> None:
    legacy, modern = await LegacyClient.open(server, "ada"), await ModernClient.of(server, "ada")
    params = {"name": "wait", "arguments": {"gate": "g"}, "_meta": {"progressToken": 1}}

    async with legacy.streaming(message("tools/call", params, 1)) as wire:
        await wire.head()
        await wire.event()
        wire.abort()
    async with modern.streaming("tools/call", params, 1, progress_token=1) as wire:
        await wire.head()
        await wire.event()
        wire.abort()
    gate.opened.set()

    assert (await legacy.request("ping")).status == 200


async def test_a_stream_nobody_reads_ends_with_its_client(server: LiveServer) -> None:
    ada = await ModernClient.of(server, "ada")
    large = {"name": "echo", "arguments": {"text": "x" * 1000, "times": 20_000}}

    for request_id in range(1, 4):
        async with ada.streaming("tools/call", large, request_id) as wire:
            await wire.head()

    assert (await ada.call("echo")).status == 200


# -- WebSocket --------------------------------------------------------------------------------------------------


class RawSocket:
    """A WebSocket client that frames by hand, after a proper upgrade."""

    def __init__(self, wire: RawConnection) -> None:
        self._wire = wire

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, server: LiveServer, name: str = "ada") -> AsyncIterator["RawSocket"]:
        upgrade = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version": "13",
            **await server.bearer(name),
        }
        async with RawConnection.open(server.url) as wire:
            await wire.request("GET", "/mcp/ws", upgrade)
            assert (await wire.head())[0] == 101
            yield cls(wire)

    async def send(self, opcode: Opcode, data: bytes, *, fin: bool = True, mask: bool = True) -> None:
        await self._wire.send(Frame(opcode, data, fin).serialize(mask=mask))

    async def send_raw(self, raw: bytes) -> None:
        await self._wire.send(raw)

    async def receive(self) -> tuple[int, bytes]:
        """The opcode and the data of the next frame."""
        first, second = await self._wire.raw(2)
        size = second & 0x7F
        if size >= 126:
            size = int.from_bytes(await self._wire.raw(2 if size == 126 else 8), "big")
        return first & 0x0F, await self._wire.raw(size)

    async def close_code(self) -> int:
        while True:
            opcode, data = await self.receive()
            if opcode == Opcode.CLOSE:
                return int(struct.unpack("!H", data[:2])[0])


@pytest.mark.parametrize(
    ("text", "code"),
    [("", -32700), ("{", -32700), ("null", -32600), ("[]", -32600), ("17", -32600), ("[" * 100_000, -32700)],
    ids=["empty", "open", "null", "array", "number", "deep"],
)
async def test_a_frame_that_is_no_message_is_refused_and_the_connection_lives(
    server: LiveServer, text: str, code: int
) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        await socket.connection.send(text)

        assert (await socket.receive())["error"]["code"] == code
        assert (await socket.initialize())["result"]


async def test_a_message_in_pieces_is_read_as_one(server: LiveServer) -> None:
    body = msgspec.json.encode(PING)
    async with RawSocket.open(server) as socket:
        await socket.send(Opcode.TEXT, body[:5], fin=False)
        await socket.send(Opcode.PING, b"are you there")
        await socket.send(Opcode.CONT, body[5:9], fin=False)
        await socket.send(Opcode.CONT, body[9:])
        frames = [await socket.receive(), await socket.receive()]

    assert frames[0] == (Opcode.PONG, b"are you there")
    assert msgspec.json.decode(frames[1][1])["result"] == {}


async def test_a_message_over_the_limit_closes_with_1009(server: LiveServer) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        with contextlib.suppress(ConnectionClosed):
            await socket.connection.send("x" * (server.runtime.settings.body_max_bytes + 1))

        assert await socket.close_code() == 1009


async def test_a_message_that_grows_over_the_limit_in_pieces_closes_with_1009(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, body_max_bytes=1024)) as server, RawSocket.open(server) as socket:
        await socket.send(Opcode.TEXT, b"x" * 600, fin=False)
        await socket.send(Opcode.CONT, b"x" * 600)

        assert await socket.close_code() == 1009


async def test_a_compressed_message_counts_by_what_it_becomes(server: LiveServer) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        assert [extension.name for extension in socket.connection.protocol.extensions] == ["permessage-deflate"]
        with contextlib.suppress(ConnectionClosed):
            await socket.connection.send(" " * 50_000_000)

        assert await socket.close_code() == 1009


async def test_a_binary_frame_closes_with_1003(server: LiveServer) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        await socket.connection.send(msgspec.json.encode(PING))

        assert await socket.close_code() == 1003


async def test_text_that_is_not_utf_8_closes_with_1007(server: LiveServer, failures: list[str]) -> None:
    async with RawSocket.open(server) as socket:
        await socket.send(Opcode.TEXT, b'{"jsonrpc":"\xff\xfe"}')

        assert await socket.close_code() == 1007
    # uvicorn tells of it; nothing else may.
    assert [line for line in failures if "Invalid UTF-8 sequence received from client" not in line] == []
    failures.clear()


@pytest.mark.parametrize(
    "raw",
    [
        Frame(Opcode.TEXT, b"{}").serialize(mask=False),
        bytes((0xF1, 0x80)) + os.urandom(4),
        bytes((0x83, 0x80)) + os.urandom(4),
        bytes((0x89, 0xFE, 0x00, 0x7E)) + b"\x00" * 130,
        Frame(Opcode.CONT, b"x").serialize(mask=True),
    ],
    ids=["unmasked", "reserved bits", "reserved opcode", "long ping", "continuation of nothing"],
)
async def test_a_frame_against_the_protocol_closes_with_1002(server: LiveServer, raw: bytes) -> None:
    async with RawSocket.open(server) as socket:
        await socket.send_raw(raw)

        assert await socket.close_code() == 1002


@pytest.mark.parametrize("count", [1, 2, 5, 9])
async def test_half_a_frame_and_an_abrupt_end_do_no_harm(server: LiveServer, count: int) -> None:
    whole = Frame(Opcode.TEXT, msgspec.json.encode(handshake())).serialize(mask=True)

    for _ in range(5):
        async with RawSocket.open(server) as socket:
            await socket.send_raw(whole[:count])


async def test_an_abrupt_end_while_calls_run_stops_them(server: LiveServer, gate: Gate) -> None:
    called = msgspec.json.encode(
        message("tools/call", modern_params({"name": "wait", "arguments": {"gate": "g"}}, progress_token=1), 1)
    )
    async with RawSocket.open(server) as socket:
        await socket.send(Opcode.TEXT, called)
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)

    await asyncio.wait_for(gate.cancelled.wait(), WAIT_MAX_S)


async def test_an_abrupt_end_before_the_answers_were_read_does_no_harm(server: LiveServer) -> None:
    called = modern_params({"name": "echo", "arguments": {"text": "x" * 1000, "times": 1000}})

    for _ in range(3):
        async with RawSocket.open(server) as socket:
            for request_id in range(1, 21):
                await socket.send(Opcode.TEXT, msgspec.json.encode(message("tools/call", called, request_id)))


async def test_a_flood_of_requests_is_answered_each_once(server: LiveServer) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        await socket.initialize()
        sending = asyncio.create_task(_flood(socket, 1000))
        answered = [(await socket.receive())["id"] for _ in range(1000)]
        await sending

    assert sorted(answered) == list(range(1, 1001))


async def _flood(socket: WebSocketClient, count: int) -> None:
    for request_id in range(1, count + 1):
        await socket.send(message("ping", {}, request_id))


# -- anything at all --------------------------------------------------------------------------------------------

ODD_TEXT = st.text(alphabet=st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=20)
NAMES = st.sampled_from(
    ("mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-region", "accept", "mcp-session-id")
)


@st.composite
def _requests(draw: st.DrawFn) -> tuple[dict[str, str], Any, bool]:
    """Headers, body and whether a session is named: right for their era, but for a few places."""
    if draw(st.booleans()):
        return draw(st.dictionaries(NAMES, ODD_TEXT, max_size=1)), draw(mutated(LEGACY)), draw(st.booleans())
    body = draw(mutated(MODERN))
    params, method = body.get("params"), body.get("method")
    headers = modern_headers(method, params if isinstance(params, dict) else {}) if isinstance(method, str) else {}
    sendable = {name: value for name, value in headers.items() if value.isascii() and value.isprintable()}
    return {**sendable, **draw(st.dictionaries(NAMES, ODD_TEXT, max_size=1))}, body, False


def _answers(answer: HttpResponse) -> list[Any]:
    """Every answer in a response: not the notifications of a stream."""
    if answer.header("content-type") == "text/event-stream":
        messages = answer.events()
    else:
        messages = [answer.json()] if answer.body else []
    flat = [one for item in messages for one in (item if isinstance(item, list) else [item])]
    return [one for one in flat if "method" not in one]


@settings(max_examples=150, deadline=None)
@given(request=_requests())
async def test_whatever_is_posted_is_answered_once_under_its_id(
    server: LiveServer, request: tuple[dict[str, str], Any, bool]
) -> None:
    headers, body, with_session = request
    ada = await LegacyClient.open(server, "fuzz")
    named = {**JSON_AND_EVENTS, **(ada.headers if with_session else await server.bearer("fuzz"))}
    lowered = {name.lower(): value for name, value in (*named.items(), *headers.items())}

    answer = await call_app(HttpTransport(server.runtime), "POST", "/mcp", lowered, msgspec.json.encode(body))

    assert answer.status in (200, 202, 400, 403, 404, 406)
    if is_request(body) and answer.status != 406:
        assert [one["id"] for one in _answers(answer)] == [body["id"]]
    elif answer.status == 202:
        assert answer.body == b""


@settings(max_examples=100, deadline=None)
@given(body=st.binary(max_size=60), headers=st.dictionaries(st.sampled_from(("accept", "mcp-name", "x")), ODD_TEXT))
async def test_whatever_bytes_are_posted_are_refused_in_good_form(
    server: LiveServer, body: bytes, headers: dict[str, str]
) -> None:
    named = {**await server.bearer("fuzz"), "content-type": "application/json", **headers}

    answer = await call_app(HttpTransport(server.runtime), "POST", "/mcp", named, body)

    assert answer.status in (202, 400, 406)
    assert answer.status == 202 or "error" in answer.json()


async def test_the_form_of_the_fuzz_finds_what_it_should(server: LiveServer) -> None:
    """A fuzz that could not tell a right answer from a wrong one would prove nothing."""
    params = {"name": "echo", "arguments": {"text": "hi"}}
    headers = {**await server.bearer("fuzz"), **modern_headers("tools/call", params)}
    body = msgspec.json.encode(message("tools/call", modern_params(params), "q"))

    answer = await call_app(HttpTransport(server.runtime), "POST", "/mcp", headers, body)

    assert (answer.status, _answers(answer)[0]["id"]) == (200, "q")
