"""A file brought over REST: taken in by a job that can be looked at, followed and stopped."""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from auth.context import RequestContext
from auth.principal import WRITE
from server.import_jobs import ImportJob
from server.rest.operation import Operation, Upload, UploadRequest
from server.rest.streams import stream
from server.runtime import Runtime

_PATH = "/api/v1/import"
_FILE = "application/octet-stream"
_EVENTS = "text/event-stream"
_TOLD_EVERY_S = 0.5
# No tool imports: a key that is bound to a few tools may not.
_TOOLS = ("import",)
_REFUSALS = frozenset((404,))


class StartRequest(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="What the file is called. Its ending tells some formats apart.")] = "upload"
    format: Annotated[str | None, Meta(description="Read it as this format, whatever it looks like.")] = None
    dry_run: Annotated[bool, Meta(description="Read everything and write nothing.")] = False


class JobRequest(Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The job's, from the answer that started it.")]


class JobsRequest(Struct, frozen=True, kw_only=True):
    """All there are."""


class Jobs(Struct, frozen=True):
    imports: Sequence[ImportJob]


def import_operations(runtime: Runtime) -> list[Operation]:
    return [_start(runtime), _list(runtime), _look(runtime), _follow(runtime), _cancel(runtime)]


def _start(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, uploaded: UploadRequest) -> ImportJob:
        given: StartRequest = uploaded.args
        return await runtime.imports.start(context, uploaded.file, given.name, given.format, is_rehearsal=given.dry_run)

    return Operation(
        id="import_file",
        method="POST",
        path=_PATH,
        summary="Import a file",
        description=(
            "Bring an export or a file into the user's library; what format it is, its content tells. The answer comes "
            "when the file is here; the import goes on as a job. Repeated, it changes nothing that did not change."
        ),
        input=StartRequest,
        response=ImportJob,
        handler=run,
        tools=_TOOLS,
        scope=WRITE,
        status=202,
        upload=Upload(_FILE, runtime.settings.import_max_bytes),
        deadline_ms=round(runtime.settings.import_deadline_s * 1000),
    )


def _list(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, _given: JobsRequest) -> Jobs:
        return Jobs(runtime.imports.list(context))

    return Operation(
        id="list_imports",
        method="GET",
        path=_PATH,
        summary="List imports",
        description="The user's imports that this server remembers, newest first.",
        input=JobsRequest,
        response=Jobs,
        handler=run,
        tools=_TOOLS,
        scope=WRITE,
    )


def _look(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: JobRequest) -> ImportJob:
        return runtime.imports.get(context, given.id)

    return Operation(
        id="get_import",
        method="GET",
        path=_PATH + "/{id}",
        summary="Look at an import",
        description="How far it has come, and when it is done what became of every item.",
        input=JobRequest,
        response=ImportJob,
        handler=run,
        tools=_TOOLS,
        scope=WRITE,
        error_statuses=_REFUSALS,
    )


def _follow(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: JobRequest) -> Response:
        runtime.imports.get(context, given.id)
        return await stream(runtime.open_streams, context, _events(runtime, context, given.id), _EVENTS)

    return Operation(
        id="follow_import",
        method="GET",
        path=_PATH + "/{id}/events",
        summary="Follow an import",
        description="The job as server-sent events: `progress` whenever it has moved, and `end` when it is over.",
        input=JobRequest,
        response=_EVENTS,
        handler=run,
        tools=_TOOLS,
        scope=WRITE,
        error_statuses=_REFUSALS,
    )


def _cancel(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: JobRequest) -> ImportJob:
        return await runtime.imports.cancel(context, given.id)

    return Operation(
        id="cancel_import",
        method="DELETE",
        path=_PATH + "/{id}",
        summary="Stop an import",
        description="What was written stays; the same file, imported again, completes it.",
        input=JobRequest,
        response=ImportJob,
        handler=run,
        tools=_TOOLS,
        scope=WRITE,
        error_statuses=_REFUSALS,
    )


async def _events(runtime: Runtime, context: RequestContext, job_id: str) -> AsyncIterator[bytes]:
    async for job in runtime.imports.watch(context, job_id, _TOLD_EVERY_S):
        name = "progress" if job.state == "running" else "end"
        yield f"event: {name}\ndata: {msgspec.json.encode(job).decode()}\n\n".encode()
