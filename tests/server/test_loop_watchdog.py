"""A call that blocks the event loop is logged with the code that was running."""

import asyncio
import threading
import time
import weakref
from collections.abc import Iterator

import pytest
from loguru import logger

from server.serving import ThreadTimes, watch_event_loop

LIMIT_MS = 50
WAIT_MAX_S = 30


class LoggedLines:
    """Collects the lines about the event loop and tells when one arrives. Threads of earlier tests may log, too."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.arrived = threading.Event()

    def write(self, line: str) -> None:
        if line.startswith("The event loop "):
            self.lines.append(line)
            self.arrived.set()


@pytest.fixture
def log() -> Iterator[LoggedLines]:
    lines = LoggedLines()
    sink = logger.add(lines.write, format="{message}", level="WARNING")
    yield lines
    logger.remove(sink)


def block_until_logged(log: LoggedLines) -> None:
    assert log.arrived.wait(WAIT_MAX_S)


async def test_a_block_is_logged_while_it_lasts_and_when_it_ends(log: LoggedLines) -> None:
    with watch_event_loop(LIMIT_MS):
        block_until_logged(log)
        while len(log.lines) < 2:
            await asyncio.sleep(0.01)
    during, afterwards = log.lines[:2]
    assert during.startswith("The event loop has been blocked for ")
    assert afterwards.startswith("The event loop was blocked for ")
    for line in log.lines[:2]:
        assert "tests.server.test_loop_watchdog:" in line
        assert "block_until_logged < " in line


async def test_values_of_other_threads_are_freed_while_the_loop_is_watched(log: LoggedLines) -> None:
    class Response:
        """Stands for a large value."""

    responses: list[weakref.ref[Response]] = []
    is_built, is_read = threading.Event(), threading.Event()

    def hold_a_response() -> None:
        response = Response()
        responses.append(weakref.ref(response))
        is_built.set()
        is_read.wait(WAIT_MAX_S)

    thread = threading.Thread(target=hold_a_response)
    with watch_event_loop(LIMIT_MS):
        thread.start()
        is_built.wait(WAIT_MAX_S)
        block_until_logged(log)
        is_read.set()
        await asyncio.to_thread(thread.join)
        assert responses[0]() is None


async def test_time_without_a_processor_is_not_reported(log: LoggedLines, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine on which other programs take all processors."""
    reads = ThreadTimes.read
    started = time.monotonic()
    monkeypatch.setattr(ThreadTimes, "read", lambda times: (reads(times)[0], time.monotonic() - started))
    with watch_event_loop(LIMIT_MS):
        time.sleep(10 * LIMIT_MS / 1000)
        await asyncio.sleep(LIMIT_MS / 1000)
    assert log.lines == []


def test_times_of_a_thread_are_those_of_the_system() -> None:
    times = ThreadTimes()
    before_s, waited_s = times.read()
    while time.thread_time() < before_s + 0.05:
        pass
    assert times.read()[0] >= before_s
    assert times.read()[1] >= waited_s
    times.close()


async def test_a_loop_that_waits_is_not_reported(log: LoggedLines) -> None:
    with watch_event_loop(60_000):
        await asyncio.sleep(0.2)
        await asyncio.to_thread(threading.Event().wait, 0.2)
    assert log.lines == []


async def test_nothing_is_watched_after_the_end(log: LoggedLines) -> None:
    with watch_event_loop(LIMIT_MS):
        pass
    assert not any(thread.name == "loop watchdog" for thread in threading.enumerate())
