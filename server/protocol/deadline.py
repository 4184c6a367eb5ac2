"""The time a call may take. Half the price of `asyncio.timeout`, which every call would pay, and it can stand still."""

import asyncio
from types import TracebackType
from typing import Any


class Deadline:
    """Cancels the task that entered it when the time is up, and turns that into TimeoutError on the way out."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_over = False

    def __enter__(self) -> "Deadline":
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] = task
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._seconds, self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # Somebody else may have cancelled the task as well; then it is theirs to end.
        if self._is_over and self._task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def pause(self) -> None:
        """Stops the clock, for as long as the client is asked something."""
        self._seconds = self._timer.when() - self._loop.time()
        self._timer.cancel()

    def resume(self) -> None:
        self._timer = self._loop.call_later(self._seconds, self._end)

    def _end(self) -> None:
        self._is_over = True
        self._task.cancel()
