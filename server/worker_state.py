"""What one process of a server is doing, and what several of them do together."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec
from msgspec import Struct

from aggregator.search import SearchOutcome
from server.runtime import Runtime
from server.worker_processes import WorkerPlace
from sources.storage.contract import EmbeddingState, LibrariesState, QueueState

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class HourFigures(Struct, frozen=True, kw_only=True):
    """What happened in one hour, or until now. `hour` counts from 1970. `durations` has the numbers of MCP calls in the
    buckets of the histogram (`server.metrics.BUCKETS_S`)."""

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


def read_worker_state(
    runtime: Runtime,
    started_at: float,
    calls: Mapping[str, int],
    responses: Mapping[str, int],
    hours: Sequence[HourFigures],
) -> WorkerState:
    aggregator = runtime.knowledge.aggregator
    return WorkerState(
        started_at=started_at,
        libraries=runtime.libraries.state(),
        searches_waiting=aggregator.queue.waiting,
        imports_running=runtime.imports.running,
        sessions=len(runtime.sessions),
        streams=len(runtime.open_streams),
        skipped_users=dict(aggregator.open_circuits),
        searches={outcome: aggregator.outcomes[outcome] for outcome in get_args(SearchOutcome)},
        calls=calls,
        responses=responses,
        hours=hours,
    )


def add_worker_states(states: Sequence[WorkerState]) -> WorkerState:
    """Returns the sums of at least one process, since the start of the oldest."""
    libraries = [state.libraries for state in states]
    queues, embeddings = [state.queue for state in libraries], [state.embedding for state in libraries]
    return WorkerState(
        started_at=min(state.started_at for state in states),
        libraries=LibrariesState(
            open=sum(state.open for state in libraries),
            open_max=sum(state.open_max for state in libraries),
            closing=sum(state.closing for state in libraries),
            queue=QueueState(
                waiting=sum(queue.waiting for queue in queues),
                waiting_background=sum(queue.waiting_background for queue in queues),
                running=sum(queue.running for queue in queues),
                oldest_wait_s=max(queue.oldest_wait_s for queue in queues),
                jobs_total=sum(queue.jobs_total for queue in queues),
                wait_total_s=sum(queue.wait_total_s for queue in queues),
                run_total_s=sum(queue.run_total_s for queue in queues),
                job_interval_s=max(queue.job_interval_s for queue in queues),
            ),
            embedding=EmbeddingState(
                is_enabled=any(state.is_enabled for state in embeddings),
                users_waiting=sum(state.users_waiting for state in embeddings),
                rows_missing=sum(state.rows_missing for state in embeddings),
                # Processes can wait for the same library, so that the coverage cannot be added up: it is the lowest.
                coverage=min(state.coverage for state in embeddings),
                passages_total=sum(state.passages_total for state in embeddings),
                problem=next((state.problem for state in embeddings if state.problem), None),
            ),
        ),
        searches_waiting=sum(state.searches_waiting for state in states),
        imports_running=sum(state.imports_running for state in states),
        sessions=sum(state.sessions for state in states),
        streams=sum(state.streams for state in states),
        skipped_users=_add_counts([state.skipped_users for state in states]),
        searches=_add_counts([state.searches for state in states]),
        calls=_add_counts([state.calls for state in states]),
        responses=_add_counts([state.responses for state in states]),
        hours=_add_hours([hour for state in states for hour in state.hours]),
    )


def _add_hours(hours: Sequence[HourFigures]) -> Sequence[HourFigures]:
    total: dict[int, HourFigures] = {}
    for one in hours:
        total[one.hour] = total[one.hour].plus(one) if one.hour in total else one
    return [total[hour] for hour in sorted(total)]


def _add_counts(counts: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)


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
