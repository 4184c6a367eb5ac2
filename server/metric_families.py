"""The metrics as prometheus_client describes them.

Loaded when metrics are first read, because the library takes 1.3 MB. `server.metrics` counts.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import get_args

from prometheus_client import CollectorRegistry, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from aggregator.search import SearchOutcome
from config.event_counts import POSTGRES_EVENTS, SESSION_SERVER_EVENTS
from config.settings import Settings
from server.admission import AuthFailure
from server.import_board import ENDED_STATES
from server.metrics import BUCKETS_S, MetricFamily, Metrics
from server.runtime import Runtime
from server.serving import LOOP_DELAYS
from server.version import VERSION
from sources.storage.contract import QueueState

__all__ = ["CONTENT_TYPE_LATEST", "build_registry", "generate_latest", "merge_registries"]

_gauge, _counter = GaugeMetricFamily, CounterMetricFamily


def build_registry(metrics: Metrics) -> CollectorRegistry:
    """Each application has its own registry, so that two in one process share no counters."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    Info("florilegium", "Version of the server.", registry=registry).info({"version": VERSION})
    registry.register(_ServerCollector(metrics))
    return registry


def merge_registries(workers: Mapping[int, Sequence[MetricFamily]]) -> CollectorRegistry:
    """Returns the metrics of several workers, by their numbers."""
    registry = CollectorRegistry()
    registry.register(_MergedCollector(workers))
    return registry


class _ServerCollector(Collector):
    """Reads the counts of one application. Label values are names of sources and outcomes, never of users."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterator[Metric]:
        """Returns nothing, so that registering the collector does not read the figures."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        labels = ("method", "tool", "outcome")
        calls = CounterMetricFamily("florilegium_mcp_calls", "MCP calls by outcome.", labels=labels)
        for values, count in metrics.calls.items():
            calls.add_metric(values, count)
        yield calls
        seconds = HistogramMetricFamily("florilegium_mcp_call_seconds", "Duration of MCP calls.", labels=labels[:2])
        bounds = (*map(str, BUCKETS_S), "+Inf")
        for key, durations in metrics.durations.items():
            buckets = list(zip(bounds, accumulate(durations.counts), strict=True))
            seconds.add_metric(key, buckets, durations.seconds)
        yield seconds
        stored = metrics.stored
        about = "When the last backup ended, 0 if there is none."
        yield _gauge("florilegium_backup_success_timestamp_seconds", about, stored.backup_at)
        about = "When the last backup failed, 0 if none did."
        yield _gauge("florilegium_backup_failure_timestamp_seconds", about, stored.backup_failed_at)
        about = "Size of the database in PostgreSQL, 0 without it."
        yield _gauge("florilegium_postgres_database_bytes", about, stored.database_bytes)
        yield _counter("florilegium_worker_restarts", "Times this worker was replaced.", max(0, metrics.starts() - 1))
        responses = CounterMetricFamily("florilegium_http_responses", "HTTP responses by status.", labels=["status"])
        for status, count in metrics.responses.items():
            responses.add_metric([str(status)], count)
        yield responses
        if metrics.runtime is not None:
            yield from _runtime_metrics(metrics.runtime)


class _MergedCollector(Collector):
    def __init__(self, workers: Mapping[int, Sequence[MetricFamily]]) -> None:
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        metrics: dict[str, Metric] = {}
        for number, families in self._workers.items():
            for family in families:
                metric = metrics.setdefault(family.name, Metric(family.name, family.description, family.type))
                for name, labels, value in family.samples:
                    metric.add_sample(name, {**labels, "worker": str(number)}, value)
        yield from metrics.values()


def _runtime_metrics(runtime: Runtime) -> Iterator[Metric]:
    """Queues, libraries, imports, rejected credentials, breakers, disk space."""
    libraries = runtime.libraries.state()
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
