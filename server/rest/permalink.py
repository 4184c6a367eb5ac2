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
from auth.context import RequestContext
from config.errors import FlorilegiumError, InvalidParams
from server.admission import IncomingRequest
from server.error_responses import json_error
from server.rest.error_page import html_error
from server.rest.handler import build_response, check_method, rest_context, run_operation
from server.rest.html import item_page
from server.rest.inputs import read_input
from server.rest.knowledge import ItemRequest, KnowledgeOperations
from server.runtime import Runtime
from sources.items import GetResponse
from sources.reading.retrieval import WINDOW_MAX

PERMALINK = "/items/{source}/{id:path}"
# The size of the marked passage in an item that is one text: one or two sentences.
_PASSAGE_TOKENS = 40


class PermalinkRequest(ItemRequest, frozen=True, kw_only=True):
    """The short parameters of a link, in addition to those of `read_item`."""

    t: Annotated[float | None, Meta(description="Seconds from the beginning of a recording.")] = None
    message: Annotated[str | None, Meta(description="Id of a message of the conversation.")] = None
    at: Annotated[int | None, Meta(description="Character offset in the text, in `field` if it is set.")] = None

    def resolved(self) -> "PermalinkRequest":
        """Returns the request with the short parameters under their long names."""
        return replace(
            self,
            seconds=self.t if self.seconds is None else self.seconds,
            message_id=self.message_id or self.message,
            approx_offset=self.at if self.approx_offset is None else self.approx_offset,
        )

    def for_page(self) -> "PermalinkRequest":
        """Returns the request with a default mode: the whole item, or what surrounds the passage that the link points
        to."""
        if not (self.has_position or "/" in self.id):
            return replace(self, mode=self.mode or "full", attachments=True)
        window = WINDOW_MAX if self.sibling_window is None else self.sibling_window
        return replace(self, mode=self.mode or "chunk_with_siblings", sibling_window=window, attachments=True)

    def for_whole_item(self) -> "PermalinkRequest":
        return PermalinkRequest(source=self.source, id=self.id, mode="full", attachments=True)

    def for_passage(self) -> "PermalinkRequest":
        """Returns the request for the few sentences that a link points to."""
        return replace(
            self, mode="chunk", chunk_size_tokens=_PASSAGE_TOKENS, chunk_overlap_tokens=0, max_tokens=None, cursor=None
        )


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
        context = rest_context(self._runtime, admitted)
        if wants_json:
            item = await run_operation(self._runtime, self._operation, context, args.resolved())
            return build_response(self._operation, item, headers)
        return await self._page(context, args.resolved())

    async def _page(self, context: RequestContext, args: PermalinkRequest) -> Response:
        """Returns the page of an item. A message or chunk is marked by its attachment; in an item that is one text, the
        passage to mark is read separately. If the item was changed and the position no longer exists, the page shows
        the whole item."""
        try:
            item = await self._read(context, args.for_page())
        except InvalidParams:
            if not args.has_position:
                raise
            return item_page(await self._read(context, args.for_whole_item()))
        if item.anchor not in ("loc", "query") or item.attachments is not None:
            return item_page(item, offset=args.approx_offset)
        passage = await self._read(context, args.for_passage())
        return item_page(item, passage.content)

    async def _read(self, context: RequestContext, args: PermalinkRequest) -> GetResponse:
        item: GetResponse = await run_operation(self._runtime, self._operation, context, args)
        return item


def _wants_json(request: Request) -> bool:
    """Returns whether the client accepts JSON but not HTML. Browsers ask for HTML; clients that ask for neither, such
    as curl, get HTML too."""
    accept = request.headers.get("accept", "").lower()
    return "application/json" in accept and "text/html" not in accept
