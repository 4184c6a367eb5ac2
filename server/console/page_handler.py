"""Serves one web page: its handlers by method, and errors as pages."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from config.errors import FlorilegiumError
from config.settings import Settings
from server.console.browser import BrowserGuard, SignInRequired, safe_path, see_other, sign_in_again_path
from server.console.pages import render_page
from server.middleware import error_headers
from server.rest.handler import check_method
from server.rest.operation import SignInNeeded

PageFunction = Callable[[Request], Awaitable[Response]]
_TITLES = {403: "Not allowed", 404: "Not found", 409: "Not possible", 429: "Try again later", 503: "Try again later"}


class PageHandler:
    """The ASGI application of one path. Pages that only people use answer errors in HTML, whatever is accepted."""

    def __init__(
        self,
        settings: Settings,
        browser: BrowserGuard,
        *,
        get: PageFunction | None = None,
        post: PageFunction | None = None,
    ) -> None:
        self._settings = settings
        self._browser = browser
        self._functions = {name: function for name, function in (("GET", get), ("POST", post)) if function}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            request = Request(scope, receive)
            self._browser.check_origin(request)
            check_method(request.method, tuple(self._functions))
            response = await self._functions["GET" if request.method == "HEAD" else request.method](request)
        except SignInRequired as error:
            response = see_other(error.location)
        except SignInNeeded as error:
            # After a form, the page that it is on: forms post to paths below it.
            page = scope["path"] if scope["method"] == "GET" else "/" + scope["path"].split("/")[1]
            response = error_page(self._settings, error, sign_in_again_path(safe_path(page)), "Sign in again")
        except FlorilegiumError as error:
            response = error_page(self._settings, error)
        await response(scope, receive, send)


def error_page(settings: Settings, error: FlorilegiumError, link: str = "", link_text: str = "") -> Response:
    title = _TITLES.get(error.status, "Something went wrong" if error.status >= 500 else "Not accepted")
    sentence = error.message[:1].upper() + error.message[1:] + "."
    shown: dict[str, Any] = {"title": title, "sentences": [sentence], "link": link, "link_text": link_text}
    response = render_page("message.html", status=error.status, **shown)
    for name, value in error_headers(settings, error).items():
        response.headers[name] = value
    return response
