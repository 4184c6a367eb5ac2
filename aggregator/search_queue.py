"""The queue of searches over all sources. Only a few run at the same time, and users take fair turns.

A search that waits has done no work yet, so that many of them cost little, and one that is refused costs nothing.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from config.errors import Overloaded
from config.paths import UserId
from config.settings import Settings
from sources.storage.contract import QueueState
from sources.storage.job_queue import JobLane, JobQueue, QueuedJob

# One more than there are job slots: it keeps them busy while the event loop merges and renders the hits of another
# search. With more, no search would be answered earlier, and a user who goes ahead would share the processor with more.
_SEARCHES_BEYOND_CORES = 1


class SearchQueue:
    def __init__(self, settings: Settings) -> None:
        self._queue = JobQueue(settings.search_running_max or (os.cpu_count() or 1) + _SEARCHES_BEYOND_CORES)
        self._wait_max_s = settings.library_wait_max_ms / 1000

    def state(self) -> QueueState:
        return self._queue.state()

    @asynccontextmanager
    async def turn(self, user_id: UserId, wait_max_ms: int | None) -> AsyncIterator[None]:
        """Waits for the user's turn, which lasts for the block. Raises Overloaded at once if that is expected to take
        longer than the setting allows, or longer than `wait_max_ms`."""
        self._require_short_wait(user_id, wait_max_ms)
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job = QueuedJob(user_id, JobLane(), None, partial(_begin, started))
        self._queue.add(job)
        try:
            await started
            yield
        finally:
            if job.started_at is not None:
                job.cost_s = time.monotonic() - job.started_at
                self._queue.finish(job)
            self._queue.leave(job)

    def _require_short_wait(self, user_id: UserId, wait_max_ms: int | None) -> None:
        wait_max_s = self._wait_max_s if wait_max_ms is None else min(self._wait_max_s, wait_max_ms / 1000)
        wait_s = self._queue.expected_wait_s(user_id, 1)
        if wait_s > wait_max_s:
            # With a deadline of its own, the call says nothing about others.
            raise Overloaded.until_served(wait_s - wait_max_s, is_repeatable=wait_s > self._wait_max_s)


def _begin(started: asyncio.Future[None]) -> None:
    """The caller may have been cancelled a moment ago."""
    if not started.done():
        started.set_result(None)
