"""Items that are the same or nearly so: a search for them through the whole library, and merging them.

Conversations are not compared: an import recognises them by their ids, and two of them cannot be one.
"""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, structs

from auth.context import RequestContext
from config.errors import Conflict, FlorilegiumError, InvalidParams, NotFound
from config.numbers import clamp
from config.times import format_time_seconds
from server.operations.items import parse_item_uri, write_operation
from server.operations.library import LibraryItem, listed_item, permitted_sources
from server.operations.manage import Batches, LibraryChange, run_change
from server.operations.operation import CommandBinding, NoArguments, operation
from server.services import Services
from sources.installed import ITEM_KINDS
from sources.items import uri_of
from sources.kinds import field_text, is_pinned, title_of
from sources.records import MediaItem
from sources.storage.contract import ItemChange, ItemsChange, Library
from sources.storage.job_queue import background_jobs
from sources.text.near_duplicates import DuplicateFinder, TextGroup

# What they change, and what undoes it, is in the whole library.
_write_operation = partial(write_operation, needs_all_sources=True)

# Of longer texts, the beginning is compared.
_TEXT_CHARS = 20_000
_PAGE_ROWS = 50
# More items are not compared, and the result says so: about 80 MB of memory.
_ITEMS_MAX = 200_000
_INLINE_ITEMS_MAX = 500
_GROUPS_MAX = 1_000
_GROUP_ITEMS_MAX = 10
_EXCERPT_CHARS = 2_000
_LIST_MAX = 50
# Where the result is kept, among the bookmarks of a library, and the lease of the search.
_RESULT = "duplicates"
_LEASE = "duplicate search"
_LEASE_S = 120.0
_SEPARATOR = "\n\n---\n\n"
_COMMAND_HELP = "List what `find-duplicates`, or the page /duplicates, has found."


class DuplicateSearch(Struct, frozen=True, kw_only=True):
    """A search for duplicates: how many of `total` items are compared, and how many groups were found. `truncated` is
    set if there are more items or groups than a search can have."""

    state: Literal["none", "running", "done", "failed"] = "none"
    scanned: int = 0
    total: int = 0
    found: int = 0
    truncated: bool = False
    problem: str = ""
    updated_at: str = ""


class StoredDuplicates(Struct, frozen=True, kw_only=True):
    search: DuplicateSearch
    groups: list[TextGroup] = []


class DuplicateItem(Struct, frozen=True, kw_only=True):
    """An item of a group, and the beginning of its text."""

    item: LibraryItem
    text: str
    can_append: Annotated[bool, Meta(description="Whether merge_items can add other texts to it.")]


class DuplicateGroup(Struct, frozen=True, kw_only=True):
    """Items that are duplicates of each other, the oldest first. `share` is 1 if their words are the same, or an
    estimate of how much of them is."""

    items: tuple[DuplicateItem, ...]
    share: float


class DuplicateList(Struct, frozen=True, kw_only=True):
    """`next_offset` continues the list."""

    search: DuplicateSearch
    groups: tuple[DuplicateGroup, ...]
    next_offset: int | None


class DuplicatesRequest(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(description="Groups per page, 1..50.")] = 10
    offset: Annotated[int, Meta(description="next_offset of the previous page.")] = 0


class MergeRequest(Struct, frozen=True, kw_only=True):
    uris: Annotated[tuple[str, ...], Meta(description="2 to 10 items of one source.")]
    keep: Annotated[str | None, Meta(description="The item that stays. Default: the oldest.")] = None
    text: Annotated[Literal["kept", "both"], Meta(description="both: add the texts of the others that differ.")] = (
        "kept"
    )
    versions: Annotated[tuple[int, ...], Meta(description="The versions that you have read, in the same order.")] = ()


_decode_result = msgspec.json.Decoder(StoredDuplicates).decode


@_write_operation(
    "POST /api/v1/duplicates",
    tools=("items_similar",),
    error_statuses=frozenset((409,)),
    commands=(
        CommandBinding(
            name="find-duplicates",
            help="Look for duplicates among all items except conversations.",
        ),
    ),
)
async def find_duplicates(context: RequestContext, services: Services, _request: NoArguments) -> DuplicateSearch:
    """Look for duplicates

    Compares the texts of all items except conversations. A large library is compared in the background:
    list_duplicates has the progress, and the result once it is done.
    """
    sources = [name for name in permitted_sources(context, services) if name != "chats"]
    owner = f"{context.request_id} {time.time()}"
    async with services.libraries.library(context) as library:
        total = sum([(await library.collection(name).list(0, 0)).total for name in sources])
        if await library.bookmarks.claim(_LEASE, owner, _LEASE_S) != owner:
            raise Conflict("a search for duplicates is running")
        search = DuplicateSearch(state="running", total=min(total, _ITEMS_MAX), truncated=total > _ITEMS_MAX)
        await _save(library, search)
    work = _search(context, services, sources, search, owner)
    return await work if total <= _INLINE_ITEMS_MAX else await services.run_in_background(work) or search


@operation(
    "GET /api/v1/duplicates",
    needs_all_sources=True,
    tools=("items_similar",),
    commands=(CommandBinding(name="duplicates", help=_COMMAND_HELP),),
)
async def list_duplicates(context: RequestContext, services: Services, request: DuplicatesRequest) -> DuplicateList:
    """List duplicates

    What the last search for duplicates has found, without items that were deleted since: groups of items that are the
    same or nearly so, the most similar first.
    """
    async with services.libraries.library(context) as library:
        text = await library.bookmarks.get(_RESULT)
        stored = _decode_result(text) if text else StoredDuplicates(search=DuplicateSearch())
        groups: list[DuplicateGroup] = []
        position = max(0, request.offset)
        while position < len(stored.groups) and len(groups) < clamp(request.limit, 1, _LIST_MAX):
            group = stored.groups[position]
            position += 1
            items = [
                found
                for uri in group.keys[:_GROUP_ITEMS_MAX]
                if (found := await _find(context, library, uri)) is not None
            ]
            items.sort(key=lambda one: (one.item.created_at, one.item.uri))
            if len(items) > 1:
                groups.append(DuplicateGroup(items=tuple(items), share=group.share))
    search = stored.search
    if search.state == "running" and search.updated_at < format_time_seconds(time.time() - _LEASE_S):
        search = structs.replace(search, state="failed", problem="the server was stopped before the search ended")
    more = position if position < len(stored.groups) else None
    return DuplicateList(search=search, groups=tuple(groups), next_offset=more)


@_write_operation("POST /api/v1/items/merge", tools=("items_delete",))
async def merge_items(context: RequestContext, services: Services, request: MergeRequest) -> LibraryChange:
    """Merge items

    Keeps one item, by default the oldest, with the tags of all, and deletes the others. With text set to both, texts
    that differ are added to that of the kept item. Nothing is changed if one of the items was changed since. Can be
    undone for 24 hours.
    """
    uris = tuple(dict.fromkeys(request.uris))
    addresses = {uri: parse_item_uri(uri) for uri in uris}
    sources = {address.source for address in addresses.values()}
    if not 2 <= len(uris) <= _GROUP_ITEMS_MAX or len(sources) > 1 or "chats" in sources:
        raise InvalidParams(f"uris: expected 2 to {_GROUP_ITEMS_MAX} items of one source, and no conversations")
    if request.versions and len(request.versions) != len(uris):
        raise InvalidParams("versions: expected one for each item")
    if request.keep is not None and request.keep not in uris:
        raise InvalidParams("keep: expected one of the items")
    [source] = sources
    kind = ITEM_KINDS[source]
    async with services.libraries.library(context) as library:
        records: dict[str, Any] = {
            uri: await library.collection(source).get(address.key) for uri, address in addresses.items()
        }
    keep = request.keep or min(uris, key=lambda uri: (records[uri].created_at, uri))
    others = [uri for uri in uris if uri != keep]
    values: dict[str, Any] = {}
    if request.text == "both":
        if kind.content is None or source == "media":
            raise InvalidParams(f"text: the texts of {kind.noun}s cannot be joined")
        texts = [str(getattr(records[uri], kind.content)) for uri in (keep, *others)]
        joined = texts[0]
        for text in texts[1:]:
            if text.strip() not in joined:
                joined = f"{joined.rstrip()}{_SEPARATOR}{text}"
        values[kind.content] = joined
    tags = tuple(dict.fromkeys(tag for uri in others for tag in records[uri].tags))
    pins = True if any(is_pinned(record) for record in records.values()) else None
    versions = dict(zip(uris, request.versions or [records[uri].version for uri in uris], strict=True))
    kept = ItemsChange(added_tags=tags, values=values, is_pinned=pins)
    changes = [
        ItemChange(
            id=addresses[uri].key, version=versions[uri], change=kept if uri == keep else ItemsChange(deletes=True)
        )
        for uri in (keep, *others)
    ]

    async def batches(_library: Library) -> Batches:
        yield source, changes

    return await run_change(context, services, "merge", batches, len(changes), keep, is_atomic=True)


# -- searching ---------------------------------------------------------------------------------------------------------


async def _search(
    context: RequestContext, services: Services, sources: Sequence[str], search: DuplicateSearch, owner: str
) -> DuplicateSearch:
    groups: list[TextGroup] = []
    with background_jobs():
        async with services.libraries.library(context) as library:
            try:
                for source in sources:
                    finder = DuplicateFinder()  # items of two sources cannot be merged
                    last = ""
                    while search.scanned < _ITEMS_MAX and (
                        rows := await library.collection(source).list_after(last, _PAGE_ROWS)
                    ):
                        texts = [(uri_of(source, row.id), await _text(library, source, row)) for row in rows]
                        await asyncio.to_thread(_add, finder, texts)
                        search, last = structs.replace(search, scanned=search.scanned + len(rows)), rows[-1].uuid
                        await library.bookmarks.claim(_LEASE, owner, _LEASE_S)
                        await _save(library, search)
                    groups += await asyncio.to_thread(finder.groups)
                groups.sort(key=lambda group: -group.share)
                is_cut = search.truncated or len(groups) > _GROUPS_MAX
                search = structs.replace(search, state="done", found=len(groups), truncated=is_cut)
                await _save(library, search, groups[:_GROUPS_MAX])
            except FlorilegiumError as error:
                search = structs.replace(search, state="failed", problem=error.message)
                await _save(library, search)
            await library.bookmarks.release(_LEASE, owner)
    return search


def _add(finder: DuplicateFinder, texts: Sequence[tuple[str, str]]) -> None:
    for uri, text in texts:
        finder.add(uri, text)


async def _text(library: Library, source: str, row: Any, chars: int = _TEXT_CHARS) -> str:
    """Returns what is compared: the text, or the title of an item that has none."""
    kind = ITEM_KINDS[source]
    if isinstance(row, MediaItem):
        try:
            text = await library.media.content(row.id, 0, chars)
        except NotFound:
            return ""  # deleted since the page was read
    else:
        names = (name for name in kind.read_fields if name != "tags")
        text = "\n\n".join(filter(None, (field_text(getattr(row, name)) for name in names)))
    return text[:chars] if text.strip() else title_of(kind, row)


async def _find(context: RequestContext, library: Library, uri: str) -> DuplicateItem | None:
    address = parse_item_uri(uri)
    try:
        row = await library.collection(address.source).get(address.key)
        text = await _text(library, address.source, row, _EXCERPT_CHARS)
    except NotFound:
        return None
    context.record_read(uri)
    can_append = ITEM_KINDS[address.source].content is not None and address.source != "media"
    return DuplicateItem(item=listed_item(address.source, row), text=text, can_append=can_append)


async def _save(library: Library, search: DuplicateSearch, groups: Sequence[TextGroup] = ()) -> None:
    result = StoredDuplicates(
        search=structs.replace(search, updated_at=format_time_seconds(time.time())), groups=list(groups)
    )
    await library.bookmarks.set(_RESULT, msgspec.json.encode(result).decode())
