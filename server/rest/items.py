"""REST operations that create, update, delete and tag items. They have the fields and results of the tools."""

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict

from auth.context import RequestContext
from auth.principal import WRITE
from server.rest.operation import Operation
from server.tools.items import (
    ChatMessageInput,
    DeleteResult,
    EditableItem,
    ExpectedVersion,
    IdempotencyKey,
    ItemChanges,
    ItemsCreate,
    ItemsDelete,
    ItemsRestore,
    ItemsTag,
    ItemsUpdate,
    SourceName,
    TagChanges,
    WriteResult,
    create_item,
    delete_item,
    restore_item,
    tag_item,
    update_item,
)
from server.tools.writing import AppendResult, ChatsAppend, LibraryWriter, append_messages
from sources.items import uri_of

_ITEM = "/api/v1/items/{source}/{id:path}"
_ITEM_BY_URI = "/api/v1/items"
_ERROR_STATUSES = frozenset((404, 409))
_NOT_FOUND = frozenset((404,))

_Source = Annotated[SourceName, Meta(description="source of a hit.")]
_Id = Annotated[str, Meta(description="id of a hit.")]
_MessageId = Annotated[str, Meta(description="id of a hit; chats/{conversation}/{message} is one message.")]


class ItemUpdateRequest(ItemChanges, frozen=True, kw_only=True):
    source: _Source
    id: _MessageId


class ItemDeleteRequest(Struct, frozen=True, kw_only=True):
    source: _Source
    id: _MessageId
    expected_version: ExpectedVersion = None


class ItemTagRequest(TagChanges, frozen=True, kw_only=True):
    source: _Source
    id: _Id


class EditableItemRequest(Struct, frozen=True, kw_only=True):
    uri: Annotated[str, Meta(description="uri of a hit.")]


class MessagesAppendRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    conversation_id: Annotated[str, Meta(description="id of a conversation.")]
    messages: Annotated[tuple[ChatMessageInput, ...], Meta(description="Messages in order.")]
    idempotency_key: IdempotencyKey = None


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

    async def create_item(self, context: RequestContext, request: ItemsCreate) -> Any:
        return await self._writer.write(context, create_item, request)

    async def append(self, context: RequestContext, request: MessagesAppendRequest) -> Any:
        return await self._writer.write(context, append_messages, ChatsAppend(**asdict(request)))

    async def update_item(self, context: RequestContext, request: ItemUpdateRequest) -> Any:
        changes = {name: getattr(request, name) for name in ItemChanges.__struct_fields__}
        return await self.update_item_by_uri(context, ItemsUpdate(uri=_uri(request), **changes))

    async def update_item_by_uri(self, context: RequestContext, request: ItemsUpdate) -> Any:
        return await self._writer.write(context, update_item, request)

    async def delete_item(self, context: RequestContext, request: ItemDeleteRequest) -> Any:
        deletion = ItemsDelete(uri=_uri(request), expected_version=request.expected_version)
        return await self.delete_item_by_uri(context, deletion)

    async def delete_item_by_uri(self, context: RequestContext, request: ItemsDelete) -> Any:
        return await self._writer.write(context, delete_item, request)

    async def tag_item(self, context: RequestContext, request: ItemTagRequest) -> Any:
        return await self.tag_item_by_uri(
            context, ItemsTag(uri=uri_of(request.source, request.id), add=request.add, remove=request.remove)
        )

    async def tag_item_by_uri(self, context: RequestContext, request: ItemsTag) -> Any:
        return await self._writer.write(context, tag_item, request)

    async def restore_item(self, context: RequestContext, request: ItemsRestore) -> Any:
        return await self._writer.write(context, restore_item, request)

    async def read_editable_item(self, context: RequestContext, request: EditableItemRequest) -> EditableItem:
        item = await self._writer.read_editable(context, request.uri)
        context.record_read(request.uri)
        return item

    def read_editable(self) -> Operation:
        return Operation(
            id="read_editable_item",
            method="GET",
            path="/api/v1/items/fields",
            summary="Read the fields of an item",
            description=(
                "Read the title, text, tags and other fields of an item or a message as they are stored, and its "
                "version, to change some of them with update_item_by_uri."
            ),
            input=EditableItemRequest,
            response=EditableItem,
            handler=self.read_editable_item,
            tools=("items_update",),
            scope=WRITE,
            error_statuses=_NOT_FOUND,
        )

    def restore(self) -> Operation:
        return Operation(
            id="restore_item",
            method="POST",
            path="/api/v1/items/restore",
            summary="Restore a deleted item",
            description="Undo the deletion of an item, unless it was purged since.",
            input=ItemsRestore,
            response=WriteResult,
            handler=self.restore_item,
            tools=("items_delete",),
            scope=WRITE,
            error_statuses=_ERROR_STATUSES,
        )

    def create(self) -> Operation:
        return Operation(
            id="create_item",
            method="POST",
            path="/api/v1/items/{source}",
            summary="Create an item",
            description="Create a note, media item, conversation, character or prompt, as items_create does.",
            input=ItemsCreate,
            response=WriteResult,
            handler=self.create_item,
            tools=("items_create",),
            scope=WRITE,
            status=201,
            error_statuses=_ERROR_STATUSES,
        )

    def append_messages(self) -> Operation:
        return Operation(
            id="append_chat_messages",
            method="POST",
            path="/api/v1/items/chats/{conversation_id}/messages",
            summary="Append messages",
            description="Append messages to a conversation, as chats_append does.",
            input=MessagesAppendRequest,
            response=AppendResult,
            handler=self.append,
            tools=("chats_append",),
            source="chats",
            scope=WRITE,
            status=201,
            error_statuses=_ERROR_STATUSES,
        )

    def update(self) -> Operation:
        return Operation(
            id="update_item",
            method="PATCH",
            path=_ITEM,
            summary="Update an item",
            description=(
                "Replace the title, text, tags or other fields of an item, or the text of a message, as items_update "
                "does. Omitted fields keep their value."
            ),
            input=ItemUpdateRequest,
            response=WriteResult,
            handler=self.update_item,
            tools=("items_update",),
            scope=WRITE,
            error_statuses=_ERROR_STATUSES,
        )

    def update_by_uri(self) -> Operation:
        return Operation(
            id="update_item_by_uri",
            method="PATCH",
            path=_ITEM_BY_URI,
            summary="Update an item by its URI",
            description="Update an item as update_item does, by the uri of a hit, such as notes://6f1c.",
            input=ItemsUpdate,
            query=frozenset(("uri",)),
            response=WriteResult,
            handler=self.update_item_by_uri,
            tools=("items_update",),
            scope=WRITE,
            error_statuses=_ERROR_STATUSES,
        )

    def delete(self) -> Operation:
        return Operation(
            id="delete_item",
            method="DELETE",
            path=_ITEM,
            summary="Delete an item",
            description=(
                "Delete an item, a whole conversation or one message, as items_delete does. It no longer appears "
                "anywhere, but is not erased from the database."
            ),
            input=ItemDeleteRequest,
            response=DeleteResult,
            handler=self.delete_item,
            tools=("items_delete",),
            scope=WRITE,
            error_statuses=_ERROR_STATUSES,
        )

    def delete_by_uri(self) -> Operation:
        return Operation(
            id="delete_item_by_uri",
            method="DELETE",
            path=_ITEM_BY_URI,
            summary="Delete an item by its URI",
            description="Delete an item as delete_item does, by the uri of a hit, such as notes://6f1c.",
            input=ItemsDelete,
            response=DeleteResult,
            handler=self.delete_item_by_uri,
            tools=("items_delete",),
            scope=WRITE,
            error_statuses=_ERROR_STATUSES,
        )

    def tag(self) -> Operation:
        return Operation(
            id="tag_item",
            method="POST",
            path="/api/v1/items/{source}/{id}/tags",
            summary="Tag an item",
            description="Add tags to an item, or remove tags, as items_tag does.",
            input=ItemTagRequest,
            response=WriteResult,
            handler=self.tag_item,
            tools=("items_tag",),
            scope=WRITE,
            error_statuses=_ERROR_STATUSES,
        )

    def tag_by_uri(self) -> Operation:
        return Operation(
            id="tag_item_by_uri",
            method="POST",
            path="/api/v1/items/tags",
            summary="Tag an item by its URI",
            description="Add or remove tags as tag_item does, by the uri of a hit, such as notes://6f1c.",
            input=ItemsTag,
            response=WriteResult,
            handler=self.tag_item_by_uri,
            tools=("items_tag",),
            scope=WRITE,
            error_statuses=_ERROR_STATUSES,
        )


def _uri(request: ItemUpdateRequest | ItemDeleteRequest) -> str:
    return uri_of(request.source, *request.id.split("/"))
