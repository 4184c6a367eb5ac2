"""What a storage job belongs to: whether its work is in the background, and how long its jobs waited for their turn.

The group is passed in a context variable, so that it also reaches the jobs of third-party sources.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar


class JobGroup:
    """The jobs of one piece of work, such as the search of one source. Threads that start jobs end the waits, and a
    storage engine calls these methods under its own lock."""

    __slots__ = ("_waited_s", "_waiting", "_waiting_since", "is_background")

    def __init__(self, *, is_background: bool = False) -> None:
        self.is_background = is_background
        self._waiting = 0
        self._waiting_since = 0.0
        self._waited_s = 0.0

    def begin_wait(self, now: float) -> None:
        if not self._waiting:
            self._waiting_since = now
        self._waiting += 1

    def end_wait(self, now: float) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._waited_s += now - self._waiting_since

    def waited_s(self) -> float:
        """Returns for how long at least one job was waiting, including a wait that has not ended."""
        since = self._waiting_since
        return self._waited_s + (time.monotonic() - since if self._waiting else 0.0)


_CURRENT: ContextVar[JobGroup | None] = ContextVar("job_group", default=None)


def current_job_group() -> JobGroup | None:
    return _CURRENT.get()


@contextmanager
def job_group(group: JobGroup) -> Iterator[JobGroup]:
    """Jobs that are submitted in the block, or by tasks that it creates, belong to the group."""
    token = _CURRENT.set(group)
    try:
        yield group
    finally:
        _CURRENT.reset(token)


def background_jobs() -> AbstractContextManager[JobGroup]:
    """Jobs in the block are in the background: they yield to calls that someone is waiting for."""
    return job_group(JobGroup(is_background=True))
