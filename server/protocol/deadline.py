"""The deadline of a call. Unlike `asyncio.timeout` it can be paused, and it costs half as much on every call."""

import asyncio
from types import TracebackType
from typing import Any


class Deadline:
    """Cancels the task that entered it when time is up, and raises TimeoutError from the `with` block."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_over = False

    def __enter__(self) -> "Deadline":
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] = task
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._seconds, self._expire)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # If the task was also cancelled by someone else, CancelledError propagates to them.
        if self._is_over and self._task.uncancel() == 0 and exc_type is asyncio.CancelledError:
            raise TimeoutError from error

    def pause(self) -> None:
        """Stops the clock, for example while the client answers a request."""
        self._seconds = self._timer.when() - self._loop.time()
        self._timer.cancel()

    def resume(self) -> None:
        self._timer = self._loop.call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._is_over = True
        self._task.cancel()
