"""Counts calls and responses, and renders them for Prometheus together with the state of all services.

Label values are known names (method, tool, outcome, status), never text from a request.
"""

import asyncio
import time
from bisect import bisect_left
from collections import Counter as Totals
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec import Struct, field

from auth.audit import BACKUP_ACTION, BACKUP_FAILED_ACTION, AuditFilter
from config.errors import StorageError
from config.postgres.connection import ConnectionOptions
from config.settings import Settings
from server.runtime import Runtime
from server.stores import control_location
from server.worker_processes import WorkerPlace
from server.worker_state import HourFigures, WorkerReports, WorkerState, read_worker_state

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

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
        self.calls: Totals[tuple[str, str, str]] = Totals()
        self.durations: dict[tuple[str, str], Durations] = {}
        self.responses: Totals[int] = Totals()
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
        if self.runtime is None:
            return None
        calls: Totals[str] = Totals()
        for (_, _, outcome), count in self.calls.items():
            calls[outcome] += count
        responses = {str(status): count for status, count in self.responses.items()}
        self.update_hours(time.time())
        return read_worker_state(self.runtime, self.started_at, calls, responses, tuple(self.hours))
