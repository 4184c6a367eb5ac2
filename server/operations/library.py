"""Looks through a library: what is in it, its items by source, tag, type, namespace and date, the links between its
notes, and the searches that a person keeps in it."""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from aggregator.libraries import LibraryName, split_library, with_library
from auth.context import WRITE, RequestContext
from config.errors import InvalidParams, NotFound
from config.numbers import clamp
from server.operations.items import SOURCE_NAMES, SourceName, parse_item_uri
from server.operations.operation import CONFLICT, NOT_FOUND, NoArguments, account_operation, operation
from server.services import Services
from sources.installed import ITEM_KINDS
from sources.items import local_time, short_title, uri_of
from sources.kinds import is_pinned, text_chars, title_of
from sources.records import Conversation, MediaItem, Note
from sources.saved_searches import SAVED_SEARCHES, SavedSearch, checked, decode_searches, encode_searches, with_search
from sources.search.arguments import parse_time_bound, read_query
from sources.storage import shared_part
from sources.storage.contract import ItemFilter, Library, LibraryUsage, Search, TagCount

_RECENT_MAX = 10
_TAGS_MAX = 50
_LIMIT_MAX = 200
# Items of all sources are merged from the beginning, so a page far away would read everything before it.
_MERGED_MAX = 5_000
_PERIOD = re.compile(r"\d{4}(-\d\d(-\d\d)?)?", re.ASCII)
_NO_USAGE = LibraryUsage(bytes=0, max_bytes=0, items=0, max_items=0)


class LibraryItem(Struct, frozen=True, kw_only=True):
    """An item in a list. `chars` is the length of its text; conversations have a number of messages instead."""

    uri: str
    id: str | int
    source: str
    title: str | None
    tags: tuple[str, ...]
    created_at: str
    last_modified: str
    version: int
    media_type: str | None = None
    namespace: str | None = None
    messages: int | None = None
    chars: int | None = None
    pinned: bool = False
    library: str | UnsetType = UNSET


class LibraryOverview(Struct, frozen=True, kw_only=True):
    """What a library contains. `sources`, `media_types`, `namespaces` and `tags` count items; `tags` has the most
    frequent ones. `words` is the number of indexed words of each source, without titles. A quota of 0 means no limit.
    `bytes` and the quotas are those of the whole library, and 0 for a credential restricted to some sources."""

    items: int
    max_items: int
    bytes: int
    max_bytes: int
    sources: Mapping[str, int]
    words: Mapping[str, int]
    media_types: Mapping[str, int]
    namespaces: Mapping[str, int]
    tags: tuple[TagCount, ...]
    recent: tuple[LibraryItem, ...]


class LibraryFilter(Struct, frozen=True, kw_only=True):
    source: Annotated[SourceName | None, Meta(description="Default: all.")] = None
    tag: Annotated[str | None, Meta(description="Only items with this tag.")] = None
    media_type: Annotated[str | None, Meta(description="Only media of this type.")] = None
    namespace: Annotated[str | None, Meta(description="Only conversations in this namespace.")] = None
    created: Annotated[str | None, Meta(description="Created in this year or month, or on this day, in UTC.")] = None
    since: Annotated[str | None, Meta(description="Changed at this time or later: a date, 7d, yesterday.")] = None
    until: Annotated[str | None, Meta(description="Changed at this time or earlier.")] = None
    pinned: Annotated[bool, Meta(description="Only pinned items.")] = False


class LibraryItemsRequest(LibraryFilter, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(description="Items per page, 1..200.")] = 50
    offset: Annotated[int, Meta(description="next_offset of the previous page.")] = 0
    library: LibraryName = None


class LibraryOverviewRequest(Struct, frozen=True, kw_only=True):
    library: LibraryName = None


class LibraryItems(Struct, frozen=True, kw_only=True):
    """A page of items, most recently changed first."""

    items: tuple[LibraryItem, ...]
    total: int
    next_offset: int | None


class LibraryTimelineRequest(Struct, frozen=True, kw_only=True):
    year: Annotated[int | None, Meta(description="The year of days; default: that of the newest item.")] = None


class LibraryTimeline(Struct, frozen=True, kw_only=True):
    """How many items of each source were created in each month, and how many of all sources on each day of `year`, in
    UTC and oldest first. Months and days without items are left out, and of more than 1,200 months the oldest. `tags`
    has the most frequent ones."""

    months: Mapping[str, Mapping[str, int]]
    year: int | None
    days: Mapping[str, int]
    tags: tuple[TagCount, ...]


@operation("GET /api/v1/library/timeline", tools=("knowledge_search",))
async def get_library_timeline(
    context: RequestContext, services: Services, request: LibraryTimelineRequest
) -> LibraryTimeline:
    """Get the timeline of the library

    How many items of each source were created in each month, and on each day of a year.
    """
    sources = permitted_sources(context, services)
    async with services.libraries.library(context) as library:
        counts = await asyncio.gather(*(library.collection(name).created_counts("month") for name in sources))
        months: dict[str, dict[str, int]] = {}
        for name, some in zip(sources, counts, strict=True):
            for month, items in some.items():
                months.setdefault(month, {})[name] = items
        year = request.year or max((int(month[:4]) for month in months), default=None)
        days: Counter[str] = Counter()
        if year is not None:
            for name in sources:
                days.update(await library.collection(name).created_counts("day", f"{year:04}-"))
        tags = await asyncio.gather(*(library.collection(name).tags(_TAGS_MAX) for name in sources))
    return LibraryTimeline(
        months=dict(sorted(months.items())), year=year, days=dict(sorted(days.items())), tags=_most_frequent(tags)
    )


@operation("GET /api/v1/library", tools=("knowledge_search",))
async def get_library(context: RequestContext, services: Services, _request: LibraryOverviewRequest) -> LibraryOverview:
    """Get an overview of the library

    How many items and words each source has, the most frequent tags, the media types and namespaces with their numbers
    of items, the size of the library and its quotas, and the items that were changed last.
    """
    sources = permitted_sources(context, services)
    async with services.libraries.library(context) as library:
        # The size would tell about the sources that the credential must not see.
        usage = await library.usage() if context.principal.sources is None else _NO_USAGE
        types = await library.media.types() if "media" in sources else {}
        namespaces = await library.chats.namespaces() if "chats" in sources else ()
        pages = await _pages(library, sources, ItemFilter(), _RECENT_MAX)
        tags = await asyncio.gather(*(library.collection(name).tags(_TAGS_MAX) for name in sources))
        # From the totals of the full-text index, so that it costs the same for any library.
        words = await asyncio.gather(*(library.collection(name).words() for name in sources))
    return LibraryOverview(
        items=sum(total for _, total in pages.values()),
        bytes=usage.bytes,
        max_items=usage.max_items,
        max_bytes=usage.max_bytes,
        sources={name: total for name, (_, total) in pages.items()},
        words=dict(zip(sources, words, strict=True)),
        media_types=dict(types),
        namespaces={namespace.name: namespace.conversations for namespace in namespaces},
        tags=_most_frequent(tags),
        recent=tuple(_newest(pages, _RECENT_MAX)),
    )


@operation("GET /api/v1/library/items", tools=("knowledge_search",))
async def list_items(context: RequestContext, services: Services, request: LibraryItemsRequest) -> LibraryItems:
    """List items

    List the items of one source or of all, most recently changed first, also by tag, media type, namespace and date. To
    find words, use search_knowledge.
    """
    limit, offset = clamp(request.limit, 1, _LIMIT_MAX), max(0, request.offset)
    where = item_filter(context, services, request)
    async with services.libraries.library(context) as library:
        if request.source in services.settings.sources_off:
            raise NotFound("source", request.source)
        if request.source is not None:
            page = await library.collection(request.source).browse(where, limit, offset)
            items, total = [listed_item(request.source, row) for row in page.rows], page.total
        else:
            if offset + limit > _MERGED_MAX:
                raise InvalidParams(f"offset: expected a source for items beyond {_MERGED_MAX}")
            pages = await _pages(library, permitted_sources(context, services), where, offset + limit)
            items = _newest(pages, offset + limit)[offset:]
            total = sum(count for _, count in pages.values())
    # An empty page is the last one, whatever the total says.
    has_more = bool(items) and offset + limit < total
    return LibraryItems(items=tuple(items), total=total, next_offset=offset + limit if has_more else None)


async def find_item(context: RequestContext, services: Services, uri: str) -> LibraryItem:
    """Returns an item of the caller's own library as lists show it; that of a message is its conversation."""
    own_uri, handle = split_library(uri.partition("#")[0])
    if handle is not None:
        raise NotFound("item", uri)
    address = parse_item_uri(own_uri.partition("?")[0])
    async with services.libraries.library(context) as library:
        return listed_item(address.source, await library.collection(address.source).get(address.key))


def item_filter(context: RequestContext, services: Services, request: LibraryFilter) -> ItemFilter:
    now = local_time(context, services.settings)
    if request.created and not _PERIOD.fullmatch(request.created):
        raise InvalidParams(f"created: expected 2026, 2026-01 or 2026-01-31, got {request.created[:40]!r}")
    return ItemFilter(
        tags=(request.tag,) if request.tag else (),
        media_type=request.media_type or None,
        namespace=request.namespace or None,
        created=request.created or "",
        date_from=parse_time_bound("since", request.since or None, now),
        date_to=parse_time_bound("until", request.until or None, now, is_end=True),
        is_pinned=request.pinned,
    )


def permitted_sources(context: RequestContext, services: Services) -> list[str]:
    permitted = shared_part.permitted_sources(context)
    names = (name for name in SOURCE_NAMES if name not in services.settings.sources_off)
    return [name for name in names if permitted is None or name in permitted]


async def _pages(
    library: Library, sources: Sequence[str], where: ItemFilter, limit: int
) -> dict[str, tuple[list[LibraryItem], int]]:
    """Returns the newest items of each source, and how many there are."""
    pages = await asyncio.gather(*(library.collection(name).browse(where, limit, 0) for name in sources))
    return {
        name: ([listed_item(name, row) for row in page.rows], page.total)
        for name, page in zip(sources, pages, strict=True)
    }


def _newest(pages: Mapping[str, tuple[list[LibraryItem], int]], limit: int) -> list[LibraryItem]:
    items = [item for listed, _ in pages.values() for item in listed]
    # The URI decides between items of the same moment, so that pages neither repeat nor skip one.
    return nlargest(limit, items, key=lambda item: (item.last_modified, item.uri))


def _most_frequent(counts: Sequence[Sequence[TagCount]]) -> tuple[TagCount, ...]:
    """Adds up the counts of all sources. Of several spellings of a tag, the first is shown."""
    totals: Counter[str] = Counter()
    spellings: dict[str, str] = {}
    for count in (one for source in counts for one in source):
        folded = count.tag.casefold()
        spellings.setdefault(folded, count.tag)
        totals[folded] += count.items
    return tuple(TagCount(spellings[folded], items) for folded, items in totals.most_common(_TAGS_MAX))


def listed_item(source: str, item: Any) -> LibraryItem:
    chars = item.length_chars if isinstance(item, MediaItem) else None
    if not isinstance(item, MediaItem | Conversation):
        chars = text_chars(ITEM_KINDS[source], item)
    return LibraryItem(
        uri=uri_of(source, item.id),
        id=item.id,
        source=source,
        title=short_title(title_of(ITEM_KINDS[source], item)),
        tags=item.tags,
        created_at=item.created_at,
        last_modified=item.last_modified,
        version=item.version,
        media_type=item.media_type if isinstance(item, MediaItem) else None,
        namespace=item.namespace if isinstance(item, Conversation) else None,
        messages=item.message_count if isinstance(item, Conversation) else None,
        chars=chars,
        pinned=is_pinned(item),
    )


# -- links between notes -----------------------------------------------------------------------------------------------
# The wikilinks (`[[Title]]`) in a note, and the notes that link to it.

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


# -- saved searches ----------------------------------------------------------------------------------------------------
# They are stored in the library, so that its backups and exports have them.


class SavedSearches(Struct, frozen=True):
    searches: tuple[SavedSearch, ...]


class SavedSearchName(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="name of a saved search.")]


@account_operation("GET /api/v1/searches")
async def list_saved_searches(context: RequestContext, services: Services, _request: NoArguments) -> SavedSearches:
    """List saved searches

    The searches that you have saved, by name. `/?saved=NAME` on the server's address opens one.
    """
    async with services.libraries.library(context) as library:
        return SavedSearches(decode_searches(await library.bookmarks.get(SAVED_SEARCHES)))


@account_operation("PUT /api/v1/searches/{name}", scope=WRITE, error_statuses=CONFLICT)
async def save_search(context: RequestContext, services: Services, request: SavedSearch) -> SavedSearch:
    """Save a search

    Save a search under a name, or replace the one of this name. At most 100 can be saved.
    """
    search = checked(request)
    async with services.libraries.library(context) as library:
        await library.bookmarks.change(SAVED_SEARCHES, lambda text: with_search(text, search))
    return search


@account_operation("DELETE /api/v1/searches/{name}", scope=WRITE, error_statuses=NOT_FOUND)
async def delete_saved_search(context: RequestContext, services: Services, request: SavedSearchName) -> SavedSearchName:
    """Delete a saved search

    Delete the saved search of this name. What it finds is not changed.
    """

    def remove(text: str | None) -> str:
        before = decode_searches(text)
        after = [one for one in before if one.name != request.name]
        if len(after) == len(before):
            raise NotFound("saved search", request.name)
        return encode_searches(after)

    async with services.libraries.library(context) as library:
        await library.bookmarks.change(SAVED_SEARCHES, remove)
    return request
