"""Looks through a library: what is in it, and its items by source, tag, type, namespace and date."""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from aggregator.libraries import LibraryName, split_library
from auth.context import RequestContext
from config.errors import InvalidParams, NotFound
from config.numbers import clamp
from server.operations.items import SOURCE_NAMES, SourceName, parse_item_uri
from server.operations.operation import operation
from server.services import Services
from sources.installed import ITEM_KINDS
from sources.items import local_time, short_title, uri_of
from sources.kinds import is_pinned, text_chars, title_of
from sources.records import Conversation, MediaItem
from sources.search.arguments import parse_time_bound
from sources.storage import shared_part
from sources.storage.contract import ItemFilter, Library, LibraryUsage, TagCount

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
