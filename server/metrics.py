"""Prometheus metrics. Label values are known names (method, tool, outcome, status), never text from a request."""

import time
from collections import Counter as Totals
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from config.settings import Settings
from server.runtime import Runtime
from server.runtime_metrics import RuntimeCollector
from server.version import VERSION
from server.worker_processes import WorkerPlace
from server.worker_reports import WorkerReports
from server.worker_state import WorkerState, read_worker_state

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ToolCalls(Struct):
    """The calls of one tool. `failed` counts all outcomes except success."""

    total: int = 0
    failed: int = 0
    seconds: float = 0.0


class Metrics:
    """The metrics of one application. Each has its own registry, so that two in one process share no counters."""

    def __init__(self) -> None:
        self.started_at = time.time()
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        Info("florilegium", "Version of the server.", registry=self._registry).info({"version": VERSION})
        self._calls = Counter(
            "florilegium_mcp_calls",
            "MCP calls by outcome.",
            ("method", "tool", "outcome"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "florilegium_mcp_call_seconds",
            "Duration of MCP calls.",
            ("method", "tool"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._responses = Counter(
            "florilegium_http_responses", "HTTP responses by status.", ("status",), registry=self._registry
        )
        # Cached, because looking a counter up by its labels costs more than incrementing it.
        self._call_metrics: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}
        self._response_counters: dict[int, Counter] = {}
        # The credential for reading them. Empty: only administrators may.
        self.token = ""
        self._workers: WorkerReports | None = None
        self._runtime: Runtime | None = None

    def watch(self, runtime: Runtime) -> None:
        """Adds figures that are read from the services when the metrics are read."""
        self._runtime = runtime
        self.use_settings(runtime.settings)
        self._registry.register(RuntimeCollector(runtime))

    def use_settings(self, settings: Settings) -> None:
        self.token = settings.metrics_token

    def record_call(self, method: str, tool: str, outcome: str, seconds: float) -> None:
        metrics = self._call_metrics.get((method, tool, outcome))
        if metrics is None:
            metrics = self._calls.labels(method, tool, outcome), self._seconds.labels(method, tool)
            self._call_metrics[method, tool, outcome] = metrics
        counter, histogram = metrics
        counter.inc()
        histogram.observe(seconds)

    def record_response(self, status: int) -> None:
        counter = self._response_counters.get(status)
        if counter is None:
            counter = self._response_counters[status] = self._responses.labels(str(status))
        counter.inc()

    def _totals(self, counter: Counter, label: str) -> Mapping[str, int]:
        """Adds up a counter by one of its labels."""
        totals: Totals[str] = Totals()
        for sample in (sample for metric in counter.collect() for sample in metric.samples):
            if sample.name.endswith("_total"):
                totals[sample.labels[label]] += int(sample.value)
        return dict(totals)

    @asynccontextmanager
    async def shared(self, place: WorkerPlace | None) -> AsyncIterator[None]:
        """Includes all workers, if this process is one of several."""
        if place is None:
            yield
            return
        workers = WorkerReports(place, self._registry, self._read_state)
        async with workers.answering():
            self._workers = workers
            yield

    async def render(self) -> bytes:
        return generate_latest(self._registry if self._workers is None else await self._workers.merge_metrics())

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
        calls, responses = self._totals(self._calls, "outcome"), self._totals(self._responses, "status")
        return read_worker_state(self._runtime, self.started_at, calls, responses)
