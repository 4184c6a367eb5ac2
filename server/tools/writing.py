"""The tools that create, change, delete and tag items.

The next search finds what was written. Deleted items stay in the database until they are purged.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from auth.context import WRITE, RequestContext
from config.errors import InvalidParams
from config.paths import UserId
from config.settings import Settings
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Change, ChangeFeed, Hints, Tool
from server.tools.items import (
    ChatMessageInput,
    DeleteResult,
    EditableItem,
    ExpectedVersion,
    IdempotencyKey,
    ItemsCreate,
    ItemsDelete,
    ItemsTag,
    ItemsUpdate,
    NewTags,
    Tags,
    WriteResult,
    create_item,
    delete_item,
    read_editable,
    tag_item,
    update_item,
    write_result,
)
from sources.drafts import ConversationDraft, MediaDraft, NoteDraft, PromptDraft
from sources.items import uri_of
from sources.records import Conversation, Message, SavedPromptArgument
from sources.source import UriArgument, whole_item_id
from sources.storage.contract import Libraries, Library

# Repeating the call without an idempotency key adds another item.
_ADD_HINTS = Hints(read_only_hint=False, idempotent_hint=False)
# Replaces the previous content; each call creates another version.
_REPLACE_HINTS = Hints(read_only_hint=False, destructive_hint=True, idempotent_hint=False)
_IDEMPOTENT_REPLACE_HINTS = Hints(read_only_hint=False, destructive_hint=True)

_NoteId = Annotated[str | None, Meta(description="id of a note.")]


class NotesCreate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: Annotated[str, Meta(description="Title shown in lists.")]
    content: Annotated[str, Meta(description="Markdown.")] = ""
    tags: Tags = ()
    idempotency_key: IdempotencyKey = None


class NotesUpdate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    note_id: _NoteId = None
    uri: UriArgument = None
    title: Annotated[str | None, Meta(description="Omitted fields keep their value.")] = None
    content: Annotated[str | None, Meta(description="The complete new text.")] = None
    tags: NewTags = None
    expected_version: ExpectedVersion = None
    idempotency_key: IdempotencyKey = None


class NotesAppend(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    note_id: _NoteId = None
    uri: UriArgument = None
    text: Annotated[str, Meta(description="Text to add, on a new line.")]
    expected_version: ExpectedVersion = None
    idempotency_key: IdempotencyKey = None


class NotesDelete(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    note_id: _NoteId = None
    uri: UriArgument = None
    expected_version: ExpectedVersion = None
    idempotency_key: IdempotencyKey = None


class ChatsAppend(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[tuple[ChatMessageInput, ...], Meta(description="Messages in order.")]
    conversation_id: Annotated[str | None, Meta(description="Default: a new conversation.")] = None
    uri: Annotated[str | None, Meta(description="uri of a conversation, instead.")] = None
    title: Annotated[str, Meta(description="For a new conversation.")] = ""
    tags: Annotated[tuple[str, ...], Meta(description="For a new conversation.")] = ()
    idempotency_key: IdempotencyKey = None


class PromptsSave(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(description="An existing prompt with this name is updated.")]
    system_prompt: Annotated[str | None, Meta(description="Omitted fields keep their value.")] = None
    user_prompt: Annotated[str | None, Meta(description="{{name}} is a placeholder for an argument.")] = None
    details: Annotated[str | None, Meta(description="Description.")] = None
    author: Annotated[str | None, Meta(description="Author.")] = None
    arguments: Annotated[tuple[SavedPromptArgument, ...] | None, Meta(description="Arguments of the prompt.")] = None
    tags: NewTags = None
    expected_version: Annotated[
        int | None, Meta(description="Version you have read; 0 if the prompt must not exist yet.")
    ] = None
    idempotency_key: IdempotencyKey = None


class MediaAddText(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: Annotated[str, Meta(description="Title shown in lists.")]
    text: Annotated[str, Meta(description="Full text; searched by passage.")]
    media_type: Annotated[str, Meta(description="For example article, document, transcript.")] = "text"
    url: Annotated[str, Meta(description="URL of the original.")] = ""
    author: Annotated[str, Meta(description="Author.")] = ""
    tags: Tags = ()
    idempotency_key: IdempotencyKey = None


class AppendResult(Struct, frozen=True, kw_only=True):
    uri: str
    conversation_id: str
    title: str
    message_ids: Annotated[tuple[str, ...], Meta(description="Ids of the new messages.")]
    message_count: Annotated[int, Meta(description="Number of messages in the conversation.")]


Result = WriteResult | AppendResult | DeleteResult
# A write to the library of one user.
Write = Callable[[Library, Any, Settings], Awaitable[Result]]


class LibraryWriter:
    """Carries out writes to the caller's library and notifies the caller's open streams. Tools and REST share it."""

    def __init__(self, libraries: Libraries, changes: ChangeFeed, settings: Settings) -> None:
        self._libraries = libraries
        self._changes = changes
        self._settings = settings

    async def write(self, context: RequestContext, write: Write, arguments: Any) -> Any:
        async with self._libraries.library(context) as library:
            result = await write(library, arguments, self._settings)
        for change in _changes(result.uri, context.user_id):
            self._changes.publish(change)
        return result

    async def read_editable(self, context: RequestContext, uri: str) -> EditableItem:
        async with self._libraries.library(context) as library:
            return await read_editable(library, uri)


def add_writing_tools(catalog: Catalog, libraries: Libraries, settings: Settings) -> None:
    writer = LibraryWriter(libraries, catalog.changes, settings)
    for write_tool in _TOOLS:
        catalog.add_tool(_catalog_tool(write_tool, writer))


class _WriteTool(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    description: str
    input: type[Struct]
    write: Write
    # None for tools that write to any source: the library only has those that the credential permits.
    source: str | None
    output: type[Struct] = WriteResult
    hints: Hints = _ADD_HINTS


def _catalog_tool(write_tool: _WriteTool, writer: LibraryWriter) -> Tool:
    async def call_writer(call: Call, arguments: Any) -> Any:
        return await writer.write(call.context, write_tool.write, arguments)

    return Tool(
        name=write_tool.name,
        title=write_tool.title,
        description=write_tool.description,
        input=write_tool.input,
        output=write_tool.output,
        scope=WRITE,
        hints=write_tool.hints,
        source=write_tool.source,
        handler=call_writer,
    )


def _changes(uri: str, user_id: UserId) -> Iterator[Change]:
    """Yields the notifications for the writer's open streams. Lists are sorted by age, so each write changes them."""
    source = uri.partition("://")[0]
    yield Change("updated", uri, user_id, source)
    yield Change("resources", user_id=user_id, source=source)
    if source in ("prompts", "characters"):
        yield Change("prompts", user_id=user_id, source=source)


# -- notes -------------------------------------------------------------------------------------------------------------


async def _create_note(library: Library, arguments: NotesCreate, _settings: Settings) -> WriteResult:
    draft = NoteDraft(title=arguments.title, content=arguments.content, tags=arguments.tags)
    return write_result("notes", await library.notes.create(draft, idempotency_key=arguments.idempotency_key))


async def _update_note(library: Library, arguments: NotesUpdate, _settings: Settings) -> WriteResult:
    draft = NoteDraft(**_set_fields(arguments, "title", "content", "tags"))
    note = await library.notes.update(
        _note_id(arguments), draft, arguments.expected_version, idempotency_key=arguments.idempotency_key
    )
    return write_result("notes", note)


async def _append_to_note(library: Library, arguments: NotesAppend, _settings: Settings) -> WriteResult:
    note = await library.notes.append(
        _note_id(arguments),
        arguments.text,
        arguments.expected_version,
        separator="\n",
        idempotency_key=arguments.idempotency_key,
    )
    return write_result("notes", note)


async def _delete_note(library: Library, arguments: NotesDelete, _settings: Settings) -> DeleteResult:
    note_id = _note_id(arguments)
    await library.notes.delete(note_id, arguments.expected_version, idempotency_key=arguments.idempotency_key)
    return DeleteResult(uri=uri_of("notes", note_id))


def _note_id(arguments: NotesUpdate | NotesAppend | NotesDelete) -> str:
    return str(whole_item_id("notes", "note_id", arguments.note_id, arguments.uri))


# -- chats, prompts, media ---------------------------------------------------------------------------------------------


async def append_messages(library: Library, arguments: ChatsAppend, settings: Settings) -> AppendResult:
    limit = settings.batch_max_items
    if not 1 <= len(arguments.messages) <= limit:
        raise InvalidParams(f"messages: expected 1 to {limit} messages, got {len(arguments.messages)}")
    drafts = [message.draft() for message in arguments.messages]
    if arguments.conversation_id is None and arguments.uri is None:
        draft = ConversationDraft(title=arguments.title, tags=arguments.tags)
        conversation = await library.chats.create(draft, drafts, idempotency_key=arguments.idempotency_key)
        return _append_result(conversation, (await library.chats.messages(conversation.id, len(drafts), 0)).rows)
    if arguments.title or arguments.tags:
        raise InvalidParams("title, tags: only allowed for a new conversation")
    conversation_id = str(whole_item_id("chats", "conversation_id", arguments.conversation_id, arguments.uri))
    written = await library.chats.append(conversation_id, drafts, idempotency_key=arguments.idempotency_key)
    return _append_result(await library.chats.get(conversation_id), written)


async def _save_prompt(library: Library, arguments: PromptsSave, _settings: Settings) -> WriteResult:
    fields = ("system_prompt", "user_prompt", "details", "author", "arguments", "tags")
    draft = PromptDraft(name=arguments.name, **_set_fields(arguments, *fields))
    prompt = await library.prompts.save(draft, arguments.expected_version, idempotency_key=arguments.idempotency_key)
    return write_result("prompts", prompt)


async def _add_text(library: Library, arguments: MediaAddText, _settings: Settings) -> WriteResult:
    draft = MediaDraft(
        title=arguments.title,
        content=arguments.text,
        media_type=arguments.media_type,
        url=arguments.url,
        author=arguments.author,
        tags=arguments.tags,
    )
    return write_result("media", await library.media.create(draft, idempotency_key=arguments.idempotency_key))


# -- results -----------------------------------------------------------------------------------------------------------


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
        source="notes",
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
        source="notes",
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
        source="notes",
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
        source="notes",
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
        source="chats",
        title="Append messages",
        description=(
            "Append messages to a conversation, or create a new one if conversation_id is omitted. "
            'Example: {"title": "Lisbon", "messages": [{"role": "user", "content": "When is the flight?"}, '
            '{"role": "assistant", "content": "Friday, 10:40."}], "idempotency_key": "turn-7"}'
        ),
        input=ChatsAppend,
        write=append_messages,
        output=AppendResult,
    ),
    _WriteTool(
        name="prompts_save",
        source="prompts",
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
        source="media",
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
        source=None,
        title="Tag an item",
        description=(
            "Add tags to an item of any source, or remove tags. "
            'Example: {"uri": "notes://6f1c…", "add": ["work"], "remove": ["inbox"]}'
        ),
        input=ItemsTag,
        write=tag_item,
        hints=_IDEMPOTENT_REPLACE_HINTS,
    ),
    _WriteTool(
        name="items_create",
        source=None,
        title="Create an item",
        description=(
            "Create a note, media item, conversation, character or prompt. "
            'Example: {"source": "characters", "title": "Ada", "content": "A mathematician.", '
            '"fields": {"first_message": "Good evening."}, "tags": ["history"]}'
        ),
        input=ItemsCreate,
        write=create_item,
    ),
    _WriteTool(
        name="items_update",
        source=None,
        title="Update an item",
        description=(
            "Replace the title, text, tags or other fields of an item of any source, or the text of a message. With "
            "expected_version, the update fails if the item has changed since you read it. "
            'Example: {"uri": "media://12", "title": "On drift", "fields": {"author": "Ada"}, "expected_version": 3}'
        ),
        input=ItemsUpdate,
        write=update_item,
        hints=_REPLACE_HINTS,
    ),
    _WriteTool(
        name="items_delete",
        source=None,
        title="Delete an item",
        description=(
            "Delete an item of any source, a whole conversation, or one message. It no longer appears anywhere, but is "
            'not erased from the database. Example: {"uri": "chats://9b2e…/41f0…"}'
        ),
        input=ItemsDelete,
        write=delete_item,
        output=DeleteResult,
        hints=_IDEMPOTENT_REPLACE_HINTS,
    ),
)
