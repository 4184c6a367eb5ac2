"""The state of the server at a glance: sources, engines, queues, disk and backups."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from msgspec import Meta, Struct

from auth.audit import BACKUP_ACTION, AuditFilter
from auth.context import READ, RequestContext
from auth.registry import Registry
from config.errors import InvalidParams, Unavailable
from config.paths import UserId
from config.settings import Settings
from config.times import format_time_seconds, format_timestamp
from server.doctor.replay import FLOWS
from server.doctor.tokens import Check
from server.metrics import Metrics
from server.rest.account import NoArguments
from server.rest.administration import admin_operation
from server.rest.audit import account_operation
from server.rest.operation import Operation
from server.runtime import Runtime
from server.service_endpoints import Readiness
from server.version import VERSION
from server.worker_state import WorkerState, add_worker_states
from sources.semantic.service import model_description


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


class ServerStatus(StatusFigures, frozen=True, kw_only=True):
    """The figures are those of all workers of this machine together, since the start of the oldest; `workers` has those
    of each worker that answers. `last_backup` is null if no backup is recorded."""

    version: str
    is_ready: bool
    users: int
    disk_free_bytes: int
    disk_size_bytes: int
    semantic_problem: str | None
    embedding: EmbeddingHealth
    sources: Sequence[SourceHealth]
    workers: Sequence[WorkerStatus]
    last_backup: LastBackup | None


def status_operation(runtime: Runtime, metrics: Metrics) -> Operation:
    readiness = Readiness(runtime.data_root, runtime.registry, runtime.settings.single_user_name)

    async def status(_context: RequestContext, _request: NoArguments) -> ServerStatus:
        # This process, and what the other workers of this machine report about themselves.
        states = await metrics.read_states()
        total = add_worker_states(list(states.values()))
        disk = await asyncio.to_thread(shutil.disk_usage, runtime.data_root.root)
        embedding = total.libraries.embedding
        # `florilegium backup` is another process; it leaves an event in the audit log.
        last_backup = None
        for event in await runtime.audit.select(AuditFilter(actions=(BACKUP_ACTION,)), 1):
            made_at = format_timestamp(event.time)
            last_backup = LastBackup(time=made_at, folder=event.target, contents=event.detail)
        return ServerStatus(
            version=VERSION,
            **_figures(total),
            is_ready=await readiness.is_ready(),
            users=len(await runtime.registry.list_users()),
            disk_free_bytes=disk.free,
            disk_size_bytes=disk.total,
            semantic_problem=embedding.problem,
            embedding=EmbeddingHealth(
                model=model_description(runtime.settings),
                problem=embedding.problem,
                users_waiting=embedding.users_waiting,
                rows_missing=embedding.rows_missing,
                coverage=embedding.coverage,
                passages_total=embedding.passages_total,
            ),
            sources=[
                SourceHealth(name=one.name, title=one.title, skipped_users=total.skipped_users.get(one.name, 0))
                for one in runtime.knowledge.sources
            ],
            workers=[WorkerStatus(worker=number, **_figures(state)) for number, state in states.items()],
            last_backup=last_backup,
        )

    return admin_operation(
        "get_server_status",
        "GET",
        "/api/v1/server",
        "Get the state of the server",
        (
            "The state of sources, embeddings, queues and the disk, the last backup, and how many calls, searches and "
            "responses there were, for all workers of this machine together and for each."
        ),
        handler=status,
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


# -- connection test ---------------------------------------------------------------------------------------------------
# The connection doctor over REST: replays how a client connects to this server.
#
# It only ever calls the address of the settings, so it cannot be used to reach anything else.

# The key is deleted after the test; if the server is killed meanwhile, it expires.
_KEY_NAME = "Connection test"
_KEY_LIFETIME_S = 120.0
_RETRY_AFTER_S = 5.0
# The replay ends at the first hop that fails, so that a hop may take half of the time for all.
_HOP_SHARE = 0.5


class ConnectionTestRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    client: Annotated[str, Meta(description=f"The client to replay: {', '.join(FLOWS)}.")] = "any"


class ConnectionReport(Struct, frozen=True):
    """The result of each hop, up to and including the first that fails."""

    url: str
    client: str
    checks: Sequence[Check]


class ConnectionTests:
    """Runs one test at a time for each user. A test uses a key that can only read, and that is deleted afterwards."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._running: set[UserId] = set()

    async def run(self, context: RequestContext, request: ConnectionTestRequest) -> ConnectionReport:
        from server.doctor.replay import ConnectionReplay  # noqa: PLC0415 - only needed here

        flow = FLOWS.get(request.client)
        if flow is None:
            raise InvalidParams(f"client: expected one of {', '.join(FLOWS)}, got {request.client[:40]!r}")
        url, timeout_s = self._settings.resource_url, _HOP_SHARE * self._settings.call_deadline_ms / 1000
        async with self._turn(context.user_id), self._key(context.user_id) as secret:
            replay = ConnectionReplay(url, flow, secret, timeout_s, checks_sign_in=self._settings.has_oauth_server)
            return ConnectionReport(url, request.client, await replay.run())

    @asynccontextmanager
    async def _turn(self, user_id: UserId) -> AsyncIterator[None]:
        if user_id in self._running:
            raise Unavailable(f"a test is running; try again in {_RETRY_AFTER_S:.0f} s", _RETRY_AFTER_S)
        self._running.add(user_id)
        try:
            yield
        finally:
            self._running.discard(user_id)

    @asynccontextmanager
    async def _key(self, user_id: UserId) -> AsyncIterator[str]:
        """Yields the secret of a key, or nothing if the server needs no credential."""
        if not self._settings.is_auth_configured:
            yield ""
            return
        expires_at = time.time() + _KEY_LIFETIME_S
        key, secret = await self._registry.create_key(user_id, _KEY_NAME, [READ], expires_at)
        try:
            yield secret
        finally:
            await self._registry.delete_key(key.id)


def connection_test_operation(runtime: Runtime) -> Operation:
    return account_operation(
        id="test_connection",
        method="POST",
        path="/api/v1/connection-test",
        summary="Test the connection",
        description=(
            "Replays how a client connects to the public address of this server: the call without a token, the hops of "
            "signing in, and a search. Says at which hop it fails, and what to change. Nothing else can be tested."
        ),
        handler=ConnectionTests(runtime.settings, runtime.registry).run,
        caller="unrestricted",
    )
