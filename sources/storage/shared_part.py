"""The part of a library that its owner shares by a tag, a source or a namespace of chats (`auth.context.ShareRule`).

This is the one place that enforces such a rule. It sits between the engine and everything that produces responses.
Searches and lists get the rule as a further filter, and an item that is read by its id is compared with it before
anything is returned. What is not named here is refused: a new method of the storage contract is
not shared until someone decides that it may be. Nothing can be written.
"""

from typing import Any, cast

from msgspec.structs import replace

from auth.context import RequestContext, ShareRule
from config.errors import FlorilegiumError, NotFound
from sources.installed import ITEM_KINDS
from sources.records import OBSERVATION, HitPage, ListPage, Message
from sources.storage.contract import ItemFilter, Library, Search
from sources.storage.tables.validation import fold_tag

_EMPTY = HitPage((), has_more=False, total=0)
# The methods whose first argument is the id of an item, which is read and compared with the rule before they run.
_READS_OF_AN_ITEM = frozenset((
    *("content", "chunks", "chunk_by_uuid", "chunk_at", "segments"),  # media
    *("image_names", "image"),  # notes
    *("messages", "messages_around"),  # conversations
))  # fmt: skip


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


class _SharedLibrary:
    def __init__(self, library: Library, rule: ShareRule) -> None:
        self._library = library
        self._rule = rule

    def __getattr__(self, name: str) -> Any:
        if name not in ("notes", "media", "chats", "characters", "prompts"):
            raise NotShared
        return self.collection(name)

    def collection(self, source: str) -> Any:
        # Observations have neither tags nor a namespace that a rule could name.
        if source == OBSERVATION.source or self._rule.source not in (None, source):
            raise NotShared
        shared_items = _SharedChats if source == "chats" else _SharedItems
        return shared_items(source, self._library.collection(source), self._rule)


class _SharedItems:
    """The shared items of a collection."""

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

    def __getattr__(self, name: str) -> Any:
        if name not in _READS_OF_AN_ITEM:
            raise NotShared

        async def read(item_id: Any, *arguments: Any, **options: Any) -> Any:
            await self.get(item_id)
            return await getattr(self._items, name)(item_id, *arguments, **options)

        return read


class _SharedChats(_SharedItems):
    async def get_message(self, message_id: str) -> Message:
        message: Message = await self._items.get_message(message_id)
        try:
            await self.get(message.conversation_id)
        except NotFound:
            raise NotFound("message", message_id) from None
        return message
