"""The permalink of an item: an HTML page, or the JSON of `read_item` for clients that accept only JSON.

It shows only the caller's own items. Another user's item and a missing one get the same response.
"""

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from auth.authenticator import basic_to_bearer
from config.errors import FlorilegiumError
from server.admission import IncomingRequest
from server.error_responses import json_error
from server.rest.error_page import html_error
from server.rest.handler import build_response, check_method, rest_context, run_operation
from server.rest.html import item_page
from server.rest.inputs import read_input
from server.rest.knowledge import ItemRequest, KnowledgeOperations
from server.runtime import Runtime

PERMALINK = "/items/{source}/{id:path}"


class PermalinkRequest(ItemRequest, frozen=True, kw_only=True):
    """The short parameters of a link, in addition to those of `read_item`."""

    t: Annotated[float | None, Meta(description="Seconds from the beginning of a recording.")] = None
    message: Annotated[str | None, Meta(description="Id of a message of the conversation.")] = None

    def resolved(self) -> "PermalinkRequest":
        """Returns the request with the short parameters under their long names."""
        seconds = self.t if self.seconds is None else self.seconds
        return replace(self, seconds=seconds, message_id=self.message_id or self.message)

    def for_page(self) -> "PermalinkRequest":
        """Returns the request with a default mode: the whole item, or the passage that the link points to."""
        is_part = self.has_position or "/" in self.id
        return replace(self, mode=self.mode or ("chunk_with_siblings" if is_part else "full"))


class PermalinkHandler:
    """The ASGI application of permalinks."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        read_item = KnowledgeOperations(runtime.knowledge).read_item_operation()
        self._operation = replace(read_item, path=PERMALINK, input=PermalinkRequest)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        wants_json = _wants_json(request)
        try:
            response = await self._respond(request, wants_json=wants_json)
        except FlorilegiumError as error:
            settings = self._runtime.settings
            response = json_error(settings, error) if wants_json else html_error(settings, error)
        response.headers["Vary"] = "Accept"
        await response(scope, receive, send)

    async def _respond(self, request: Request, *, wants_json: bool) -> Response:
        check_method(request.method, ("GET",))
        incoming = IncomingRequest.from_scope(request.scope)
        headers, settings = incoming.headers, self._runtime.settings
        # A browser can ask for a password but not for a token.
        authorization = incoming.authorization if wants_json else basic_to_bearer(incoming.authorization)
        admitted = await self._runtime.admission.admit_operation(incoming, authorization, self._operation)
        args: PermalinkRequest = await read_input(self._operation, request, headers, settings.body_max_bytes)
        args = args.resolved() if wants_json else args.resolved().for_page()
        item = await run_operation(self._runtime, self._operation, rest_context(self._runtime, admitted), args)
        return build_response(self._operation, item, headers) if wants_json else item_page(item)


def _wants_json(request: Request) -> bool:
    """Returns whether the client accepts JSON but not HTML. Browsers ask for HTML; clients that ask for neither, such
    as curl, get HTML too."""
    accept = request.headers.get("accept", "").lower()
    return "application/json" in accept and "text/html" not in accept
