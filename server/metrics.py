"""Prometheus metrics. Labels are our own words (method, tool, outcome, route), never a user's."""

from collections.abc import Sized

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from server.transports.open_streams import OpenStreams

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """One registry per application, so that two in one process never share a counter."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._calls = Counter(
            "florilegium_mcp_calls",
            "MCP calls by outcome.",
            ("method", "tool", "outcome"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "florilegium_mcp_call_seconds",
            "Time an MCP call took.",
            ("method", "tool"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._responses = Counter(
            "florilegium_http_responses", "HTTP responses by status.", ("status",), registry=self._registry
        )
        # Finding a child by its labels costs more than counting; there are few, all named by us.
        self._called: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}
        self._responded: dict[int, Counter] = {}

    def watch(self, sessions: Sized, open_streams: OpenStreams) -> None:
        """Gauges that are read when somebody asks."""
        live = Gauge("florilegium_sessions", "Live legacy sessions.", registry=self._registry)
        live.set_function(lambda: len(sessions))
        streams = Gauge("florilegium_streams", "Open streams and WebSockets.", registry=self._registry)
        streams.set_function(lambda: len(open_streams))

    def record_call(self, method: str, tool: str, outcome: str, seconds: float) -> None:
        known = self._called.get((method, tool, outcome))
        if known is None:
            known = self._calls.labels(method, tool, outcome), self._seconds.labels(method, tool)
            self._called[method, tool, outcome] = known
        known[0].inc()
        known[1].observe(seconds)

    def record_response(self, status: int) -> None:
        known = self._responded.get(status)
        if known is None:
            known = self._responded[status] = self._responses.labels(str(status))
        known.inc()

    def render(self) -> bytes:
        return generate_latest(self._registry)
