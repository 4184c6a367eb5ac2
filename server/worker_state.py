"""What one process of a server is doing, and what several of them do together."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

from msgspec import Struct

from aggregator.search import SearchOutcome
from server.runtime import Runtime
from sources.storage.contract import EmbeddingState, LibrariesState, QueueState


class WorkerState(Struct, frozen=True, kw_only=True):
    """`calls`, `responses` and `searches` count from the start of the process, by outcome and by status.
    `skipped_users` is the number of users for whom a source is skipped, by source."""

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


def read_worker_state(
    runtime: Runtime, started_at: float, calls: Mapping[str, int], responses: Mapping[str, int]
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
    )


def add_worker_states(states: Sequence[WorkerState]) -> WorkerState:
    """Returns the sums of at least one process, since the start of the oldest."""
    return WorkerState(
        started_at=min(state.started_at for state in states),
        libraries=_add_libraries([state.libraries for state in states]),
        searches_waiting=sum(state.searches_waiting for state in states),
        imports_running=sum(state.imports_running for state in states),
        sessions=sum(state.sessions for state in states),
        streams=sum(state.streams for state in states),
        skipped_users=_add_counts([state.skipped_users for state in states]),
        searches=_add_counts([state.searches for state in states]),
        calls=_add_counts([state.calls for state in states]),
        responses=_add_counts([state.responses for state in states]),
    )


def _add_counts(counts: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)


def _add_libraries(states: Sequence[LibrariesState]) -> LibrariesState:
    return LibrariesState(
        open=sum(state.open for state in states),
        open_max=sum(state.open_max for state in states),
        closing=sum(state.closing for state in states),
        queue=_add_queues([state.queue for state in states]),
        embedding=_add_embedding([state.embedding for state in states]),
    )


def _add_queues(states: Sequence[QueueState]) -> QueueState:
    return QueueState(
        waiting=sum(state.waiting for state in states),
        waiting_background=sum(state.waiting_background for state in states),
        running=sum(state.running for state in states),
        oldest_wait_s=max(state.oldest_wait_s for state in states),
        jobs_total=sum(state.jobs_total for state in states),
        wait_total_s=sum(state.wait_total_s for state in states),
        run_total_s=sum(state.run_total_s for state in states),
        job_interval_s=max(state.job_interval_s for state in states),
    )


def _add_embedding(states: Sequence[EmbeddingState]) -> EmbeddingState:
    """Processes can wait for the same library, so that the coverage cannot be added up: the lowest is returned."""
    return EmbeddingState(
        is_enabled=any(state.is_enabled for state in states),
        users_waiting=sum(state.users_waiting for state in states),
        rows_missing=sum(state.rows_missing for state in states),
        coverage=min(state.coverage for state in states),
        passages_total=sum(state.passages_total for state in states),
        problem=next((state.problem for state in states if state.problem), None),
    )
