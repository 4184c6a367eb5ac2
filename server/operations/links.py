"""Links between notes: the wikilinks (`[[Title]]`) in a note, and the notes that link to it."""

import re
from typing import Annotated

from msgspec import Meta, Struct

from aggregator.libraries import LibraryName, with_library
from auth.context import RequestContext
from config.errors import InvalidParams
from server.operations.items import parse_item_uri
from server.operations.operation import NOT_FOUND, operation
from server.services import Services
from sources.items import uri_of
from sources.records import Note
from sources.search.arguments import read_query
from sources.storage.contract import Library, Search

# `[[Title]]`, `[[Title#Heading]]` and `[[Title|label]]`.
WIKILINK = re.compile(r"\[\[([^\[\]|#\n]{1,200})(?:#[^\[\]|\n]{0,200})?(?:\|([^\[\]\n]{1,200}))?\]\]")
# Each link is one search.
_LINKS_MAX = 50
_CANDIDATES_MAX = 50


class ItemLinksRequest(Struct, frozen=True, kw_only=True):
    uri: Annotated[str, Meta(description="uri of a note.")]
    library: LibraryName = None


class LinkedNote(Struct, frozen=True, kw_only=True):
    """`target` is the title as the link writes it."""

    uri: str
    title: str
    target: str


class NoteLink(Struct, frozen=True):
    """A link from one note to another, both by URI."""

    source: str
    target: str


class ItemLinks(Struct, frozen=True, kw_only=True):
    """The notes that a note links to, and those that link to it; `between` has the links among these notes. Links to
    notes that do not exist are left out."""

    links: tuple[LinkedNote, ...]
    backlinks: tuple[LinkedNote, ...]
    between: tuple[NoteLink, ...]


@operation("GET /api/v1/items/links", tools=("knowledge_get",), source="notes", error_statuses=NOT_FOUND)
async def get_item_links(context: RequestContext, services: Services, request: ItemLinksRequest) -> ItemLinks:
    """Get the links of a note

    The notes that a note links to with [[Title]], and the notes that link to it.
    """
    address = parse_item_uri(request.uri)
    if address.source != "notes":
        raise InvalidParams(f"uri: expected the URI of a note, got {request.uri[:60]!r}")
    async with services.libraries.library(context) as library:
        note = await library.notes.get(address.item_id)
        linked = {target: await _linked(services, library, target) for target in link_targets(note.content)}
        title = _folded(note.title)
        candidates = await _find(services, library, f'"{_unquoted(title)}"') if title else []
    # The search finds the words of the title anywhere, so that each candidate is checked for the link.
    linking = [other for other in candidates if other.id != note.id and title in _linked_titles(other)]
    around = {other.id: other for other in (*filter(None, linked.values()), *linking) if other.id != note.id}
    ids = {_folded(other.title): other.id for other in around.values()}
    # Only fields named `uri` get the library added to them in the response.
    handle = None if context.library is None else context.library.handle
    between = [
        NoteLink(with_library(uri_of("notes", one.id), handle), with_library(uri_of("notes", ids[other]), handle))
        for one in around.values()
        for other in _linked_titles(one)
        if ids.get(other, one.id) != one.id
    ]
    return ItemLinks(
        links=tuple([_listed(other, target) for target, other in linked.items() if other is not None]),
        backlinks=tuple([_listed(other, note.title) for other in linking]),
        between=tuple(between),
    )


def _listed(note: Note, target: str) -> LinkedNote:
    return LinkedNote(uri=uri_of("notes", note.id), title=note.title, target=target)


def _linked_titles(note: Note) -> set[str]:
    """A target may have a path, as in Obsidian."""
    return {_folded(target.rpartition("/")[2]) for target in link_targets(note.content)}


def _folded(title: str) -> str:
    return title.strip().casefold()


async def _linked(services: Services, library: Library, target: str) -> Note | None:
    """Returns the note of that title, ignoring case."""
    title = target.rpartition("/")[2]
    for note in await _find(services, library, f'title:"{_unquoted(title)}"'):
        if _folded(note.title) == _folded(title):
            return note
    return None


async def _find(services: Services, library: Library, query: str) -> list[Note]:
    search = Search(
        query=read_query(query, services.settings),
        limit=_CANDIDATES_MAX,
        deadline_ms=services.settings.search_deadline_ms,
        # Meanings, and a query that is relaxed because nothing matches, would find other notes.
        ranking="words",
        is_strict=True,
    )
    hits = (await library.notes.search(search)).hits
    return [await library.notes.get(str(hit.id)) for hit in hits]


def link_targets(text: str) -> list[str]:
    """Returns the targets of the wikilinks in a text, each once."""
    return list(dict.fromkeys(match[1].strip() for match in WIKILINK.finditer(text) if match[1].strip()))[:_LINKS_MAX]


def _unquoted(text: str) -> str:
    return text.replace('"', " ")
