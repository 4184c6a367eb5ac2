"""What the palette (Ctrl K) of the pages finds: items while a person types, and tags when it is opened."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from aggregator.contract import KnowledgeResponse, KnowledgeSearch
from server.console.page_handler import LibraryPage
from server.console.pages import N_, _
from server.console.search_page import SearchForm
from server.error_responses import PRIVATE_HEADERS
from server.operations import library
from server.operations.knowledge import search_knowledge
from server.operations.operation import NoArguments
from server.tools.research import Permalinks, title_of

_LIMIT = 8
_QUERY_MAX_CHARS = 200
_LINKS = Permalinks("")
_KINDS = {
    "notes": N_("Note"),
    "media": N_("Media"),
    "chats": N_("Chat"),
    "characters": N_("Character"),
    "prompts": N_("Prompt"),
}


class Palette(LibraryPage):
    async def find(self, request: Request) -> Response:
        """Returns JSON: the items that match `q`, or the most frequent tags if it is empty."""
        query = request.query_params.get("q", "").strip()[:_QUERY_MAX_CHARS]
        viewer = await self.admit(request, search_knowledge)
        items: list[Any] = []
        tags: list[Any] = []
        if query:
            # The last word is still being typed.
            text = f"{query}*" if query[-1].isalnum() else query
            search = KnowledgeSearch(query=text, limit=_LIMIT, snippet_length=80, dedupe="off")
            response: KnowledgeResponse = await self.run(viewer, search_knowledge, search)
            for item in response.results:
                kind = _KINDS.get(item.source)
                items.append(
                    {
                        "text": title_of(item, item.snippet or ""),
                        "address": _LINKS.of(item.uri, item.loc),
                        "kind": _(kind) if kind else item.source,
                    }
                )
        else:
            overview: library.LibraryOverview = await self.run(viewer, library.get_library, NoArguments())
            tags = [{"text": one.tag, "address": SearchForm(tag=one.tag).address()} for one in overview.tags]
        return JSONResponse({"items": items, "tags": tags}, headers=PRIVATE_HEADERS)
