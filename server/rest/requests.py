"""Reads the input of an operation from a request, and sends output in parts."""

# About this package: Read first: `server/operations/operation.py` (what an operation declares), then `handler.py` (how
# a request for one is served) and `routes.py` (the table of all, and the OpenAPI document). `requests.py` reads
# requests, `forms.py` forms, and `errors.py` has the errors that only HTTP has. The pages of the console run the same
# operations, so that they need no second implementation, and have the same checks.

import asyncio
import errno
import re
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import IO, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse

from auth.context import Principal, RequestContext
from config.errors import DiskFull, InvalidParams, InvalidRequest, StorageError, TooLarge, Unavailable
from config.settings import Settings
from config.times import steady_time
from server.operations.operation import Operation
from server.protocol.messages import json_type
from server.protocol.schema import read_arguments
from server.rest.errors import UnsupportedMediaType
from server.rest.forms import MULTIPART, URLENCODED, FormSpec, media_type_of, read_form
from server.transports.client_connections import OpenStreams, connection_of, decode_body
from server.transports.headers import Headers
from sources.storage.contract import Libraries

# -- streams -----------------------------------------------------------------------------------------------------------
# Streamed responses. They count as open streams of the user, and end when access is revoked.
#
# A stream that fails is aborted, so that a client does not mistake a partial response for a complete one.

# Browsers wait this long before they connect again.
RETRY = b"retry: 2000\n"
# A line that clients ignore.
KEEP_ALIVE = b": \n\n"


class ChangeWatch:
    """Asks a library for the change token of its conversations every `conversation_events_interval_ms`, which reads no
    row."""

    def __init__(self, libraries: Libraries, open_streams: OpenStreams, settings: Settings) -> None:
        self._libraries = libraries
        self._open_streams = open_streams
        self._interval_s = settings.fixed.conversation_events_interval_ms / 1000
        self._duration_s = settings.fixed.conversation_events_max_s
        self._keepalive_s = settings.sse_keepalive_s

    async def tokens(self, context: RequestContext) -> AsyncIterator[str | None]:
        """Yields the token at once and whenever it has changed, and None if a stream has to be kept alive. Ends after
        `conversation_events_max_s`, or when the server stops."""
        started_s = sent_s = steady_time()
        token = await self._token(context)
        yield token
        # Polling finds the changes of all processes.
        while (now_s := steady_time()) < started_s + self._duration_s and not self._open_streams.is_stopping:
            await asyncio.sleep(min(self._interval_s, started_s + self._duration_s - now_s))
            previous, token = token, await self._token(context)
            if token != previous:
                sent_s = now_s
                yield token
            elif now_s > sent_s + self._keepalive_s:
                sent_s = now_s
                yield None

    async def _token(self, context: RequestContext) -> str:
        async with self._libraries.library(context) as library:
            return await library.chats.change_token()


async def stream(
    open_streams: OpenStreams,
    context: RequestContext,
    chunks: AsyncIterator[bytes],
    media_type: str,
    headers: Mapping[str, str] | None = None,
) -> StreamingResponse:
    """Returns a streaming response. The first chunk is read beforehand, so that an early error gets an error status."""
    counted = _counted(open_streams, context.principal, chunks)
    first = await anext(counted, b"")
    return StreamingResponse(_prepend(first, counted), media_type=media_type, headers=headers)


async def _counted(
    open_streams: OpenStreams, principal: Principal, chunks: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    with open_streams.enter(principal):
        async for chunk in chunks:
            # A key that was revoked, or a user who was disabled, gets nothing more.
            if not await open_streams.is_open(principal):
                raise Unavailable("the stream was closed")
            yield chunk


async def _prepend(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


# -- inputs ------------------------------------------------------------------------------------------------------------
# Reads the input of a REST operation from the path, query string, headers and body of a request.

# The field at the beginning of an error message: `limit` in "limit: expected `int`, got `str`".
_FIELD = re.compile(r"(\w+)(?:[.\[][^:]*?)?:")
# Larger uploads are written to disk, to a file without a name.
_IN_MEMORY_BYTES = 1 << 20


async def read_input(operation: Operation, request: Request, headers: Headers, body_max_bytes: int) -> Any:
    """Returns the values of a request as the operation's input Struct."""
    try:
        locations = operation.locations()
        address_arguments: dict[str, Any] = dict(request.path_params)
        # What an address names is looked up, and PostgreSQL has no texts with NUL.
        for name, text in (*request.path_params.items(), *request.query_params.multi_items()):
            if "\0" in str(text):
                raise InvalidParams(f"{name[:60]}: expected text without NUL characters")
        for name, text in request.query_params.multi_items():
            if name == "config":  # read by admission
                continue
            if name in address_arguments:
                raise InvalidParams(f"{name[:60]}: expected one value, got several")
            if locations.get(name, "query") != "query":
                raise InvalidParams(f"{name}: expected it in the {locations[name]}, got it in the query string")
            address_arguments[name] = text
        arguments = address_arguments | {
            name: headers.get(header.lower().encode()) for name, header in operation.headers.items()
        }
        if operation.form is not None and not (operation.form.accepts_json and headers.has_json_body()):
            arguments |= await _read_form(operation.form, request, headers, body_max_bytes)
        elif operation.has_body:
            if not headers.has_json_body():
                raise UnsupportedMediaType(headers.get(b"content-type"))
            body = await read_body(request, headers.get(b"content-length"), body_max_bytes)
            value = decode_body(body, connection_of(request.scope))
            if not isinstance(value, dict):
                raise InvalidParams(f"body: expected a JSON object, got {json_type(value)}")
            _add_body(operation, arguments, value)
        return read_arguments(arguments, operation.input)
    except InvalidParams as error:
        if operation.input_error is InvalidParams:
            raise
        raise operation.input_error(error.message, {"loc": _error_location(operation, error.message)}) from error


@asynccontextmanager
async def receive_upload(
    media_type: str, max_bytes: int, request: Request, headers: Headers
) -> AsyncIterator[IO[bytes]]:
    """Yields the body as a file that is deleted when the block ends."""
    content_type = headers.get(b"content-type")
    if media_type_of(content_type or "") != media_type:
        raise UnsupportedMediaType(content_type, media_type)
    connection = connection_of(request.scope)
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
        async for part in _parts(request, headers.get(b"content-length"), max_bytes):
            # Writing can block for as long as the disk is busy.
            try:
                await asyncio.to_thread(file.write, part)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise DiskFull from error
                raise StorageError("the upload could not be stored") from error
            # On disk it no longer counts as a body in flight.
            if connection is not None:
                connection.release_request()
        file.seek(0)
        yield file


def _error_location(operation: Operation, message: str) -> list[str]:
    """Returns FastAPI's location of an invalid value, such as ["query", "limit"]."""
    field = _FIELD.match(message)
    if field is None or field[1] == "body":
        return ["body"]
    return [operation.locations().get(field[1], "body" if operation.has_body else "query"), field[1]]


def _add_body(operation: Operation, arguments: dict[str, Any], body: dict[str, Any]) -> None:
    locations = operation.locations()
    for name, value in body.items():
        if locations.get(name, "body") == "body":
            arguments[name] = value
        # Clients that treat an operation as a tool (Open WebUI) also send all of its values in the body.
        elif str(value) != arguments.get(name):
            raise InvalidParams(f"{name}: expected it in the {locations[name]} only, got another value in the body")


async def _read_form(form: FormSpec, request: Request, headers: Headers, limit_bytes: int) -> dict[str, Any]:
    content_type = headers.get(b"content-type")
    if content_type is None or media_type_of(content_type) not in (MULTIPART, URLENCODED):
        raise UnsupportedMediaType(content_type, " or ".join(form.media_types))
    return read_form(form, content_type, await read_body(request, headers.get(b"content-length"), limit_bytes))


async def read_body(request: Request, content_length: str | None, limit_bytes: int) -> bytes:
    """Returns the body. Raises TooLarge if it is larger than the limit."""
    return b"".join([part async for part in _parts(request, content_length, limit_bytes)])


async def _parts(request: Request, content_length: str | None, limit_bytes: int) -> AsyncIterator[bytes]:
    """Yields the body in parts. Raises TooLarge as soon as the limit is known to be exceeded."""
    if content_length is not None and content_length.isdigit() and int(content_length) > limit_bytes:
        raise TooLarge("the body", limit_bytes)
    # A chunked body has no Content-Length, and a client can send more than it announced.
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit_bytes:
                raise TooLarge("the body", limit_bytes)
            yield part
    except ClientDisconnect as error:
        raise InvalidRequest("the body is incomplete") from error
