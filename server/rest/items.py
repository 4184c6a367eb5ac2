"""REST operations that create, update, delete and tag items. They have the fields and results of the tools."""

import re
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict

from auth.context import WRITE, RequestContext
from config.errors import InvalidParams
from config.settings import Settings
from server.rest.operation import Operation
from server.runtime import Runtime
from server.tools import items as item_tools
from server.tools.writing import AppendResult, ChatsAppend, LibraryWriter, append_messages
from sources.items import uri_of
from sources.records import Note
from sources.search.arguments import read_query
from sources.storage.contract import Libraries, Library, Search

_ITEM = "/api/v1/items/{source}/{id:path}"
# The same operations by the uri of a hit, in the query string: a URI in a path would have to be encoded.
_ITEM_BY_URI = "/api/v1/items"
_operation = partial(Operation, scope=WRITE, error_statuses=frozenset((404, 409)))
_NOT_FOUND = frozenset((404,))

_Source = Annotated[item_tools.SourceName, Meta(description="source of a hit.")]
_Id = Annotated[str, Meta(description="id of a hit.")]
_MessageId = Annotated[str, Meta(description="id of a hit; chats/{conversation}/{message} is one message.")]


class ItemUpdateRequest(item_tools.ItemChanges, frozen=True, kw_only=True):
    source: _Source
    id: _MessageId


class ItemDeleteRequest(Struct, frozen=True, kw_only=True):
    source: _Source
    id: _MessageId
    expected_version: item_tools.ExpectedVersion = None


class ItemTagRequest(item_tools.TagChanges, frozen=True, kw_only=True):
    source: _Source
    id: _Id


class EditableItemRequest(Struct, frozen=True, kw_only=True):
    uri: Annotated[str, Meta(description="uri of a hit.")]


class MessagesAppendRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    conversation_id: Annotated[str, Meta(description="id of a conversation.")]
    messages: Annotated[tuple[item_tools.ChatMessageInput, ...], Meta(description="Messages in order.")]
    idempotency_key: item_tools.IdempotencyKey = None


def item_operations(writer: LibraryWriter) -> list[Operation]:
    operations = ItemOperations(writer)
    return [
        operations.create(),
        operations.update(),
        operations.update_by_uri(),
        operations.delete(),
        operations.delete_by_uri(),
        operations.tag(),
        operations.tag_by_uri(),
        operations.append_messages(),
        operations.read_editable(),
        operations.restore(),
    ]


class ItemOperations:
    """Handlers and declarations of the operations."""

    def __init__(self, writer: LibraryWriter) -> None:
        self._writer = writer

    async def create_item(self, context: RequestContext, request: item_tools.ItemsCreate) -> Any:
        return await self._writer.write(context, item_tools.create_item, request)

    async def append(self, context: RequestContext, request: MessagesAppendRequest) -> Any:
        return await self._writer.write(context, append_messages, ChatsAppend(**asdict(request)))

    async def update_item(self, context: RequestContext, request: ItemUpdateRequest) -> Any:
        changes = {name: getattr(request, name) for name in item_tools.ItemChanges.__struct_fields__}
        return await self.update_item_by_uri(context, item_tools.ItemsUpdate(uri=_uri(request), **changes))

    async def update_item_by_uri(self, context: RequestContext, request: item_tools.ItemsUpdate) -> Any:
        return await self._writer.write(context, item_tools.update_item, request)

    async def delete_item(self, context: RequestContext, request: ItemDeleteRequest) -> Any:
        deletion = item_tools.ItemsDelete(uri=_uri(request), expected_version=request.expected_version)
        return await self.delete_item_by_uri(context, deletion)

    async def delete_item_by_uri(self, context: RequestContext, request: item_tools.ItemsDelete) -> Any:
        return await self._writer.write(context, item_tools.delete_item, request)

    async def tag_item(self, context: RequestContext, request: ItemTagRequest) -> Any:
        return await self.tag_item_by_uri(
            context, item_tools.ItemsTag(uri=uri_of(request.source, request.id), add=request.add, remove=request.remove)
        )

    async def tag_item_by_uri(self, context: RequestContext, request: item_tools.ItemsTag) -> Any:
        return await self._writer.write(context, item_tools.tag_item, request)

    async def restore_item(self, context: RequestContext, request: item_tools.ItemsRestore) -> Any:
        return await self._writer.write(context, item_tools.restore_item, request)

    async def read_editable_item(
        self, context: RequestContext, request: EditableItemRequest
    ) -> item_tools.EditableItem:
        item = await self._writer.read_editable(context, request.uri)
        # The whole text was returned, so that the log of reads has it like any other read.
        context.record_read(request.uri)
        return item

    def read_editable(self) -> Operation:
        return _operation(
            id="read_editable_item",
            method="GET",
            path="/api/v1/items/fields",
            summary="Read the fields of an item",
            description=(
                "Read the title, text, tags and other fields of an item or a message as they are stored, and its "
                "version, to change some of them with update_item_by_uri."
            ),
            handler=self.read_editable_item,
            tools=("items_update",),
            error_statuses=_NOT_FOUND,
        )

    def restore(self) -> Operation:
        return _operation(
            id="restore_item",
            method="POST",
            path="/api/v1/items/restore",
            summary="Restore a deleted item",
            description="Undo the deletion of an item, unless it was purged since.",
            response=item_tools.WriteResult,
            handler=self.restore_item,
            tools=("items_delete",),
        )

    def create(self) -> Operation:
        return _operation(
            id="create_item",
            method="POST",
            path="/api/v1/items/{source}",
            summary="Create an item",
            description="Create a note, media item, conversation, character or prompt, as items_create does.",
            response=item_tools.WriteResult,
            handler=self.create_item,
            tools=("items_create",),
            status=201,
        )

    def append_messages(self) -> Operation:
        return _operation(
            id="append_chat_messages",
            method="POST",
            path="/api/v1/items/chats/{conversation_id}/messages",
            summary="Append messages",
            description="Append messages to a conversation, as chats_append does.",
            response=AppendResult,
            handler=self.append,
            tools=("chats_append",),
            source="chats",
            status=201,
        )

    def update(self) -> Operation:
        return _operation(
            id="update_item",
            method="PATCH",
            path=_ITEM,
            summary="Update an item",
            description=(
                "Replace the title, text, tags or other fields of an item, or the text of a message, as items_update "
                "does. Omitted fields keep their value."
            ),
            response=item_tools.WriteResult,
            handler=self.update_item,
            tools=("items_update",),
        )

    def update_by_uri(self) -> Operation:
        return _operation(
            id="update_item_by_uri",
            method="PATCH",
            path=_ITEM_BY_URI,
            summary="Update an item by its URI",
            description="Update an item as update_item does, by the uri of a hit, such as notes://6f1c.",
            query=frozenset(("uri",)),
            response=item_tools.WriteResult,
            handler=self.update_item_by_uri,
            tools=("items_update",),
        )

    def delete(self) -> Operation:
        return _operation(
            id="delete_item",
            method="DELETE",
            path=_ITEM,
            summary="Delete an item",
            description=(
                "Delete an item, a whole conversation or one message, as items_delete does. It no longer appears "
                "anywhere, but is not erased from the database."
            ),
            response=item_tools.DeleteResult,
            handler=self.delete_item,
            tools=("items_delete",),
        )

    def delete_by_uri(self) -> Operation:
        return _operation(
            id="delete_item_by_uri",
            method="DELETE",
            path=_ITEM_BY_URI,
            summary="Delete an item by its URI",
            description="Delete an item as delete_item does, by the uri of a hit, such as notes://6f1c.",
            response=item_tools.DeleteResult,
            handler=self.delete_item_by_uri,
            tools=("items_delete",),
        )

    def tag(self) -> Operation:
        return _operation(
            id="tag_item",
            method="POST",
            path="/api/v1/items/{source}/{id}/tags",
            summary="Tag an item",
            description="Add tags to an item, or remove tags, as items_tag does.",
            response=item_tools.WriteResult,
            handler=self.tag_item,
            tools=("items_tag",),
        )

    def tag_by_uri(self) -> Operation:
        return _operation(
            id="tag_item_by_uri",
            method="POST",
            path="/api/v1/items/tags",
            summary="Tag an item by its URI",
            description="Add or remove tags as tag_item does, by the uri of a hit, such as notes://6f1c.",
            response=item_tools.WriteResult,
            handler=self.tag_item_by_uri,
            tools=("items_tag",),
        )


# `{id:path}` matches several segments: `chats/9b2e/41f0` is the message 41f0 of the conversation 9b2e.
def _uri(request: ItemUpdateRequest | ItemDeleteRequest) -> str:
    return uri_of(request.source, *request.id.split("/"))


# -- links -------------------------------------------------------------------------------------------------------------
# Links between notes: the wikilinks (`[[Title]]`) in a note, and the notes that link to it.

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
        address = item_tools.parse_item_uri(request.uri)
        if address.source != "notes":
            raise InvalidParams(f"uri: expected the URI of a note, got {request.uri[:60]!r}")
        async with self._libraries.library(context) as library:
            note = await library.notes.get(address.item_id)
            links = [await self._linked(library, target) for target in link_targets(note.content)]
            title = note.title.strip().casefold()
            candidates = await self._find(library, f'"{_unquoted(title)}"') if title else []
        # The search finds the words of the title anywhere, so that each candidate is checked for the link.
        backlinks = [
            LinkedNote(uri=uri_of("notes", other.id), title=other.title, target=note.title)
            for other in candidates
            if other.id != note.id
            and title in {target.rpartition("/")[2].casefold() for target in link_targets(other.content)}
        ]
        return ItemLinks(links=tuple(filter(None, links)), backlinks=tuple(backlinks))

    async def _linked(self, library: Library, target: str) -> LinkedNote | None:
        """Returns the note of that title, ignoring case. A target may have a path, as in Obsidian."""
        title = target.rpartition("/")[2]
        for note in await self._find(library, f'title:"{_unquoted(title)}"'):
            if note.title.strip().casefold() == title.casefold():
                return LinkedNote(uri=uri_of("notes", note.id), title=note.title, target=target)
        return None

    async def _find(self, library: Library, query: str) -> list[Note]:
        search = Search(
            query=read_query(query, self._settings),
            limit=_CANDIDATES_MAX,
            deadline_ms=self._settings.search_deadline_ms,
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


def links_operation(runtime: Runtime) -> Operation:
    return Operation(
        id="get_item_links",
        method="GET",
        path="/api/v1/items/links",
        summary="Get the links of a note",
        description="The notes that a note links to with [[Title]], and the notes that link to it.",
        handler=LinkEndpoint(runtime.libraries, runtime.settings).get,
        tools=("knowledge_get",),
        source="notes",
        error_statuses=frozenset((404,)),
    )
