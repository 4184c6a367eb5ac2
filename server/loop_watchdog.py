"""Reports what blocks the event loop. While one call holds it, every other call of every user waits.

A callback on the loop notes the time again and again. A thread notices when it is late and takes the stack of the
loop's thread, which shows the call that is running. Time in which the thread could run and got no processor is not
counted: then the machine is busy, and no call of ours is to blame.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from loguru import logger
from msgspec import Struct

_ROOT = Path(__file__).resolve().parents[1]
# Beats per limit: a block is noticed at most a quarter of the limit late.
_BEATS = 4
_FRAMES_SHOWN = 6
# A block this many times as long as the limit is reported before it ends, because it may never end.
_ENDLESS = 20


class LoopDelays(Struct):
    """How late the event loop of this process was: its delays together, and how many were longer than the limit."""

    seconds: float = 0.0
    blocks: int = 0


LOOP_DELAYS = LoopDelays()


@contextmanager
def watch_event_loop(limit_ms: int) -> Iterator[None]:
    """Logs every block of the running loop that is longer than the limit, until the block of code ends."""
    watchdog = _LoopWatchdog(asyncio.get_running_loop(), limit_ms / 1000)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.stop()


class _LoopWatchdog:
    def __init__(self, loop: asyncio.AbstractEventLoop, limit_s: float) -> None:
        self._loop = loop
        self._limit_s = limit_s
        self._loop_thread = threading.get_ident()
        self._times = ThreadTimes()
        self._beat_at, self._beat_times = time.monotonic(), self._times.read()
        self._stack = ""
        self._is_reported = False
        self._stopping = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._watch, name="loop watchdog", daemon=True)

    def start(self) -> None:
        self._beat()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()
        self._thread.join()
        self._times.close()

    def _beat(self) -> None:
        blocked_s, cpu_s = self._since_beat()
        late_s = max(0.0, blocked_s - self._limit_s / _BEATS)
        LOOP_DELAYS.seconds += late_s
        if late_s > self._limit_s:
            LOOP_DELAYS.blocks += 1
            logger.warning(
                "The event loop was blocked for {:.0f} ms ({:.0f} ms of CPU time): {}",
                blocked_s * 1000,
                cpu_s * 1000,
                self._stack or "the call ended before its stack was taken",
            )
        self._beat_at, self._beat_times = time.monotonic(), self._times.read()
        self._stack, self._is_reported = "", False
        self._timer = self._loop.call_later(self._limit_s / _BEATS, self._beat)

    def _since_beat(self) -> tuple[float, float]:
        """Returns for how long the loop has been blocked, and how much CPU time it took."""
        (cpu_s, waited_s), (beat_cpu_s, beat_waited_s) = self._times.read(), self._beat_times
        return time.monotonic() - self._beat_at - (waited_s - beat_waited_s), cpu_s - beat_cpu_s

    def _watch(self) -> None:
        while not self._stopping.wait(self._limit_s / _BEATS):
            late_s, cpu_s = self._since_beat()
            if late_s > self._limit_s and not self._stack:
                # In no variable: the frames of all threads hold their results, such as large texts, and those of this
                # function would hold themselves.
                self._stack = describe_stack(sys._current_frames().get(self._loop_thread))  # noqa: SLF001 - documented
            if late_s > _ENDLESS * self._limit_s and not self._is_reported:
                self._is_reported = True
                logger.warning(
                    "The event loop has been blocked for {:.0f} ms ({:.0f} ms of CPU time): {}",
                    late_s * 1000,
                    cpu_s * 1000,
                    self._stack,
                )


class ThreadTimes:
    """For how many seconds the thread that creates this ran, and for how many it waited for a processor. The second is
    0 on systems without Linux's schedstat."""

    def __init__(self) -> None:
        try:
            self._descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = -1

    def read(self) -> tuple[float, float]:
        if self._descriptor < 0:
            return time.thread_time(), 0.0
        # Nanoseconds on a processor, nanoseconds in its queue, and the number of turns.
        ran_ns, waited_ns, _ = os.pread(self._descriptor, 64, 0).split()
        return int(ran_ns) / 1e9, int(waited_ns) / 1e9

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def describe_stack(frame: FrameType | None) -> str:
    """Returns the innermost calls, those of our own code preferred, as `module:line function`, the innermost first."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    own = [frame for frame in frames if Path(frame.f_code.co_filename).is_relative_to(_ROOT)]
    return " < ".join(
        f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno} {frame.f_code.co_qualname}"
        for frame in (own or frames)[:_FRAMES_SHOWN]
    )
