"""Links between notes: the wikilinks (`[[Title]]`) in a note, and the notes that link to it."""

import re
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from auth.context import RequestContext
from config.errors import InvalidParams
from config.settings import Settings
from server.rest.operation import Operation
from server.runtime import Runtime
from server.tools.items import parse_item_uri
from sources.items import uri_of
from sources.records import Note
from sources.search.arguments import read_query
from sources.storage.contract import Libraries, Library, Search

# `[[Title]]`, `[[Title#Heading]]` and `[[Title|label]]`.
WIKILINK = re.compile(r"\[\[([^\[\]|#\n]{1,200})(?:#[^\[\]|\n]{0,200})?(?:\|([^\[\]\n]{1,200}))?\]\]")
# Each link is one search.
_LINKS_MAX = 50
_CANDIDATES_MAX = 50


class ItemLinksRequest(Struct, frozen=True, kw_only=True):
    uri: Annotated[str, Meta(description="uri of a note.")]


class LinkedNote(Struct, frozen=True, kw_only=True):
    """`target` is the title as the link writes it."""

    uri: str
    title: str
    target: str


class ItemLinks(Struct, frozen=True, kw_only=True):
    """The notes that a note links to, and those that link to it. Links to notes that do not exist are left out."""

    links: tuple[LinkedNote, ...]
    backlinks: tuple[LinkedNote, ...]


class LinkEndpoint:
    def __init__(self, libraries: Libraries, settings: Settings) -> None:
        self._libraries = libraries
        self._settings = settings

    async def get(self, context: RequestContext, request: ItemLinksRequest) -> ItemLinks:
        address = parse_item_uri(request.uri)
        if address.source != "notes":
            raise InvalidParams(f"uri: expected the URI of a note, got {request.uri[:60]!r}")
        async with self._libraries.library(context) as library:
            note = await library.notes.get(address.item_id)
            links = [await self._linked(library, target) for target in link_targets(note.content)]
            backlinks = await self._backlinks(library, note)
        return ItemLinks(links=tuple(filter(None, links)), backlinks=backlinks)

    async def _linked(self, library: Library, target: str) -> LinkedNote | None:
        """Returns the note of that title, ignoring case. A target may have a path, as in Obsidian."""
        title = target.rpartition("/")[2]
        for note in await self._find(library, f'title:"{_unquoted(title)}"'):
            if note.title.strip().casefold() == title.casefold():
                return LinkedNote(uri=uri_of("notes", note.id), title=note.title, target=target)
        return None

    async def _backlinks(self, library: Library, note: Note) -> tuple[LinkedNote, ...]:
        title = note.title.strip().casefold()
        if not title:
            return ()
        return tuple(
            LinkedNote(uri=uri_of("notes", other.id), title=other.title, target=note.title)
            for other in await self._find(library, f'"{_unquoted(title)}"')
            if other.id != note.id and title in {_title(target) for target in link_targets(other.content)}
        )

    async def _find(self, library: Library, query: str) -> list[Note]:
        search = Search(
            query=read_query(query, self._settings),
            limit=_CANDIDATES_MAX,
            deadline_ms=self._settings.search_deadline_ms,
            ranking="words",
            is_strict=True,
        )
        hits = (await library.notes.search(search)).hits
        return [await library.notes.get(str(hit.id)) for hit in hits]


def link_targets(text: str) -> list[str]:
    """Returns the targets of the wikilinks in a text, each once."""
    return list(dict.fromkeys(_targets(text)))[:_LINKS_MAX]


def _targets(text: str) -> Iterator[str]:
    return (match[1].strip() for match in WIKILINK.finditer(text) if match[1].strip())


def _title(target: str) -> str:
    return target.rpartition("/")[2].casefold()


def _unquoted(text: str) -> str:
    return text.replace('"', " ")


def links_operation(runtime: Runtime) -> Operation:
    return Operation(
        id="get_item_links",
        method="GET",
        path="/api/v1/items/links",
        summary="Get the links of a note",
        description="The notes that a note links to with [[Title]], and the notes that link to it.",
        input=ItemLinksRequest,
        response=ItemLinks,
        handler=LinkEndpoint(runtime.libraries, runtime.settings).get,
        tools=("knowledge_get",),
        source="notes",
        error_statuses=frozenset((404,)),
    )
