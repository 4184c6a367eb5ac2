"""Counts calls and responses, and renders them for Prometheus together with the state of all services. Also says what
one process of a server is doing, and what several of them do together.

Label values are known names (method, tool, outcome, status), never text from a request.
"""

import asyncio
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec
from msgspec import Struct, field

from aggregator.search import SearchOutcome
from auth.audit import BACKUP_ACTION, BACKUP_FAILED_ACTION, AuditFilter
from config.errors import StorageError
from config.postgres.connection import ConnectionOptions
from config.settings import Settings
from server.runtime import Runtime
from server.stores import control_location
from server.worker_processes import WorkerPlace
from sources.storage.contract import LibrariesState

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

StateT = TypeVar("StateT", bound=Struct)


# -- states of processes -----------------------------------------------------------------------------------------------


class HourFigures(Struct, frozen=True, kw_only=True):
    """What happened in one hour, or until now. `hour` counts from 1970. `durations` has the numbers of MCP calls in the
    buckets of the histogram (`BUCKETS_S`)."""

    hour: int
    calls: int
    failed_calls: int
    searches: int
    failed_searches: int
    responses: int
    server_errors: int
    seconds: float
    durations: tuple[int, ...]

    def plus(self, other: "HourFigures", sign: int = 1) -> "HourFigures":
        """Adds or subtracts figures. The hour stays."""
        counts = {
            name: getattr(self, name) + sign * getattr(other, name)
            for name in self.__struct_fields__
            if name not in ("hour", "durations")
        }
        pairs = zip(self.durations, other.durations, strict=True)
        return HourFigures(hour=self.hour, durations=tuple([one + sign * two for one, two in pairs]), **counts)


class WorkerState(Struct, frozen=True, kw_only=True):
    """`calls`, `responses` and `searches` count from the start of the process, by outcome and by status; `hours` has
    the same of the last hours, oldest first. `skipped_users` is the number of users for whom a source is skipped, by
    source."""

    started_at: float
    libraries: LibrariesState
    searches_waiting: int
    imports_running: int
    sessions: int
    streams: int
    skipped_users: Mapping[str, int]
    searches: Mapping[str, int]
    calls: Mapping[str, int]
    responses: Mapping[str, int]
    hours: Sequence[HourFigures]


def add_worker_states(states: Sequence[WorkerState]) -> WorkerState:
    """Returns the sums of at least one process, since the start of the oldest."""
    hours: dict[int, HourFigures] = {}
    for one in (hour for state in states for hour in state.hours):
        hours[one.hour] = hours[one.hour].plus(one) if one.hour in hours else one
    libraries = [state.libraries for state in states]
    queues, embeddings = [state.queue for state in libraries], [state.embedding for state in libraries]
    queue = _add(
        queues,
        oldest_wait_s=max(queue.oldest_wait_s for queue in queues),
        job_interval_s=max(queue.job_interval_s for queue in queues),
    )
    embedding = _add(
        embeddings,
        is_enabled=any(state.is_enabled for state in embeddings),
        # Processes can wait for the same library, so that the coverage cannot be added up: it is the lowest.
        coverage=min(state.coverage for state in embeddings),
        problem=next((state.problem for state in embeddings if state.problem), None),
    )
    return _add(
        states,
        started_at=min(state.started_at for state in states),
        libraries=_add(libraries, queue=queue, embedding=embedding),
        hours=[hours[hour] for hour in sorted(hours)],
    )


def _add(states: Sequence[StateT], **others: Any) -> StateT:
    """Adds up the fields of states, which are numbers or counts by name, except for the others."""
    for name in states[0].__struct_fields__:
        if name not in others:
            values = [getattr(state, name) for state in states]
            if isinstance(values[0], Mapping):
                total: Counter[str] = Counter()
                for value in values:
                    total.update(value)
                others[name] = dict(total)
            else:
                others[name] = sum(values)
    return type(states[0])(**others)


# -- worker reports ----------------------------------------------------------------------------------------------------
# Metrics and state of all workers of a server: the one that is asked for them asks the others.
#
# Each worker has a Unix socket in the directory that its parent created for the workers. Series of metrics keep the
# label `worker` and are not added up: after a worker was replaced, its counters begin at 0 again, which Prometheus can
# only recognize in a series of its own.

# A worker that does not answer in this time is left out.
_ANSWER_MAX_S = 1.0


class MetricFamily(Struct, frozen=True, array_like=True):
    name: str
    description: str
    type: str
    samples: Sequence[tuple[str, dict[str, str], float]]


class _WorkerReport(Struct, frozen=True):
    """`state` is None before the worker has all its services."""

    families: Sequence[MetricFamily]
    state: WorkerState | None


_DECODER = msgspec.msgpack.Decoder(_WorkerReport)


class WorkerReports:
    def __init__(
        self,
        place: WorkerPlace,
        registry: Callable[[], "CollectorRegistry"],
        read_state: Callable[[], WorkerState | None],
    ) -> None:
        self._place = place
        self._registry = registry
        self._read_state = read_state

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Answers the other workers."""

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(msgspec.msgpack.encode(self._report()))
            writer.close()

        async with await asyncio.start_unix_server(answer, self._path(self._place.number)):
            yield

    async def merge_metrics(self) -> "CollectorRegistry":
        """Returns the metrics of all workers that answer."""
        from server.metric_families import merge_registries  # noqa: PLC0415 - see there

        return merge_registries({number: report.families for number, report in (await self._collect()).items()})

    async def read_states(self) -> Mapping[int, WorkerState]:
        """Returns the states of all workers that answer, by their numbers."""
        reports = await self._collect()
        return {number: report.state for number, report in reports.items() if report.state is not None}

    async def _collect(self) -> Mapping[int, _WorkerReport]:
        """Never asks its own socket, so that one worker is enough."""
        others = [number for number in range(self._place.count) if number != self._place.number]
        answers = await asyncio.gather(*map(self._ask, others))
        reports = {self._place.number: self._report(), **dict(zip(others, answers, strict=True))}
        return {number: report for number, report in sorted(reports.items()) if report is not None}

    def _report(self) -> _WorkerReport:
        families = [
            MetricFamily(
                metric.name,
                metric.documentation,
                metric.type,
                [(sample.name, dict(sample.labels), float(sample.value)) for sample in metric.samples],
            )
            for metric in self._registry().collect()
        ]
        return _WorkerReport(families, self._read_state())

    async def _ask(self, number: int) -> _WorkerReport | None:
        try:
            async with asyncio.timeout(_ANSWER_MAX_S):
                reader, writer = await asyncio.open_unix_connection(self._path(number))
                try:
                    return _DECODER.decode(await reader.read())
                finally:
                    writer.close()
        except (OSError, TimeoutError, msgspec.DecodeError):  # it has ended, or is being replaced
            return None

    def _path(self, number: int) -> Path:
        return Path(self._place.directory, f"report-{number}")


# -- metrics -----------------------------------------------------------------------------------------------------------


# The ends of the buckets of the histogram of durations, in seconds.
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# The hours whose figures are kept, and how often they are updated, in seconds. A process that ends loses them: for
# more, let Prometheus read the metrics.
HOURS_KEPT = 7 * 24
_HOUR_S = 3600
_SAMPLE_INTERVAL_S = 60.0
_SERVER_ERROR = 500
# How long figures from databases are not read again, in seconds: anyone with the token may ask often.
_STORED_VALID_S = 60.0


class StoredFigures(Struct, frozen=True):
    """Figures that are in databases: when the last backup ended and when one failed, and the size of the database."""

    backup_at: float = 0.0
    backup_failed_at: float = 0.0
    database_bytes: int = 0


class Durations(Struct):
    """The sum of the durations, and how many there are in each bucket of the histogram. The last bucket has no end."""

    seconds: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))


class ToolCalls(Struct):
    """The calls of one tool. `failed` counts all outcomes except success."""

    total: int = 0
    failed: int = 0
    seconds: float = 0.0


class Metrics:
    """The metrics of one application."""

    def __init__(self) -> None:
        self.started_at = time.time()
        # Plain numbers, which are converted when they are read: a counter of the library costs a dozen calls for each
        # MCP call. By method, tool and outcome, and by method and tool.
        self.calls: Counter[tuple[str, str, str]] = Counter()
        self.durations: dict[tuple[str, str], Durations] = {}
        self.responses: Counter[int] = Counter()
        # The credential for reading them. Empty: only administrators may.
        self.token = ""
        self._workers: WorkerReports | None = None
        self.stored = StoredFigures()
        self._stored_read_at = float("-inf")
        self.runtime: Runtime | None = None
        # The totals at the last update, which are those at the start of an hour when the hour changes.
        self._last_totals: HourFigures | None = None
        self._hour_start: HourFigures | None = None
        self.hours: deque[HourFigures] = deque(maxlen=HOURS_KEPT)
        # How often this worker was started; 1 without workers.
        self.starts: Callable[[], int] = lambda: 1

    def watch(self, runtime: Runtime) -> None:
        """Adds figures that are read from the services when the metrics are read."""
        self.runtime = runtime
        self.use_settings(runtime.settings)

    @cached_property
    def _registry(self) -> "CollectorRegistry":
        from server.metric_families import build_registry  # noqa: PLC0415 - see there

        return build_registry(self)

    def use_settings(self, settings: Settings) -> None:
        self.token = settings.metrics_token

    def record_call(self, method: str, tool: str, outcome: str, seconds: float) -> None:
        self.calls[method, tool, outcome] += 1
        durations = self.durations.get((method, tool))
        if durations is None:
            durations = self.durations[method, tool] = Durations()
        durations.seconds += seconds
        durations.counts[bisect_left(BUCKETS_S, seconds)] += 1

    def update_hours(self, now: float) -> None:
        """Adds what happened since the last update to the current hour. Calls only count totals, so that they cost
        nothing more; what happened since the last update of an hour counts in the next."""
        if self.runtime is None:
            return
        searches = self.runtime.knowledge.aggregator.outcomes
        buckets = [one.counts for one in self.durations.values()] or [[0] * (len(BUCKETS_S) + 1)]
        totals = HourFigures(
            hour=int(now // _HOUR_S),
            calls=self.calls.total(),
            failed_calls=sum(count for (_, _, outcome), count in self.calls.items() if outcome != "ok"),
            searches=searches.total(),
            failed_searches=searches["refused"] + searches["failed"] + searches["error"],
            responses=self.responses.total(),
            server_errors=sum(count for status, count in self.responses.items() if status >= _SERVER_ERROR),
            seconds=sum(one.seconds for one in self.durations.values()),
            durations=tuple(map(sum, zip(*buckets, strict=True))),
        )
        if self._hour_start is None or not self.hours or self.hours[-1].hour != totals.hour:
            # Everything before the first update happened in its hour: this process has just started.
            self._hour_start = self._last_totals or totals.plus(totals, -1)
            self.hours.append(totals)
        self.hours[-1] = totals.plus(self._hour_start, -1)
        self._last_totals = totals

    @asynccontextmanager
    async def shared(self, place: WorkerPlace | None) -> AsyncIterator[None]:
        """Updates the figures of hours, and includes all workers, if this process is one of several."""

        async def update_hours() -> None:
            while True:
                self.update_hours(time.time())
                await asyncio.sleep(_SAMPLE_INTERVAL_S)

        task = asyncio.create_task(update_hours())
        try:
            if place is None:
                yield
                return
            self.starts = partial(place.table().starts, place.number)
            workers = WorkerReports(place, lambda: self._registry, self._read_state)
            async with workers.answering():
                self._workers = workers
                yield
        finally:
            task.cancel()

    async def render(self) -> bytes:
        from server.metric_families import generate_latest  # noqa: PLC0415 - see there

        await self._read_stored()
        return generate_latest(self._registry if self._workers is None else await self._workers.merge_metrics())

    async def _read_stored(self) -> None:
        """Reads figures that are in databases, at most once per minute. If that fails, others say why."""
        runtime, now = self.runtime, time.monotonic()
        if runtime is None or now - self._stored_read_at < _STORED_VALID_S:
            return
        self._stored_read_at = now
        with suppress(StorageError):
            times = []
            for action in (BACKUP_ACTION, BACKUP_FAILED_ACTION):
                events = await runtime.audit.select(AuditFilter(actions=(action,)), 1)
                times.append(events[0].time if events else 0.0)
            size = 0
            if isinstance(control_location(runtime.settings, runtime.data_root), ConnectionOptions):
                query = "SELECT pg_database_size(current_database())"
                [size] = await runtime.registry.database.read(lambda connection: connection.execute(query).fetchone())
            self.stored = StoredFigures(times[0], times[1], size)

    async def read_tool_calls(self) -> Mapping[str, ToolCalls]:
        """Returns the calls of each tool, by its name, and those of methods without a tool under "". Includes all
        workers."""
        registry = self._registry if self._workers is None else await self._workers.merge_metrics()
        tools: dict[str, ToolCalls] = {}
        for sample in (sample for family in registry.collect() for sample in family.samples):
            if sample.name == "florilegium_mcp_calls_total":
                calls = tools.setdefault(sample.labels["tool"], ToolCalls())
                calls.total += int(sample.value)
                calls.failed += int(sample.value) if sample.labels["outcome"] != "ok" else 0
            elif sample.name == "florilegium_mcp_call_seconds_sum":
                tools.setdefault(sample.labels["tool"], ToolCalls()).seconds += sample.value
        return tools

    async def read_states(self) -> Mapping[int, WorkerState]:
        """Returns the states of all workers that answer, by their numbers. A process without workers has the number 0.
        Must not be called before `watch`."""
        if self._workers is not None:
            return await self._workers.read_states()
        state = self._read_state()
        return {0: state} if state is not None else {}

    def _read_state(self) -> WorkerState | None:
        runtime = self.runtime
        if runtime is None:
            return None
        calls: Counter[str] = Counter()
        for (_, _, outcome), count in self.calls.items():
            calls[outcome] += count
        self.update_hours(time.time())
        aggregator = runtime.knowledge.aggregator
        return WorkerState(
            started_at=self.started_at,
            libraries=runtime.libraries.state(),
            searches_waiting=aggregator.queue.waiting,
            imports_running=runtime.imports.running,
            sessions=len(runtime.sessions),
            streams=len(runtime.open_streams),
            skipped_users=dict(aggregator.open_circuits),
            searches={outcome: aggregator.outcomes[outcome] for outcome in get_args(SearchOutcome)},
            calls=calls,
            responses={str(status): count for status, count in self.responses.items()},
            hours=tuple(self.hours),
        )
