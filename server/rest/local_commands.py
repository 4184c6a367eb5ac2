"""What commands hand to the server of their data directory and no other caller may use: files are named by their path
on this machine, and the result comes after the progress, one JSON value per line.

These operations exist only on the socket of the data directory. Elsewhere their addresses are unknown, and no
documentation of the API has them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace
from starlette.types import ASGIApp, Receive, Scope, Send

from auth.authenticator import local_principal
from auth.context import ADMIN, WRITE, RequestContext, build_context
from auth.follows import FollowRecord, Follows
from auth.registry import UserRecord
from config.errors import ConfigurationError, FlorilegiumError, InvalidParams, Unavailable
from server.following.runs import REPORT_FIELDS, run_source
from server.library_repair import repair_library
from server.operations.operation import Handler, Operation, StreamedFile
from server.runtime import Runtime
from server.transports.client_connections import connection_of
from sources.demo import fill
from sources.following.state import SourceBusy
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.limits import ImportProgress, import_limits
from sources.importers.engine.reader_process import find_files
from sources.storage.sqlite.connection.pool import SqliteLibraries, sqlite_options
from sources.storage.sqlite.maintenance.backups import restore_user
from sources.storage.sqlite.maintenance.maintenance import reindex as reindex_file
from sources.storage.sqlite.maintenance.maintenance import schema_statuses

T = TypeVar("T")

PATH = "/api/v1/local/"
JSON_LINES = "application/x-ndjson"
# As often as a terminal draws it.
_PROGRESS_INTERVAL_S = 0.2
# How long a command waits for imports and followed sources that use the library.
_CLOSE_WAIT_S = 120.0


class ImportRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    paths: tuple[str, ...]
    format: str | None = None
    dry_run: bool = False
    again: bool = False


class RepairRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    accept_loss: bool = False


class RestoreRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    folder: str


class FollowRunRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str | None = None
    accept: bool = False


class NoRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Has no arguments."""


class LocalOnly:
    """An application for the socket of the data directory, next to one for all other callers."""

    def __init__(self, app: ASGIApp, elsewhere: ASGIApp) -> None:
        self._app = app
        self._elsewhere = elsewhere

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        app = self._app if connection is not None and connection.is_operator else self._elsewhere
        await app(scope, receive, send)


async def import_files(context: RequestContext, runtime: Runtime, request: ImportRequest) -> StreamedFile:
    progress = ImportProgress()

    async def work() -> dict[str, Any]:
        limits = await runtime.quotas.limits(context.user_id)
        settings = replace(runtime.settings, import_max_bytes=limits.import_max_bytes)
        results = await find_files(list(map(Path, request.paths)), import_limits(settings), request.format)
        if request.dry_run:
            return asdict(await run_import(None, results, settings, progress))
        async with runtime.libraries.library(context) as library:
            return asdict(await run_import(library, results, settings, progress, rereads_unchanged=request.again))

    return _respond(work(), lambda: _progress_data(progress))


async def demo(context: RequestContext, runtime: Runtime, _request: NoRequest) -> StreamedFile:
    async def work() -> dict[str, Any]:
        async with runtime.libraries.library(context) as library:
            result = await fill(library)
        return {"items": result.items, "new": result.new}

    return _respond(work())


async def embed(context: RequestContext, runtime: Runtime, _request: NoRequest) -> StreamedFile:
    libraries = runtime.libraries
    before = libraries.state().embedding.passages_total

    async def work() -> dict[str, Any]:
        if not libraries.state().embedding.is_enabled:
            raise Unavailable("semantic search is off; set semantic_model, and see `florilegium model list`")
        # The library is open meanwhile, so that the result can say which quota was reached.
        async with libraries.library(context):
            waiting = asyncio.create_task(libraries.embed(context.user_id))
            try:
                while not (await asyncio.wait([waiting], timeout=_PROGRESS_INTERVAL_S))[0]:
                    if (problem := libraries.state().embedding.problem) is not None:
                        raise Unavailable(problem)
            finally:
                waiting.cancel()
        return {"passages": libraries.state().embedding.passages_total - before, "stopped": waiting.result()}

    def progress() -> dict[str, Any]:
        state = libraries.state().embedding
        return {"coverage": state.coverage, "passages": state.passages_total - before}

    return _respond(work(), progress)


async def reindex(context: RequestContext, runtime: Runtime, _request: NoRequest) -> StreamedFile:
    from sources.storage.postgres import PostgresLibraries  # noqa: PLC0415 - 1 MB, which most servers never need

    libraries, root, user_id = runtime.libraries, runtime.data_root, context.user_id
    options = sqlite_options(runtime.settings)

    async def work() -> dict[str, int]:
        if isinstance(libraries, PostgresLibraries):
            return await libraries.reindex(user_id)
        async with libraries.library(context):
            pass  # opened once, so that its schema is current
        return await _run_on_files(
            context,
            runtime,
            lambda: {s.kind: reindex_file(root, user_id, s.kind, options) for s in schema_statuses(root, user_id)},
        )

    return _respond(work())


async def repair(context: RequestContext, runtime: Runtime, request: RepairRequest) -> StreamedFile:
    async def work() -> Any:
        user = await _user(context, runtime)
        settings, root = runtime.settings, runtime.data_root
        return await _run_on_files(
            context, runtime, lambda: repair_library(settings, root, user, accept_loss=request.accept_loss)
        )

    return _respond(work())


async def restore(context: RequestContext, runtime: Runtime, request: RestoreRequest) -> StreamedFile:
    async def work() -> Any:
        folder, name, root = Path(request.folder), context.principal.user_name, runtime.data_root
        return await _run_on_files(context, runtime, lambda: restore_user(folder, name, root, context.user_id))

    return _respond(work())


async def migrate(context: RequestContext, runtime: Runtime, _request: NoRequest) -> StreamedFile:
    """Upgrades every library by opening it. That of the control database was upgraded when the server started."""
    users = [user for user in await runtime.registry.list_users() if not user.is_disabled]
    done = 0

    async def work() -> None:
        nonlocal done
        for user in users:
            own = build_context(local_principal(user), runtime.data_root, context.request_id, is_agent=False)
            async with runtime.libraries.library(own) as library:
                await library.usage()
            done += 1

    return _respond(work(), lambda: {"done": done, "total": len(users)})


async def follow_run(context: RequestContext, runtime: Runtime, request: FollowRunRequest) -> StreamedFile:
    async def work() -> dict[str, Any]:
        user, records = await _user(context, runtime), await _follows(context, runtime)
        chosen = [one for one in records if one.id == request.id or (request.id is None and one.paused_at is None)]
        if request.id is not None and not chosen:
            raise InvalidParams(f"ID: expected the id of a followed source, got {request.id!r}")
        reports: dict[str, Any] = {}
        async with runtime.libraries.library(context) as library:
            for record in chosen:
                try:
                    report = await run_source(
                        library,
                        record,
                        user,
                        runtime.settings,
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

    return _respond(work())


async def _user(context: RequestContext, runtime: Runtime) -> UserRecord:
    user = await runtime.registry.user_by_id(context.user_id)
    assert user is not None, "admission found the user"
    return user


async def _follows(context: RequestContext, runtime: Runtime) -> Sequence[FollowRecord]:
    return await Follows(runtime.registry.database).list(context.user_id)


async def _run_on_files(context: RequestContext, runtime: Runtime, work: Callable[[], T]) -> T:
    libraries = runtime.libraries
    assert isinstance(libraries, SqliteLibraries), "the command has no meaning for PostgreSQL"
    return await libraries.run_while_closed([context.user_id], work, _CLOSE_WAIT_S)


def _respond(work: Coroutine[Any, Any, Any], progress: Callable[[], Any] = lambda: None) -> StreamedFile:
    return StreamedFile(_lines(work, progress), JSON_LINES)


async def _lines(work: Coroutine[Any, Any, Any], progress: Callable[[], Any]) -> AsyncIterator[bytes]:
    """Yields the progress until the work is done, then the result or the error. It ends with its caller."""
    task = asyncio.create_task(work)
    try:
        while True:
            yield msgspec.json.encode({"progress": progress()}) + b"\n"
            if (await asyncio.wait([task], timeout=_PROGRESS_INTERVAL_S))[0]:
                break
        try:
            line = {"result": task.result()}
        except FlorilegiumError as error:
            is_usage_error = isinstance(error, InvalidParams | ConfigurationError)
            line = {"error": {"message": error.message, "is_usage_error": is_usage_error}}
        yield msgspec.json.encode(line) + b"\n"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _progress_data(progress: ImportProgress) -> dict[str, Any]:
    names = ("bytes_read", "bytes_total", "items", "file")
    return {name: getattr(progress, name) for name in names}


def local_operations() -> Sequence[Operation]:
    handlers: dict[str, Handler] = {
        "import": import_files,
        "demo": demo,
        "embed": embed,
        "reindex": reindex,
        "repair": repair,
        "restore": restore,
        "follow-run": follow_run,
        "migrate": migrate,
    }
    return [
        Operation(
            id=f"local_{name}",
            method="POST",
            path=PATH + name,
            summary=name,
            description="",
            response=JSON_LINES,
            tools=(name,),
            handler=handler,
            scope=ADMIN if name == "migrate" else WRITE,
        )
        for name, handler in handlers.items()
    ]
