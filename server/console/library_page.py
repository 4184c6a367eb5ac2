"""The library page: what is in a library, its items by source, tag, type, namespace and date, and many at once."""

from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import Response

from aggregator.search import KnowledgeSearch
from config.errors import FlorilegiumError
from server.console.browser import BrowserGuard
from server.console.pages import PageForm
from server.console.viewer import LibraryPage
from server.rest import library
from server.rest.knowledge import KnowledgeOperations
from server.runtime import Runtime
from server.tools.items import SOURCE_NAMES
from sources.records import SemanticStatus

_LIMIT = 50
_DONE = {"restored": "The items are restored.", "tagged": "The tags are changed."}


class LibraryForm(PageForm, frozen=True, kw_only=True):
    """The choices in the address of the page."""

    path: ClassVar[str] = "/library"
    field_max_chars: ClassVar[int] = 300

    source: str = ""
    tag: str = ""
    type: str = ""
    namespace: str = ""
    since: str = ""
    until: str = ""

    @property
    def is_filtered(self) -> bool:
        return self != LibraryForm(offset=self.offset)

    def request(self) -> library.LibraryItemsRequest:
        return library.LibraryItemsRequest(
            source=self.source if self.source in SOURCE_NAMES else None,
            tag=self.tag or None,
            media_type=self.type or None,
            namespace=self.namespace or None,
            since=self.since or None,
            until=self.until or None,
            limit=_LIMIT,
            offset=self.position,
        )


class LibraryBrowser(LibraryPage):
    def __init__(self, runtime: Runtime, browser: BrowserGuard) -> None:
        super().__init__(runtime, browser)
        endpoints = library.LibraryEndpoints(runtime.libraries, runtime.settings)
        self._overview = library.overview_operation(endpoints)
        self._items = library.items_operation(endpoints)
        self._search = KnowledgeOperations(runtime.knowledge).search_operation()
        self._titles = {source.name: source.title for source in runtime.knowledge.sources}

    async def show(self, request: Request) -> Response:
        form = LibraryForm.of(request)
        viewer = await self.admit(request, self._items)
        overview: library.LibraryOverview = await self.run(viewer, self._overview, library.LibraryRequest())
        values: dict[str, Any] = {"items": [], "total": 0, "next_address": "", "error": ""}
        status = 200
        try:
            page = await self.run(viewer, self._items, form.request())
            values["items"] = [(item, size_text(item)) for item in page.items]
            values["total"] = page.total
            if page.next_offset is not None:
                values["next_address"] = form.address(offset=str(page.next_offset))
        except FlorilegiumError as error:
            values["error"], status = error.message, error.status
        semantic: SemanticStatus | None = None
        if overview.recent:
            # How much of the library has embeddings. A search says so, and nothing else does.
            probe = KnowledgeSearch(query=overview.recent[0].title or "text", limit=1, dedupe="off")
            semantic = (await self.run(viewer, self._search, probe)).semantic or None
        return await self.render(
            request,
            viewer,
            "library.html",
            status=status,
            form=form,
            overview=overview,
            titles=self._titles,
            first_address=form.address() if form.position else "",
            semantic=semantic,
            deleted=request.query_params.get("deleted", "")[:10_000],
            done=_DONE.get(request.query_params.get("done", ""), ""),
            section="library",
            **values,
        )


def size_text(item: library.LibraryItem) -> str:
    if item.messages is not None:
        return "1 message" if item.messages == 1 else f"{item.messages:,} messages"
    return f"{item.chars:,} characters" if item.chars is not None else ""
