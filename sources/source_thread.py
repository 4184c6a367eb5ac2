"""A thread with an event loop of its own for the code of a third-party source.

Code that blocks, raises SystemExit or never returns then holds up only the calls of its own source. A thread that no
longer responds is left alone and replaced.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from loguru import logger

from config.errors import Unavailable

T = TypeVar("T")

# Threads of one source that may be blocked before it is refused. Each of them exists until its code returns.
_BLOCKED_MAX = 2
_RETRY_S = 10.0
# How long a thread may take to react before it counts as blocked. A busy one reacts within milliseconds.
_RESPONSE_S = 0.5


class SourceExited(Exception):
    """A source tried to end the process or to cancel its caller."""


class _LoopThread:
    """One thread. It is blocked if it has not reacted to a probe for a while."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._probed_at: float | None = None
        self._is_replaced = False
        threading.Thread(target=self._run, name=f"source-{name}", daemon=True).start()

    @property
    def is_blocked(self) -> bool:
        probed_at = self._probed_at
        return probed_at is not None and time.monotonic() - probed_at > _RESPONSE_S

    def probe(self) -> None:
        self._probed_at = self._probed_at or time.monotonic()
        self.loop.call_soon_threadsafe(self._respond)

    def replace(self) -> None:
        """Ends the thread as soon as it is no longer blocked."""
        self._is_replaced = True
        self.loop.call_soon_threadsafe(self.loop.stop)

    def _respond(self) -> None:
        self._probed_at = None

    def _run(self) -> None:
        while not self._is_replaced:
            try:
                self.loop.run_forever()
            except BaseException as error:  # a task that the source has started can raise SystemExit
                logger.opt(exception=error).error("a task of a third-party source failed")


class SourceThread:
    """Runs the calls of one source, each on the current thread of the source."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._current: _LoopThread | None = None
        self._blocked: list[_LoopThread] = []

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Awaits `work()` on the thread. Cancelling the caller returns at once, whatever the source does."""
        thread = self._require_thread()
        future = asyncio.run_coroutine_threadsafe(_guard(work), thread.loop)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            thread.probe()
            raise

    def run_function(self, function: Callable[..., T], *args: Any, timeout_s: float) -> T:
        """Calls the function on the thread and waits for it, so it must not be called on an event loop."""

        async def call() -> T:
            return function(*args)

        thread = self._require_thread()
        try:
            return asyncio.run_coroutine_threadsafe(_guard(call), thread.loop).result(timeout_s)
        except TimeoutError:
            thread.probe()
            raise

    def _require_thread(self) -> _LoopThread:
        with self._lock:
            if self._current is not None and self._current.is_blocked:
                logger.warning("the source {} blocks its thread, which is replaced", self._name)
                self._current.replace()
                self._blocked.append(self._current)
                self._current = None
            self._blocked = [thread for thread in self._blocked if thread.is_blocked]
            if self._current is None:
                if len(self._blocked) >= _BLOCKED_MAX:
                    raise Unavailable(f"{self._name} does not respond", _RETRY_S)
                self._current = _LoopThread(self._name)
            return self._current


async def _guard(work: Callable[[], Awaitable[T]]) -> T:
    """Turns attempts to end the process or the caller into ordinary exceptions."""
    try:
        return await work()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise SourceExited("the source cancelled its caller") from error
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise SourceExited(f"the source raised {type(error).__name__}") from error
