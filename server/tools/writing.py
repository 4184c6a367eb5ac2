"""The tools that write notes, messages, prompts, media texts and tags.

The next search finds what was written. Deleted items stay in the database until they are purged.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from msgspec import UNSET, Meta, Struct

from auth.principal import WRITE
from config.errors import Conflict, InvalidParams
from config.paths import UserId
from config.settings import Settings
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Hints, Tool
from server.protocol.changes import Change
from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.items import uri_of
from sources.records import Character, Conversation, MediaItem, Message, Note, Role, SavedPrompt, SavedPromptArgument
from sources.storage.contract import Libraries, Library

# Repeating the call without an idempotency key adds another item.
_ADD_HINTS = Hints(read_only_hint=False, idempotent_hint=False)
# Replaces the previous content; each call creates another version.
_REPLACE_HINTS = Hints(read_only_hint=False, destructive_hint=True, idempotent_hint=False)
_IDEMPOTENT_REPLACE_HINTS = Hints(read_only_hint=False, destructive_hint=True)

_Key = Annotated[str | None, Meta(description="A repeated call with the same key has no further effect.")]
_Expected = Annotated[int | None, Meta(description="Version you have read; fails if the item has changed since.")]
_Tags = Annotated[tuple[str, ...], Meta(description="Tags.")]
_NewTags = Annotated[tuple[str, ...] | None, Meta(description="Replaces all tags.")]
_NoteId = Annotated[str, Meta(description="id of a note.")]
# Attempts to tag an item that another client changes at the same time.
_TAG_ATTEMPTS = 5


class NotesCreate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: Annotated[str, Meta(description="Title in lists.")]
    content: Annotated[str, Meta(description="Markdown.")] = ""
    tags: _Tags = ()
    idempotency_key: _Key = None


class NotesUpdate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    note_id: _NoteId
    title: Annotated[str | None, Meta(description="Omitted fields keep their value.")] = None
    content: Annotated[str | None, Meta(description="The complete new text.")] = None
    tags: _NewTags = None
    expected_version: _Expected = None
    idempotency_key: _Key = None


class NotesAppend(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    note_id: _NoteId
    text: Annotated[str, Meta(description="Text to add, on a new line.")]
    expected_version: _Expected = None
    idempotency_key: _Key = None


class NotesDelete(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    note_id: _NoteId
    expected_version: _Expected = None
    idempotency_key: _Key = None


class ChatMessageInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    content: Annotated[str, Meta(description="Text of the message.")]
    role: Annotated[Role, Meta(description="Role of the author.")] = "user"
    sender: Annotated[str, Meta(description="Name of the author. Default: the role.")] = ""
    model: Annotated[str | None, Meta(description="The model that wrote the message.")] = None
    time: Annotated[str | None, Meta(description="ISO 8601. Default: now.")] = None


class ChatsAppend(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[tuple[ChatMessageInput, ...], Meta(description="Messages in order.")]
    conversation_id: Annotated[str | None, Meta(description="Default: a new conversation.")] = None
    title: Annotated[str, Meta(description="For a new conversation.")] = ""
    tags: Annotated[tuple[str, ...], Meta(description="For a new conversation.")] = ()
    idempotency_key: _Key = None


class PromptsSave(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(description="An existing prompt with this name is updated.")]
    system_prompt: Annotated[str | None, Meta(description="Omitted fields keep their value.")] = None
    user_prompt: Annotated[str | None, Meta(description="{{name}} is a placeholder for an argument.")] = None
    details: Annotated[str | None, Meta(description="Description.")] = None
    author: Annotated[str | None, Meta(description="Author.")] = None
    arguments: Annotated[tuple[SavedPromptArgument, ...] | None, Meta(description="Arguments of the prompt.")] = None
    tags: _NewTags = None
    expected_version: Annotated[
        int | None, Meta(description="Version you have read; 0 if the prompt must not exist yet.")
    ] = None
    idempotency_key: _Key = None


class MediaAddText(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: Annotated[str, Meta(description="Title in lists.")]
    text: Annotated[str, Meta(description="Full text; searched by passage.")]
    media_type: Annotated[str, Meta(description="For example article, document, transcript.")] = "text"
    url: Annotated[str, Meta(description="URL of the original.")] = ""
    author: Annotated[str, Meta(description="Author.")] = ""
    tags: _Tags = ()
    idempotency_key: _Key = None


class ItemsTag(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    uri: Annotated[str, Meta(description="uri of a hit.")]
    add: Annotated[tuple[str, ...], Meta(description="Tags to add.")] = ()
    remove: Annotated[tuple[str, ...], Meta(description="Tags to remove, ignoring case.")] = ()


class WriteResult(Struct, frozen=True, kw_only=True):
    """The item after the write."""

    uri: str
    id: str | int
    title: str
    version: Annotated[int, Meta(description="For expected_version.")]
    tags: tuple[str, ...]
    last_modified: str


class AppendResult(Struct, frozen=True, kw_only=True):
    uri: str
    conversation_id: str
    title: str
    message_ids: Annotated[tuple[str, ...], Meta(description="Ids of the new messages.")]
    message_count: Annotated[int, Meta(description="Number of messages in the conversation.")]


class DeleteResult(Struct, frozen=True, kw_only=True):
    uri: str
    is_deleted: Literal[True] = True


def add_writing_tools(catalog: Catalog, libraries: Libraries, settings: Settings) -> None:
    for write_tool in _TOOLS:
        catalog.add_tool(_catalog_tool(write_tool, catalog, libraries, settings))


class _WriteTool(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    description: str
    input: type[Struct]
    write: Callable[[Library, Any, Settings], Awaitable["WriteResult | AppendResult | DeleteResult"]]
    output: type[Struct] = WriteResult
    hints: Hints = _ADD_HINTS


def _catalog_tool(write_tool: _WriteTool, catalog: Catalog, libraries: Libraries, settings: Settings) -> Tool:
    async def write_and_notify(call: Call, arguments: Any) -> WriteResult | AppendResult | DeleteResult:
        async with libraries.library(call.context) as library:
            result = await write_tool.write(library, arguments, settings)
        for change in _changes(result.uri, call.context.user_id):
            catalog.changes.publish(change)
        return result

    return Tool(
        name=write_tool.name,
        title=write_tool.title,
        description=write_tool.description,
        input=write_tool.input,
        output=write_tool.output,
        scope=WRITE,
        hints=write_tool.hints,
        handler=write_and_notify,
    )


def _changes(uri: str, user_id: UserId) -> Iterator[Change]:
    """Yields the notifications for the writer's open streams. Lists are sorted by age, so each write changes them."""
    yield Change("updated", uri, user_id)
    yield Change("resources", user_id=user_id)
    if uri.startswith(("prompts://", "characters://")):
        yield Change("prompts", user_id=user_id)


# -- notes -------------------------------------------------------------------------------------------------------------


async def _create_note(library: Library, arguments: NotesCreate, _settings: Settings) -> WriteResult:
    draft = NoteDraft(title=arguments.title, content=arguments.content, tags=arguments.tags)
    return _write_result("notes", await library.notes.create(draft, idempotency_key=arguments.idempotency_key))


async def _update_note(library: Library, arguments: NotesUpdate, _settings: Settings) -> WriteResult:
    draft = NoteDraft(**_set_fields(arguments, "title", "content", "tags"))
    note = await library.notes.update(
        arguments.note_id, draft, arguments.expected_version, idempotency_key=arguments.idempotency_key
    )
    return _write_result("notes", note)


async def _append_to_note(library: Library, arguments: NotesAppend, _settings: Settings) -> WriteResult:
    note = await library.notes.append(
        arguments.note_id,
        arguments.text,
        arguments.expected_version,
        separator="\n",
        idempotency_key=arguments.idempotency_key,
    )
    return _write_result("notes", note)


async def _delete_note(library: Library, arguments: NotesDelete, _settings: Settings) -> DeleteResult:
    await library.notes.delete(arguments.note_id, arguments.expected_version, idempotency_key=arguments.idempotency_key)
    return DeleteResult(uri=uri_of("notes", arguments.note_id))


# -- chats, prompts, media ---------------------------------------------------------------------------------------------


async def _append_messages(library: Library, arguments: ChatsAppend, settings: Settings) -> AppendResult:
    limit = settings.batch_max_items
    if not 1 <= len(arguments.messages) <= limit:
        raise InvalidParams(f"messages: expected 1 to {limit} messages, got {len(arguments.messages)}")
    drafts = [_message_draft(message) for message in arguments.messages]
    if arguments.conversation_id is None:
        return await _create_conversation(library, arguments, drafts)
    if arguments.title or arguments.tags:
        raise InvalidParams("title, tags: only allowed for a new conversation")
    written = await library.chats.append(arguments.conversation_id, drafts, idempotency_key=arguments.idempotency_key)
    return _append_result(await library.chats.get(arguments.conversation_id), written)


async def _create_conversation(
    library: Library, arguments: ChatsAppend, drafts: Sequence[MessageDraft]
) -> AppendResult:
    draft = ConversationDraft(title=arguments.title, tags=arguments.tags)
    conversation = await library.chats.create(draft, drafts, idempotency_key=arguments.idempotency_key)
    return _append_result(conversation, (await library.chats.messages(conversation.id, len(drafts), 0)).rows)


def _message_draft(message: ChatMessageInput) -> MessageDraft:
    return MessageDraft(
        role=message.role,
        sender=message.sender,
        content=message.content,
        model=message.model,
        created_at=UNSET if message.time is None else message.time,
    )


async def _save_prompt(library: Library, arguments: PromptsSave, _settings: Settings) -> WriteResult:
    fields = ("system_prompt", "user_prompt", "details", "author", "arguments", "tags")
    draft = PromptDraft(name=arguments.name, **_set_fields(arguments, *fields))
    prompt = await library.prompts.save(draft, arguments.expected_version, idempotency_key=arguments.idempotency_key)
    return _write_result("prompts", prompt)


async def _add_text(library: Library, arguments: MediaAddText, _settings: Settings) -> WriteResult:
    draft = MediaDraft(
        title=arguments.title,
        content=arguments.text,
        media_type=arguments.media_type,
        url=arguments.url,
        author=arguments.author,
        tags=arguments.tags,
    )
    return _write_result("media", await library.media.create(draft, idempotency_key=arguments.idempotency_key))


# -- tags --------------------------------------------------------------------------------------------------------------


_Item = Note | MediaItem | Conversation | Character | SavedPrompt


class _TaggableCollection(Struct, frozen=True):
    """How to tag items of one source. `key` converts the id in a URI to the collection's id type."""

    collection: Callable[[Library], Any]
    draft: type[Struct]
    key: Callable[[str], str | int]


_ID_MAX_DIGITS = 18


def _number(text: str) -> int:
    """Parses a numeric id. Returns 0, which no item has, for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _ID_MAX_DIGITS else 0


_TAGGABLE: Mapping[str, _TaggableCollection] = {
    "notes": _TaggableCollection(lambda library: library.notes, NoteDraft, str),
    "media": _TaggableCollection(lambda library: library.media, MediaDraft, _number),
    "chats": _TaggableCollection(lambda library: library.chats, ConversationDraft, str),
    "characters": _TaggableCollection(lambda library: library.characters, CharacterDraft, _number),
    "prompts": _TaggableCollection(lambda library: library.prompts, PromptDraft, _number),
}


async def _tag_item(library: Library, arguments: ItemsTag, _settings: Settings) -> WriteResult:
    source, identity = _parse_uri(arguments.uri)
    if not arguments.add and not arguments.remove:
        raise InvalidParams("add, remove: expected at least one tag")
    for _ in range(_TAG_ATTEMPTS - 1):
        try:
            return _write_result(source, await _tag(library, source, identity, arguments))
        except Conflict:
            continue
    return _write_result(source, await _tag(library, source, identity, arguments))


async def _tag(library: Library, source: str, identity: str, arguments: ItemsTag) -> _Item:
    """Raises Conflict if the item changed between the read and the write."""
    taggable = _TAGGABLE[source]
    collection, key = taggable.collection(library), taggable.key(identity)
    item: _Item = await collection.get(key)
    removed = {tag.strip().casefold() for tag in arguments.remove}
    tags = [tag for tag in (*item.tags, *arguments.add) if tag.strip().casefold() not in removed]
    if _folded(tags) == _folded(item.tags):
        return item
    updated: _Item = await collection.update(key, taggable.draft(tags=tags), item.version)
    return updated


def _folded(tags: Sequence[str]) -> set[str]:
    return {tag.strip().casefold() for tag in tags if tag.strip()}


def _parse_uri(uri: str) -> tuple[str, str]:
    source, _, path = uri.partition("://")
    if source not in _TAGGABLE or not path or "/" in path:
        schemes = ", ".join(f"{name}://" for name in _TAGGABLE)
        raise InvalidParams(f"uri: expected the URI of an item, starting with one of {schemes}, got {uri[:60]!r}")
    return source, unquote(path)


# -- results -----------------------------------------------------------------------------------------------------------


def _write_result(source: str, item: _Item) -> WriteResult:
    return WriteResult(
        uri=uri_of(source, item.id),
        id=item.id,
        title=item.name if isinstance(item, Character | SavedPrompt) else item.title,
        version=item.version,
        tags=item.tags,
        last_modified=item.last_modified,
    )


def _append_result(conversation: Conversation, messages: Sequence[Message]) -> AppendResult:
    return AppendResult(
        uri=uri_of("chats", conversation.id),
        conversation_id=conversation.id,
        title=conversation.title,
        message_ids=tuple(message.id for message in messages),
        message_count=conversation.message_count,
    )


def _set_fields(arguments: Struct, *names: str) -> dict[str, Any]:
    """Returns the fields that are set. At least one must be."""
    fields = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if not fields:
        raise InvalidParams(f"{', '.join(names)}: expected at least one of them")
    return fields


# -- the tools ---------------------------------------------------------------------------------------------------------

_TOOLS = (
    _WriteTool(
        name="notes_create",
        title="Create a note",
        description=(
            "Create a note. The response contains its id and version. "
            'Example: {"title": "Upgrade plan", "content": "Drain the node first.", "tags": ["work"]}'
        ),
        input=NotesCreate,
        write=_create_note,
    ),
    _WriteTool(
        name="notes_update",
        title="Update a note",
        description=(
            "Replace the title, text or tags of a note. With expected_version, the update fails if the note "
            "has changed since you read it, and the error contains the current version. "
            'Example: {"note_id": "6f1c…", "content": "Drain the node, then upgrade.", "expected_version": 3}'
        ),
        input=NotesUpdate,
        write=_update_note,
        hints=_REPLACE_HINTS,
    ),
    _WriteTool(
        name="notes_append",
        title="Append to a note",
        description=(
            "Append text to a note, on a new line. "
            'Example: {"note_id": "6f1c…", "text": "- rolled back on Friday", "idempotency_key": "friday-1"}'
        ),
        input=NotesAppend,
        write=_append_to_note,
    ),
    _WriteTool(
        name="notes_delete",
        title="Delete a note",
        description=(
            "Delete a note. It no longer appears anywhere, but is not erased from the database. "
            'Example: {"note_id": "6f1c…", "expected_version": 3}'
        ),
        input=NotesDelete,
        write=_delete_note,
        output=DeleteResult,
        hints=_IDEMPOTENT_REPLACE_HINTS,
    ),
    _WriteTool(
        name="chats_append",
        title="Append messages",
        description=(
            "Append messages to a conversation, or create a new one if conversation_id is omitted. "
            'Example: {"title": "Lisbon", "messages": [{"role": "user", "content": "When is the flight?"}, '
            '{"role": "assistant", "content": "Friday, 10:40."}], "idempotency_key": "turn-7"}'
        ),
        input=ChatsAppend,
        write=_append_messages,
        output=AppendResult,
    ),
    _WriteTool(
        name="prompts_save",
        title="Save a prompt",
        description=(
            "Save a prompt. An existing prompt with the same name is updated; otherwise it is created (version 1). "
            'Example: {"name": "Code review", "user_prompt": "Review {{diff}} for errors.", '
            '"arguments": [{"name": "diff", "required": true}]}'
        ),
        input=PromptsSave,
        write=_save_prompt,
        hints=_REPLACE_HINTS,
    ),
    _WriteTool(
        name="media_add_text",
        title="Add a text",
        description=(
            "Add a long text, such as an article or a transcript, as a media item; media_search finds its passages. "
            'Example: {"title": "On drift", "text": "Clocks drift apart…", "url": "https://example.org/drift"}'
        ),
        input=MediaAddText,
        write=_add_text,
    ),
    _WriteTool(
        name="items_tag",
        title="Tag an item",
        description=(
            "Add tags to an item of any source, or remove tags. "
            'Example: {"uri": "notes://6f1c…", "add": ["work"], "remove": ["inbox"]}'
        ),
        input=ItemsTag,
        write=_tag_item,
        hints=_IDEMPOTENT_REPLACE_HINTS,
    ),
)
