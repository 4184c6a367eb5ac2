"""Decides which job runs next: a fair queue over a limited number of job slots, shared by all users. Reads that a call
starts at the same time become one job (`JointReads`).

Every user has a share of the job time. Of the users with waiting jobs, the one who has used the least time is served
next, as in start-time fair queueing. A user who was idle gets a small credit, so that an occasional call goes ahead of
users who search all the time, and does not even wait for a slot. Background jobs have a slot of their own, and pause
often while other jobs are running.

The queue is used by the event loop, which adds jobs, and by the threads that run them, which start the next job
themselves: otherwise a busy event loop would leave the slots empty.
"""

import asyncio
import itertools
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from config.errors import Overloaded
from config.paths import UserId
from sources.storage.contract import QueueState

T = TypeVar("T")

# Reads that may wait for one file, and as many writes. Waits are bounded by time long before; this bounds memory.
LIBRARY_QUEUE_MAX = 2000

# -- job group ---------------------------------------------------------------------------------------------------------
# What a storage job belongs to: whether its work is in the background, and how long its jobs waited for their turn.
#
# The group is passed in a context variable, so that it also reaches the jobs of third-party sources.


class JobGroup(Struct, eq=False, kw_only=True):
    """The jobs of one piece of work, such as the search of one source. Threads that start jobs end the waits, and a
    storage engine calls these methods under its own lock.

    `is_maintenance` marks background work that no user asked for. `call` has the jobs that it shares with other work
    of the same call."""

    is_background: bool = False
    is_maintenance: bool = False
    call: "CallGroup | None" = None
    _waiting: int = 0
    _waiting_since: float = 0.0
    _waited_s: float = 0.0

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


class CallGroup(JobGroup, eq=False):
    """The jobs that several groups of one call share: an engine may run the reads of all sources that a search needs in
    one job. The call has `limit_s` seconds, so a read should not wait long for the others."""

    limit_s: float


# A task that sets it without `job_group` does so for the rest of the task.
CURRENT_GROUP: ContextVar[JobGroup | None] = ContextVar("job_group", default=None)


@contextmanager
def job_group(group: JobGroup) -> Iterator[JobGroup]:
    """Jobs that are submitted in the block, or by tasks that it creates, belong to the group."""
    token = CURRENT_GROUP.set(group)
    try:
        yield group
    finally:
        CURRENT_GROUP.reset(token)


_CHARGED: ContextVar[UserId | None] = ContextVar("charged_user", default=None)


@contextmanager
def charged_to(user_id: UserId) -> Iterator[None]:
    """Jobs in the block count for this user, whoever owns the library. Who reads a library of someone else waits behind
    their own other jobs, and uses up their own share: neither the owner nor another member is served later for it. The
    connections of a library still run one job at a time, and the deadlines of jobs bound how long that takes."""
    token = _CHARGED.set(user_id)
    try:
        yield
    finally:
        _CHARGED.reset(token)


def background_jobs(*, is_maintenance: bool = False) -> AbstractContextManager[JobGroup]:
    """Jobs in the block are in the background: they yield to calls that someone is waiting for. Maintenance does not
    create a library for a user who has none."""
    return job_group(JobGroup(is_background=True, is_maintenance=is_maintenance))


# The time that a user who was idle may use ahead of others: about one search of all sources. With more, users who
# return would hold up those who are active.
_CREDIT_S = 0.02
# The debt of a user after one long job. Without a limit, a single slow query would have to wait until every other user
# has used as much.
_DEBT_MAX_S = 0.05
# Results per slot that the event loop has not processed yet. More would only delay its other work.
_RESULTS_PER_SLOT = 4
# A background job pauses after this time if other jobs are running, and for this many times as long as it worked.
_BACKGROUND_WORK_S = 0.002
_BACKGROUND_PAUSES = 6.0
# A pause keeps the transaction of the job open and cannot be interrupted.
_BACKGROUND_PAUSE_MAX_S = 0.1
# The weight of a new sample in the mean time between two starts.
_SAMPLE_WEIGHT = 0.05
_SHARES_MAX = 1_000


class JobLane(Struct, eq=False):
    """The jobs of one connection, of which one runs at a time."""

    is_busy: bool = False
    waiting: int = 0


class QueuedJob(Struct, eq=False):
    """A job from the moment it waits. `begin` starts it, for example by handing it to the thread of its connection.
    `is_background` is set by the queue. `cost_s` is set at the end: what it counts against the user's share."""

    user_id: UserId
    lane: JobLane
    group: JobGroup | None
    begin: Callable[[], None]
    # For its caller, if it was submitted.
    result: asyncio.Future[Any] | None = None
    number: int = 0
    queued_at: float = 0.0
    started_at: float | None = None
    has_slot: bool = False
    has_result: bool = False
    cost_s: float = 0.0
    is_background: bool = False


class Job(Struct, Generic[T], eq=False):
    """A piece of work and the time it may take, which starts to run when the work does. `pace` slows it down."""

    work: Callable[[Any], T]
    limit_s: float
    pace: "BackgroundPace | None" = None
    due: float = float("inf")
    is_stopped: bool = False
    # Set by the thread that ran the job, whatever the outcome was.
    is_finished: bool = False


class _Share:
    """The waiting jobs of one user, interactive or background, and the job time the user has used."""

    __slots__ = ("lanes", "running", "used_s", "waiting")

    def __init__(self) -> None:
        self.used_s = float("-inf")
        self.lanes: dict[JobLane, deque[QueuedJob]] = {}
        self.waiting = 0
        self.running = 0


_used_s = attrgetter("used_s")


class JobQueue:
    def __init__(self, slots: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.slots = slots
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        # By whether they are in the background.
        self._shares: dict[bool, dict[UserId, _Share]] = {False: {}, True: {}}
        # Those of `_shares` with waiting jobs.
        self._waiting: dict[bool, dict[UserId, _Share]] = {False: {}, True: {}}
        self._free = slots
        self._is_background_free = True
        self._results = 0
        # The used time of the share that was served last, below which no share falls by being idle.
        self._used_s = 0.0
        self._last_start: float | None = None
        self._job_interval_s = 0.0
        self._jobs_total = 0
        self._wait_total_s = 0.0
        self._run_total_s = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether jobs that are not in the background are running."""
        return self._free < self.slots

    def submit(
        self,
        user_id: UserId,
        lane: JobLane,
        job: Job[T],
        run: Callable[..., T],
        hand_over: Callable[[tuple[asyncio.Future[T], Callable[..., T]]], None],
        stop: Callable[[Job[T]], None],
        *,
        lane_max: int,
        gives_up: bool,
    ) -> asyncio.Future[T]:
        """Queues a job. Cancelling the future that it returns stops the job, or keeps it from being started.

        When it is its turn, `hand_over` gives the future and `run` to a thread, which sets the result. `stop` is called
        if the caller gave up while it was running. With `gives_up`, the caller times out even if the job does not end.
        """
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if lane.waiting + lane.is_busy >= lane_max:
            result.set_exception(Overloaded("too many calls are waiting for this library; try again in a moment"))
            return result
        group = CURRENT_GROUP.get()
        if group is not None and group.is_background:
            # Done for the library, so that it counts for its owner, whoever caused it.
            job.pace = BackgroundPace(self)
        else:
            user_id = _CHARGED.get() or user_id

        def run_on_thread(*arguments: Any) -> T:
            cpu_before_s = time.thread_time()
            try:
                return run(*arguments)
            finally:
                job.is_finished = True
                # CPU time, because how long a job takes also depends on what else the machine does.
                queued.cost_s = time.thread_time() - cpu_before_s
                self.finish(queued)

        def end(_: asyncio.Future[T]) -> None:
            """Runs before the caller gets the result, or learns that it was cancelled or has timed out."""
            if timer is not None:
                timer.stop()
            is_waiting = self.leave(queued)
            # It refers to the job, which refers to it. Otherwise the result, with the texts of all hits, would stay in
            # memory until the garbage collector finds it, which holds up all calls for as long.
            queued.begin = _do_nothing
            if not is_waiting and not job.is_finished:
                stop(job)

        begin = partial(hand_over, (result, run_on_thread))
        queued = QueuedJob(user_id, lane, group, begin, result)
        timer = RunTimer(queued, result, job.limit_s) if gives_up else None
        result.add_done_callback(end)
        self.add(queued)
        return result

    def add(self, job: QueuedJob) -> None:
        """Queues a job, and starts it if a slot and its connection are free."""
        with self._lock:
            job.is_background = job.group is not None and job.group.is_background
            share = self._shares[job.is_background].get(job.user_id) or self._new_share(job)
            if not share.waiting and not share.running:
                share.used_s = max(share.used_s, self._used_s - _CREDIT_S)
            job.number, job.queued_at = next(self._numbers), self._clock()
            share.lanes.setdefault(job.lane, deque()).append(job)
            share.waiting += 1
            job.lane.waiting += 1
            self._waiting[job.is_background][job.user_id] = share
            if job.group is not None:
                job.group.begin_wait(job.queued_at)
            self._start_jobs()

    def finish(self, job: QueuedJob) -> None:
        """Called by the thread that ran the job: its connection is free, and its result is ready."""
        with self._lock:
            job.lane.is_busy = False
            if job.has_slot:
                job.has_result = True
                self._results += 1
            self._release(job)
            self._start_jobs()

    def leave(self, job: QueuedJob) -> bool:
        """Called when no caller waits for the job any more, because its result was processed or the caller gave up.
        Returns whether the job was still waiting; it is then never started."""
        with self._lock:
            was_waiting = job.started_at is None
            if was_waiting:
                self._remove(job)
            elif job.has_result:
                job.has_result = False
                self._results -= 1
            else:
                # Abandoned while it runs. Its thread ends soon, and until then its connection stays busy.
                self._release(job)
            self._start_jobs()
            return was_waiting

    def waiting_jobs(self, lane: JobLane) -> Sequence[QueuedJob]:
        with self._lock:
            return [job for share in self._all_waiting() for job in share.lanes.get(lane, ())]

    def expected_wait_s(self, user_id: UserId, jobs: int) -> float:
        """Returns how long a call of this user would wait for its `jobs` to start. Other users' jobs count only as far
        as they have their turn before the user's last job."""
        with self._lock:
            waiting = self._waiting[False]
            if not waiting:
                return 0.0
            own = waiting.get(user_id)
            own_waiting = own.waiting if own is not None else 0
            behind_others = max(0.0, own_waiting + jobs - self._jobs_on_credit(user_id))
            ahead = sum(min(share.waiting, behind_others) for share in waiting.values() if share is not own)
            return (ahead + own_waiting) * self._job_interval_s

    def state(self) -> QueueState:
        with self._lock:
            now = self._clock()
            queued = [jobs[0].queued_at for share in self._all_waiting() for jobs in share.lanes.values()]
            return QueueState(
                waiting=sum(share.waiting for share in self._waiting[False].values()),
                waiting_background=sum(share.waiting for share in self._waiting[True].values()),
                running=self.slots - self._free + (not self._is_background_free),
                oldest_wait_s=now - min(queued) if queued else 0.0,
                jobs_total=self._jobs_total,
                wait_total_s=self._wait_total_s,
                run_total_s=self._run_total_s,
                job_interval_s=self._job_interval_s,
            )

    # -- called with the lock held -------------------------------------------------------------------------------------

    def _jobs_on_credit(self, user_id: UserId) -> float:
        """Returns how many jobs of the user go ahead of all others, because the user has used less time."""
        share = self._shares[False].get(user_id)
        credit_s = min(_CREDIT_S, self._used_s - share.used_s) if share is not None else _CREDIT_S
        job_s = self._job_interval_s * self.slots
        return max(0.0, credit_s / job_s) if job_s else float("inf")

    def _all_waiting(self) -> Iterator[_Share]:
        yield from self._waiting[False].values()
        yield from self._waiting[True].values()

    def _new_share(self, job: QueuedJob) -> _Share:
        shares = self._shares[job.is_background]
        if len(shares) >= _SHARES_MAX:
            # Forgets users who are idle and have their whole credit, which is what an unknown user has.
            shares = self._shares[job.is_background] = {
                user_id: share
                for user_id, share in shares.items()
                if share.waiting or share.running or share.used_s > self._used_s - _CREDIT_S
            }
        share = shares[job.user_id] = _Share()
        return share

    def _start_jobs(self) -> None:
        while (self._waiting[False] or self._waiting[True]) and self._results < self.slots * _RESULTS_PER_SLOT:
            job = self._next()
            if job is None:
                return
            now = self._clock()
            self._remove(job)
            share = self._shares[job.is_background][job.user_id]
            share.running += 1
            if job.is_background:
                self._is_background_free = False
            else:
                if self._free > 0:
                    # Measures the time since the last start, which says how fast jobs are served only if one was
                    # waiting then.
                    if self._last_start is not None:
                        sample_s = now - self._last_start
                        weight = _SAMPLE_WEIGHT if self._job_interval_s else 1.0
                        self._job_interval_s += weight * (sample_s - self._job_interval_s)
                    self._last_start = now if self._waiting[False] else None
                self._free -= 1
                self._used_s = max(self._used_s, share.used_s)
            self._jobs_total += 1
            self._wait_total_s += now - job.queued_at
            job.started_at, job.has_slot, job.lane.is_busy = now, True, True
            job.begin()

    def _next(self) -> QueuedJob | None:
        """Returns the next job of the user who has used the least time. If no slot is free, only the first job of a
        user who was idle need not wait, and as many of these as there are slots may run in addition."""
        shares: list[_Share] = []
        if self._free > 0:
            shares += sorted(self._waiting[False].values(), key=_used_s)
        elif self._free > -self.slots:
            for share in self._waiting[False].values():
                if not share.running and share.used_s <= self._used_s - _CREDIT_S / 2:
                    shares.append(share)
        if self._is_background_free:
            shares += sorted(self._waiting[True].values(), key=_used_s)
        for share in shares:
            # The job that has waited longest, of those whose connection is free.
            first: QueuedJob | None = None
            for lane, jobs in share.lanes.items():
                if not lane.is_busy and (first is None or jobs[0].number < first.number):
                    first = jobs[0]
            if first is not None:
                return first
        return None

    def _remove(self, job: QueuedJob) -> None:
        waiting = self._waiting[job.is_background]
        share = waiting[job.user_id]
        jobs = share.lanes[job.lane]
        jobs.remove(job)
        if not jobs:
            del share.lanes[job.lane]
        share.waiting -= 1
        job.lane.waiting -= 1
        if not share.waiting:
            del waiting[job.user_id]
        if job.group is not None:
            job.group.end_wait(self._clock())

    def _release(self, job: QueuedJob) -> None:
        if not job.has_slot or job.started_at is None:
            return
        job.has_slot = False
        share = self._shares[job.is_background][job.user_id]
        share.running -= 1
        share.used_s = min(share.used_s + job.cost_s, self._used_s + _DEBT_MAX_S)
        if job.is_background:
            self._is_background_free = True
        else:
            self._free += 1
        self._run_total_s += self._clock() - job.started_at


def retrieve_exception(task: asyncio.Future[Any]) -> None:
    """Keeps asyncio from logging the exception of a task that nobody awaits. Those who do still get it."""
    if not task.cancelled():
        task.exception()


def _do_nothing() -> None:
    """The start of a job that is over."""


class BackgroundPace:
    """Slows one background job down while other jobs are running, so that they get most of the processor. Called by the
    thread of the job: `start` when it begins, and `pause_if_due` again and again."""

    def __init__(
        self,
        queue: JobQueue,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._sleep = sleep
        self._resumed_at = 0.0

    def start(self) -> None:
        """Time in the queue does not count as work. Otherwise a job would pause for a multiple of it, and the next job,
        which waits that long, for a multiple of that."""
        self._resumed_at = self._clock()

    def pause_if_due(self) -> None:
        worked_s = self._clock() - self._resumed_at
        if worked_s < _BACKGROUND_WORK_S:
            return
        if self._queue.is_busy:
            self._sleep(min(worked_s * _BACKGROUND_PAUSES, _BACKGROUND_PAUSE_MAX_S))
        self._resumed_at = self._clock()


# -- job timer ---------------------------------------------------------------------------------------------------------
# Ends the wait for a job that has run for too long.


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


# -- joint reads -------------------------------------------------------------------------------------------------------
# Runs the reads that a call starts at the same time in one job: those of the sources of a search.
#
# They share a transaction, the counts of their terms and the hand-over to a thread. A read becomes a job of its own if
# the job fails before it, or if those before it take long, so that a slow source does not hold up the others.

# How long the results of reads wait for the others: less than this, and less than this share of the time of the call.
_HELD_UP_MAX_S = 0.25
_HELD_UP_SHARE = 0.25


class RunAlone(Exception):
    """The read has to be run as a job of its own."""


class TimedConnection(Protocol):
    def restart_clock(self, limit_s: float) -> None:
        """Gives the running job this much time from now on. Called by its thread."""
        ...


class ReadPart(Struct, Generic[T], eq=False):
    """One of the reads. `started_at` and `outcome`, which has what it returned, are set by the thread of the job."""

    work: Callable[[Any], T]
    limit_s: float
    result: asyncio.Future[T]
    started_at: float | None = None
    outcome: tuple[T] | None = None


class JointRead(Struct, eq=False):
    """`job` ends when the job of all parts does, and cancelling it stops the job."""

    loop: asyncio.AbstractEventLoop
    held_up_max_s: float
    parts: list[ReadPart[Any]] = []
    job: asyncio.Future[None] | None = None
    timer: asyncio.TimerHandle | None = None

    def work(self, connection: TimedConnection) -> None:
        """Called by the thread of the job, again if it has to be repeated."""
        for part in self.parts:
            if part.outcome is None and not part.result.done():
                part.started_at = time.monotonic()
                connection.restart_clock(part.limit_s)
                part.outcome = (part.work(connection),)

    def pass_on_soon(self) -> None:
        """Called by the thread of a job that takes a while to end."""
        self.loop.call_soon_threadsafe(self.pass_on)

    def pass_on(self) -> None:
        """Returns what has been read. Reads that were not started run alone: time in a queue would not count as
        theirs, but that of the reads before them does."""
        for part in self.parts:
            if part.result.done():
                continue
            if part.outcome is not None:
                part.result.set_result(part.outcome[0])
            elif part.started_at is None:
                part.result.set_exception(RunAlone())

    def finish(self, job: asyncio.Future[None]) -> None:
        # It is cancelled if the caller of the read that was running gave up.
        error = None if job.cancelled() else job.exception()
        if self.timer is not None:
            self.timer.cancel()
        if error is None or any(part.started_at is not None for part in self.parts):
            self.pass_on()
        for part in self.parts:
            if not part.result.done():
                part.result.set_exception(error or RunAlone())

    def check_time(self) -> None:
        """Does not wait for a slow read any longer, and ends the wait for one at its own limit."""
        now = time.monotonic()
        started = [part for part in self.parts if part.started_at is not None]
        dues = [(started[0].started_at or now if started else now) + self.held_up_max_s]
        if dues[0] <= now:
            self.pass_on()
            dues = []
        for part in started:
            if part.outcome is None and not part.result.done():
                due = (part.started_at or now) + part.limit_s
                dues.append(due)
                if due <= now:
                    part.result.set_exception(TimeoutError())
        later = [due for due in dues if due > now]
        if later:
            self.timer = self.loop.call_later(min(later) - now, self.check_time)


class JointReads:
    """The reads of a library that start together: those that a call starts in the same pass of the event loop. If
    `run_job` raises, the read that was running fails with that error."""

    def __init__(self, run_job: Callable[[JointRead], Awaitable[None]]) -> None:
        self._run_job = run_job
        self._next: dict[CallGroup, JointRead] = {}

    async def read(self, call: CallGroup, work: Callable[[Any], T], limit_s: float) -> T:
        """Raises RunAlone, for example if a read before it takes long."""
        loop = asyncio.get_running_loop()
        joint = self._next.get(call)
        if joint is None:
            joint = self._next[call] = JointRead(loop, min(_HELD_UP_MAX_S, call.limit_s * _HELD_UP_SHARE))
            # The other sources of the search get as far as this in the same pass of the event loop.
            loop.call_soon(self._start, call)
        result: asyncio.Future[T] = loop.create_future()
        part = ReadPart(work, limit_s, result)
        joint.parts.append(part)
        try:
            return await result
        finally:
            # Stops the job if nobody waits for the read that is running, or for any. Those that are left run alone.
            if part.outcome is None:
                result.cancel()
                is_last = part.started_at is not None or all(other.result.done() for other in joint.parts)
                if joint.job is not None and is_last:
                    joint.job.cancel()

    def _start(self, call: CallGroup) -> None:
        joint = self._next.pop(call)
        joint.parts = [part for part in joint.parts if not part.result.done()]
        if not joint.parts:
            return
        # The job belongs to the call. The event loop runs this in a context of its own.
        CURRENT_GROUP.set(call)
        joint.job = asyncio.ensure_future(self._run_job(joint))
        joint.job.add_done_callback(joint.finish)
        first_due_s = min(joint.held_up_max_s, *[part.limit_s for part in joint.parts])
        joint.timer = joint.loop.call_later(first_due_s, joint.check_time)
