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

from server.transports.http import HttpDoor
from tests.live import Live, live, make_settings
from tests.server.clients import (
    JSON_AND_EVENTS,
    Legacy,
    Modern,
    Socket,
    handshake,
    message,
    modern_headers,
    modern_params,
)
from tests.server.in_process import ask
from tests.server.near_valid import LEGACY, MODERN, is_request, nearly
from tests.server.specimens import Gate
from tests.server.wire import PATIENCE_S, Answer, Wire, fetch, request_bytes

pytestmark = pytest.mark.asyncio(loop_scope="module")

PING = message("ping", {}, 1)


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def still_serving(up: Live) -> AsyncIterator[None]:
    """After each test the same server answers a normal call on both doors."""
    yield
    answer = await (await Modern.of(up, "survivor")).call("echo", {"text": "alive"})
    assert answer.json()["result"]["structuredContent"] == {"text": "alive", "user": "survivor"}
    async with Socket.open(up.ws, await up.bearer("survivor")) as socket:
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
    up: Live, body: bytes, code: int
) -> None:
    ada = await Legacy.open(up, "ada")

    answer = await ada.post(body)

    assert (answer.status, answer.json()["error"]["code"]) == (400, code)


async def test_of_a_key_that_comes_twice_the_last_one_counts(up: Live) -> None:
    ada = await Legacy.open(up, "ada")

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
async def test_odd_arguments_are_answered_as_the_callers_mistake(up: Live, params: dict[str, Any]) -> None:
    ada = await Legacy.open(up, "ada")

    answer = await ada.request("tools/call", params)

    assert answer.status == 200
    assert "result" in answer.json() or answer.json()["error"]["code"] == -32602


async def test_arguments_nested_just_below_what_can_be_parsed_are_answered(up: Live) -> None:
    """Each layer that walks them has less stack left than the parser had."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask_name","arguments":%s,"_meta":%s}}'
    meta = msgspec.json.encode(modern_params(capabilities={"elicitation": {}})["_meta"])
    headers = {**modern_headers("tools/call", {"name": "ask_name"}), **await up.bearer("ada")}

    for depth in (50, 90, 95, 100, 500, *range(880, 1000, 5)):
        nested = b'{"a":' * depth + b"1" + b"}" * depth
        answers = [
            await fetch(up.url, "POST", "/mcp", headers, body % (arguments, meta))
            for arguments in (nested, b'{"text":' + nested + b"}")
        ]
        assert {answer.status for answer in answers} <= {200, 400}


async def test_a_value_nested_just_below_what_can_be_parsed_is_refused_as_any_other(up: Live) -> None:
    ada = await Legacy.open(up, "ada")

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
async def test_a_long_name_is_not_repeated_at_length_in_the_answer(up: Live, method: str, params: Any) -> None:
    ada = await Legacy.open(up, "ada")

    answer = await ada.request(method, params)

    assert answer.json()["error"]["code"] in (-32601, -32602)
    assert len(answer.body) < 2_000


# -- HTTP: size -------------------------------------------------------------------------------------------------


async def test_a_body_declared_too_large_is_refused_before_it_is_read(up: Live) -> None:
    headers = {**JSON_AND_EVENTS, **await up.bearer("ada"), "Content-Length": str(10 * 1024 * 1024)}

    async with Wire.open(up.url) as wire:
        await wire.request("POST", "/mcp", headers)
        answer = await wire.answer()

    assert answer.status == 413
    assert answer.json()["error"]["data"] == {"limit_bytes": up.runtime.settings.body_max_bytes}


async def test_a_body_that_is_sent_too_large_is_refused_and_the_connection_goes_on(up: Live) -> None:
    ada = await Legacy.open(up, "ada")

    async with Wire.open(up.url) as wire:
        await wire.request("POST", "/mcp", ada.headers, b"x" * 10 * 1024 * 1024)
        assert (await wire.answer()).status == 413
        await wire.request("POST", "/mcp", ada.headers, msgspec.json.encode(PING))
        assert (await wire.answer()).json()["result"] == {}


async def test_a_body_that_grows_too_large_in_chunks_is_refused_on_the_way(up: Live) -> None:
    headers = {**JSON_AND_EVENTS, **await up.bearer("ada"), "Transfer-Encoding": "chunked"}
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"

    async with Wire.open(up.url) as wire:
        await wire.request("POST", "/mcp", headers, b"")
        for _ in range(160):
            await wire.send(chunk)
        assert (await wire.answer()).status == 413


async def test_a_body_of_just_the_limit_is_read_and_one_byte_more_is_not(up: Live) -> None:
    ada, limit = await Legacy.open(up, "ada"), up.runtime.settings.body_max_bytes
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
async def test_media_types_are_checked(up: Live, headers: dict[str, str], status: int) -> None:
    ada = await Legacy.open(up, "ada")

    assert (await ada.post(PING, headers)).status == status


async def test_an_absent_accept_header_accepts_everything_and_an_absent_content_type_is_none(up: Live) -> None:
    ada = await Legacy.open(up, "ada")
    without_accept = {name: value for name, value in ada.headers.items() if name != "Accept"}
    without_type = {name: value for name, value in ada.headers.items() if name != "Content-Type"}

    assert (await fetch(up.url, "POST", "/mcp", without_accept, msgspec.json.encode(PING))).status == 200
    assert (await fetch(up.url, "POST", "/mcp", without_type, msgspec.json.encode(PING))).status == 415


@pytest.mark.parametrize(
    "doubled", ["Authorization", "Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Origin"]
)
async def test_a_header_that_decides_something_and_comes_twice_is_refused(up: Live, doubled: str) -> None:
    ada = await Legacy.open(up, "ada")
    value = ada.headers.get(doubled, up.url if doubled == "Origin" else "2025-11-25")
    twice = {**ada.headers, doubled: value, doubled.lower() + " ".strip(): value}

    answer = await fetch(up.url, "POST", "/mcp", twice, msgspec.json.encode(PING))

    assert answer.status == 400
    assert "came twice" in answer.json()["error"]["message"]


async def test_blanks_around_header_values_change_nothing(up: Live) -> None:
    ada = await Legacy.open(up, "ada")
    padded = {name: f" \t {value} \t" for name, value in ada.headers.items()}

    assert (await fetch(up.url, "POST", "/mcp", padded, msgspec.json.encode(PING))).status == 200


@pytest.mark.parametrize("session", ["", " ", "é", "x" * 8_000, "a b", "../..", "%00", '"quoted"'])
async def test_an_odd_session_id_is_not_found_like_any_other(up: Live, session: str) -> None:
    ada = Legacy(up, {**await up.bearer("ada"), "Mcp-Session-Id": session})

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
async def test_bytes_that_are_no_request_are_refused_or_cut_off(up: Live, raw: bytes) -> None:
    async with Wire.open(up.url) as wire:
        await wire.send(raw)
        with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError, ConnectionResetError):
            async with asyncio.timeout(0.1):
                status, _ = await wire.head()
                assert 400 <= status < 500


@pytest.mark.parametrize("part", [0.01, 0.3, 0.6, 0.99])
async def test_half_a_request_and_then_nothing_does_no_harm(up: Live, part: float) -> None:
    ada = await Legacy.open(up, "ada")
    whole = request_bytes("POST", "/mcp", {"Host": "127.0.0.1", **ada.headers}, msgspec.json.encode(PING))

    for _ in range(20):
        async with Wire.open(up.url) as wire:
            await wire.send(whole[: int(len(whole) * part)])

    assert (await ada.request("ping")).status == 200


async def test_a_client_that_sends_a_byte_at_a_time_is_served(up: Live) -> None:
    ada = await Legacy.open(up, "ada")
    whole = request_bytes("POST", "/mcp", {"Host": "127.0.0.1", **ada.headers}, msgspec.json.encode(PING))

    async with Wire.open(up.url) as wire:
        for byte in whole:
            await wire.send(bytes((byte,)))
            await asyncio.sleep(0)
        assert (await wire.answer()).json()["result"] == {}


async def test_a_client_that_does_not_read_holds_up_nobody_else(up: Live) -> None:
    ada, ben = await Modern.of(up, "ada"), await Modern.of(up, "ben")
    large = {"name": "echo", "arguments": {"text": "x" * 100, "times": 100_000}}

    async with contextlib.AsyncExitStack() as stack:
        for request_id in range(1, 4):
            await stack.enter_async_context(ada.streaming("tools/call", large, request_id))
        answers = [(await ben.call("echo")).status for _ in range(5)]

    assert answers == [200] * 5


async def test_a_thousand_pipelined_requests_are_answered_in_their_order(up: Live) -> None:
    ada = await Legacy.open(up, "ada")
    headers = {"Host": "127.0.0.1", **ada.headers}
    bodies = [msgspec.json.encode(message("ping", {}, n)) for n in range(1, 1001)]

    async with Wire.open(up.url) as wire:
        await wire.send(b"".join(request_bytes("POST", "/mcp", headers, body) for body in bodies))
        answered = [(await wire.answer()).json()["id"] for _ in bodies]

    assert answered == list(range(1, 1001))


async def test_pipelined_requests_before_and_after_a_bad_one_are_answered(up: Live) -> None:
    ada = await Legacy.open(up, "ada")
    headers = {"Host": "127.0.0.1", **ada.headers}
    bodies = [msgspec.json.encode(PING), b"rubbish", msgspec.json.encode(PING)]

    async with Wire.open(up.url) as wire:
        await wire.send(b"".join(request_bytes("POST", "/mcp", headers, body) for body in bodies))
        assert [(await wire.answer()).status for _ in bodies] == [200, 400, 200]


async def test_an_abrupt_end_in_the_middle_of_a_stream_does_no_harm(up: Live, gate: Gate) -> None:
    legacy, modern = await Legacy.open(up, "ada"), await Modern.of(up, "ada")
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


async def test_a_stream_nobody_reads_ends_with_its_client(up: Live) -> None:
    ada = await Modern.of(up, "ada")
    large = {"name": "echo", "arguments": {"text": "x" * 1000, "times": 20_000}}

    for request_id in range(1, 4):
        async with ada.streaming("tools/call", large, request_id) as wire:
            await wire.head()

    assert (await ada.call("echo")).status == 200


# -- WebSocket --------------------------------------------------------------------------------------------------


class RawSocket:
    """A WebSocket client that frames by hand, after a proper upgrade."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, up: Live, name: str = "ada") -> AsyncIterator["RawSocket"]:
        upgrade = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version": "13",
            **await up.bearer(name),
        }
        async with Wire.open(up.url) as wire:
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
async def test_a_frame_that_is_no_message_is_refused_and_the_connection_lives(up: Live, text: str, code: int) -> None:
    async with Socket.open(up.ws, await up.bearer("ada")) as socket:
        await socket.connection.send(text)

        assert (await socket.receive())["error"]["code"] == code
        assert (await socket.initialize())["result"]


async def test_a_message_in_pieces_is_read_as_one(up: Live) -> None:
    body = msgspec.json.encode(PING)
    async with RawSocket.open(up) as socket:
        await socket.send(Opcode.TEXT, body[:5], fin=False)
        await socket.send(Opcode.PING, b"are you there")
        await socket.send(Opcode.CONT, body[5:9], fin=False)
        await socket.send(Opcode.CONT, body[9:])
        frames = [await socket.receive(), await socket.receive()]

    assert frames[0] == (Opcode.PONG, b"are you there")
    assert msgspec.json.decode(frames[1][1])["result"] == {}


async def test_a_message_over_the_limit_closes_with_1009(up: Live) -> None:
    async with Socket.open(up.ws, await up.bearer("ada")) as socket:
        with contextlib.suppress(ConnectionClosed):
            await socket.connection.send("x" * (up.runtime.settings.body_max_bytes + 1))

        assert await socket.close_code() == 1009


async def test_a_message_that_grows_over_the_limit_in_pieces_closes_with_1009(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, body_max_bytes=1024)) as up, RawSocket.open(up) as socket:
        await socket.send(Opcode.TEXT, b"x" * 600, fin=False)
        await socket.send(Opcode.CONT, b"x" * 600)

        assert await socket.close_code() == 1009


async def test_a_compressed_message_counts_by_what_it_becomes(up: Live) -> None:
    async with Socket.open(up.ws, await up.bearer("ada")) as socket:
        assert [extension.name for extension in socket.connection.protocol.extensions] == ["permessage-deflate"]
        with contextlib.suppress(ConnectionClosed):
            await socket.connection.send(" " * 50_000_000)

        assert await socket.close_code() == 1009


async def test_a_binary_frame_closes_with_1003(up: Live) -> None:
    async with Socket.open(up.ws, await up.bearer("ada")) as socket:
        await socket.connection.send(msgspec.json.encode(PING))

        assert await socket.close_code() == 1003


async def test_text_that_is_not_utf_8_closes_with_1007(up: Live, failures: list[str]) -> None:
    async with RawSocket.open(up) as socket:
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
async def test_a_frame_against_the_protocol_closes_with_1002(up: Live, raw: bytes) -> None:
    async with RawSocket.open(up) as socket:
        await socket.send_raw(raw)

        assert await socket.close_code() == 1002


@pytest.mark.parametrize("count", [1, 2, 5, 9])
async def test_half_a_frame_and_an_abrupt_end_do_no_harm(up: Live, count: int) -> None:
    whole = Frame(Opcode.TEXT, msgspec.json.encode(handshake())).serialize(mask=True)

    for _ in range(5):
        async with RawSocket.open(up) as socket:
            await socket.send_raw(whole[:count])


async def test_an_abrupt_end_while_calls_run_stops_them(up: Live, gate: Gate) -> None:
    called = msgspec.json.encode(
        message("tools/call", modern_params({"name": "wait", "arguments": {"gate": "g"}}, progress_token=1), 1)
    )
    async with RawSocket.open(up) as socket:
        await socket.send(Opcode.TEXT, called)
        await asyncio.wait_for(gate.reached.wait(), PATIENCE_S)

    await asyncio.wait_for(gate.cancelled.wait(), PATIENCE_S)


async def test_an_abrupt_end_before_the_answers_were_read_does_no_harm(up: Live) -> None:
    called = modern_params({"name": "echo", "arguments": {"text": "x" * 1000, "times": 1000}})

    for _ in range(3):
        async with RawSocket.open(up) as socket:
            for request_id in range(1, 21):
                await socket.send(Opcode.TEXT, msgspec.json.encode(message("tools/call", called, request_id)))


async def test_a_flood_of_requests_is_answered_each_once(up: Live) -> None:
    async with Socket.open(up.ws, await up.bearer("ada")) as socket:
        await socket.initialize()
        sending = asyncio.create_task(_flood(socket, 1000))
        answered = [(await socket.receive())["id"] for _ in range(1000)]
        await sending

    assert sorted(answered) == list(range(1, 1001))


async def _flood(socket: Socket, count: int) -> None:
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
        return draw(st.dictionaries(NAMES, ODD_TEXT, max_size=1)), draw(nearly(LEGACY)), draw(st.booleans())
    body = draw(nearly(MODERN))
    params, method = body.get("params"), body.get("method")
    headers = modern_headers(method, params if isinstance(params, dict) else {}) if isinstance(method, str) else {}
    sendable = {name: value for name, value in headers.items() if value.isascii() and value.isprintable()}
    return {**sendable, **draw(st.dictionaries(NAMES, ODD_TEXT, max_size=1))}, body, False


def _answers(answer: Answer) -> list[Any]:
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
    up: Live, request: tuple[dict[str, str], Any, bool]
) -> None:
    headers, body, with_session = request
    ada = await Legacy.open(up, "fuzz")
    named = {**JSON_AND_EVENTS, **(ada.headers if with_session else await up.bearer("fuzz"))}
    lowered = {name.lower(): value for name, value in (*named.items(), *headers.items())}

    answer = await ask(HttpDoor(up.runtime), "POST", "/mcp", lowered, msgspec.json.encode(body))

    assert answer.status in (200, 202, 400, 403, 404, 406)
    if is_request(body) and answer.status != 406:
        assert [one["id"] for one in _answers(answer)] == [body["id"]]
    elif answer.status == 202:
        assert answer.body == b""


@settings(max_examples=100, deadline=None)
@given(body=st.binary(max_size=60), headers=st.dictionaries(st.sampled_from(("accept", "mcp-name", "x")), ODD_TEXT))
async def test_whatever_bytes_are_posted_are_refused_in_good_form(
    up: Live, body: bytes, headers: dict[str, str]
) -> None:
    named = {**await up.bearer("fuzz"), "content-type": "application/json", **headers}

    answer = await ask(HttpDoor(up.runtime), "POST", "/mcp", named, body)

    assert answer.status in (202, 400, 406)
    assert answer.status == 202 or "error" in answer.json()


async def test_the_form_of_the_fuzz_finds_what_it_should(up: Live) -> None:
    """A fuzz that could not tell a right answer from a wrong one would prove nothing."""
    params = {"name": "echo", "arguments": {"text": "hi"}}
    headers = {**await up.bearer("fuzz"), **modern_headers("tools/call", params)}
    body = msgspec.json.encode(message("tools/call", modern_params(params), "q"))

    answer = await ask(HttpDoor(up.runtime), "POST", "/mcp", headers, body)

    assert (answer.status, _answers(answer)[0]["id"]) == (200, "q")
