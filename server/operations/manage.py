"""Changes of many items at once: tags of the whole library, and what is done to a selection. All of them can be undone.

Each batch is one transaction (`sources/storage/tables/bulk.py`). A large change goes on after its request; its progress
is kept in the library, where every process of a deployment finds it.
"""

import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, structs

from auth.context import RequestContext
from config.errors import Conflict, FlorilegiumError, InvalidParams, NotFound
from config.times import format_time_seconds
from server.operations.items import ItemUri, parse_item_uri, publish_changes, write_operation
from server.operations.library import LibraryFilter, item_filter, permitted_sources
from server.operations.operation import CommandBinding, NoArguments, operation
from server.services import Services
from sources.items import uri_of
from sources.storage.contract import ChangeResult, ItemChange, ItemFilter, ItemsChange, Library, TagCount
from sources.storage.job_queue import background_jobs
from sources.storage.tables.validation import fold_tag

# What they change, and what undoes it, is in the whole library.
_write_operation = partial(write_operation, needs_all_sources=True)

# Items of one transaction. With more, other writes of the same library would wait for too long.
_BATCH_ITEMS = 100
# A change of more items goes on in the background, after the response.
_INLINE_ITEMS_MAX = 1_000
_SELECTED_MAX = 1_000
_TAGS_MAX = 5_000
# The changes that are listed, among the bookmarks of a library. They can be undone for a day (`UNDO_KEPT_S`).
_RECENT_MAX = 20
_RECENT = "recent changes"
# A change that stopped to extend its lease was interrupted.
_LEASE = "library change"
_LEASE_S = 120.0

Action = Literal["tag", "rename_tag", "delete_tag", "delete", "update", "merge", "undo"]
Batches = AsyncIterator[tuple[str, Sequence[ItemChange]]]


class TagList(Struct, frozen=True):
    """All tags, the most frequent first. Of several spellings, one is shown."""

    tags: tuple[TagCount, ...]


class TagRename(Struct, frozen=True, kw_only=True):
    tag: Annotated[str, Meta(description="The tag, in any case.")]
    new_tag: Annotated[str, Meta(description="Its new name.")]
    merge: Annotated[bool, Meta(description="Also if a tag of the new name exists: both become one.")] = False


class TagDeletion(Struct, frozen=True, kw_only=True):
    tag: Annotated[str, Meta(description="The tag, in any case.")]


class SelectedItem(Struct, frozen=True, kw_only=True):
    uri: ItemUri
    version: Annotated[int | None, Meta(description="Skip the item if it does not have this version any more.")] = None


class Selection(Struct, frozen=True, kw_only=True):
    """The items of a change: those that are named, or all that match a filter."""

    items: Annotated[tuple[SelectedItem, ...], Meta(description="Up to 1,000 items.")] = ()
    where: Annotated[LibraryFilter | None, Meta(description="Instead of items: all that match.")] = None
    expected_total: Annotated[int | None, Meta(description="With where: fails if another number matches now.")] = None


class SelectionTags(Selection, frozen=True, kw_only=True):
    add: Annotated[tuple[str, ...], Meta(description="Tags to add.")] = ()
    remove: Annotated[tuple[str, ...], Meta(description="Tags to remove, ignoring case.")] = ()


class SelectionUpdate(Selection, frozen=True, kw_only=True):
    namespace: Annotated[str | None, Meta(description="Move conversations to this namespace.")] = None
    pinned: Annotated[bool | None, Meta(description="Pin or unpin.")] = None


class UndoRequest(Struct, frozen=True, kw_only=True):
    undo: Annotated[str, Meta(description="undo of the change.")]


class LibraryChange(Struct, frozen=True, kw_only=True):
    """A change of many items. While it is running, `changed` and `skipped` count what is done of `total`. Skipped items
    have changed since, do not exist any more, or cannot be changed this way: `problem` is the first reason. `undo` is
    valid for 24 hours."""

    id: str
    action: Action
    name: str = ""
    state: Literal["running", "done", "failed", "undone"] = "running"
    changed: int = 0
    skipped: int = 0
    total: int = 0
    problem: str = ""
    undo: str = ""
    started_at: str = ""
    updated_at: str = ""


class ChangeList(Struct, frozen=True):
    """The last changes, the newest first."""

    changes: tuple[LibraryChange, ...]


_decode_changes = msgspec.json.Decoder(list[LibraryChange]).decode
# What the commands print. A change in the background is running, and has no token yet.
_CHANGED = "Items changed: {changed} of {total} ({state}). Token for `florilegium undo`: {undo}"


# -- tags --------------------------------------------------------------------------------------------------------------


@operation("GET /api/v1/tags", tools=("knowledge_search",), commands=(CommandBinding(name="tags"),))
async def list_tags(context: RequestContext, services: Services, _request: NoArguments) -> TagList:
    """List all tags

    All tags of the library, each with the number of items that have it, the most frequent first.
    """
    counts: dict[str, TagCount] = {}
    async with services.libraries.library(context) as library:
        for source in permitted_sources(context, services):
            for one in await library.collection(source).tags(_TAGS_MAX):
                known = counts.get(fold_tag(one.tag), TagCount(one.tag, 0))
                counts[fold_tag(one.tag)] = TagCount(known.tag, known.items + one.items)
    return TagList(tuple(sorted(counts.values(), key=lambda one: (-one.items, one.tag))[:_TAGS_MAX]))


@_write_operation(
    "POST /api/v1/tags/rename",
    tools=("items_tag",),
    commands=(CommandBinding(name="rename-tag", arguments=("tag", "new_tag"), text=_CHANGED),),
)
async def rename_tag(context: RequestContext, services: Services, request: TagRename) -> LibraryChange:
    """Rename a tag

    Renames a tag in all items that have it, in any case. If a tag of the new name exists, this fails unless merge is
    set: then both become one.
    """
    new = request.new_tag.strip()
    if not new or len(new) > 100:
        raise InvalidParams("new_tag: expected 1 to 100 characters")
    async with services.libraries.library(context) as library:
        total = await _count(library, context, services, request.tag)
        other = await _count(library, context, services, new) if fold_tag(new) != fold_tag(request.tag) else 0
    if not total:
        raise NotFound("tag", request.tag[:100])
    if other and not request.merge:
        raise Conflict(f"{other} items have the tag {new!r} already; set merge to make both one", {"items": other})
    change = ItemsChange(replaced_tags={request.tag: new})
    batches = _matching(context, services, ItemFilter(tags=(request.tag,)), change)
    return await run_change(context, services, "rename_tag", batches, total, request.tag)


@_write_operation(
    "DELETE /api/v1/tags",
    tools=("items_tag",),
    commands=(CommandBinding(name="delete-tag", arguments=("tag",), text=_CHANGED),),
)
async def delete_tag(context: RequestContext, services: Services, request: TagDeletion) -> LibraryChange:
    """Delete a tag

    Removes a tag from all items that have it, in any case. The items stay.
    """
    async with services.libraries.library(context) as library:
        total = await _count(library, context, services, request.tag)
    if not total:
        raise NotFound("tag", request.tag[:100])
    change = ItemsChange(replaced_tags={request.tag: ""})
    batches = _matching(context, services, ItemFilter(tags=(request.tag,)), change)
    return await run_change(context, services, "delete_tag", batches, total, request.tag)


# -- selections --------------------------------------------------------------------------------------------------------


@_write_operation("POST /api/v1/items/selection/tags", tools=("items_tag",))
async def tag_items(context: RequestContext, services: Services, request: SelectionTags) -> LibraryChange:
    """Tag many items

    Adds tags to a selection of items, or removes tags.
    """
    if not request.add and not request.remove:
        raise InvalidParams("add, remove: expected at least one tag")
    change = ItemsChange(added_tags=request.add, replaced_tags=dict.fromkeys(request.remove, ""))
    return await _change_selection(context, services, "tag", request, change)


@_write_operation("POST /api/v1/items/selection/delete", tools=("items_delete",))
async def delete_items(context: RequestContext, services: Services, request: Selection) -> LibraryChange:
    """Delete many items

    Deletes a selection of items. They no longer appear anywhere, and undo restores them.
    """
    return await _change_selection(context, services, "delete", request, ItemsChange(deletes=True))


@_write_operation("POST /api/v1/items/selection/update", tools=("items_update",))
async def update_items(context: RequestContext, services: Services, request: SelectionUpdate) -> LibraryChange:
    """Update many items

    Pins or unpins a selection of items, or moves its conversations to a namespace. Other items have none and are
    skipped.
    """
    if request.namespace is None and request.pinned is None:
        raise InvalidParams("namespace, pinned: expected at least one of them")
    values = {} if request.namespace is None else {"namespace": request.namespace}
    change = ItemsChange(values=values, is_pinned=request.pinned)
    return await _change_selection(context, services, "update", request, change)


@_write_operation(
    "POST /api/v1/items/undo",
    tools=("items_update", "items_tag", "items_delete"),
    commands=(
        CommandBinding(
            name="undo",
            arguments=("undo",),
            text="Items changed back: {changed}. Skipped: {skipped}.",
            help="Undo a change of many items within 24 hours. UNDO is the token that rename-tag or delete-tag "
            "printed. Items that were changed since are skipped.",
        ),
    ),
)
async def undo_change(context: RequestContext, services: Services, request: UndoRequest) -> LibraryChange:
    """Undo a change of many items

    Undoes a change within 24 hours. Items that were changed since are skipped and reported.
    """
    recent = await list_changes.handler(context, services, NoArguments())
    known = next((one for one in recent.changes if one.undo == request.undo), None)
    change = _new("undo", known.changed if known else 0, known.name if known else "")

    async def steps(library: Library) -> AsyncIterator[ChangeResult]:
        for source in permitted_sources(context, services):
            while (result := await library.collection(source).undo(request.undo)) is not None:
                yield _with_uris(source, result)

    ended = await _run(context, services, change, steps)
    if ended.state == "done" and not ended.changed and not ended.skipped:
        raise NotFound("change that can be undone", request.undo[:60])
    if known is not None:
        async with services.libraries.library(context) as library:
            await _remember(library, structs.replace(known, state="undone", undo=""))
    return ended


@operation("GET /api/v1/items/changes", needs_all_sources=True, tools=("items_update", "items_tag", "items_delete"))
async def list_changes(context: RequestContext, services: Services, _request: NoArguments) -> ChangeList:
    """List the last changes of many items

    The last changes with their progress, and the tokens that undo them.
    """
    async with services.libraries.library(context) as library:
        changes = _decode_changes(await library.bookmarks.get(_RECENT) or "[]")
    # One that was interrupted is not running any more, and can still be undone.
    oldest = format_time_seconds(time.time() - _LEASE_S)
    interrupted = "the server was stopped before everything was changed"
    return ChangeList(
        tuple(
            structs.replace(one, state="failed", problem=interrupted)
            if one.state == "running" and one.updated_at < oldest
            else one
            for one in changes
        )
    )


# -- running -----------------------------------------------------------------------------------------------------------


async def _change_selection(
    context: RequestContext, services: Services, action: Action, request: Selection, change: ItemsChange
) -> LibraryChange:
    total, batches = await selected_batches(context, services, request, change)
    return await run_change(context, services, action, batches, total)


async def selected_batches(
    context: RequestContext, services: Services, request: Selection, change: ItemsChange
) -> tuple[int, Callable[[Library], Batches]]:
    """Returns how many items are selected, and the change of each in batches."""
    if request.where is not None:
        if request.items:
            raise InvalidParams("items, where: expected one of them")
        sources = [request.where.source] if request.where.source else permitted_sources(context, services)
        where = item_filter(context, services, request.where)
        async with services.libraries.library(context) as library:
            total = sum([(await library.collection(name).browse(where, 0, 0)).total for name in sources])
        if request.expected_total not in (None, total):
            raise Conflict(f"{total} items match now, instead of {request.expected_total}; look at them again")
        return total, _matching(context, services, where, change, sources)
    if not 0 < len(request.items) <= _SELECTED_MAX:
        raise InvalidParams(f"items: expected 1 to {_SELECTED_MAX}, got {len(request.items)}")
    by_source: dict[str, list[ItemChange]] = {}
    for item in request.items:
        address = parse_item_uri(item.uri)
        if address.message_id is not None:
            raise InvalidParams("items: expected the URIs of items, got a message")
        one = ItemChange(id=address.key, version=item.version, change=change)
        by_source.setdefault(address.source, []).append(one)

    async def batches(_library: Library) -> Batches:
        for source, changes in by_source.items():
            for start in range(0, len(changes), _BATCH_ITEMS):
                yield source, changes[start : start + _BATCH_ITEMS]

    return len(request.items), batches


def _matching(
    context: RequestContext,
    services: Services,
    where: ItemFilter,
    change: ItemsChange,
    sources: Sequence[str] | None = None,
) -> Callable[[Library], Batches]:
    """Items that are added while a change is running may or may not be included."""

    async def batches(library: Library) -> Batches:
        for source in sources or permitted_sources(context, services):
            position = 0
            while rows := await library.collection(source).matching_ids(where, position, _BATCH_ITEMS):
                yield source, [ItemChange(id=key, change=change) for _, key in rows]
                position = rows[-1][0]

    return batches


async def _count(library: Library, context: RequestContext, services: Services, tag: str) -> int:
    where = ItemFilter(tags=(tag,))
    sources = permitted_sources(context, services) if tag.strip() else ()
    return sum([(await library.collection(source).browse(where, 0, 0)).total for source in sources])


async def run_change(
    context: RequestContext,
    services: Services,
    action: Action,
    batches: Callable[[Library], Batches],
    total: int,
    name: str = "",
    *,
    is_atomic: bool = False,
) -> LibraryChange:
    """Applies the batches, and returns when that is done, or at once if there are too many items."""

    async def steps(library: Library) -> AsyncIterator[ChangeResult]:
        undo = ""
        async for source, changes in batches(library):
            result = await library.collection(source).change_many(changes, undo, is_atomic=is_atomic)
            undo = result.undo
            yield _with_uris(source, result)

    return await _run(context, services, _new(action, total, name), steps)


def _new(action: Action, total: int, name: str) -> LibraryChange:
    now = format_time_seconds(time.time())
    return LibraryChange(id=secrets.token_hex(8), action=action, name=name, total=total, started_at=now, updated_at=now)


async def _run(
    context: RequestContext,
    services: Services,
    change: LibraryChange,
    steps: Callable[[Library], AsyncIterator[ChangeResult]],
) -> LibraryChange:
    is_large = change.total > _INLINE_ITEMS_MAX

    async def work() -> LibraryChange:
        current = change
        async with services.libraries.library(context) as library:
            try:
                with background_jobs() if is_large else nullcontext():
                    async for result in steps(library):
                        current = structs.replace(
                            current,
                            changed=current.changed + len(result.changed),
                            skipped=current.skipped + len(result.skipped),
                            problem=current.problem or result.problem,
                            undo="" if current.action == "undo" else result.undo,
                        )
                        publish_changes(context, services, list(map(str, result.changed)))
                        if is_large:
                            await library.bookmarks.claim(_LEASE, change.id, _LEASE_S)
                        if current.total > _BATCH_ITEMS:
                            # What is done can be undone, even if the rest takes too long or the server is stopped.
                            await _remember(library, current)
                current = structs.replace(current, state="done")
            except FlorilegiumError as error:
                if not is_large and not current.changed:
                    raise
                current = structs.replace(current, state="failed", problem=error.message)
            await _remember(library, current)
            if is_large:
                await library.bookmarks.release(_LEASE, change.id)
        return current

    if not is_large:
        return await work()
    async with services.libraries.library(context) as library:
        if await library.bookmarks.claim(_LEASE, change.id, _LEASE_S) != change.id:
            raise Conflict("another change of many items is running; try again when it has ended")
        await _remember(library, change)
    return await services.run_in_background(work()) or change


async def _remember(library: Library, change: LibraryChange) -> None:
    change = structs.replace(change, updated_at=format_time_seconds(time.time()))
    known: list[LibraryChange] = _decode_changes(await library.bookmarks.get(_RECENT) or "[]")
    position = next((number for number, one in enumerate(known) if one.id == change.id), None)
    if position is None:
        known = [change, *known][:_RECENT_MAX]
    else:
        known[position] = change
    await library.bookmarks.set(_RECENT, msgspec.json.encode(known).decode())


def _with_uris(source: str, result: ChangeResult) -> ChangeResult:
    return structs.replace(result, changed=tuple(uri_of(source, key) for key in result.changed))
