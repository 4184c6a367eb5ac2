"""Creates, updates, deletes and tags items of any source.

An item is named by its URI. A message has the URI of its conversation and its own id: `chats://9b2e/41f0`. The next
search finds what was written. Deleted items stay in the database until they are purged.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar
from urllib.parse import unquote

from msgspec import UNSET, Meta, Struct, structs

from aggregator.libraries import LibraryName, enter, label, split_library
from auth.context import WRITE, RequestContext
from config.errors import Conflict, InvalidParams, NotFound
from server.operations.operation import NOT_FOUND, CommandBinding, ToolBinding, operation
from server.protocol.catalog import Change, Hints
from server.protocol.schema import read_values
from server.services import Services
from sources.drafts import MessageDraft, make_draft
from sources.installed import ADDED_KINDS, ITEM_KINDS
from sources.items import uri_of
from sources.kinds import Kind, Record, title_of
from sources.library_source import find_prompt
from sources.media import find_media
from sources.records import CONVERSATION, MESSAGE, Conversation, MediaItem, Message, Role
from sources.source import numeric_id
from sources.storage.contract import Library

# The sources whose items can be written: the built-in ones and those of other distributions.
SOURCE_NAMES: tuple[str, ...] = tuple(ITEM_KINDS)
if TYPE_CHECKING:
    SourceName = str
else:
    SourceName = Literal[*SOURCE_NAMES]
# Attempts to tag an item that another client changes at the same time.
_TAG_ATTEMPTS = 5
_FIELDS_HELP = (
    "Other fields by name. media: media_type, url, author. characters: personality, scenario, first_message, … "
    "prompts: system_prompt, details, author, arguments. chats: namespace, character_id, messages. "
    "A message: role, sender, model."
) + "".join(f" {kind.source}: {', '.join(field.name for field in kind.editable)}." for kind in ADDED_KINDS)

_ITEM = "/api/v1/items/{source}/{id:path}"
# Repeating the call without an idempotency key adds another item.
ADD_HINTS = Hints(read_only_hint=False, idempotent_hint=False)
# Replaces the previous content; each call creates another version.
REPLACE_HINTS = Hints(read_only_hint=False, destructive_hint=True, idempotent_hint=False)
IDEMPOTENT_REPLACE_HINTS = Hints(read_only_hint=False, destructive_hint=True)
write_operation = partial(operation, scope=WRITE, error_statuses=frozenset((404, 409)))

IdempotencyKey = Annotated[str | None, Meta(description="A repeated call with the same key has no further effect.")]
ExpectedVersion = Annotated[int | None, Meta(description="Version you have read; fails if the item has changed since.")]
ItemUri = Annotated[str, Meta(description="uri of a hit.")]
Tags = Annotated[tuple[str, ...], Meta(description="Tags.")]
NewTags = Annotated[tuple[str, ...] | None, Meta(description="Replaces all tags.")]


class ChatMessageInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    content: Annotated[str, Meta(description="Text of the message.")]
    role: Annotated[Role, Meta(description="Role of the author.")] = "user"
    sender: Annotated[str, Meta(description="Name of the author. Default: the role.")] = ""
    model: Annotated[str | None, Meta(description="The model that wrote the message.")] = None
    time: Annotated[str | None, Meta(description="ISO 8601. Default: now.")] = None

    def draft(self) -> MessageDraft:
        return MessageDraft(
            role=self.role,
            sender=self.sender,
            content=self.content,
            model=self.model,
            created_at=UNSET if self.time is None else self.time,
        )


class ItemsCreate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    source: Annotated[SourceName, Meta(description="What to create.")]
    title: Annotated[str, Meta(description="Title, or name of a character or prompt.")] = ""
    content: Annotated[
        str,
        Meta(description="Text: a chat's first message, a character's description, a prompt's user_prompt."),
    ] = ""
    tags: Tags = ()
    fields: Annotated[dict[str, Any] | None, Meta(description=_FIELDS_HELP)] = None
    idempotency_key: IdempotencyKey = None
    library: LibraryName = None


class ItemChanges(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The changes of an update, without the item. Omitted fields keep their value."""

    title: Annotated[str | None, Meta(description="Omitted fields keep their value.")] = None
    content: Annotated[str | None, Meta(description="The complete new text.")] = None
    tags: NewTags = None
    fields: Annotated[dict[str, Any] | None, Meta(description="As in items_create.")] = None
    expected_version: ExpectedVersion = None
    library: LibraryName = None


class ItemsUpdate(ItemChanges, frozen=True, kw_only=True):
    uri: ItemUri


class ItemsDelete(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    uri: Annotated[str, Meta(description="uri of a hit; chats://conversation/message deletes one message.")]
    expected_version: ExpectedVersion = None
    library: LibraryName = None


class ItemsRestore(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    uri: Annotated[str, Meta(description="uri of a deleted item.")]
    library: LibraryName = None


class ItemsCopy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    uri: Annotated[str, Meta(description="uri of an item of the user's own library.")]
    to: Annotated[str, Meta(description="Name or handle of a group's library.")]


class TagChanges(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    add: Annotated[tuple[str, ...], Meta(description="Tags to add.")] = ()
    remove: Annotated[tuple[str, ...], Meta(description="Tags to remove, ignoring case.")] = ()
    library: LibraryName = None


class ItemsTag(TagChanges, frozen=True, kw_only=True):
    uri: ItemUri


class WriteResult(Struct, frozen=True, kw_only=True):
    """The item after the write."""

    uri: str
    id: str | int
    title: str
    version: Annotated[int, Meta(description="For expected_version.")]
    tags: tuple[str, ...]
    last_modified: str


class DeleteResult(Struct, frozen=True, kw_only=True):
    uri: str
    is_deleted: Literal[True] = True


class EditableItem(Struct, frozen=True, kw_only=True):
    """The values that an update replaces, by the names of its arguments, and the version they belong to."""

    uri: str
    source: str
    title: str
    content: str
    tags: tuple[str, ...]
    fields: dict[str, Any]
    version: int


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
    library: LibraryName = None


class ItemTagRequest(TagChanges, frozen=True, kw_only=True):
    source: _Source
    id: _Id


class EditableItemRequest(Struct, frozen=True, kw_only=True):
    uri: Annotated[str, Meta(description="uri of a hit.")]
    library: LibraryName = None


class _Written(Protocol):
    @property
    def uri(self) -> str: ...


ResultT = TypeVar("ResultT", bound=_Written)


def publish_changes(context: RequestContext, services: Services, uris: Sequence[str]) -> None:
    """Notifies the caller's open streams of items that have changed."""
    for uri in uris:
        services.changes.publish(Change("updated", uri, context.user_id, uri.partition("://")[0]))
    # Lists are sorted by age, so that each write changes them.
    for source in {uri.partition("://")[0] for uri in uris}:
        services.changes.publish(Change("resources", user_id=context.user_id, source=source))
        if source in ("prompts", "characters"):
            services.changes.publish(Change("prompts", user_id=context.user_id, source=source))


def published(context: RequestContext, services: Services, result: ResultT) -> ResultT:
    """Notifies the caller's open streams of a write. Its result names the item that has changed."""
    publish_changes(context, services, (result.uri,))
    return result


@write_operation(
    "POST /api/v1/items/{source}",
    status=201,
    tool=ToolBinding(
        name="items_create",
        title="Create an item",
        description=(
            "Create a note, media item, conversation, character or prompt. "
            'Example: {"source": "characters", "title": "Ada", "content": "A mathematician.", '
            '"fields": {"first_message": "Good evening."}, "tags": ["history"]}'
        ),
        hints=ADD_HINTS,
    ),
)
async def create_item(context: RequestContext, services: Services, request: ItemsCreate) -> WriteResult:
    """Create an item

    Create a note, media item, conversation, character or prompt, as items_create does.
    """
    async with services.libraries.library(context) as library:
        if request.source == "chats":
            fields = dict(request.fields or {})
            listed = _read_fields(
                {"messages": fields.pop("messages", None)}, {"messages": tuple[ChatMessageInput, ...]}
            )
            messages: tuple[ChatMessageInput, ...] = listed.get("messages", ())
            if request.content and messages:
                raise InvalidParams(
                    "content: expected none with fields.messages, which has the text of the conversation"
                )
            if request.content:
                messages = (ChatMessageInput(role="user", content=request.content),)
            messages_max = services.settings.batch_max_items
            if len(messages) > messages_max:
                raise InvalidParams(f"fields.messages: expected at most {messages_max} messages")
            draft = _draft(CONVERSATION, request.title, None, request.tags, fields)
            drafts = [message.draft() for message in messages]
            item: Any = await library.chats.create(draft, drafts, idempotency_key=request.idempotency_key)
        else:
            kind = ITEM_KINDS[request.source]
            draft = _draft(kind, request.title, request.content or None, request.tags, request.fields)
            item = await library.collection(request.source).create(draft, idempotency_key=request.idempotency_key)
    return published(context, services, write_result(request.source, item))


@write_operation("PATCH " + _ITEM, tools=("items_update",))
async def update_item(context: RequestContext, services: Services, request: ItemUpdateRequest) -> WriteResult:
    """Update an item

    Replace the title, text, tags or other fields of an item, or the text of a message, as items_update does. Omitted
    fields keep their value.
    """
    changes = {name: getattr(request, name) for name in ItemChanges.__struct_fields__}
    return await _update(context, services, ItemsUpdate(uri=_uri(request), **changes))


@write_operation(
    "PATCH /api/v1/items",
    query=frozenset(("uri",)),
    tool=ToolBinding(
        name="items_update",
        title="Update an item",
        description=(
            "Replace the title, text, tags or other fields of an item of any source, or the text of a message. With "
            "expected_version, the update fails if the item has changed since you read it. "
            'Example: {"uri": "media://12", "title": "On drift", "fields": {"author": "Ada"}, "expected_version": 3}'
        ),
        hints=REPLACE_HINTS,
    ),
)
async def update_item_by_uri(context: RequestContext, services: Services, request: ItemsUpdate) -> WriteResult:
    """Update an item by its URI

    Update an item as update_item does, by the uri of a hit, such as notes://6f1c.
    """
    return await _update(context, services, request)


@write_operation("DELETE " + _ITEM, tools=("items_delete",))
async def delete_item(context: RequestContext, services: Services, request: ItemDeleteRequest) -> DeleteResult:
    """Delete an item

    Delete an item, a whole conversation or one message, as items_delete does. It no longer appears anywhere, but is not
    erased from the database.
    """
    deletion = ItemsDelete(uri=_uri(request), expected_version=request.expected_version)
    return await _delete(context, services, deletion)


@write_operation(
    "DELETE /api/v1/items",
    tool=ToolBinding(
        name="items_delete",
        title="Delete an item",
        description=(
            "Delete an item of any source, a whole conversation, or one message. It no longer appears anywhere, but is "
            'not erased from the database. Example: {"uri": "chats://9b2e…/41f0…"}'
        ),
        hints=IDEMPOTENT_REPLACE_HINTS,
    ),
)
async def delete_item_by_uri(context: RequestContext, services: Services, request: ItemsDelete) -> DeleteResult:
    """Delete an item by its URI

    Delete an item as delete_item does, by the uri of a hit, such as notes://6f1c.
    """
    return await _delete(context, services, request)


@write_operation("POST /api/v1/items/{source}/{id}/tags", tools=("items_tag",))
async def tag_item(context: RequestContext, services: Services, request: ItemTagRequest) -> WriteResult:
    """Tag an item

    Add tags to an item, or remove tags, as items_tag does.
    """
    changes = ItemsTag(uri=uri_of(request.source, request.id), add=request.add, remove=request.remove)
    return await _tag(context, services, changes)


@write_operation(
    "POST /api/v1/items/tags",
    tool=ToolBinding(
        name="items_tag",
        title="Tag an item",
        description=(
            "Add tags to an item of any source, or remove tags. "
            'Example: {"uri": "notes://6f1c…", "add": ["work"], "remove": ["inbox"]}'
        ),
        hints=IDEMPOTENT_REPLACE_HINTS,
    ),
)
async def tag_item_by_uri(context: RequestContext, services: Services, request: ItemsTag) -> WriteResult:
    """Tag an item by its URI

    Add or remove tags as tag_item does, by the uri of a hit, such as notes://6f1c.
    """
    return await _tag(context, services, request)


@write_operation("GET /api/v1/items/fields", tools=("items_update",), error_statuses=NOT_FOUND)
async def read_editable_item(context: RequestContext, services: Services, request: EditableItemRequest) -> EditableItem:
    """Read the fields of an item

    Read the title, text, tags and other fields of an item or a message as they are stored, and its version, to change
    some of them with update_item_by_uri.
    """
    address = parse_item_uri(request.uri)
    kind = address.kind
    record: Any
    async with services.libraries.library(context) as library:
        if address.message_id is not None:
            record = await _message(library, address)
        else:
            record = await library.collection(address.source).get(await _key(library, address))
        content = await library.media.content(record.id) if isinstance(record, MediaItem) else None
    # The whole text was returned, so that the log of reads has it like any other read.
    context.record_read(request.uri)
    return EditableItem(
        uri=request.uri,
        source=address.source,
        title=title_of(kind, record) if kind.title else "",
        content=content if content is not None else getattr(record, kind.content) if kind.content else "",
        tags=record.tags,
        fields={field.name: getattr(record, field.name) for field in kind.editable},
        version=record.version,
    )


@write_operation("POST /api/v1/items/restore", tools=("items_delete",))
async def restore_item(context: RequestContext, services: Services, request: ItemsRestore) -> WriteResult:
    """Restore a deleted item

    Undo the deletion of an item, unless it was purged since.
    """
    address = parse_item_uri(request.uri)
    if address.message_id is not None:
        raise InvalidParams("uri: expected the URI of an item, got a message")
    async with services.libraries.library(context) as library:
        item = await library.collection(address.source).restore(address.key)
    return published(context, services, write_result(address.source, item))


@write_operation(
    "POST /api/v1/items/copy",
    status=201,
    tool=ToolBinding(
        name="items_copy",
        title="Copy an item to a group",
        description=(
            "Copy an item of the user's own library to that of a group, whose members can then read it. The copy keeps "
            'its origin in metadata. Example: {"uri": "notes://6f1c", "to": "Team"}'
        ),
        hints=ADD_HINTS,
    ),
    commands=(CommandBinding(name="copy", arguments=("uri", "to"), text="Copied to {uri}"),),
)
async def copy_item(context: RequestContext, services: Services, request: ItemsCopy) -> WriteResult:
    """Copy an item to a group

    Copy an item of your own library to that of a group, as items_copy does. Later changes of either do not affect the
    other. Human-only messages are left out. What others share with you cannot be copied: only they decide who reads it.
    """
    if split_library(request.uri)[1] is not None:
        raise InvalidParams("uri: expected an item of the user's own library, got one of another library")
    address = parse_item_uri(request.uri)
    if address.message_id is not None:
        raise InvalidParams("uri: expected the URI of an item, got a message")
    target = enter(context, request.to, scope=WRITE)
    if target.library is None:
        raise InvalidParams("to: expected the library of a group, got the user's own")
    messages: list[MessageDraft] = []
    # As an agent, who does not get human-only messages.
    async with services.libraries.library(structs.replace(context, is_agent=True)) as library:
        record = await library.collection(address.source).get(await _key(library, address))
        values = {field.name: getattr(record, field.name) for field in address.kind.editable}
        if isinstance(record, MediaItem):
            values["content"] = await library.media.content(record.id)
            if record.has_transcript:
                values["segments"] = await library.media.segments(record.id)
        elif address.kind.content:
            values[address.kind.content] = getattr(record, address.kind.content)
        if address.kind.title:
            values[address.kind.title] = title_of(address.kind, record)
        if isinstance(record, Conversation):
            del values["character_id"]  # a number that means another character there
            messages = await _messages_to_copy(library, record, services.settings.batch_max_items)
    origin = {"user": context.principal.user_name, "uri": uri_of(address.source, record.id), "version": record.version}
    draft = make_draft(address.source, values, tags=record.tags, metadata={"copied_from": origin})
    async with services.libraries.library(target) as library:
        if address.source == "chats":
            copy: Any = await library.chats.create(draft, messages)
        else:
            copy = await library.collection(address.source).create(draft)
    return label(published(target, services, write_result(address.source, copy)), target.library)


async def _messages_to_copy(library: Library, chat: Conversation, limit: int) -> list[MessageDraft]:
    page = await library.chats.messages(chat.id, limit + 1, 0)
    if len(page.rows) > limit:
        raise InvalidParams(f"uri: expected a conversation with at most {limit} messages, got {page.total}")
    return [
        MessageDraft(
            role=message.role,
            sender=message.sender,
            content=message.content,
            model=message.model,
            tool=message.tool,
            attachments=message.attachments,
            citations=message.citations,
            is_canonical=message.is_canonical,
            created_at=message.created_at,
        )
        for message in page.rows
        if not message.is_human_only
    ]


# `{id:path}` matches several segments: `chats/9b2e/41f0` is the message 41f0 of the conversation 9b2e.
def _uri(request: ItemUpdateRequest | ItemDeleteRequest) -> str:
    return uri_of(request.source, *request.id.split("/"))


# -- writing -----------------------------------------------------------------------------------------------------------


async def _update(context: RequestContext, services: Services, request: ItemsUpdate) -> WriteResult:
    address = parse_item_uri(request.uri)
    draft = _draft(address.kind, request.title, request.content, request.tags, request.fields)
    if not any(getattr(draft, name) not in (UNSET, {}) for name in draft.__struct_fields__):
        raise InvalidParams("title, content, tags, fields: expected at least one of them")
    async with services.libraries.library(context) as library:
        if address.message_id is None:
            collection = library.collection(address.source)
            item = await collection.update(await _key(library, address), draft, request.expected_version)
            result = write_result(address.source, item)
        else:
            message = await _message(library, address)
            message = await library.chats.update_message(message.id, draft, request.expected_version)
            result = WriteResult(
                uri=uri_of("chats", message.conversation_id, message.id),
                id=message.id,
                title="",
                version=message.version,
                tags=(),
                last_modified=message.last_modified,
            )
    return published(context, services, result)


async def _delete(context: RequestContext, services: Services, request: ItemsDelete) -> DeleteResult:
    address = parse_item_uri(request.uri)
    async with services.libraries.library(context) as library:
        if address.message_id is None:
            key = await _key(library, address)
            await library.collection(address.source).delete(key, request.expected_version)
            uri = uri_of(address.source, key)
        else:
            message = await _message(library, address)
            await library.chats.delete_message(message.id, request.expected_version)
            uri = uri_of("chats", message.conversation_id, message.id)
    return published(context, services, DeleteResult(uri=uri))


async def _tag(context: RequestContext, services: Services, request: ItemsTag) -> WriteResult:
    address = parse_item_uri(request.uri)
    if address.message_id is not None:
        raise InvalidParams("uri: expected the URI of an item, got a message, which has no tags")
    if not request.add and not request.remove:
        raise InvalidParams("add, remove: expected at least one tag")
    async with services.libraries.library(context) as library:
        key, collection = await _key(library, address), library.collection(address.source)
        removed = {tag.strip().casefold() for tag in request.remove}
        attempts = 1
        while True:
            item: Record = await collection.get(key)
            tags = [tag for tag in (*item.tags, *request.add) if tag.strip().casefold() not in removed]
            if _folded(tags) == _folded(item.tags):
                break
            try:
                item = await collection.update(key, make_draft(address.source, {}, tags=tags), item.version)
                break
            except Conflict:  # it has changed since it was read
                if attempts == _TAG_ATTEMPTS:
                    raise
                attempts += 1
    return published(context, services, write_result(address.source, item))


def _folded(tags: Sequence[str]) -> set[str]:
    return {tag.strip().casefold() for tag in tags if tag.strip()}


# -- items by URI ------------------------------------------------------------------------------------------------------


class ItemAddress(Struct, frozen=True):
    """The parts of a URI: an item, or a message of a conversation."""

    source: str
    item_id: str
    message_id: str | None = None

    @property
    def kind(self) -> Kind:
        return MESSAGE if self.message_id is not None else ITEM_KINDS[self.source]

    @property
    def key(self) -> str | int:
        """The id in the form that the collection uses. Raises NotFound if it cannot be one."""
        kind = ITEM_KINDS[self.source]
        key = numeric_id(self.item_id) if kind.key == "id" else self.item_id
        if key is None:
            raise NotFound(kind.name, self.item_id)
        return key


def parse_item_uri(uri: str) -> ItemAddress:
    source, _, path = uri.partition("://")
    segments = [unquote(segment) for segment in path.split("/")]
    if source in SOURCE_NAMES and all(segments):
        if len(segments) == 1:
            return ItemAddress(source, segments[0])
        if len(segments) == 2 and source == "chats":
            return ItemAddress(source, segments[0], segments[1])
    schemes = ", ".join(f"{name}://" for name in SOURCE_NAMES)
    raise InvalidParams(f"uri: expected the URI of an item, starting with one of {schemes}, got {uri[:60]!r}")


async def _key(library: Library, address: ItemAddress) -> str | int:
    """Returns the id of an item. Media are also found by uuid, and prompts by name."""
    match address.source:
        case "media":
            return (await find_media(library, address.item_id)).id
        case "prompts":
            return (await find_prompt(library, address.item_id)).id
        case _:
            return address.key


async def _message(library: Library, address: ItemAddress) -> Message:
    assert address.message_id is not None
    message = await library.chats.get_message(address.message_id)
    if message.conversation_id != address.item_id:
        raise NotFound("message", address.message_id)
    return message


# -- drafts and results ------------------------------------------------------------------------------------------------


def _draft(
    kind: Kind, title: str | None, content: str | None, tags: Sequence[str] | None, fields: Mapping[str, Any] | None
) -> Any:
    given = fields or {}
    types = {field.name: Literal[field.choices] if field.choices else field.type for field in kind.editable}
    # A command line has no null: nothing is meant by an empty number or choice.
    cleared = {
        field.name: None
        for field in kind.editable
        if field.is_optional
        and field.name in given
        and given[field.name] in ((None,) if field.type is str else (None, ""))
    }
    values = _read_fields({name: value for name, value in given.items() if name not in cleared}, types) | cleared
    for argument, name, value in (("title", kind.title, title), ("content", kind.content, content)):
        if value is None:
            continue
        if not name:
            raise InvalidParams(f"{argument}: {kind.content_hint}")
        values[name] = value
    if kind is MESSAGE and tags:
        raise InvalidParams("tags: a message has none")
    return make_draft(kind.source, values, **({} if tags is None or kind is MESSAGE else {"tags": tags}))


def _read_fields(fields: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return read_values(fields, types)
    except InvalidParams as error:
        raise InvalidParams(f"fields.{error.message}") from error


def write_result(source: str, item: Any) -> WriteResult:
    return WriteResult(
        uri=uri_of(source, item.id),
        id=item.id,
        title=title_of(ITEM_KINDS[source], item),
        version=item.version,
        tags=item.tags,
        last_modified=item.last_modified,
    )
