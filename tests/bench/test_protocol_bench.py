"""The protocol benchmark runs end to end, rejects unexpected responses, and reports the less favourable ratio."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import Job, UnexpectedResponse, parse_frame, parse_http_response, perform
from bench.processes import Cores, cpu_seconds
from bench.protocol import CaseResult, figures, sdk_ratios
from bench.protocol_cases import CASES, ECHO
from bench.request_templates import modern_request, websocket_request
from bench.startup import IdleMemory
from tests.bench.runs import output_of

NUMBER = r"[0-9]+\.[0-9]+"
RESULT = re.compile(
    rf"RESULT http_cpu_ms=({NUMBER}) http_x_floor=({NUMBER}) ws_cpu_ms=({NUMBER}) sdk_ratio=({NUMBER}) "
    rf"sdk_modern_ratio=({NUMBER}) stdio_start_cpu_s=({NUMBER}) idle_rss_mb=({NUMBER})"
)

Responder = Callable[[dict[str, Any]], bytes]


def http_response(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status.encode(), len(body), body)


def result(request_id: int, text: str, **more: Any) -> bytes:
    content = [{"type": "text", "text": text}]
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "result": {"content": content, **more}})


def valid_response(call: dict[str, Any]) -> bytes:
    return http_response(result(call["id"], call["params"]["arguments"]["text"]))


@asynccontextmanager
async def run_server(respond: Responder) -> AsyncIterator[tuple[int, list[int]]]:
    """Runs a server and yields its port and the ids of the calls it received."""
    received: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.read(65_536):
            call = msgspec.json.decode(head.partition(b"\r\n\r\n")[2])
            received.append(call["id"])
            writer.write(respond(call))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], received


def job(port: int, *, connections: int = 2, warmup_calls: int = 3) -> Job:
    request = modern_request(f"http://127.0.0.1:{port}/mcp", ECHO, "a token")
    text = "the quick brown fox"
    return Job("127.0.0.1", port, "http", (request,) * connections, text, warmup_calls, seconds=0.02)


def test_quick_run_measures_every_protocol_case_and_prints_the_result() -> None:
    *report, last = output_of("bench.protocol", "--quick")
    assert all(any(line.startswith(case.title) for line in report) for case in CASES)
    result_line = RESULT.fullmatch(last)
    assert result_line
    assert all(float(number) > 0 for number in result_line.groups())


async def test_calls_after_the_warm_up_are_counted() -> None:
    warm_up: list[int] = []
    async with run_server(valid_response) as (port, received):
        count = await perform(job(port), lambda: warm_up.extend(received))

    assert len(warm_up) == 6
    assert count.calls == len(received) - 6 >= 2


@pytest.mark.parametrize(
    "respond",
    [
        pytest.param(lambda call: http_response(b"{}", "503 Busy"), id="another status"),
        pytest.param(lambda call: http_response(b"[]"), id="no JSON-RPC"),
        pytest.param(lambda call: http_response(result(call["id"] + 1, "the quick brown fox")), id="another id"),
        pytest.param(lambda call: http_response(result(call["id"], "the slow fox")), id="another text"),
        pytest.param(lambda call: http_response(result(call["id"], "the quick brown fox", isError=True)), id="error"),
    ],
)
@pytest.mark.parametrize("after", [0, 5], ids=["at once", "later"])
async def test_unexpected_response_ends_the_measurement(respond: Responder, after: int) -> None:
    calls = 0

    def respond_eventually(call: dict[str, Any]) -> bytes:
        nonlocal calls
        calls += 1
        return valid_response(call) if calls <= after else respond(call)

    async with run_server(respond_eventually) as (port, _):
        with pytest.raises(UnexpectedResponse):
            await perform(job(port, connections=1), lambda: None)


async def test_closed_connection_ends_the_measurement() -> None:
    async def close_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(close_at_once, "127.0.0.1", 0) as server:
        with pytest.raises(UnexpectedResponse, match="closed"):
            await perform(job(server.sockets[0].getsockname()[1]), lambda: None)


@given(bodies=st.lists(st.binary(max_size=300), min_size=1, max_size=4), split=st.integers(0, 2000))
def test_http_responses_are_parsed_wherever_the_stream_is_split(bodies: list[bytes], split: int) -> None:
    stream = b"".join(http_response(body) for body in bodies)

    bodies_before, rest = drain(parse_http_response, stream[:split])
    bodies_after, rest = drain(parse_http_response, rest + stream[split:])

    assert (bodies_before + bodies_after, rest) == (bodies, b"")


@given(bodies=st.lists(st.binary(min_size=126, max_size=300), min_size=1, max_size=4), split=st.integers(0, 2000))
def test_frames_are_parsed_wherever_the_stream_is_split(bodies: list[bytes], split: int) -> None:
    ping = b"\x89\x04ping"
    stream = b"".join(ping + b"\x81\x7e" + len(body).to_bytes(2, "big") + body for body in bodies)

    bodies_before, rest = drain(parse_frame, stream[:split])
    bodies_after, rest = drain(parse_frame, rest + stream[split:])

    assert (bodies_before + bodies_after, rest) == (bodies, b"")


def drain(parse: Callable[[bytes], tuple[bytes, bytes] | None], stream: bytes) -> tuple[list[bytes], bytes]:
    bodies = []
    while parsed := parse(stream):
        body, stream = parsed
        bodies.append(body)
    return bodies, stream


def test_declared_lengths_match_a_call_with_a_seven_digit_id() -> None:
    post = modern_request("http://127.0.0.1:1/mcp", ECHO, "a token")
    frame = websocket_request("http://127.0.0.1:1/mcp", ECHO, "a token")

    head, body = post.render(1_234_567).split(b"\r\n\r\n")
    message = frame.render(1_234_567)[8:]

    assert b"Content-Length: %d\r\n" % len(body) in head
    assert int.from_bytes(frame.before_id[2:4], "big") == len(message)
    assert msgspec.json.decode(message) == msgspec.json.decode(body)


def test_both_ratios_are_reported_and_the_stateless_one_is_sdk_ratio() -> None:
    cpu_ms = {"http_echo": 0.1, "sdk_echo": 0.6, "http_echo_legacy": 0.2, "sdk_echo_legacy": 1.6}
    results = {s.name: CaseResult(s, 10, (9.0, cpu_ms.get(s.name, 0.1), 0.0)) for s in CASES}

    line = figures(results, [0.3, 0.1, 0.2], IdleMemory(50_000_000, 60_000_000)).as_line()

    assert sdk_ratios(results) == pytest.approx({"modern": 6.0, "legacy": 8.0})
    assert line == (
        "RESULT http_cpu_ms=0.100 http_x_floor=1.00 ws_cpu_ms=0.100 sdk_ratio=8.00 sdk_modern_ratio=6.00 "
        "stdio_start_cpu_s=0.200 idle_rss_mb=60.0"
    )


def test_servers_and_load_share_a_single_core_and_are_separate_otherwise() -> None:
    single, several = Cores([3]), Cores([0, 2, 5])

    assert (single.servers, single.others, single.are_separate) == (frozenset([3]), frozenset([3]), False)
    assert (several.servers, several.others, several.are_separate) == (frozenset([0]), frozenset([2, 5]), True)


def test_cpu_time_of_another_process_is_read() -> None:
    script = "import time; sum(range(3_000_000)); print(time.process_time(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        reported = float(busy.stdout.readline())
        measured = cpu_seconds(busy.pid)
        busy.communicate(b"\n")

    assert reported <= measured < reported + 1.0
