"""A REST operation, declared once. Its route, its validation and its documentation are derived from the declaration.

A handler receives the caller's context and the validated input, and nothing else from the request.
"""

# About this package: Read first: `operation.py` (what an operation declares), `handler.py` (how a request is served)
# and `routes.py` (the table of all operations). `forms.py` reads forms, `openapi.py` describes the
# operations, and `errors.py` has the errors that only HTTP has. Every other module declares the operations of one
# subject, next to their handlers. The pages of the console call the same handlers, so that they need no second
# implementation, and have the same checks.

import asyncio
import errno
import re
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import IO, Any, Literal, get_type_hints

from msgspec import Struct
from msgspec.structs import fields, force_setattr
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse

from auth.context import READ, WRITE, Principal, RequestContext
from config.errors import DiskFull, FlorilegiumError, InvalidParams, InvalidRequest, StorageError, TooLarge, Unavailable
from config.settings import Settings
from config.times import steady_time
from server.middleware import DEFAULT_ERROR_FORMAT, ErrorFormat
from server.protocol.messages import json_type
from server.protocol.schema import input_schema, read_arguments
from server.rest.errors import UnsupportedMediaType
from server.rest.forms import MULTIPART, URLENCODED, FormSpec, media_type_of, read_form
from server.transports.client_connections import OpenStreams, connection_of, decode_body
from server.transports.headers import Headers
from sources.storage.contract import Libraries

# How long after signing in people can change who has access (passkeys, other browsers, connections), and delete their
# data.
PASSKEY_RECENT_SIGN_IN_S = 900.0

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Location = Literal["path", "query", "header", "body"]
# Which callers may use an operation, of those who have its scope: all of them, those whose credential is unrestricted,
# the same but in a browser only those who have just signed in, or only people who have just signed in.
Caller = Literal["any", "unrestricted", "recent_browser", "recent_sign_in"]

_VARIABLE = re.compile(r"\{(\w+)(?::\w+)?\}")
_METHODS_WITH_BODY = frozenset(("POST", "PUT", "PATCH"))


class RestrictedCredential(FlorilegiumError, status=403):
    """The credential is one that must not change the account."""

    def __init__(self) -> None:
        super().__init__(
            "connected applications and restricted keys cannot change the account or the server; use a key without "
            "restrictions, or sign in"
        )


class SignInNeeded(FlorilegiumError, status=403):
    """Only a person who has just signed in may do this. Someone who finds a key or an open browser must not be able to
    lock its owner out."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem} before you change who has access, or delete your data")


def require_unrestricted(principal: Principal) -> None:
    """Raises for credentials that an agent may have: those that are restricted, and those of connected clients."""
    if principal.is_for_agents:
        raise RestrictedCredential


def require_recent_sign_in(principal: Principal) -> None:
    """Raises unless the caller has just signed in. A token counts from its issue, and needs the scope to write: tokens
    that can only read are given to programs. Without authentication there is nobody to sign in."""
    require_unrestricted(principal)
    if principal.kind == "local":
        return
    if principal.signed_in_at is None:
        raise SignInNeeded("API keys are not enough: sign in")
    if principal.kind != "browser":
        principal.require_scope(WRITE)
    if not is_recent(principal.signed_in_at):
        raise SignInNeeded("sign in again")


def is_recent(signed_in_at: float) -> bool:
    return time.time() - signed_in_at <= PASSKEY_RECENT_SIGN_IN_S


class Upload(Struct, frozen=True):
    """A request body that is a file. It is kept on disk while the operation runs, and never in memory as a whole."""

    media_type: str
    max_bytes: int
    schema: Mapping[str, Any] | None = None


class UploadRequest(Struct, frozen=True):
    """The input of an upload handler: the arguments, and the file, positioned at its beginning."""

    args: Any
    file: IO[bytes]


class ResponseWithHeaders(Struct, frozen=True):
    """What a handler returns to send headers with its JSON."""

    body: Any
    headers: Mapping[str, str]


class Operation(Struct, frozen=True, kw_only=True):
    """`input` has a field for every value of a request.

    Values that the path names are in the path. The others are in the JSON body if the method has one, except for the
    names in `query` and `headers`; otherwise they are in the query string.
    """

    id: str
    method: Method
    path: str
    summary: str
    description: str
    handler: Callable[[RequestContext, Any], Awaitable[Any]]
    # The type of the second argument of the handler, which need not be repeated here.
    input: type[Struct] = Struct
    # The type that the handler returns, sent as JSON; or media types, if it returns a whole Response. Taken from the
    # annotation of the handler if it is empty.
    response: type[Any] | str | tuple[str, ...] = ""
    # The tools that return the same data. The operation is charged to the rate limit of the first, and is open to
    # credentials whose profile permits any of them.
    tools: tuple[str, ...]
    scope: str = READ
    # Each of these is enough instead.
    other_scopes: tuple[str, ...] = ()
    # The source whose data it serves, if it is one. Operations of the account, such as imports, need all sources.
    source: str | None = None
    needs_all_sources: bool = False
    caller: Caller = "any"
    status: int = 200
    query: frozenset[str] = frozenset()
    # Header names by field name.
    headers: Mapping[str, str] = {}
    upload: Upload | None = None
    # Set if the body is a form instead of JSON.
    form: FormSpec | None = None
    # Raised for invalid input.
    input_error: type[InvalidParams] = InvalidParams
    # Replaces the deadline of MCP calls, for operations that take longer.
    deadline_ms: int | None = None
    # Error statuses in addition to those that every operation may return.
    error_statuses: frozenset[int] = frozenset()
    error_format: ErrorFormat = DEFAULT_ERROR_FORMAT
    # Replaces the derived schema of the input where a Struct cannot express it.
    schema: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.input is Struct or not self.response:
            _, input_type, *_, response = get_type_hints(self.handler).values()
            force_setattr(self, "input", input_type if self.input is Struct else self.input)
            force_setattr(self, "response", self.response or response)

    @property
    def public_path(self) -> str:
        """The path in OpenAPI's notation: `{id:path}` becomes `{id}`."""
        return _VARIABLE.sub(r"{\1}", self.path)

    def require_caller(self, principal: Principal) -> None:
        """Raises unless the operation is for this caller."""
        match self.caller:
            case "any":
                return
            case "unrestricted":
                require_unrestricted(principal)
            case "recent_browser":
                require_unrestricted(principal)
                if principal.kind == "browser":
                    require_recent_sign_in(principal)
            case "recent_sign_in":
                require_recent_sign_in(principal)

    @property
    def has_body(self) -> bool:
        """Whether any value is in the body. A PUT may have all of them in its address."""
        return "body" in self.locations().values()

    def locations(self) -> dict[str, Location]:
        """Returns where each value of the input is sent."""
        path_names = frozenset(_VARIABLE.findall(self.path))
        names = _field_names(self.input)
        assert path_names <= set(names), f"{self.id}: the path has a variable that is not a field of the input"
        may_have_body = self.method in _METHODS_WITH_BODY and self.upload is None
        locations: dict[str, Location] = {}
        for name in names:
            locations[name] = "body" if may_have_body and name not in self.query else "query"
            if name in self.headers:
                locations[name] = "header"
            if name in path_names:
                locations[name] = "path"
        return locations

    def input_schema(self) -> Mapping[str, Any]:
        return self.schema if self.schema is not None else input_schema(self.input)


@cache
def _field_names(struct: type[Struct]) -> tuple[str, ...]:
    """Cached, because inspecting a Struct takes as long as reading the rest of a request."""
    return tuple(field.encode_name for field in fields(struct))


# -- streams -----------------------------------------------------------------------------------------------------------
# Streamed responses. They count as open streams of the user, and end when access is revoked.
#
# A stream that fails is aborted, so that a client does not mistake a partial response for a complete one.

EVENT_STREAM = "text/event-stream"
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
