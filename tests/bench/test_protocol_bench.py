"""The protocol benchmark: it runs from end to end, believes no wrong answer, and reports the less flattering ratio."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import Job, WrongAnswer, perform, take_frame, take_http
from bench.processes import Cores, cpu_seconds
from bench.protocol import Measured, figures, sdk_ratios
from bench.startup import IdleMemory
from bench.subjects import ECHO, SUBJECTS
from bench.wires import modern_line, websocket_line

ROOT = Path(__file__).parents[2]
NUMBER = r"[0-9]+\.[0-9]+"
RESULT = re.compile(
    rf"RESULT http_cpu_ms=({NUMBER}) ws_cpu_ms=({NUMBER}) sdk_ratio=({NUMBER}) "
    rf"sdk_modern_ratio=({NUMBER}) stdio_start_cpu_s=({NUMBER}) idle_rss_mb=({NUMBER})"
)

Answer = Callable[[dict[str, Any]], bytes]


def http_answer(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status.encode(), len(body), body)


def result(request_id: int, text: str, **more: Any) -> bytes:
    content = [{"type": "text", "text": text}]
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "result": {"content": content, **more}})


def good(call: dict[str, Any]) -> bytes:
    return http_answer(result(call["id"], call["params"]["arguments"]["text"]))


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[tuple[int, list[int]]]:
    """A server on a port, and the ids it was called with."""
    called: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.read(65_536):
            call = msgspec.json.decode(head.partition(b"\r\n\r\n")[2])
            called.append(call["id"])
            writer.write(answer(call))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], called


def job(port: int, *, connections: int = 2, warmup_calls: int = 3) -> Job:
    line = modern_line(f"http://127.0.0.1:{port}/mcp", ECHO, "a token")
    text = "the quick brown fox"
    return Job("127.0.0.1", port, "http", (line,) * connections, text, warmup_calls, seconds=0.02)


def test_quick_run_measures_every_subject_and_ends_with_the_result() -> None:
    quick = [sys.executable, "-m", "bench.protocol", "--quick"]

    ran = subprocess.run(quick, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=120, check=True)

    *report, last = ran.stdout.splitlines()
    assert all(any(line.startswith(subject.title) for line in report) for subject in SUBJECTS)
    found = RESULT.fullmatch(last)
    assert found
    assert all(float(number) > 0 for number in found.groups())


async def test_every_call_after_the_warm_up_is_counted() -> None:
    called_before_start: list[int] = []
    async with answering(good) as (port, called):
        answered = await perform(job(port), lambda: called_before_start.extend(called))

    assert len(called_before_start) == 6
    assert answered.calls == len(called) - 6 >= 2


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(lambda call: http_answer(b"{}", "503 Busy"), id="another status"),
        pytest.param(lambda call: http_answer(b"[]"), id="no JSON-RPC"),
        pytest.param(lambda call: http_answer(result(call["id"] + 1, "the quick brown fox")), id="another id"),
        pytest.param(lambda call: http_answer(result(call["id"], "the slow fox")), id="another text"),
        pytest.param(lambda call: http_answer(result(call["id"], "the quick brown fox", isError=True)), id="error"),
    ],
)
@pytest.mark.parametrize("after", [0, 5], ids=["at once", "later"])
async def test_a_wrong_answer_ends_the_measurement(bad: Answer, after: int) -> None:
    answered = 0

    def turning_bad(call: dict[str, Any]) -> bytes:
        nonlocal answered
        answered += 1
        return good(call) if answered <= after else bad(call)

    async with answering(turning_bad) as (port, _):
        with pytest.raises(WrongAnswer):
            await perform(job(port, connections=1), lambda: None)


async def test_a_closed_connection_ends_the_measurement() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        with pytest.raises(WrongAnswer, match="closed"):
            await perform(job(server.sockets[0].getsockname()[1]), lambda: None)


@given(bodies=st.lists(st.binary(max_size=300), min_size=1, max_size=4), cut=st.integers(0, 2000))
def test_http_answers_are_found_wherever_the_stream_was_cut(bodies: list[bytes], cut: int) -> None:
    stream = b"".join(http_answer(body) for body in bodies)

    found, rest = drain(take_http, stream[:cut])
    more, rest = drain(take_http, rest + stream[cut:])

    assert (found + more, rest) == (bodies, b"")


@given(bodies=st.lists(st.binary(min_size=126, max_size=300), min_size=1, max_size=4), cut=st.integers(0, 2000))
def test_frames_are_found_wherever_the_stream_was_cut(bodies: list[bytes], cut: int) -> None:
    stream = b"".join(b"\x81\x7e" + len(body).to_bytes(2, "big") + body for body in bodies)

    found, rest = drain(take_frame, stream[:cut])
    more, rest = drain(take_frame, rest + stream[cut:])

    assert (found + more, rest) == (bodies, b"")


def drain(take: Callable[[bytes], tuple[bytes, bytes] | None], stream: bytes) -> tuple[list[bytes], bytes]:
    found = []
    while taken := take(stream):
        body, stream = taken
        found.append(body)
    return found, stream


def test_declared_lengths_are_those_of_a_call_with_a_seven_digit_id() -> None:
    post = modern_line("http://127.0.0.1:1/mcp", ECHO, "a token")
    frame = websocket_line("http://127.0.0.1:1/mcp", ECHO, "a token")

    head, body = (post.before + b"1234567" + post.after).split(b"\r\n\r\n")
    message = (frame.before + b"1234567" + frame.after)[8:]

    assert b"Content-Length: %d\r\n" % len(body) in head
    assert int.from_bytes(frame.before[2:4], "big") == len(message)
    assert msgspec.json.decode(message) == msgspec.json.decode(body)


def test_both_ratios_are_reported_and_the_stateless_one_is_the_headline() -> None:
    cpu_ms = {"http_echo": 0.1, "sdk_echo": 0.6, "http_echo_legacy": 0.2, "sdk_echo_legacy": 1.6}
    measured = {s.name: Measured(s, 10, (9.0, cpu_ms.get(s.name, 0.1), 0.0)) for s in SUBJECTS}

    told = figures(measured, [0.3, 0.1, 0.2], IdleMemory(50_000_000, 60_000_000))

    assert sdk_ratios(measured) == pytest.approx({"modern": 6.0, "legacy": 8.0})
    assert told.as_line() == (
        "RESULT http_cpu_ms=0.100 ws_cpu_ms=0.100 sdk_ratio=8.00 sdk_modern_ratio=6.00 "
        "stdio_start_cpu_s=0.200 idle_rss_mb=60.0"
    )


def test_servers_and_load_share_a_lone_processor_and_part_otherwise() -> None:
    lone, several = Cores([3]), Cores([0, 2, 5])

    assert (lone.servers, lone.others, lone.apart) == (frozenset([3]), frozenset([3]), False)
    assert (several.servers, several.others, several.apart) == (frozenset([0]), frozenset([2, 5]), True)


def test_processor_time_of_another_process_is_read() -> None:
    script = "import time; sum(range(3_000_000)); print(time.process_time(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        told = float(busy.stdout.readline())
        read = cpu_seconds(busy.pid)
        busy.communicate(b"\n")

    assert told <= read < told + 1.0
