"""Prometheus metrics. Label values are known names (method, tool, outcome, status), never text from a request."""

import shutil
import time
from bisect import bisect_left
from collections import Counter as Totals
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import get_args

from msgspec import Struct, field
from prometheus_client import CollectorRegistry, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from aggregator.search import SearchOutcome
from auth.audit import BACKUP_ACTION, BACKUP_FAILED_ACTION, AuditFilter
from config.errors import StorageError
from config.event_counts import POSTGRES_EVENTS, SESSION_SERVER_EVENTS
from config.postgres.connection import ConnectionOptions
from config.settings import Settings
from server.admission import AuthFailure
from server.import_board import ENDED_STATES
from server.loop_watchdog import LOOP_DELAYS
from server.runtime import Runtime
from server.stores import control_location
from server.version import VERSION
from server.worker_processes import WorkerPlace
from server.worker_state import WorkerReports, WorkerState, read_worker_state
from sources.storage.contract import QueueState

# -- runtime metrics ---------------------------------------------------------------------------------------------------
# Metrics that are computed from the services when they are read: queues, libraries, imports, rejected credentials,
# breakers, disk space.


_gauge, _counter = GaugeMetricFamily, CounterMetricFamily


class RuntimeCollector(Collector):
    """Reads the figures of one runtime. Label values are names of sources and outcomes, never of users."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def describe(self) -> Iterator[Metric]:
        """Returns nothing, so that registering the collector does not read the figures."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        runtime, libraries = self._runtime, self._runtime.libraries.state()
        yield _gauge("florilegium_sessions", "Open legacy sessions.", len(runtime.sessions))
        yield _gauge("florilegium_streams", "Open streams and WebSockets.", len(runtime.open_streams))
        yield _gauge("florilegium_libraries_open", "Open libraries.", libraries.open)
        yield _gauge("florilegium_libraries_open_max", "Libraries that may be open.", libraries.open_max)
        yield _gauge("florilegium_libraries_closing", "Libraries that are being closed.", libraries.closing)
        yield from _job_metrics(libraries.queue)
        embedding = libraries.embedding
        if embedding.is_enabled:
            yield _gauge("florilegium_embedding_users_waiting", "Users with text to embed.", embedding.users_waiting)
            yield _gauge("florilegium_embedding_rows_missing", "Their rows without embeddings.", embedding.rows_missing)
            yield _gauge("florilegium_embedding_coverage", "Share of their rows with embeddings.", embedding.coverage)
            is_failing = embedding.problem is not None
            yield _gauge("florilegium_embedding_failing", "1 if no text can be embedded now.", is_failing)
            yield _counter("florilegium_embedding_passages", "Passages that were embedded.", embedding.passages_total)
        failures = {kind: runtime.admission.failures[kind] for kind in get_args(AuthFailure)}
        yield _counters("florilegium_auth_failures", "Requests without a valid credential.", "kind", failures)
        limits = {"user": runtime.limits.user, "tool": runtime.limits.tool, "failures": runtime.limits.failures}
        refusals = {name: buckets.refusals for name, buckets in limits.items()}
        yield _counters("florilegium_rate_limited", "Calls refused by a rate limit.", "limit", refusals)
        events = dict(runtime.audit.events)
        yield _counters("florilegium_security_events", "Events of the audit log except reads.", "action", events)
        imports = runtime.imports
        yield _gauge("florilegium_imports_running", "Imports that are running.", imports.running - imports.waiting)
        yield _gauge("florilegium_imports_waiting", "Imports that wait for a slot.", imports.waiting)
        outcomes = {str(outcome): imports.outcomes[outcome] for outcome in ENDED_STATES}
        yield _counters("florilegium_imports", "Imports by outcome.", "outcome", outcomes)
        yield _counter("florilegium_import_items", "Items that imports read.", imports.items_total)
        following = runtime.following
        yield _gauge("florilegium_followed_sources", "Followed sources.", following.sources)
        yield _gauge("florilegium_followed_sources_paused", "Followed sources that are paused.", following.paused)
        yield _gauge("florilegium_followed_sources_running", "Followed sources that are being read.", following.running)
        yield _counter("florilegium_follow_runs", "Times that a followed source was read.", following.runs)
        yield _counter("florilegium_follow_failures", "Runs that failed as a whole.", following.failures)
        aggregator = runtime.knowledge.aggregator
        queue = aggregator.queue
        yield _gauge("florilegium_searches_waiting", "Searches of all sources that wait for their turn.", queue.waiting)
        yield _gauge("florilegium_searches_running", "Searches of all sources that are running.", queue.running)
        yield _gauge("florilegium_search_oldest_wait_seconds", "How long the oldest search waits.", queue.oldest_wait_s)
        yield _counter("florilegium_search_wait_seconds", "Time that searches waited.", queue.wait_total_s)
        searches = {outcome: aggregator.outcomes[outcome] for outcome in get_args(SearchOutcome)}
        yield _counters("florilegium_searches", "Searches of all sources by outcome.", "outcome", searches)
        breakers = GaugeMetricFamily(
            "florilegium_breakers_open", "Users for whom a failing source is skipped.", labels=["source"]
        )
        open_circuits = aggregator.open_circuits
        for source in runtime.knowledge.sources:
            breakers.add_metric([source.name], open_circuits.get(source.name, 0))
        yield breakers
        yield from _process_metrics(runtime.settings, runtime.data_root.root)


def _job_metrics(queue: QueueState) -> Iterator[Metric]:
    about = "Library reads and writes that wait for their turn."
    waiting = GaugeMetricFamily("florilegium_jobs_waiting", about, labels=["priority"])
    waiting.add_metric(["interactive"], queue.waiting)
    waiting.add_metric(["background"], queue.waiting_background)
    yield waiting
    yield _gauge("florilegium_jobs_running", "Library reads and writes that are running.", queue.running)
    yield _gauge("florilegium_job_oldest_wait_seconds", "How long the oldest waiting job waits.", queue.oldest_wait_s)
    about = "Mean time between two job starts under load."
    yield _gauge("florilegium_job_interval_seconds", about, queue.job_interval_s)
    yield _counter("florilegium_jobs", "Library reads and writes that were started.", queue.jobs_total)
    yield _counter("florilegium_job_wait_seconds", "Time that jobs waited.", queue.wait_total_s)
    yield _counter("florilegium_job_run_seconds", "Time that jobs ran.", queue.run_total_s)


def _process_metrics(settings: Settings, data_folder: Path) -> Iterator[Metric]:
    """Returns the figures of this process: its event loop, its connections to other servers, its disk."""
    late = LOOP_DELAYS
    yield _counter("florilegium_event_loop_late_seconds", "How late the event loop was, added up.", late.seconds)
    yield _counter("florilegium_event_loop_blocks", "Times it was blocked for more than 250 ms.", late.blocks)
    events = POSTGRES_EVENTS.read()
    yield _counters("florilegium_postgres_events", "What happened to connections and calls.", "event", events)
    is_open = events["connected"] - events["closed"]
    yield _gauge("florilegium_postgres_connections", "Open connections to PostgreSQL.", is_open)
    about, connections = "Connections for libraries.", settings.postgres_connections if settings.storage_url else 0
    yield _gauge("florilegium_postgres_connections_max", about, connections)
    commands = SESSION_SERVER_EVENTS.read()
    yield _counters("florilegium_session_server_events", "Connections and failed commands.", "event", commands)
    with suppress(OSError):
        usage = shutil.disk_usage(data_folder)
        yield _gauge("florilegium_disk_free_bytes", "Free space on the disk of the data directory.", usage.free)
        yield _gauge("florilegium_disk_size_bytes", "Size of the disk of the data directory.", usage.total)


def _counters(name: str, description: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, description, labels=[label])
    for label_value, value in values.items():
        family.add_metric([label_value], value)
    return family


CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


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
    counts: list[int] = field(default_factory=lambda: [0] * (len(_SECONDS) + 1))


class ToolCalls(Struct):
    """The calls of one tool. `failed` counts all outcomes except success."""

    total: int = 0
    failed: int = 0
    seconds: float = 0.0


class Metrics(Collector):
    """The metrics of one application. Each has its own registry, so that two in one process share no counters."""

    def __init__(self) -> None:
        self.started_at = time.time()
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        Info("florilegium", "Version of the server.", registry=self._registry).info({"version": VERSION})
        # Plain numbers, which are converted when they are read: a counter of the library costs a dozen calls for each
        # MCP call. By method, tool and outcome, and by method and tool.
        self._calls: Totals[tuple[str, str, str]] = Totals()
        self._durations: dict[tuple[str, str], Durations] = {}
        self._responses: Totals[int] = Totals()
        self._registry.register(self)
        # The credential for reading them. Empty: only administrators may.
        self.token = ""
        self._workers: WorkerReports | None = None
        self._stored = StoredFigures()
        self._stored_read_at = float("-inf")
        self._runtime: Runtime | None = None
        # How often this worker was started; 1 without workers.
        self._starts: Callable[[], int] = lambda: 1

    def watch(self, runtime: Runtime) -> None:
        """Adds figures that are read from the services when the metrics are read."""
        self._runtime = runtime
        self.use_settings(runtime.settings)
        self._registry.register(RuntimeCollector(runtime))

    def use_settings(self, settings: Settings) -> None:
        self.token = settings.metrics_token

    def collect(self) -> Iterator[Metric]:
        """Returns the calls and responses, as the library describes them."""
        labels = ("method", "tool", "outcome")
        calls = CounterMetricFamily("florilegium_mcp_calls", "MCP calls by outcome.", labels=labels)
        for values, count in self._calls.items():
            calls.add_metric(values, count)
        yield calls
        seconds = HistogramMetricFamily("florilegium_mcp_call_seconds", "Duration of MCP calls.", labels=labels[:2])
        bounds = (*map(str, _SECONDS), "+Inf")
        for key, durations in self._durations.items():
            buckets = list(zip(bounds, accumulate(durations.counts), strict=True))
            seconds.add_metric(key, buckets, durations.seconds)
        yield seconds
        stored = self._stored
        about = "When the last backup ended, 0 if there is none."
        yield _gauge("florilegium_backup_success_timestamp_seconds", about, stored.backup_at)
        about = "When the last backup failed, 0 if none did."
        yield _gauge("florilegium_backup_failure_timestamp_seconds", about, stored.backup_failed_at)
        about = "Size of the database in PostgreSQL, 0 without it."
        yield _gauge("florilegium_postgres_database_bytes", about, stored.database_bytes)
        yield _counter("florilegium_worker_restarts", "Times this worker was replaced.", max(0, self._starts() - 1))
        responses = CounterMetricFamily("florilegium_http_responses", "HTTP responses by status.", labels=["status"])
        for status, count in self._responses.items():
            responses.add_metric([str(status)], count)
        yield responses

    def record_call(self, method: str, tool: str, outcome: str, seconds: float) -> None:
        self._calls[method, tool, outcome] += 1
        durations = self._durations.get((method, tool))
        if durations is None:
            durations = self._durations[method, tool] = Durations()
        durations.seconds += seconds
        durations.counts[bisect_left(_SECONDS, seconds)] += 1

    def record_response(self, status: int) -> None:
        self._responses[status] += 1

    @asynccontextmanager
    async def shared(self, place: WorkerPlace | None) -> AsyncIterator[None]:
        """Includes all workers, if this process is one of several."""
        if place is None:
            yield
            return
        self._starts = partial(place.table().starts, place.number)
        workers = WorkerReports(place, self._registry, self._read_state)
        async with workers.answering():
            self._workers = workers
            yield

    async def render(self) -> bytes:
        await self._read_stored()
        return generate_latest(self._registry if self._workers is None else await self._workers.merge_metrics())

    async def _read_stored(self) -> None:
        """Reads figures that are in databases, at most once per minute. If that fails, others say why."""
        runtime, now = self._runtime, time.monotonic()
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
            self._stored = StoredFigures(times[0], times[1], size)

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
        if self._runtime is None:
            return None
        calls: Totals[str] = Totals()
        for (_, _, outcome), count in self._calls.items():
            calls[outcome] += count
        responses = {str(status): count for status, count in self._responses.items()}
        return read_worker_state(self._runtime, self.started_at, calls, responses)
