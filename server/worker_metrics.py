"""Metrics of all workers of a server: the one that is asked for them asks the others.

Each worker has a Unix socket in the directory that its parent created for the workers. Series keep the label `worker`
and are not added up: after a worker was replaced, its counters begin at 0 again, which Prometheus can only recognize
in a series of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from server.worker_processes import WorkerPlace

# A worker that does not answer in this time is left out.
_ANSWER_MAX_S = 1.0


class _MetricFamily(Struct, frozen=True, array_like=True):
    name: str
    description: str
    type: str
    samples: Sequence[tuple[str, dict[str, str], float]]


_DECODER = msgspec.msgpack.Decoder(list[_MetricFamily])


class WorkerMetrics:
    def __init__(self, place: WorkerPlace, registry: CollectorRegistry) -> None:
        self._place = place
        self._registry = registry

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Answers the other workers."""
        async with await asyncio.start_unix_server(self._answer, self._path(self._place.number)):
            yield

    async def merge(self) -> CollectorRegistry:
        """Returns the metrics of all workers that answer. Never asks its own socket, so that one worker is enough."""
        others = [number for number in range(self._place.count) if number != self._place.number]
        answers = await asyncio.gather(*map(self._ask, others))
        families = {self._place.number: _read(self._registry), **dict(zip(others, answers, strict=True))}
        merged = CollectorRegistry()
        merged.register(_MergedCollector(families))
        return merged

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(msgspec.msgpack.encode(_read(self._registry)))
        writer.close()

    async def _ask(self, number: int) -> Sequence[_MetricFamily]:
        try:
            async with asyncio.timeout(_ANSWER_MAX_S):
                reader, writer = await asyncio.open_unix_connection(self._path(number))
                try:
                    return _DECODER.decode(await reader.read())
                finally:
                    writer.close()
        except (OSError, TimeoutError, msgspec.DecodeError):  # it has ended, or is being replaced
            return ()

    def _path(self, number: int) -> Path:
        return Path(self._place.directory, f"metrics-{number}")


class _MergedCollector(Collector):
    def __init__(self, families: dict[int, Sequence[_MetricFamily]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        metrics: dict[str, Metric] = {}
        for number, families in sorted(self._families.items()):
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
