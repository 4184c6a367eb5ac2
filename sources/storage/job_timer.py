"""Ends the wait for a job that has run for too long."""

import asyncio
import time
from typing import Any, Protocol


class TimedJob(Protocol):
    @property
    def started_at(self) -> float | None:
        """When the job started to run; None while it waits."""
        ...


class RunTimer:
    """Raises TimeoutError from the future when the job has run for `limit_s`. The time it waits does not count."""

    def __init__(self, job: TimedJob, result: asyncio.Future[Any], limit_s: float) -> None:
        self._job = job
        self._result = result
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(limit_s, self._check)

    def stop(self) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        started_at = self._job.started_at
        left_s = self._limit_s if started_at is None else started_at + self._limit_s - time.monotonic()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check)
        elif not self._result.done():
            self._result.set_exception(TimeoutError())
