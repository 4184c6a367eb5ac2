"""What a storage job belongs to: whether its work is in the background, and how long its jobs waited for their turn.

The group is passed in a context variable, so that it also reaches the jobs of third-party sources.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar


class JobGroup:
    """The jobs of one piece of work, such as the search of one source. Threads that start jobs end the waits, and a
    storage engine calls these methods under its own lock.

    `call` has the jobs that it shares with other work of the same call."""

    __slots__ = ("_waited_s", "_waiting", "_waiting_since", "call", "is_background")

    def __init__(self, *, is_background: bool = False, call: "CallGroup | None" = None) -> None:
        self.is_background = is_background
        self.call = call
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
        """Returns for how long at least one job was waiting, including a wait that has not ended and jobs of the
        call."""
        since = self._waiting_since
        own_s = self._waited_s + (time.monotonic() - since if self._waiting else 0.0)
        return own_s if self.call is None else own_s + self.call.waited_s()


class CallGroup(JobGroup):
    """The jobs that several groups of one call share: an engine may run the reads of all sources that a search needs in
    one job. The call has `limit_s` seconds, so a read should not wait long for the others."""

    __slots__ = ("limit_s",)

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self.limit_s = limit_s


_CURRENT: ContextVar[JobGroup | None] = ContextVar("job_group", default=None)


def current_job_group() -> JobGroup | None:
    return _CURRENT.get()


def current_call() -> CallGroup | None:
    """Returns the group of the jobs that the current work may share with other work of its call."""
    group = _CURRENT.get()
    return group.call if group is not None else None


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
