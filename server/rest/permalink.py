"""The permalink of an item: a readable page for people, the JSON of `read_item` for programs that ask for it.

It answers the caller's own items only. Another's item and an absent one get the same page.
"""

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from auth.authenticator import basic_to_bearer
from config.errors import FlorilegiumError, Unauthenticated
from config.settings import Settings
from server.rest.errors import refusal_headers, refuse
from server.rest.handler import admit, answer_with, carry_out, check_method, read_input
from server.rest.html import item_page, message_page
from server.rest.knowledge import ItemRequest, read_item
from server.runtime import Runtime
from server.transports.headers import AUTHORIZATION, Headers

PERMALINK = "/items/{source}/{id:path}"
_HOW_TO_SIGN_IN = (
    "This address shows an item to the person whose library it is in.",
    "A browser asks for a name and a password when the page is loaded again: any name, and an API key as the password.",
    "Programs send an API key or an access token in the header Authorization: Bearer.",
    "An operator makes an API key with: florilegium key create NAME.",
)


class PageRequest(ItemRequest, frozen=True, kw_only=True):
    """What a link may name, beside all that `read_item` takes."""

    t: Annotated[float | None, Meta(description="Seconds from the beginning of a recording.")] = None
    message: Annotated[str | None, Meta(description="Id of a message of the conversation.")] = None

    def resolved(self) -> "PageRequest":
        """With what the link names under the names of the operation."""
        seconds = self.t if self.seconds is None else self.seconds
        return replace(self, seconds=seconds, message_id=self.message_id or self.message)

    def for_a_person(self) -> "PageRequest":
        """The whole item, or what stands around the place that the link names, unless the link says how much."""
        is_part = self.names_place or "/" in self.id
        return replace(self, mode=self.mode or ("chunk_with_siblings" if is_part else "full"))


class ItemPage:
    """The ASGI application behind permalinks."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # It is `read_item` under the address of a page.
        self._operation = replace(read_item(runtime.knowledge), path=PERMALINK, input=PageRequest)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        wants_json = _wants_json(request)
        try:
            response = await self._answer(request, wants_json=wants_json)
        except FlorilegiumError as error:
            settings = self._runtime.settings
            response = refuse(settings, error) if wants_json else _refusal_page(settings, error)
        response.headers["Vary"] = "Accept"
        await response(scope, receive, send)

    async def _answer(self, request: Request, *, wants_json: bool) -> Response:
        check_method(request.method, ("GET",))
        headers, settings = Headers(request.scope["headers"]), self._runtime.settings
        authorization = headers.get(AUTHORIZATION)
        # A browser can be made to ask for a password, never for a token.
        context = await admit(
            self._runtime,
            request,
            headers,
            self._operation,
            authorization if wants_json else basic_to_bearer(authorization),
        )
        asked: PageRequest = await read_input(self._operation, request, headers, settings.body_max_bytes)
        given = asked.resolved() if wants_json else asked.resolved().for_a_person()
        item = await carry_out(self._runtime, self._operation, context, given)
        return answer_with(self._operation, item, headers) if wants_json else item_page(item)


def _wants_json(request: Request) -> bool:
    """Only for who names JSON and not HTML: what names neither is a browser, or curl in a person's hands."""
    accept = request.headers.get("accept", "").lower()
    return "application/json" in accept and "text/html" not in accept


def _refusal_page(settings: Settings, error: FlorilegiumError) -> Response:
    if not isinstance(error, Unauthenticated):
        page = message_page(_title(error), (_sentence(error),), error.status)
    else:
        page = message_page("Sign in to read this", (_sentence(error), *_HOW_TO_SIGN_IN), error.status)
    for name, value in refusal_headers(settings, error).items():
        page.headers[name] = value
    if isinstance(error, Unauthenticated):
        page.headers.append("WWW-Authenticate", 'Basic realm="Florilegium", charset="UTF-8"')
    return page


def _title(error: FlorilegiumError) -> str:
    match error.status:
        case 404:
            return "Not found"
        case 400:
            return "This address cannot be read"
        case 403 | 405:
            return "Not allowed"
        case 429 | 503:
            return "Try again in a moment"
        case _:
            return "This did not work"


def _sentence(error: FlorilegiumError) -> str:
    return error.message[:1].upper() + error.message[1:] + "."
