"""Imports over REST: a file is uploaded and imported by a job that can be inspected, followed and cancelled."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from auth.context import WRITE, RequestContext
from config.settings import Settings
from server.import_board import ImportJob
from server.import_jobs import IMPORT_DEADLINE_S, ImportJobs
from server.rest.operation import Operation, Upload, UploadRequest, stream
from server.runtime import Runtime
from server.transports.client_connections import OpenStreams

_PATH = "/api/v1/import"
_FILE = "application/octet-stream"
_EVENTS = "text/event-stream"
# How often a job is looked at for a stream of events.
_EVENT_INTERVAL_S = 0.5
# There is no such tool, so a key restricted to some tools cannot import.
_operation = partial(Operation, tools=("import",), scope=WRITE, needs_all_sources=True)
_NOT_FOUND = frozenset((404,))


class StartImportRequest(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="The name of the file. Its suffix tells some formats apart.")] = "upload"
    format: Annotated[str | None, Meta(description="Read the file as this format. Default: detect it.")] = None
    dry_run: Annotated[bool, Meta(description="Read everything and write nothing.")] = False


class ImportJobRequest(Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The id of the job, as returned when it was started.")]


class ListImportsRequest(Struct, frozen=True, kw_only=True):
    """Has no parameters."""


class ImportList(Struct, frozen=True):
    imports: Sequence[ImportJob]


class ImportFormat(Struct, frozen=True):
    """`suffixes` are those that files of the format can have in a folder; none if it is not read from folders."""

    name: str
    title: str
    suffixes: Sequence[str]


class ImportFormatList(Struct, frozen=True):
    formats: Sequence[ImportFormat]


class ImportEndpoints:
    """The handlers of the import operations."""

    def __init__(self, jobs: ImportJobs, open_streams: OpenStreams) -> None:
        self._jobs = jobs
        self._open_streams = open_streams

    async def start(self, context: RequestContext, uploaded: UploadRequest) -> ImportJob:
        args: StartImportRequest = uploaded.args
        return await self._jobs.start(context, uploaded.file, args.name, args.format, is_dry_run=args.dry_run)

    async def list_formats(self, _context: RequestContext, _request: ListImportsRequest) -> ImportFormatList:
        formats = await self._jobs.formats()
        return ImportFormatList([ImportFormat(one.name, one.title, one.suffixes) for one in formats])

    async def list(self, context: RequestContext, _request: ListImportsRequest) -> ImportList:
        return ImportList(await self._jobs.list(context))

    async def get(self, context: RequestContext, request: ImportJobRequest) -> ImportJob:
        return await self._jobs.get(context, request.id)

    async def follow(self, context: RequestContext, request: ImportJobRequest) -> Response:
        # Raises NotFound as a response. Once a stream has begun, its status cannot change.
        await self._jobs.get(context, request.id)
        return await stream(self._open_streams, context, self._events(context, request.id), _EVENTS)

    async def cancel(self, context: RequestContext, request: ImportJobRequest) -> ImportJob:
        return await self._jobs.cancel(context, request.id)

    async def _events(self, context: RequestContext, job_id: str) -> AsyncIterator[bytes]:
        async for job in self._jobs.watch(context, job_id, _EVENT_INTERVAL_S):
            name = "progress" if job.state in ("waiting", "running") else "end"
            yield f"event: {name}\ndata: {msgspec.json.encode(job).decode()}\n\n".encode()


def import_operations(runtime: Runtime) -> list[Operation]:
    endpoints = ImportEndpoints(runtime.imports, runtime.open_streams)
    return [
        start_import_operation(endpoints, runtime.settings),
        _operation(
            id="list_import_formats",
            method="GET",
            path=_PATH + "/formats",
            summary="List the formats of imports",
            description="The formats that can be imported: their names, titles for people, and the suffixes of files.",
            handler=endpoints.list_formats,
        ),
        list_imports_operation(endpoints),
        _operation(
            id="get_import",
            method="GET",
            path=_PATH + "/{id}",
            summary="Get an import",
            description="The progress of an import and, once it has ended, the result for every kind of item.",
            handler=endpoints.get,
            error_statuses=_NOT_FOUND,
        ),
        _operation(
            id="follow_import",
            method="GET",
            path=_PATH + "/{id}/events",
            summary="Follow an import",
            description="The job as server-sent events: `progress` after every change, and `end` when it has ended.",
            response=_EVENTS,
            handler=endpoints.follow,
            error_statuses=_NOT_FOUND,
        ),
        cancel_import_operation(endpoints),
    ]


def start_import_operation(endpoints: ImportEndpoints, settings: Settings) -> Operation:
    return _operation(
        id="import_file",
        method="POST",
        path=_PATH,
        summary="Import a file",
        description=(
            "Imports an export or a file into the user's library. The format is detected by content. The response is "
            "sent when the upload is complete; the import continues as a job. Importing the same file again changes "
            "only what has changed in it."
        ),
        input=StartImportRequest,
        handler=endpoints.start,
        status=202,
        upload=Upload(_FILE, settings.import_max_bytes),
        deadline_ms=round(IMPORT_DEADLINE_S * 1000),
    )


def list_imports_operation(endpoints: ImportEndpoints) -> Operation:
    return _operation(
        id="list_imports",
        method="GET",
        path=_PATH,
        summary="List imports",
        description="The user's imports, newest first. Dry runs are forgotten when the server is restarted.",
        handler=endpoints.list,
    )


def cancel_import_operation(endpoints: ImportEndpoints) -> Operation:
    return _operation(
        id="cancel_import",
        method="DELETE",
        path=_PATH + "/{id}",
        summary="Cancel an import",
        description="Stops an import. Items already written are kept; importing the file again adds the rest.",
        handler=endpoints.cancel,
        error_statuses=_NOT_FOUND,
    )
