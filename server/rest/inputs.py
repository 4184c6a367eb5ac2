"""Reads the input of a REST operation from the path, query string, headers and body of a request."""

import asyncio
import errno
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO, Any

from starlette.requests import ClientDisconnect, Request

from config.errors import DiskFull, InvalidParams, InvalidRequest, StorageError, TooLarge
from server.protocol.messages import json_type
from server.protocol.schema import read_arguments
from server.rest.errors import UnsupportedMediaType
from server.rest.forms import MULTIPART, URLENCODED, FormSpec, media_type_of, read_form
from server.rest.operation import Operation, Upload
from server.transports.client_connections import connection_of, decode_body
from server.transports.headers import Headers

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
                raise InvalidParams(f"{name[:60]!r}: expected text without NUL characters")
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
async def receive_upload(upload: Upload, request: Request, headers: Headers) -> AsyncIterator[IO[bytes]]:
    """Yields the body as a file that is deleted when the block ends."""
    content_type = headers.get(b"content-type")
    if media_type_of(content_type or "") != upload.media_type:
        raise UnsupportedMediaType(content_type, upload.media_type)
    connection = connection_of(request.scope)
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
        async for part in _parts(request, headers.get(b"content-length"), upload.max_bytes):
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
