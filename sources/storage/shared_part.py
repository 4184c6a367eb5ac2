"""The part of a library that its owner shares by a tag, a source or a namespace of chats (`auth.context.ShareRule`).

This is the one place that enforces such a rule. It sits between the engine and everything that produces responses.
Searches and lists get the rule as a further filter, and an item that is read by its id is compared with it before
anything is returned. What is not written out here is refused: a new method of the storage contract is
not shared until someone decides that it may be. Nothing can be written.
"""

from collections.abc import Sequence
from typing import Any, NoReturn, cast

from msgspec.structs import replace

from auth.context import RequestContext, ShareRule
from config.errors import FlorilegiumError, NotFound
from sources.installed import ITEM_KINDS
from sources.records import OBSERVATION, HitPage, ListPage, Message
from sources.storage.contract import ItemFilter, Library, Search
from sources.storage.tables.validation import fold_tag

_EMPTY = HitPage((), has_more=False, total=0)


class NotShared(FlorilegiumError, status=403):
    """The rule of a share does not allow this."""

    def __init__(self) -> None:
        super().__init__("only a part of this library is shared with you, and only to be searched, listed and read")


def permitted_sources(context: RequestContext) -> frozenset[str] | None:
    """The sources that a caller may read in a library: those of the credential that the rule of a share allows. Others
    do not count in scores either."""
    rule = context.library.rule if context.library is not None else None
    if rule is None or rule.source is None:
        return context.principal.sources
    shared = frozenset((rule.source,))
    return shared if context.principal.sources is None else shared & context.principal.sources


def shared_part(library: Library, context: RequestContext) -> Library:
    """Returns what the caller may use of a library: all of it, unless it is shared by a rule."""
    if context.library is None or context.library.rule is None:
        return library
    return cast("Library", _SharedLibrary(library, context.library.rule))


class _Refusing:
    def __getattr__(self, name: str) -> NoReturn:
        raise NotShared


class _SharedLibrary(_Refusing):
    def __init__(self, library: Library, rule: ShareRule) -> None:
        self._library = library
        self._rule = rule

    def collection(self, source: str) -> Any:
        # Observations have neither tags nor a namespace that a rule could name.
        if source == OBSERVATION.source or self._rule.source not in (None, source):
            raise NotShared
        shared_items = _SharedChats if source == "chats" else _SharedItems
        return shared_items(source, self._library.collection(source), self._rule)

    @property
    def notes(self) -> Any:
        return self.collection("notes")

    @property
    def media(self) -> Any:
        return self.collection("media")

    @property
    def chats(self) -> Any:
        return self.collection("chats")

    @property
    def characters(self) -> Any:
        return self.collection("characters")

    @property
    def prompts(self) -> Any:
        return self.collection("prompts")


class _SharedItems(_Refusing):
    """The shared items of a collection. The methods that take an item's id read the item first."""

    def __init__(self, source: str, items: Any, rule: ShareRule) -> None:
        self._source = source
        self._items = items
        self._rule = rule
        self._tags = (rule.value,) if rule.by == "tag" else ()
        self._namespace = rule.value if rule.by == "namespace" else None

    async def search(self, search: Search) -> HitPage:
        if search.query.expression is None and not search.has_filters and search.ranking != "meaning":
            return _EMPTY  # the filter of the rule would make it a list of everything that is shared
        if self._namespace is not None and search.namespace not in (None, self._namespace):
            return _EMPTY
        if search.within is not None:
            await self.get(search.within)
        if self._rule.by != "source":
            namespace = self._namespace or search.namespace
            search = replace(search, tags=(*search.tags, *self._tags), namespace=namespace, is_partial=True)
        page: HitPage = await self._items.search(search)
        # The floor depends on how many rows the library has.
        return replace(page, floor=None)

    async def get(self, item_id: Any) -> Any:
        item = await self._items.get(item_id)
        return self._checked(item, item_id)

    def _checked(self, item: Any, item_id: Any) -> Any:
        """Raises the error of an absent item for one that is not shared."""
        is_shared = True
        if self._tags:
            is_shared = fold_tag(self._tags[0]) in map(fold_tag, item.tags)
        elif self._namespace is not None:
            is_shared = item.namespace == self._namespace
        if not is_shared:
            raise NotFound(ITEM_KINDS[self._source].name, str(item_id))
        return item

    async def list(self, limit: int, offset: int) -> ListPage[Any]:
        return await self.browse(ItemFilter(), limit, offset)

    async def browse(self, where: ItemFilter, limit: int, offset: int) -> ListPage[Any]:
        if self._namespace is not None:
            if where.namespace not in (None, self._namespace):
                return ListPage((), 0)
            where = replace(where, namespace=self._namespace)
        page: ListPage[Any] = await self._items.browse(replace(where, tags=(*where.tags, *self._tags)), limit, offset)
        return page

    async def get_by_uuid(self, uuid: str) -> Any:
        return self._checked(await self._items.get_by_uuid(uuid), uuid)

    async def get_by_name(self, name: str) -> Any:
        return self._checked(await self._items.get_by_name(name), name)

    async def content(self, item_id: Any, start: int = 0, length: int | None = None) -> str:
        await self.get(item_id)
        text: str = await self._items.content(item_id, start, length)
        return text

    async def chunks(self, item_id: Any, first: int, count: int) -> Any:
        await self.get(item_id)
        return await self._items.chunks(item_id, first, count)

    async def chunk_by_uuid(self, item_id: Any, uuid: str) -> Any:
        await self.get(item_id)
        return await self._items.chunk_by_uuid(item_id, uuid)

    async def chunk_at(self, item_id: Any, offset: int) -> Any:
        await self.get(item_id)
        return await self._items.chunk_at(item_id, offset)

    async def segments(self, item_id: Any, from_ms: int | None = None, to_ms: int | None = None) -> Any:
        await self.get(item_id)
        return await self._items.segments(item_id, from_ms, to_ms)

    async def image_names(self, item_id: Any) -> Any:
        await self.get(item_id)
        return await self._items.image_names(item_id)

    async def image(self, item_id: Any, name: str) -> Any:
        await self.get(item_id)
        return await self._items.image(item_id, name)


class _SharedChats(_SharedItems):
    async def get_message(self, message_id: str) -> Message:
        message: Message = await self._items.get_message(message_id)
        try:
            await self.get(message.conversation_id)
        except NotFound:
            raise NotFound("message", message_id) from None
        return message

    async def messages(self, conversation_id: str, limit: int, offset: int) -> ListPage[Message]:
        await self.get(conversation_id)
        page: ListPage[Message] = await self._items.messages(conversation_id, limit, offset)
        return page

    async def messages_around(self, conversation_id: str, position: int, before: int, after: int) -> Sequence[Message]:
        await self.get(conversation_id)
        messages: Sequence[Message] = await self._items.messages_around(conversation_id, position, before, after)
        return messages
