"""What commands hand to the server of their data directory and no other caller may use: files are named by their path
on this machine, and the result comes after the progress, one JSON value per line.

These operations exist only on the socket of the data directory. Elsewhere their addresses are unknown, and no
documentation of the API has them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from auth.context import WRITE, RequestContext
from config.errors import ConfigurationError, FlorilegiumError, InvalidParams, Unavailable
from server.rest.operation import Operation, stream
from server.runtime import Runtime
from server.transports.client_connections import connection_of
from sources.demo import fill
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.limits import ImportProgress, import_limits
from sources.importers.engine.reader_process import find_files
from sources.storage.postgres import PostgresLibraries
from sources.storage.sqlite.connection.pool import SqliteLibraries, sqlite_options
from sources.storage.sqlite.maintenance.maintenance import reindex, schema_statuses

PATH = "/api/v1/local/"
JSON_LINES = "application/x-ndjson"
# As often as a terminal draws it.
_PROGRESS_INTERVAL_S = 0.2


class ImportRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    paths: tuple[str, ...]
    format: str | None = None
    dry_run: bool = False
    again: bool = False


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


class LocalCommands:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def import_files(self, context: RequestContext, request: ImportRequest) -> Response:
        progress = ImportProgress()

        async def work() -> dict[str, Any]:
            limits = await self._runtime.quotas.limits(context.user_id)
            settings = replace(self._runtime.settings, import_max_bytes=limits.import_max_bytes)
            results = await find_files(list(map(Path, request.paths)), import_limits(settings), request.format)
            if request.dry_run:
                return asdict(await run_import(None, results, settings, progress))
            async with self._runtime.libraries.library(context) as library:
                return asdict(await run_import(library, results, settings, progress, rereads_unchanged=request.again))

        return await self._respond(context, work(), lambda: _progress_data(progress))

    async def demo(self, context: RequestContext, _request: NoRequest) -> Response:
        async def work() -> dict[str, Any]:
            async with self._runtime.libraries.library(context) as library:
                result = await fill(library)
            return {"items": result.items, "new": result.new}

        return await self._respond(context, work())

    async def embed(self, context: RequestContext, _request: NoRequest) -> Response:
        libraries = self._runtime.libraries
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

        return await self._respond(context, work(), progress)

    async def reindex(self, context: RequestContext, _request: NoRequest) -> Response:
        libraries, settings, user_id = self._runtime.libraries, self._runtime.settings, context.user_id

        async def work() -> dict[str, int]:
            if isinstance(libraries, PostgresLibraries):
                return await libraries.reindex(user_id)
            assert isinstance(libraries, SqliteLibraries)
            root, options = self._runtime.data_root, sqlite_options(settings)
            async with libraries.library(context):
                pass  # opened once, so that its schema is current
            return await libraries.run_while_closed(
                user_id,
                lambda: {s.kind: reindex(root, user_id, s.kind, options) for s in schema_statuses(root, user_id)},
            )

        return await self._respond(context, work())

    async def _respond(
        self, context: RequestContext, work: Coroutine[Any, Any, Any], progress: Callable[[], Any] = lambda: None
    ) -> Response:
        return await stream(self._runtime.open_streams, context, _lines(work, progress), JSON_LINES)


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


def local_operations(runtime: Runtime) -> Sequence[Operation]:
    commands = LocalCommands(runtime)
    handlers: dict[str, Callable[[RequestContext, Any], Awaitable[Response]]] = {
        "import": commands.import_files,
        "demo": commands.demo,
        "embed": commands.embed,
        "reindex": commands.reindex,
    }
    operation = partial(Operation, method="POST", scope=WRITE, description="", response=JSON_LINES)
    return [
        operation(id=f"local_{name}", path=PATH + name, summary=name, tools=(name,), handler=handler)
        for name, handler in handlers.items()
    ]
