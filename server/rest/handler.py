"""Serves REST operations: admission, validated input, the handler under its deadline, and the response as JSON."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from auth.browser_sessions import browser_principal
from auth.context import RequestContext
from config.errors import FlorilegiumError, Unauthenticated, Unavailable
from config.settings import Settings
from server.admission import AdmittedRequest, IncomingRequest
from server.console.browser import BrowserGuard
from server.console.pages import N_, _, find_text, render_page
from server.error_responses import DEFAULT_ERROR_FORMAT, PRIVATE_HEADERS, error_headers, json_error
from server.operations.operation import Operation, ResponseWithHeaders, StreamedFile, UploadRequest
from server.protocol.call import Deadline
from server.rest.errors import MethodNotAllowed
from server.rest.requests import read_input, receive_upload, stream
from server.runtime import Runtime
from server.transports.headers import Headers
from server.transports.http import DisconnectWatch

# RFC 9110 section 15.4.5: a 304 has the headers of the 200, but not those of its body.
_BODY_HEADERS = frozenset(("content-length", "content-type"))


class RestHandler:
    """The ASGI application of one path: its operations by method."""

    def __init__(self, runtime: Runtime, browser: BrowserGuard, operations: Sequence[Operation]) -> None:
        self._runtime = runtime
        self._browser = browser
        self._operations: dict[str, Operation] = {operation.method: operation for operation in operations}
        self._error_format = operations[0].error_format or DEFAULT_ERROR_FORMAT
        assert len({(operation.path, operation.error_format) for operation in operations}) == 1, "one path per handler"
        assert len(self._operations) == len(operations), "two operations for one method"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            request = Request(scope, receive)
            check_method(request.method, tuple(self._operations))
            operation = self._operations["GET" if request.method == "HEAD" else request.method]
            incoming = IncomingRequest.from_scope(request.scope)
            headers = incoming.headers
            # The credential is checked before anything of the body is read: strangers cannot occupy memory.
            admitted = await self._admit(request, incoming, operation)
            context = rest_context(self._runtime, admitted)
            args = await read_input(operation, request, headers, self._runtime.settings.body_max_bytes)
            if operation.upload is None:
                output = await run_operation(self._runtime, operation, context, args)
            else:
                max_bytes = operation.upload.max_bytes
                if max_bytes is None:  # imports have a quota of their own for each user
                    max_bytes = (await self._runtime.quotas.limits(context.user_id)).import_max_bytes
                # An upload counts as a stream: it occupies a connection and disk space for a long time.
                with self._runtime.open_streams.enter(context.principal):
                    async with receive_upload(operation.upload.media_type, max_bytes, request, headers) as file:
                        output = await run_operation(self._runtime, operation, context, UploadRequest(args, file))
            if isinstance(output, StreamedFile):
                output = await self._begin_stream(context, output, receive)
                if output is None:
                    return
            response = build_response(operation, output, headers)
        except FlorilegiumError as error:
            response = json_error(self._runtime.settings, error, self._error_format, scope["path"])
        await response(scope, receive, send)

    async def _begin_stream(self, context: RequestContext, file: StreamedFile, receive: Receive) -> Response | None:
        """Returns None if the client disconnects before the first part is made. The first part of an export takes
        minutes, and only one export runs at a time, so one without a client would delay the others."""
        with DisconnectWatch(receive):
            return await stream(self._runtime.open_streams, context, file.chunks, file.media_type, file.headers)
        return None

    async def _admit(self, request: Request, incoming: IncomingRequest, operation: Operation) -> AdmittedRequest:
        """A person who signed in with a browser needs no other credential; one that is sent takes precedence."""
        admission, authorization = self._runtime.admission, incoming.headers.authorization()
        if authorization is None and self._runtime.settings.is_auth_configured:
            session = await self._browser.session_of(request)
            if session is not None:
                # Cookies are sent by any page: changes need the token of the session and an own origin.
                self._browser.check_api_request(request, session)
                return await admission.admit_browser(incoming, browser_principal(session), operation)
        return await admission.admit_operation(incoming, authorization, operation)


def check_method(method: str, methods: Sequence[str]) -> None:
    """Raises MethodNotAllowed. HEAD is allowed where GET is (RFC 9110 section 9.3.2)."""
    allowed = {*methods, "HEAD"} if "GET" in methods else set(methods)
    if method not in allowed:
        raise MethodNotAllowed(method, sorted(allowed))


def rest_context(runtime: Runtime, admitted: AdmittedRequest) -> RequestContext:
    """Builds the context of a REST call. A connected client, or a credential restricted to a profile or to sources,
    belongs to an agent; others belong to people."""
    return runtime.admission.context(admitted, is_agent=admitted.principal.is_for_agents)


async def run_operation(runtime: Runtime, operation: Operation, context: RequestContext, args: Any) -> Any:
    """Runs the handler, if it is for this caller, within the limits of its user and tool, and its deadline."""
    operation.require_caller(context.principal)
    # REST and MCP share the limits: an operation counts as a call of the tool that does the same.
    await runtime.call_limits.take(context.principal, operation.tools[0])
    deadline_ms = operation.deadline_ms or runtime.settings.call_deadline_ms
    try:
        with Deadline(deadline_ms / 1000):
            return await operation.handler(context, runtime, args)
    except TimeoutError as error:
        raise Unavailable(f"{operation.id} took longer than {deadline_ms} ms") from error


def build_response(operation: Operation, output: Any, headers: Headers) -> Response:
    """Returns JSON, with an ETag for GET. A Response that the handler built is sent as it is."""
    if isinstance(output, Response):
        output.headers.update(PRIVATE_HEADERS)
        return output
    body, extra_headers = (output.body, output.headers) if isinstance(output, ResponseWithHeaders) else (output, {})
    response = Response(
        msgspec.json.encode(body), operation.status, {**PRIVATE_HEADERS, **extra_headers}, "application/json"
    )
    return with_etag(response, headers) if operation.method == "GET" else response


def with_etag(response: Response, headers: Headers) -> Response:
    """Adds an ETag, or returns 304 if the client has the response already (RFC 9110 section 13.1.2)."""
    etag = f'"{hashlib.blake2b(bytes(response.body), digest_size=16).hexdigest()}"'
    # If-None-Match compares weakly: proxies that compress a response make its tag a weak one.
    client_tags = [tag.strip().removeprefix("W/") for tag in (headers.get(b"if-none-match") or "").split(",")]
    if etag in client_tags or client_tags == ["*"]:
        remaining = {name: value for name, value in response.headers.items() if name not in _BODY_HEADERS}
        return Response(status_code=304, headers={**remaining, "ETag": etag})
    response.headers["ETag"] = etag
    return response


# -- error page --------------------------------------------------------------------------------------------------------
# Errors as HTML pages, for people who open a permalink in a browser.

_SIGN_IN_HELP = (
    N_("This address shows an item to the owner of the library it is in."),
    N_("Reload the page to enter a user name and password: use any name, and an API key as the password."),
    N_("Programs send an API key or an access token in the header Authorization: Bearer."),
    N_("An operator creates an API key with: florilegium key create NAME."),
)
_PAGE_TITLES = {
    400: N_("Invalid address"),
    403: N_("Not allowed"),
    404: N_("Not found"),
    405: N_("Not allowed"),
    429: N_("Try again in a moment"),
    503: N_("Try again in a moment"),
}


def html_error(settings: Settings, error: FlorilegiumError) -> Response:
    """Returns an error page. Browsers can ask for a password but not for a token, so 401 also offers Basic."""
    # Messages are written for a program, as a part of a sentence. The template escapes them.
    message = find_text(error.message)
    message = message[:1].upper() + message[1:] + "."
    if isinstance(error, Unauthenticated):
        title, sentences = _("Sign in to read this"), [message, *map(_, _SIGN_IN_HELP)]
    else:
        title, sentences = _(_PAGE_TITLES.get(error.status, N_("Something went wrong"))), [message]
    page = render_page("message.html", status=error.status, title=title, sentences=sentences)
    for name, value in {**PRIVATE_HEADERS, **error_headers(settings, error)}.items():
        page.headers[name] = value
    # A second challenge next to Bearer: with it, browsers ask for a password, which may be an API key.
    if isinstance(error, Unauthenticated):
        page.headers.append("WWW-Authenticate", 'Basic realm="Florilegium", charset="UTF-8"')
    return page
