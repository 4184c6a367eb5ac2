"""Carries out REST operations: the checks of `/mcp` at the door, the input as its Struct, the answer as JSON.

The credential alone decides whose library is read; the handler never sees the request.
"""

import asyncio
import errno
import hashlib
import re
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import IO, Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from auth.context import RequestContext, build_context
from config.errors import (
    DiskFull,
    FlorilegiumError,
    InvalidParams,
    InvalidRequest,
    StorageError,
    TooLarge,
    Unavailable,
)
from config.logging import current_request_id
from server.protocol.deadline import Deadline
from server.protocol.messages import decode
from server.protocol.schema import read_arguments
from server.rest.errors import PRIVATE, MethodNotAllowed, OutsideProfile, UnsupportedMediaType, refuse
from server.rest.forms import MULTIPART, URLENCODED, FormSpec, media_type_of, read_form
from server.rest.operation import Operation, Upload, UploadRequest
from server.runtime import Runtime
from server.transports.headers import AUTHORIZATION, Headers
from server.transports.request_options import config_of


class RestHandler:
    """The ASGI application behind one path: its operations by method."""

    def __init__(self, runtime: Runtime, operations: Sequence[Operation]) -> None:
        self._runtime = runtime
        self._operations: dict[str, Operation] = {operation.method: operation for operation in operations}
        self._error_format = operations[0].error_format
        assert len({(operation.path, operation.error_format) for operation in operations}) == 1, "one door, one path"
        assert len(self._operations) == len(operations), "two operations for one method"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except FlorilegiumError as error:
            response = refuse(self._runtime.settings, error, self._error_format, scope["path"])
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        check_method(request.method, tuple(self._operations))
        operation = self._operations["GET" if request.method == "HEAD" else request.method]
        headers = Headers(request.scope["headers"])
        context = await admit(self._runtime, request, headers, operation, headers.get(AUTHORIZATION))
        given = await read_input(operation, request, headers, self._runtime.settings.body_max_bytes)
        if operation.upload is None:
            answer = await carry_out(self._runtime, operation, context, given)
        else:
            # An upload counts as a stream: it takes a connection and room on disk for as long as it likes.
            with self._runtime.open_streams.enter(context.principal):
                async with _received(operation.upload, request, headers) as file:
                    answer = await carry_out(self._runtime, operation, context, UploadRequest(given, file))
        return answer_with(operation, answer, headers)


def check_method(method: str, served: Sequence[str]) -> None:
    """HEAD is GET without a body (RFC 9110 section 9.3.2)."""
    allowed = {*served, "HEAD"} if "GET" in served else set(served)
    if method not in allowed:
        raise MethodNotAllowed(method, sorted(allowed))


async def admit(
    runtime: Runtime, request: Request, headers: Headers, operation: Operation, authorization: str | None
) -> RequestContext:
    """Who calls, by the credential alone. The order is that of `/mcp`: origin, credential, scope, rate, config."""
    runtime.origins.check(headers.get(b"host"), headers.get(b"origin"))
    address = request.client.host if request.client else ""
    principal = await runtime.authenticator.authenticate(authorization, address=address)
    principal.require_scope(operation.scope)
    if not any(runtime.dispatcher.profiles.permits(principal, tool) for tool in operation.tools):
        raise OutsideProfile(operation.id, principal.profile)
    runtime.limits.user.take(principal.user_id)
    config = config_of(headers, request.scope["query_string"], runtime.settings.request_config_max_bytes)
    # A key that is bound to a profile is an assistant's; others are taken for people.
    is_agent = principal.profile is not None
    return build_context(principal, runtime.data_root, current_request_id(), config=config, is_agent=is_agent)


async def read_input(operation: Operation, request: Request, headers: Headers, body_max_bytes: int) -> Any:
    """The values of path, query, headers and body as the declared Struct."""
    try:
        arguments = _read_address(operation, request, headers)
        if operation.form is not None and not (operation.form.or_json and headers.has_json_body()):
            arguments |= await _read_form(operation.form, request, headers, body_max_bytes)
        elif operation.has_body:
            _add_body(operation, arguments, await _read_object(request, headers, body_max_bytes))
        return read_arguments(arguments, operation.input)
    except InvalidParams as error:
        if operation.input_error is InvalidParams:
            raise
        raise operation.input_error(error.message, {"loc": _place_of(operation, error.message)}) from error


def _place_of(operation: Operation, sentence: str) -> list[str]:
    """Where a value stands and what it is called, of a sentence that begins with it."""
    named = _NAMED.match(sentence)
    if named is None:
        return ["body"]
    return [operation.places().get(named[1], "body" if operation.has_body else "query"), named[1]]


def _read_address(operation: Operation, request: Request, headers: Headers) -> dict[str, Any]:
    places = operation.places()
    arguments: dict[str, Any] = dict(request.path_params)
    for name, text in request.query_params.multi_items():
        if name == "config":  # read at the door
            continue
        if name in arguments:
            raise InvalidParams(f"{name[:60]}: got it twice, expected it once")
        if places.get(name, "query") != "query":
            raise InvalidParams(f"{name}: got it in the query, expected it in the {places[name]}")
        arguments[name] = text
    return arguments | {name: headers.get(header.lower().encode()) for name, header in operation.headers.items()}


def _add_body(operation: Operation, arguments: dict[str, Any], body: dict[str, Any]) -> None:
    places = operation.places()
    for name, value in body.items():
        if places.get(name, "body") == "body":
            arguments[name] = value
        # Clients that treat an operation as a tool (Open WebUI) send all of its values in the body as well.
        elif str(value) != arguments.get(name):
            raise InvalidParams(f"{name}: got another one in the body, expected it in the {places[name]} alone")


async def _read_object(request: Request, headers: Headers, limit_bytes: int) -> dict[str, Any]:
    if not headers.has_json_body():
        raise UnsupportedMediaType(headers.get(b"content-type") or "nothing")
    value = decode(await _read_body(request, headers.get(b"content-length"), limit_bytes))
    if not isinstance(value, dict):
        raise InvalidParams("the body: got JSON that is no object, expected an object")
    return value


async def _read_form(form: FormSpec, request: Request, headers: Headers, limit_bytes: int) -> dict[str, Any]:
    content_type = headers.get(b"content-type") or "nothing"
    if media_type_of(content_type) not in (MULTIPART, URLENCODED):
        raise UnsupportedMediaType(content_type, " or ".join(form.media_types))
    return read_form(form, content_type, await _read_body(request, headers.get(b"content-length"), limit_bytes))


async def _read_body(request: Request, declared: str | None, limit_bytes: int) -> bytes:
    return b"".join([part async for part in _parts(request, declared, limit_bytes)])


@asynccontextmanager
async def _received(upload: Upload, request: Request, headers: Headers) -> AsyncIterator[IO[bytes]]:
    """The body as a file that is gone when the block ends."""
    got = headers.get(b"content-type") or "nothing"
    if got.partition(";")[0].strip().lower() != upload.media_type:
        raise UnsupportedMediaType(got, upload.media_type)
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
        async for part in _parts(request, headers.get(b"content-length"), upload.max_bytes):
            await _keep(file, part)
        file.seek(0)
        yield file


async def _keep(file: IO[bytes], part: bytes) -> None:
    try:
        await asyncio.to_thread(file.write, part)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull from error
        raise StorageError("the upload could not be kept") from error


async def _parts(request: Request, declared: str | None, limit_bytes: int) -> AsyncIterator[bytes]:
    """A body as it comes, refused as soon as it is known to be too large."""
    if declared is not None and declared.isdigit() and int(declared) > limit_bytes:
        raise TooLarge("the body", limit_bytes)
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit_bytes:
                raise TooLarge("the body", limit_bytes)
            yield part
    except ClientDisconnect as error:
        raise InvalidRequest("the body ended early") from error


async def carry_out(runtime: Runtime, operation: Operation, context: RequestContext, given: Any) -> Any:
    """Runs the handler within the rate of its tool and its deadline."""
    runtime.limits.tool.take((context.user_id, operation.tools[0]))
    deadline_ms = operation.deadline_ms or runtime.settings.call_deadline_ms
    try:
        with Deadline(deadline_ms / 1000):
            return await operation.handler(context, given)
    except TimeoutError as error:
        raise Unavailable(f"{operation.id} took longer than {deadline_ms} ms") from error


def answer_with(operation: Operation, answer: Any, headers: Headers) -> Response:
    """JSON, with an ETag where it can be asked for again; a handler's own Response goes out as it is."""
    if isinstance(answer, Response):
        answer.headers.update(PRIVATE)
        return answer
    response = Response(msgspec.json.encode(answer), operation.status, PRIVATE, "application/json")
    return answer_if_changed(response, headers) if operation.method == "GET" else response


def answer_if_changed(response: Response, headers: Headers) -> Response:
    """The response with its ETag, or 304 for a caller that has it (RFC 9110 section 13.1.2, compared weakly)."""
    etag = f'"{hashlib.blake2b(bytes(response.body), digest_size=16).hexdigest()}"'
    known = [tag.strip().removeprefix("W/") for tag in (headers.get(b"if-none-match") or "").split(",")]
    if etag in known or known == ["*"]:
        kept = {name: value for name, value in response.headers.items() if name not in _OF_A_BODY}
        return Response(status_code=304, headers={**kept, "ETag": etag})
    response.headers["ETag"] = etag
    return response


_NAMED = re.compile(r"(\w+)(?:[.\[][^:]*?)?:")
_OF_A_BODY = frozenset(("content-length", "content-type"))
# Larger uploads go to disk, into a file without a name.
_IN_MEMORY_BYTES = 1 << 20
