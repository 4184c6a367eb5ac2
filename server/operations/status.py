"""The state of the server at a glance: sources, engines, queues, disk and backups."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from auth.audit import BACKUP_ACTION, AuditFilter
from auth.context import RequestContext
from config.times import format_time_seconds, format_timestamp
from server.metrics import BUCKETS_S, HourFigures, Metrics, WorkerState, add_worker_states
from server.operations.operation import NoArguments, Operation, admin_operation, from_record
from server.runtime import Runtime
from server.service_endpoints import Readiness
from server.version import VERSION
from sources.semantic.service import model_description

_P95 = 0.95


class SourceHealth(Struct, frozen=True, kw_only=True):
    """`skipped_users` is the number of users for whom the source is skipped at the moment, because it failed
    repeatedly."""

    name: str
    title: str
    skipped_users: int


class EmbeddingHealth(Struct, frozen=True, kw_only=True):
    """`model` is `off` without semantic search, and `fast (auto)` if `auto` chose `fast`. `coverage` is the share of
    passages that have vectors, among the `users_waiting` who have text to embed; `problem` says why nothing can be
    embedded now."""

    model: str
    problem: str | None
    users_waiting: int
    rows_missing: int
    coverage: float
    passages_total: int


class LastBackup(Struct, frozen=True, kw_only=True):
    """The newest backup that `florilegium backup` made of this data directory."""

    time: str
    folder: str
    contents: str


class StatusFigures(Struct, frozen=True, kw_only=True):
    """`calls`, `searches` and `responses` count from the start."""

    started_at: str
    libraries_open: int
    libraries_open_max: int
    jobs_waiting: int
    jobs_running: int
    job_wait_ms: float
    job_run_ms: float
    searches_waiting: int
    imports_running: int
    sessions: int
    streams: int
    searches: Mapping[str, int]
    calls: Mapping[str, int]
    responses: Mapping[str, int]


class WorkerStatus(StatusFigures, frozen=True, kw_only=True):
    """One process of the server. A session that several workers have served counts in each of them."""

    worker: int


class HourStatus(Struct, frozen=True, kw_only=True):
    """What happened in the hour from `time` on. 95 % of the MCP calls took at most `call_ms_p95`, rounded up to the end
    of a bucket of the metrics; null without calls."""

    time: str
    searches: int
    failed_searches: int
    calls: int
    failed_calls: int
    call_ms_mean: float | None
    call_ms_p95: float | None
    responses: int
    server_errors: int


class ServerStatus(StatusFigures, frozen=True, kw_only=True):
    """The figures are those of all workers of this machine together, since the start of the oldest; `workers` has those
    of each worker that answers. `hours` has those of the last week at most, oldest first, of the workers that are
    running: a process that ended took its part with it. `last_backup` is null if no backup is recorded."""

    version: str
    is_ready: bool
    users: int
    disk_free_bytes: int
    disk_size_bytes: int
    semantic_problem: str | None
    embedding: EmbeddingHealth
    sources: Sequence[SourceHealth]
    workers: Sequence[WorkerStatus]
    hours: Sequence[HourStatus]
    last_backup: LastBackup | None


def status_operation(metrics: Metrics) -> Operation:
    """Only a server that counts its calls has this operation."""

    @admin_operation("GET /api/v1/server")
    async def get_server_status(_context: RequestContext, services: Runtime, _request: NoArguments) -> ServerStatus:
        """Get the state of the server

        The state of sources, embeddings, queues and the disk, the last backup, and how many calls, searches and
        responses there were, for all workers of this machine together and for each.
        """
        readiness = Readiness(services.data_root, services.registry, services.settings.single_user_name)
        # This process, and what the other workers of this machine report about themselves.
        states = await metrics.read_states()
        total = add_worker_states(list(states.values()))
        disk = await asyncio.to_thread(shutil.disk_usage, services.data_root.root)
        embedding = total.libraries.embedding
        # `florilegium backup` is another process; it leaves an event in the audit log.
        last_backup = None
        for event in await services.audit.select(AuditFilter(actions=(BACKUP_ACTION,)), 1):
            made_at = format_timestamp(event.time)
            last_backup = LastBackup(time=made_at, folder=event.target, contents=event.detail)
        return ServerStatus(
            version=VERSION,
            **_figures(total),
            is_ready=await readiness.is_ready(),
            users=len(await services.registry.list_users()),
            disk_free_bytes=disk.free,
            disk_size_bytes=disk.total,
            semantic_problem=embedding.problem,
            embedding=from_record(EmbeddingHealth, embedding, model=model_description(services.settings)),
            sources=[
                SourceHealth(name=one.name, title=one.title, skipped_users=total.skipped_users.get(one.name, 0))
                for one in services.knowledge.sources
            ],
            workers=[WorkerStatus(worker=number, **_figures(state)) for number, state in states.items()],
            hours=[_hour_status(hour) for hour in total.hours],
            last_backup=last_backup,
        )

    return get_server_status


def _hour_status(figures: HourFigures) -> HourStatus:
    p95, passed = None, 0
    for end_s, count in zip((*BUCKETS_S, BUCKETS_S[-1]), figures.durations, strict=True):
        passed += count
        if figures.calls and passed >= _P95 * sum(figures.durations):
            p95 = 1000 * end_s
            break
    return from_record(
        HourStatus,
        figures,
        time=format_time_seconds(3600 * figures.hour),
        call_ms_mean=round(1000 * figures.seconds / figures.calls, 3) if figures.calls else None,
        call_ms_p95=p95,
    )


def _figures(state: WorkerState) -> dict[str, Any]:
    """Returns the figures that one worker and all workers together have."""
    queue = state.libraries.queue
    # Means since the start. Before the first job, they are 0.
    jobs_total = max(1, queue.jobs_total)
    return {
        "started_at": format_time_seconds(state.started_at),
        "libraries_open": state.libraries.open,
        "libraries_open_max": state.libraries.open_max,
        "jobs_waiting": queue.waiting,
        "jobs_running": queue.running,
        "job_wait_ms": round(1000 * queue.wait_total_s / jobs_total, 3),
        "job_run_ms": round(1000 * queue.run_total_s / jobs_total, 3),
        "searches_waiting": state.searches_waiting,
        "imports_running": state.imports_running,
        "sessions": state.sessions,
        "streams": state.streams,
        "searches": state.searches,
        "calls": state.calls,
        "responses": state.responses,
    }
