"""Imports: a file is uploaded and imported by a job that can be inspected, followed and cancelled."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from auth.context import WRITE, RequestContext
from server.import_board import ImportJob
from server.import_jobs import IMPORT_DEADLINE_S
from server.operations.operation import (
    EVENT_STREAM,
    NOT_FOUND,
    ManagedLibraryRequest,
    NoArguments,
    StreamedFile,
    Upload,
    UploadRequest,
    operation,
)
from server.operations.sharing import managed_library
from server.runtime import Runtime

# How often a job is looked at for a stream of events.
_EVENT_INTERVAL_S = 0.5
# There is no such tool, so a key restricted to some tools cannot import.
_operation = partial(operation, tools=("import",), scope=WRITE, needs_all_sources=True)


class StartImportRequest(ManagedLibraryRequest, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="The name of the file. Its suffix tells some formats apart.")] = "upload"
    format: Annotated[str | None, Meta(description="Read the file as this format. Default: detect it.")] = None
    dry_run: Annotated[bool, Meta(description="Read everything and write nothing.")] = False


class ImportJobRequest(ManagedLibraryRequest, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The id of the job, as returned when it was started.")]


class ImportList(Struct, frozen=True):
    imports: Sequence[ImportJob]


class ImportFormat(Struct, frozen=True):
    """`suffixes` are those that files of the format can have in a folder; none if it is not read from folders."""

    name: str
    title: str
    suffixes: Sequence[str]


class ImportFormatList(Struct, frozen=True):
    formats: Sequence[ImportFormat]


@_operation(
    "POST /api/v1/import",
    input=StartImportRequest,
    status=202,
    upload=Upload("application/octet-stream"),
    deadline_ms=round(IMPORT_DEADLINE_S * 1000),
)
async def import_file(context: RequestContext, services: Runtime, uploaded: UploadRequest) -> ImportJob:
    """Import a file

    Imports an export or a file into the user's library. The format is detected by content. The response is sent when
    the upload is complete; the import continues as a job. Importing the same file again changes only what has changed
    in it.
    """
    args: StartImportRequest = uploaded.args
    manager_id = None if args.group is None else context.user_id
    context = await managed_library(context, services, args.group)
    return await services.imports.start(
        context, uploaded.file, args.name, args.format, is_dry_run=args.dry_run, manager_id=manager_id
    )


@_operation("GET /api/v1/import/formats")
async def list_import_formats(_context: RequestContext, services: Runtime, _request: NoArguments) -> ImportFormatList:
    """List the formats of imports

    The formats that can be imported: their names, titles for people, and the suffixes of files.
    """
    formats = await services.imports.formats()
    return ImportFormatList([ImportFormat(one.name, one.title, one.suffixes) for one in formats])


@_operation("GET /api/v1/import")
async def list_imports(context: RequestContext, services: Runtime, request: ManagedLibraryRequest) -> ImportList:
    """List imports

    The user's imports, newest first. Dry runs are forgotten when the server is restarted.
    """
    return ImportList(await services.imports.list(await managed_library(context, services, request.group)))


@_operation("GET /api/v1/import/{id}", error_statuses=NOT_FOUND)
async def get_import(context: RequestContext, services: Runtime, request: ImportJobRequest) -> ImportJob:
    """Get an import

    The progress of an import and, once it has ended, the result for every kind of item.
    """
    return await services.imports.get(await managed_library(context, services, request.group), request.id)


@_operation("GET /api/v1/import/{id}/events", response=EVENT_STREAM, error_statuses=NOT_FOUND)
async def follow_import(context: RequestContext, services: Runtime, request: ImportJobRequest) -> StreamedFile:
    """Follow an import

    The job as server-sent events: `progress` after every change, and `end` when it has ended.
    """
    context = await managed_library(context, services, request.group)
    # Raises NotFound as a response. Once a stream has begun, its status cannot change.
    await services.imports.get(context, request.id)

    async def events() -> AsyncIterator[bytes]:
        async for job in services.imports.watch(context, request.id, _EVENT_INTERVAL_S):
            name = "progress" if job.state in ("waiting", "running") else "end"
            yield f"event: {name}\ndata: {msgspec.json.encode(job).decode()}\n\n".encode()

    return StreamedFile(events(), EVENT_STREAM)


@_operation("DELETE /api/v1/import/{id}", error_statuses=NOT_FOUND)
async def cancel_import(context: RequestContext, services: Runtime, request: ImportJobRequest) -> ImportJob:
    """Cancel an import

    Stops an import. Items already written are kept; importing the file again adds the rest.
    """
    return await services.imports.cancel(await managed_library(context, services, request.group), request.id)
