"""Metrics and state of all workers of a server: the one that is asked for them asks the others.

Each worker has a Unix socket in the directory that its parent created for the workers. Series of metrics keep the label
`worker` and are not added up: after a worker was replaced, its counters begin at 0 again, which Prometheus can only
recognize in a series of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from server.worker_processes import WorkerPlace
from server.worker_state import WorkerState

# A worker that does not answer in this time is left out.
_ANSWER_MAX_S = 1.0


class _MetricFamily(Struct, frozen=True, array_like=True):
    name: str
    description: str
    type: str
    samples: Sequence[tuple[str, dict[str, str], float]]


class _WorkerReport(Struct, frozen=True):
    """`state` is None before the worker has all its services."""

    families: Sequence[_MetricFamily]
    state: WorkerState | None


_DECODER = msgspec.msgpack.Decoder(_WorkerReport)


class WorkerReports:
    def __init__(
        self, place: WorkerPlace, registry: CollectorRegistry, read_state: Callable[[], WorkerState | None]
    ) -> None:
        self._place = place
        self._registry = registry
        self._read_state = read_state

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Answers the other workers."""
        async with await asyncio.start_unix_server(self._answer, self._path(self._place.number)):
            yield

    async def merge_metrics(self) -> CollectorRegistry:
        """Returns the metrics of all workers that answer."""
        reports = await self._collect()
        merged = CollectorRegistry()
        merged.register(_MergedCollector({number: report.families for number, report in reports.items()}))
        return merged

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
        return _WorkerReport(_read(self._registry), self._read_state())

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(msgspec.msgpack.encode(self._report()))
        writer.close()

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


class _MergedCollector(Collector):
    def __init__(self, families: Mapping[int, Sequence[_MetricFamily]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        metrics: dict[str, Metric] = {}
        for number, families in self._families.items():
            for family in families:
                metric = metrics.setdefault(family.name, Metric(family.name, family.description, family.type))
                for name, labels, value in family.samples:
                    metric.add_sample(name, {**labels, "worker": str(number)}, value)
        yield from metrics.values()


def _read(registry: CollectorRegistry) -> Sequence[_MetricFamily]:
    return [
        _MetricFamily(
            metric.name,
            metric.documentation,
            metric.type,
            [(sample.name, dict(sample.labels), float(sample.value)) for sample in metric.samples],
        )
        for metric in registry.collect()
    ]
