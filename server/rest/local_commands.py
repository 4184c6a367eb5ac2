"""Runs long commands (`server.long_commands`) in the server, for the operator. The response has the progress and then
the result, one JSON value per line.

These operations exist only on the socket of the data directory. Elsewhere their addresses are unknown, and no
documentation of the API has them.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send

from auth.context import ADMIN, WRITE, RequestContext
from config.errors import ConfigurationError, FlorilegiumError, InvalidParams
from server.long_commands import LONG_COMMANDS, LongWork, StartWork, run_work
from server.operations.operation import Operation, StreamedFile
from server.runtime import Runtime
from server.transports.client_connections import connection_of

PATH = "/api/v1/local/"
JSON_LINES = "application/x-ndjson"


class LocalOnly:
    """An application for the socket of the data directory, next to one for all other callers."""

    def __init__(self, app: ASGIApp, elsewhere: ASGIApp) -> None:
        self._app = app
        self._elsewhere = elsewhere

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        app = self._app if connection is not None and connection.is_operator else self._elsewhere
        await app(scope, receive, send)


def local_operations() -> Sequence[Operation]:
    return [_operation(name, *command) for name, command in LONG_COMMANDS.items()]


def _operation(name: str, input_type: type[Struct], start: StartWork) -> Operation:
    async def handler(context: RequestContext, runtime: Runtime, request: Any) -> StreamedFile:
        return StreamedFile(_lines(start(context, runtime, request)), JSON_LINES)

    return Operation(
        id=f"local_{name}",
        method="POST",
        path=PATH + name,
        summary=name,
        description="",
        input=input_type,
        response=JSON_LINES,
        tools=(name,),
        handler=handler,
        scope=ADMIN if name == "migrate" else WRITE,
    )


async def _lines(work: LongWork) -> AsyncIterator[bytes]:
    try:
        async for event, value in run_work(work):
            yield msgspec.json.encode({event: value}) + b"\n"
    except FlorilegiumError as error:
        is_usage_error = isinstance(error, InvalidParams | ConfigurationError)
        yield msgspec.json.encode({"error": {"message": error.message, "is_usage_error": is_usage_error}}) + b"\n"
