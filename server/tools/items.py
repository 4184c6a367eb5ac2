"""Creates, updates, deletes and tags items of any source. Tools, REST operations and commands call these functions.

An item is named by its URI. A message has the URI of its conversation and its own id: `chats://9b2e/41f0`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import unquote

from msgspec import UNSET, Meta, Struct

from config.errors import Conflict, InvalidParams, NotFound
from config.settings import Settings
from server.protocol.schema import read_values
from sources.drafts import MessageDraft, make_draft
from sources.installed import ADDED_KINDS, ITEM_KINDS
from sources.items import uri_of
from sources.kinds import Kind, Record, title_of
from sources.media import find_media
from sources.prompts import find_prompt
from sources.records import CONVERSATION, MESSAGE, MediaItem, Message, Role
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


class ItemChanges(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The changes of an update, without the item. Omitted fields keep their value."""

    title: Annotated[str | None, Meta(description="Omitted fields keep their value.")] = None
    content: Annotated[str | None, Meta(description="The complete new text.")] = None
    tags: NewTags = None
    fields: Annotated[dict[str, Any] | None, Meta(description="As in items_create.")] = None
    expected_version: ExpectedVersion = None


class ItemsUpdate(ItemChanges, frozen=True, kw_only=True):
    uri: ItemUri


class ItemsDelete(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    uri: Annotated[str, Meta(description="uri of a hit; chats://conversation/message deletes one message.")]
    expected_version: ExpectedVersion = None


class ItemsRestore(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    uri: Annotated[str, Meta(description="uri of a deleted item.")]


class TagChanges(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    add: Annotated[tuple[str, ...], Meta(description="Tags to add.")] = ()
    remove: Annotated[tuple[str, ...], Meta(description="Tags to remove, ignoring case.")] = ()


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


class EditableText(Struct, frozen=True):
    """The text that `content` of an update replaces, and the version it belongs to."""

    text: str
    version: int


# -- writing -----------------------------------------------------------------------------------------------------------


async def create_item(library: Library, arguments: ItemsCreate, settings: Settings) -> WriteResult:
    if arguments.source == "chats":
        return await _create_conversation(library, arguments, settings)
    draft = _draft(
        ITEM_KINDS[arguments.source], arguments.title, arguments.content or None, arguments.tags, arguments.fields
    )
    item = await library.collection(arguments.source).create(draft, idempotency_key=arguments.idempotency_key)
    return write_result(arguments.source, item)


async def _create_conversation(library: Library, arguments: ItemsCreate, settings: Settings) -> WriteResult:
    fields = dict(arguments.fields or {})
    listed = _read_fields({"messages": fields.pop("messages", None)}, {"messages": tuple[ChatMessageInput, ...]})
    messages: tuple[ChatMessageInput, ...] = listed.get("messages", ())
    if arguments.content and messages:
        raise InvalidParams("content: expected none with fields.messages, which has the text of the conversation")
    if arguments.content:
        messages = (ChatMessageInput(role="user", content=arguments.content),)
    if len(messages) > settings.batch_max_items:
        raise InvalidParams(f"fields.messages: expected at most {settings.batch_max_items} messages")
    draft = _draft(CONVERSATION, arguments.title, None, arguments.tags, fields)
    conversation = await library.chats.create(
        draft, [message.draft() for message in messages], idempotency_key=arguments.idempotency_key
    )
    return write_result("chats", conversation)


async def update_item(library: Library, arguments: ItemsUpdate, _settings: Settings) -> WriteResult:
    address = parse_item_uri(arguments.uri)
    draft = _draft(address.kind, arguments.title, arguments.content, arguments.tags, arguments.fields)
    if not any(getattr(draft, name) not in (UNSET, {}) for name in draft.__struct_fields__):
        raise InvalidParams("title, content, tags, fields: expected at least one of them")
    if address.message_id is not None:
        message = await _message(library, address)
        message = await library.chats.update_message(message.id, draft, arguments.expected_version)
        return WriteResult(
            uri=uri_of("chats", message.conversation_id, message.id),
            id=message.id,
            title="",
            version=message.version,
            tags=(),
            last_modified=message.last_modified,
        )
    collection = library.collection(address.source)
    item = await collection.update(await _key(library, address), draft, arguments.expected_version)
    return write_result(address.source, item)


async def delete_item(library: Library, arguments: ItemsDelete, _settings: Settings) -> DeleteResult:
    address = parse_item_uri(arguments.uri)
    if address.message_id is not None:
        message = await _message(library, address)
        await library.chats.delete_message(message.id, arguments.expected_version)
        return DeleteResult(uri=uri_of("chats", message.conversation_id, message.id))
    key = await _key(library, address)
    await library.collection(address.source).delete(key, arguments.expected_version)
    return DeleteResult(uri=uri_of(address.source, key))


async def tag_item(library: Library, arguments: ItemsTag, _settings: Settings) -> WriteResult:
    address = parse_item_uri(arguments.uri)
    if address.message_id is not None:
        raise InvalidParams("uri: expected the URI of an item, got a message, which has no tags")
    if not arguments.add and not arguments.remove:
        raise InvalidParams("add, remove: expected at least one tag")
    key = await _key(library, address)
    for _ in range(_TAG_ATTEMPTS - 1):
        try:
            return write_result(address.source, await _tag(library, address.source, key, arguments))
        except Conflict:
            continue
    return write_result(address.source, await _tag(library, address.source, key, arguments))


async def _tag(library: Library, source: str, key: str | int, arguments: ItemsTag) -> Record:
    """Raises Conflict if the item changed between the read and the write."""
    collection = library.collection(source)
    item: Record = await collection.get(key)
    removed = {tag.strip().casefold() for tag in arguments.remove}
    tags = [tag for tag in (*item.tags, *arguments.add) if tag.strip().casefold() not in removed]
    if _folded(tags) == _folded(item.tags):
        return item
    updated: Record = await collection.update(key, make_draft(source, {}, tags=tags), item.version)
    return updated


def _folded(tags: Sequence[str]) -> set[str]:
    return {tag.strip().casefold() for tag in tags if tag.strip()}


async def read_text(library: Library, uri: str) -> EditableText:
    """Returns the text of an item that `content` of an update replaces."""
    kind = parse_item_uri(uri).kind
    if kind.content is None:
        raise InvalidParams(f"content: {kind.content_hint}")
    item = await read_editable(library, uri)
    return EditableText(item.content, item.version)


async def read_editable(library: Library, uri: str) -> EditableItem:
    """Returns the values of an item or message that an update replaces."""
    address = parse_item_uri(uri)
    kind = address.kind
    record: Any
    if address.message_id is not None:
        record = await _message(library, address)
    else:
        record = await library.collection(address.source).get(await _key(library, address))
    content = await library.media.content(record.id) if isinstance(record, MediaItem) else None
    return EditableItem(
        uri=uri,
        source=address.source,
        title=title_of(kind, record) if kind.title else "",
        content=content if content is not None else getattr(record, kind.content) if kind.content else "",
        tags=record.tags,
        fields={field.name: getattr(record, field.name) for field in kind.editable},
        version=record.version,
    )


async def restore_item(library: Library, arguments: ItemsRestore, _settings: Settings) -> WriteResult:
    address = parse_item_uri(arguments.uri)
    if address.message_id is not None:
        raise InvalidParams("uri: expected the URI of an item, got a message")
    return write_result(address.source, await library.collection(address.source).restore(address.key))


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
    types = {field.name: Literal[field.choices] if field.choices else field.type for field in kind.editable}
    values = _read_fields(fields or {}, types)
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
