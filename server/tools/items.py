"""Creates, updates, deletes and tags items of any source. Tools, REST operations and commands call these functions.

An item is named by its URI. A message has the URI of its conversation and its own id: `chats://9b2e/41f0`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args
from urllib.parse import unquote

from msgspec import UNSET, Meta, Struct, UnsetType

from config.errors import Conflict, InvalidParams, NotFound
from config.settings import Settings
from server.protocol.schema import read_arguments
from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.items import uri_of
from sources.media import find_media
from sources.prompts import find_prompt
from sources.records import Character, Conversation, MediaItem, Message, Note, Role, SavedPrompt, SavedPromptArgument
from sources.source import numeric_id
from sources.storage.contract import Library

SourceName = Literal["notes", "media", "chats", "characters", "prompts"]
SOURCE_NAMES: tuple[str, ...] = get_args(SourceName)
Item = Note | MediaItem | Conversation | Character | SavedPrompt
# The sources whose items have numbers.
_NUMBERED = frozenset(("media", "characters", "prompts"))
# Attempts to tag an item that another client changes at the same time.
_TAG_ATTEMPTS = 5
_FIELDS_HELP = (
    "Other fields by name. media: media_type, url, author. characters: personality, scenario, first_message, … "
    "prompts: system_prompt, details, author, arguments. chats: namespace, character_id, messages. "
    "A message: role, sender, model."
)

IdempotencyKey = Annotated[str | None, Meta(description="A repeated call with the same key has no further effect.")]
ExpectedVersion = Annotated[int | None, Meta(description="Version you have read; fails if the item has changed since.")]
ItemUri = Annotated[str, Meta(description="uri of a hit.")]
Tags = Annotated[tuple[str, ...], Meta(description="Tags.")]
NewTags = Annotated[tuple[str, ...] | None, Meta(description="Replaces all tags.")]
Text = str | UnsetType


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


# -- the fields of each source -----------------------------------------------------------------------------------------


class ItemFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of one kind of item besides title, content and tags. They have the names of the draft's fields."""

    draft: ClassVar[type[Struct]]
    title_field: ClassVar[str | None] = "title"
    content_field: ClassVar[str | None] = "content"
    # What to do instead, if there is no content.
    content_hint: ClassVar[str] = ""

    def values(self) -> dict[str, Any]:
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not UNSET}


class NoteFields(ItemFields, frozen=True, kw_only=True):
    draft = NoteDraft


class MediaFields(ItemFields, frozen=True, kw_only=True):
    draft = MediaDraft

    media_type: Text = UNSET
    url: Text = UNSET
    author: Text = UNSET


class ConversationFields(ItemFields, frozen=True, kw_only=True):
    draft = ConversationDraft
    content_field = None
    content_hint = "the text of a conversation is in its messages; change one of them, or use chats_append"

    namespace: Text = UNSET
    character_id: int | UnsetType = UNSET


class NewConversationFields(ConversationFields, frozen=True, kw_only=True):
    messages: tuple[ChatMessageInput, ...] | UnsetType = UNSET


class CharacterFields(ItemFields, frozen=True, kw_only=True):
    draft = CharacterDraft
    title_field = "name"
    content_field = "description"

    personality: Text = UNSET
    scenario: Text = UNSET
    first_message: Text = UNSET
    message_example: Text = UNSET
    system_prompt: Text = UNSET
    post_history_instructions: Text = UNSET
    creator_notes: Text = UNSET
    creator: Text = UNSET
    character_version: Text = UNSET
    nickname: Text = UNSET
    alternate_greetings: tuple[str, ...] | UnsetType = UNSET
    group_only_greetings: tuple[str, ...] | UnsetType = UNSET


class PromptFields(ItemFields, frozen=True, kw_only=True):
    draft = PromptDraft
    title_field = "name"
    content_field = "user_prompt"

    system_prompt: Text = UNSET
    details: Text = UNSET
    author: Text = UNSET
    arguments: tuple[SavedPromptArgument, ...] | UnsetType = UNSET


class MessageFields(ItemFields, frozen=True, kw_only=True):
    draft = MessageDraft
    title_field = None

    role: Role | UnsetType = UNSET
    sender: Text = UNSET
    model: Text = UNSET


_FIELDS: Mapping[str, type[ItemFields]] = {
    "notes": NoteFields,
    "media": MediaFields,
    "chats": ConversationFields,
    "characters": CharacterFields,
    "prompts": PromptFields,
}


# -- writing -----------------------------------------------------------------------------------------------------------


async def create_item(library: Library, arguments: ItemsCreate, settings: Settings) -> WriteResult:
    if arguments.source == "chats":
        return await _create_conversation(library, arguments, settings)
    collection: Any = getattr(library, arguments.source)
    draft = _draft(
        _FIELDS[arguments.source], arguments.title, arguments.content or None, arguments.tags, arguments.fields
    )
    item: Item = await collection.create(draft, idempotency_key=arguments.idempotency_key)
    return write_result(arguments.source, item)


async def _create_conversation(library: Library, arguments: ItemsCreate, settings: Settings) -> WriteResult:
    fields = dict(arguments.fields or {})
    messages = _read_fields({"messages": fields.pop("messages", None)}, NewConversationFields).messages or ()
    if arguments.content and messages:
        raise InvalidParams("content: expected none with fields.messages, which has the text of the conversation")
    if arguments.content:
        messages = (ChatMessageInput(role="user", content=arguments.content),)
    if len(messages) > settings.batch_max_items:
        raise InvalidParams(f"fields.messages: expected at most {settings.batch_max_items} messages")
    draft = _draft(ConversationFields, arguments.title, None, arguments.tags, fields)
    assert isinstance(draft, ConversationDraft)
    conversation = await library.chats.create(
        draft, [message.draft() for message in messages], idempotency_key=arguments.idempotency_key
    )
    return write_result("chats", conversation)


async def update_item(library: Library, arguments: ItemsUpdate, _settings: Settings) -> WriteResult:
    address = parse_item_uri(arguments.uri)
    kind = MessageFields if address.message_id is not None else _FIELDS[address.source]
    draft = _draft(kind, arguments.title, arguments.content, arguments.tags, arguments.fields)
    if all(getattr(draft, name) is UNSET for name in draft.__struct_fields__):
        raise InvalidParams("title, content, tags, fields: expected at least one of them")
    if address.message_id is not None:
        assert isinstance(draft, MessageDraft)
        message = await _message(library, address)
        return _message_result(await library.chats.update_message(message.id, draft, arguments.expected_version))
    collection: Any = getattr(library, address.source)
    item: Item = await collection.update(await _key(library, address), draft, arguments.expected_version)
    return write_result(address.source, item)


async def delete_item(library: Library, arguments: ItemsDelete, _settings: Settings) -> DeleteResult:
    address = parse_item_uri(arguments.uri)
    if address.message_id is not None:
        message = await _message(library, address)
        await library.chats.delete_message(message.id, arguments.expected_version)
        return DeleteResult(uri=uri_of("chats", message.conversation_id, message.id))
    collection: Any = getattr(library, address.source)
    key = await _key(library, address)
    await collection.delete(key, arguments.expected_version)
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


async def _tag(library: Library, source: str, key: str | int, arguments: ItemsTag) -> Item:
    """Raises Conflict if the item changed between the read and the write."""
    collection: Any = getattr(library, source)
    item: Item = await collection.get(key)
    removed = {tag.strip().casefold() for tag in arguments.remove}
    tags = [tag for tag in (*item.tags, *arguments.add) if tag.strip().casefold() not in removed]
    if _folded(tags) == _folded(item.tags):
        return item
    updated: Item = await collection.update(key, _FIELDS[source].draft(tags=tags), item.version)
    return updated


def _folded(tags: Sequence[str]) -> set[str]:
    return {tag.strip().casefold() for tag in tags if tag.strip()}


async def read_text(library: Library, uri: str) -> EditableText:
    """Returns the text of an item that `content` of an update replaces."""
    address = parse_item_uri(uri)
    if address.message_id is not None:
        message = await _message(library, address)
        return EditableText(message.content, message.version)
    content_field, key = _FIELDS[address.source].content_field, await _key(library, address)
    if content_field is None:
        raise InvalidParams(f"content: {_FIELDS[address.source].content_hint}")
    collection: Any = getattr(library, address.source)
    item = await collection.get(key)
    text = await library.media.content(item.id) if isinstance(item, MediaItem) else getattr(item, content_field)
    return EditableText(text, item.version)


async def read_editable(library: Library, uri: str) -> EditableItem:
    """Returns the values of an item or message that an update replaces."""
    address = parse_item_uri(uri)
    kind = MessageFields if address.message_id is not None else _FIELDS[address.source]
    record: Any
    if address.message_id is not None:
        record = await _message(library, address)
    else:
        collection: Any = getattr(library, address.source)
        record = await collection.get(await _key(library, address))
    content = await library.media.content(record.id) if isinstance(record, MediaItem) else None
    return EditableItem(
        uri=uri,
        source=address.source,
        title=getattr(record, kind.title_field) if kind.title_field else "",
        content=content if content is not None else getattr(record, kind.content_field) if kind.content_field else "",
        tags=record.tags,
        fields={name: getattr(record, name) for name in kind.__struct_fields__},
        version=record.version,
    )


async def restore_item(library: Library, arguments: ItemsRestore, _settings: Settings) -> WriteResult:
    address = parse_item_uri(arguments.uri)
    if address.message_id is not None:
        raise InvalidParams("uri: expected the URI of an item, got a message")
    collection: Any = getattr(library, address.source)
    key: str | int | None = address.item_id
    if address.source in _NUMBERED:
        key = numeric_id(address.item_id)
    if key is None:
        raise NotFound(address.source.removesuffix("s"), address.item_id)
    return write_result(address.source, await collection.restore(key))


# -- items by URI ------------------------------------------------------------------------------------------------------


class ItemAddress(Struct, frozen=True):
    """The parts of a URI: an item, or a message of a conversation."""

    source: str
    item_id: str
    message_id: str | None = None


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
    """Returns the id in the form that the collection uses. Media are also found by uuid, and prompts by name."""
    match address.source:
        case "media":
            return (await find_media(library, address.item_id)).id
        case "prompts":
            return (await find_prompt(library, address.item_id)).id
        case "characters":
            number = numeric_id(address.item_id)
            if number is None:
                raise NotFound("character", address.item_id)
            return number
        case _:
            return address.item_id


async def _message(library: Library, address: ItemAddress) -> Message:
    assert address.message_id is not None
    message = await library.chats.get_message(address.message_id)
    if message.conversation_id != address.item_id:
        raise NotFound("message", address.message_id)
    return message


# -- drafts and results ------------------------------------------------------------------------------------------------


def _draft(
    kind: type[ItemFields],
    title: str | None,
    content: str | None,
    tags: Sequence[str] | None,
    fields: Mapping[str, Any] | None,
) -> Struct:
    values = _read_fields(fields or {}, kind).values()
    for argument, name, value in (("title", kind.title_field, title), ("content", kind.content_field, content)):
        if value is None:
            continue
        if name is None:
            raise InvalidParams(f"{argument}: {kind.content_hint or 'a message has none'}")
        values[name] = value
    if tags is not None and "tags" in kind.draft.__struct_fields__:
        values["tags"] = tags
    elif tags:
        raise InvalidParams("tags: a message has none")
    return kind.draft(**values)


def _read_fields(fields: Mapping[str, Any], kind: type[ItemFields]) -> Any:
    try:
        return read_arguments(fields, kind)
    except InvalidParams as error:
        raise InvalidParams(f"fields.{error.message}") from error


def write_result(source: str, item: Item) -> WriteResult:
    return WriteResult(
        uri=uri_of(source, item.id),
        id=item.id,
        title=item.name if isinstance(item, Character | SavedPrompt) else item.title,
        version=item.version,
        tags=item.tags,
        last_modified=item.last_modified,
    )


def _message_result(message: Message) -> WriteResult:
    return WriteResult(
        uri=uri_of("chats", message.conversation_id, message.id),
        id=message.id,
        title="",
        version=message.version,
        tags=(),
        last_modified=message.last_modified,
    )
