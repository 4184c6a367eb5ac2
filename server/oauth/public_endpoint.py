"""Endpoints for programs of any origin: they use no cookies, so pages of other sites may call them (CORS)."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from auth.oauth.errors import InvalidClient, OAuthError
from auth.oauth.metadata import (
    DEVICE_AUTHORIZATION_PATH,
    METADATA_PATH,
    REGISTRATION_PATH,
    REVOCATION_PATH,
    TOKEN_PATH,
)
from config.errors import FlorilegiumError, RateLimited, Unavailable
from server.error_responses import retry_after
from server.rest.errors import MethodNotAllowed
from server.rest.handler import check_method

NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
_CORS = {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "WWW-Authenticate, Retry-After"}
_PREFLIGHT = {"Access-Control-Allow-Headers": "*, Authorization", "Access-Control-Max-Age": "600"}
_PATHS = frozenset((DEVICE_AUTHORIZATION_PATH, REGISTRATION_PATH, REVOCATION_PATH, TOKEN_PATH))
_PREFIXES = (METADATA_PATH, "/.well-known/oauth-protected-resource")

EndpointFunction = Callable[[Request], Awaitable[Response]]


class PublicEndpoint:
    """The ASGI application of one path. Errors have the form of RFC 6749 section 5.2."""

    def __init__(self, method: str, function: EndpointFunction) -> None:
        self._method = method
        self._function = function

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS":
            response = Response(status_code=204, headers={**_PREFLIGHT, "Access-Control-Allow-Methods": self._method})
        else:
            try:
                response = await self._respond(Request(scope, receive))
            except FlorilegiumError as error:
                response = oauth_error(error)
        response.headers.update(_CORS)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        check_method(request.method, (self._method,))
        return await self._function(request)


class PublicPaths:
    """Sends requests for public endpoints to `public`, and all others to `other`, which has its own rules for CORS."""

    def __init__(self, public: ASGIApp, other: ASGIApp) -> None:
        self._public = public
        self._other = other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_public = scope["type"] == "http" and (scope["path"] in _PATHS or scope["path"].startswith(_PREFIXES))
        await (self._public if is_public else self._other)(scope, receive, send)


def oauth_error(error: FlorilegiumError) -> Response:
    match error:
        case OAuthError():
            code = error.error
        case RateLimited() | Unavailable():
            code = "temporarily_unavailable"
        case _:
            code = "server_error" if error.status >= 500 else "invalid_request"
    headers = dict(NO_STORE)
    if (seconds := retry_after(error)) is not None:
        headers["Retry-After"] = str(seconds)
    if isinstance(error, InvalidClient):
        headers["WWW-Authenticate"] = 'Basic realm="florilegium"'
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(error.allowed)
    return JSONResponse({"error": code, "error_description": error.message}, error.status, headers)
