"""Commands that take long, or that name files by their path on this machine: import, embed, rebuild indexes and so on.

Each has one body, which runs in the process of the command, or, while a server has the data directory, in that server
(`server.rest.routes`). It returns at once: `result` is the work, and `progress` returns how much of it is done.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, structs, to_builtins

from auth.authenticator import local_principal
from auth.context import RequestContext, build_context
from auth.follows import Follows
from auth.library_files import forget_file
from auth.registry import UserRecord
from config.errors import FlorilegiumError, InvalidParams, StorageError, Unavailable
from config.paths import DataRoot, set_aside
from config.settings import Settings
from server.following.service import REPORT_FIELDS, run_source
from server.services import Services
from sources.demo import fill
from sources.following.state import SourceBusy
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.limits import ImportProgress, import_limits
from sources.importers.engine.reader_process import find_files
from sources.storage.sqlite.connection.pool import SqliteLibraries, sqlite_options
from sources.storage.sqlite.maintenance.backups import restore_user
from sources.storage.sqlite.maintenance.library_check import FileCheck, check_library
from sources.storage.sqlite.maintenance.maintenance import find_log_fault, salvage, schema_statuses
from sources.storage.sqlite.maintenance.maintenance import reindex as reindex_file

T = TypeVar("T")

# As often as a terminal draws it.
_PROGRESS_INTERVAL_S = 0.2
# How long a command waits for imports and followed sources that use the library.
_CLOSE_WAIT_S = 120.0


class LongWork(NamedTuple):
    result: Coroutine[Any, Any, Any]
    progress: Callable[[], Any] = lambda: None


async def run_work(work: LongWork) -> AsyncIterator[tuple[str, Any]]:
    """Yields ("progress", …) until the work is done, then ("result", …) as data for JSON, or raises its error. The work
    ends when its caller does."""
    task = asyncio.create_task(work.result)
    try:
        is_done = False
        while not is_done:
            yield "progress", work.progress()
            is_done = bool((await asyncio.wait([task], timeout=_PROGRESS_INTERVAL_S))[0])
        yield "progress", work.progress()
        yield "result", to_builtins(task.result())
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class ImportRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    paths: tuple[str, ...]
    format: str | None = None
    dry_run: bool = False
    again: bool = False


def import_files(context: RequestContext, services: Services, request: ImportRequest) -> LongWork:
    progress = ImportProgress()

    async def work() -> dict[str, Any]:
        limits = await services.quotas.limits(context.user_id)
        settings = structs.replace(services.settings, import_max_bytes=limits.import_max_bytes)
        results = await find_files(list(map(Path, request.paths)), import_limits(settings), request.format)
        if request.dry_run:
            return structs.asdict(await run_import(None, results, settings, progress))
        async with services.libraries.library(context) as library:
            return structs.asdict(
                await run_import(library, results, settings, progress, rereads_unchanged=request.again)
            )

    names = ("bytes_read", "bytes_total", "items", "file")
    return LongWork(work(), lambda: {name: getattr(progress, name) for name in names})


class NoRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Has no arguments."""


def demo(context: RequestContext, services: Services, _request: NoRequest) -> LongWork:
    async def work() -> dict[str, Any]:
        async with services.libraries.library(context) as library:
            result = await fill(library)
        return {"items": result.items, "new": result.new}

    return LongWork(work())


def embed(context: RequestContext, services: Services, _request: NoRequest) -> LongWork:
    libraries = services.libraries
    before = libraries.state().embedding.passages_total

    async def work() -> dict[str, Any]:
        if not libraries.state().embedding.is_enabled:
            raise Unavailable("semantic search is off; set semantic_model, and see `florilegium model list`")
        # The library is open meanwhile, so that the result can say which quota was reached.
        async with libraries.library(context):
            waiting = asyncio.create_task(libraries.embed(context.user_id))
            try:
                # If the model cannot be used, the state says why, and the command ends.
                while not (await asyncio.wait([waiting], timeout=_PROGRESS_INTERVAL_S))[0]:
                    if (problem := libraries.state().embedding.problem) is not None:
                        raise Unavailable(problem)
            finally:
                waiting.cancel()
        return {"passages": libraries.state().embedding.passages_total - before, "stopped": waiting.result()}

    def progress() -> dict[str, Any]:
        state = libraries.state().embedding
        return {"coverage": state.coverage, "passages": state.passages_total - before}

    return LongWork(work(), progress)


def reindex(context: RequestContext, services: Services, _request: NoRequest) -> LongWork:
    from sources.storage.postgres import PostgresLibraries  # noqa: PLC0415 - 1 MB, which most servers never need

    libraries, root, user_id = services.libraries, services.data_root, context.user_id
    options, current = sqlite_options(services.settings), ""

    def reindex_files() -> dict[str, int]:
        nonlocal current
        entries: dict[str, int] = {}
        for status in schema_statuses(root, user_id):
            current = status.kind
            entries[status.kind] = reindex_file(root, user_id, status.kind, options)
        return entries

    async def work() -> dict[str, int]:
        if isinstance(libraries, PostgresLibraries):
            return await libraries.reindex(user_id)
        async with libraries.library(context):
            pass  # opened once, so that its schema is current
        return await _run_on_files(context, services, reindex_files)

    return LongWork(work(), lambda: current)


class RepairReport(Struct, frozen=True):
    """A line about each file. `is_whole` means that the library is intact now and that nothing was lost."""

    lines: Sequence[str]
    is_whole: bool


def repair_library(settings: Settings, root: DataRoot, user: UserRecord, *, accept_loss: bool) -> RepairReport:
    """Rebuilds damaged indexes, and salvages the readable rows of damaged files. Nothing else may have the files open
    meanwhile."""
    checks = check_library(root, user.id)
    repairs = [_repair(settings, root, user, check, accept_loss=accept_loss) for check in checks]
    is_intact = all(check.state == "ok" for check in check_library(root, user.id))
    return RepairReport([line for line, _ in repairs], is_intact and all(is_whole for _, is_whole in repairs))


def _repair(
    settings: Settings, root: DataRoot, user: UserRecord, check: FileCheck, *, accept_loss: bool
) -> tuple[str, bool]:
    """Repairs one file. Returns a line about it, and whether nothing was lost."""
    kind = check.kind
    match check.state:
        case "ok":
            return f"{kind}.db: intact", True
        case "index damaged":
            entries = reindex_file(root, user.id, kind, sqlite_options(settings))
            return f"{kind}.db: indexes rebuilt, {entries:,} {'entry' if entries == 1 else 'entries'}", True
        case "damaged":
            log_fault = find_log_fault(getattr(root.paths_of(user.id), kind))
            report, unindexed = salvage(root, user.id, kind), ""
            try:
                reindex_file(root, user.id, kind, sqlite_options(settings))
            except StorageError as error:
                # What was salvaged, and lost, is not known any more at the next time.
                unindexed = f"; its indexes are empty ({error.message}): run `florilegium reindex --user {user.name}`"
            rows = _count(sum(report.rows.values()), "row")
            gaps = ", ".join(f"{table} ({_count(count, 'place')})" for table, count in report.gaps.items())
            lost = f"unreadable: {gaps}" if gaps else log_fault or "every row was readable"
            line = f"{rows} salvaged; {lost}; the damaged file is kept as {report.replaced}{unindexed}"
        case "missing" if accept_loss:
            # The control database records which files a user has, so that a missing one is not replaced silently by an
            # empty one. Without the record, the next use creates it.
            set_aside(getattr(root.paths_of(user.id), kind))
            forget_file(root.control_path, user.id, kind)
            line = f"missing; {user.name} starts with an empty one"
        case "missing":
            restore = f"`florilegium restore DIR --user {user.name}`"
            line = f"missing; run {restore}, or pass --accept-loss to start with an empty one"
        case "inaccessible":
            line = f"not changed, because it is inaccessible: {check.detail}; see `florilegium check`"
        case _:
            line = "written by a newer version; upgrade Florilegium"
    return f"{kind}.db: {line}", False


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class RepairRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    accept_loss: bool = False


def repair(context: RequestContext, services: Services, request: RepairRequest) -> LongWork:
    async def work() -> Any:
        user, settings, root = await _user(context, services), services.settings, services.data_root
        return await _run_on_files(
            context, services, lambda: repair_library(settings, root, user, accept_loss=request.accept_loss)
        )

    return LongWork(work())


class RestoreRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    folder: str


def restore(context: RequestContext, services: Services, request: RestoreRequest) -> LongWork:
    folder, name, root = Path(request.folder), context.principal.user_name, services.data_root
    return LongWork(_run_on_files(context, services, lambda: restore_user(folder, name, root, context.user_id)))


def migrate(context: RequestContext, services: Services, _request: NoRequest) -> LongWork:
    """Upgrades every library by opening it. That of the control database was upgraded when the server started."""
    done = total = 0

    async def work() -> None:
        nonlocal done, total
        users = [user for user in await services.registry.list_owners() if not user.is_disabled]
        total = len(users)
        for user in users:
            own = build_context(local_principal(user), services.data_root, context.request_id, is_agent=False)
            async with services.libraries.library(own) as library:
                await library.usage()
            done += 1

    return LongWork(work(), lambda: {"done": done, "total": total})


class FollowRunRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str | None = None
    accept: bool = False


def follow_run(context: RequestContext, services: Services, request: FollowRunRequest) -> LongWork:
    async def work() -> dict[str, Any]:
        user = await _user(context, services)
        records = await Follows(services.registry.database).list(context.user_id)
        chosen = [one for one in records if one.id == request.id or (request.id is None and one.paused_at is None)]
        if request.id is not None and not chosen:
            raise InvalidParams(f"ID: expected the id of a followed source, got {request.id!r}")
        reports: dict[str, Any] = {}
        async with services.libraries.library(context) as library:
            for record in chosen:
                try:
                    report = await run_source(
                        library,
                        record,
                        user,
                        services.settings,
                        follows=[one.id for one in records],
                        accepts_replacement=request.accept,
                    )
                except SourceBusy as busy:
                    reports[record.id] = {"problem": busy.message, "is_busy": True}
                except FlorilegiumError as error:
                    reports[record.id] = {"problem": error.message}
                else:
                    reports[record.id] = {name: getattr(report, name) for name in REPORT_FIELDS}
        return reports

    return LongWork(work())


async def _user(context: RequestContext, services: Services) -> UserRecord:
    user = await services.registry.user_by_id(context.user_id)
    assert user is not None, "the caller has looked up the user"
    return user


async def _run_on_files(context: RequestContext, services: Services, work: Callable[[], T]) -> T:
    libraries = services.libraries
    assert isinstance(libraries, SqliteLibraries), "the command has no meaning for PostgreSQL"
    return await libraries.run_while_closed([context.user_id], work, _CLOSE_WAIT_S)


StartWork = Callable[[RequestContext, Services, Any], LongWork]
# By name: the input, and the function that starts the work.
LONG_COMMANDS: dict[str, tuple[type[Struct], StartWork]] = {
    "import": (ImportRequest, import_files),
    "demo": (NoRequest, demo),
    "embed": (NoRequest, embed),
    "reindex": (NoRequest, reindex),
    "repair": (RepairRequest, repair),
    "restore": (RestoreRequest, restore),
    "follow-run": (FollowRunRequest, follow_run),
    "migrate": (NoRequest, migrate),
}
