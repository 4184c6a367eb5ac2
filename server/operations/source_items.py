"""Writes to one source: notes, messages, prompts and texts. `items.py` has the operations for all sources."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from aggregator.libraries import LibraryName
from auth.context import RequestContext
from config.errors import InvalidParams
from server.operations import items
from server.operations.operation import ToolBinding
from server.services import Services
from sources.drafts import ConversationDraft, MediaDraft, NoteDraft, PromptDraft
from sources.items import uri_of
from sources.records import Message, SavedPromptArgument
from sources.source import UriArgument, whole_item_id

_NoteId = Annotated[str | None, Meta(description="id of a note.")]


class NotesCreate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: Annotated[str, Meta(description="Title shown in lists.")]
    content: Annotated[str, Meta(description="Markdown.")] = ""
    tags: items.Tags = ()
    idempotency_key: items.IdempotencyKey = None
    library: LibraryName = None


class NotesUpdate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    note_id: _NoteId = None
    uri: UriArgument = None
    title: Annotated[str | None, Meta(description="Omitted fields keep their value.")] = None
    content: Annotated[str | None, Meta(description="The complete new text.")] = None
    tags: items.NewTags = None
    expected_version: items.ExpectedVersion = None
    idempotency_key: items.IdempotencyKey = None
    library: LibraryName = None


class NotesAppend(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    note_id: _NoteId = None
    uri: UriArgument = None
    text: Annotated[str, Meta(description="Text to add, on a new line.")]
    expected_version: items.ExpectedVersion = None
    idempotency_key: items.IdempotencyKey = None
    library: LibraryName = None


class NotesDelete(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    note_id: _NoteId = None
    uri: UriArgument = None
    expected_version: items.ExpectedVersion = None
    idempotency_key: items.IdempotencyKey = None
    library: LibraryName = None


class ChatsAppend(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[tuple[items.ChatMessageInput, ...], Meta(description="Messages in order.")]
    conversation_id: Annotated[str | None, Meta(description="Default: a new conversation.")] = None
    uri: Annotated[str | None, Meta(description="uri of a conversation, instead.")] = None
    title: Annotated[str, Meta(description="For a new conversation.")] = ""
    tags: Annotated[tuple[str, ...], Meta(description="For a new conversation.")] = ()
    idempotency_key: items.IdempotencyKey = None
    library: LibraryName = None


class PromptsSave(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(description="An existing prompt with this name is updated.")]
    system_prompt: Annotated[str | None, Meta(description="Omitted fields keep their value.")] = None
    user_prompt: Annotated[str | None, Meta(description="{{name}} is a placeholder for an argument.")] = None
    details: Annotated[str | None, Meta(description="Description.")] = None
    author: Annotated[str | None, Meta(description="Author.")] = None
    arguments: Annotated[tuple[SavedPromptArgument, ...] | None, Meta(description="Arguments of the prompt.")] = None
    tags: items.NewTags = None
    expected_version: Annotated[
        int | None, Meta(description="Version you have read; 0 if the prompt must not exist yet.")
    ] = None
    idempotency_key: items.IdempotencyKey = None
    library: LibraryName = None


class MediaAddText(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: Annotated[str, Meta(description="Title shown in lists.")]
    text: Annotated[str, Meta(description="Full text; searched by passage.")]
    media_type: Annotated[str, Meta(description="For example article, document, transcript.")] = "text"
    url: Annotated[str, Meta(description="URL of the original.")] = ""
    author: Annotated[str, Meta(description="Author.")] = ""
    tags: items.Tags = ()
    idempotency_key: items.IdempotencyKey = None
    library: LibraryName = None


class AppendResult(Struct, frozen=True, kw_only=True):
    uri: str
    conversation_id: str
    title: str
    message_ids: Annotated[tuple[str, ...], Meta(description="Ids of the new messages.")]
    message_count: Annotated[int, Meta(description="Number of messages in the conversation.")]


class MessagesAppendRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    conversation_id: Annotated[str, Meta(description="id of a conversation.")]
    messages: Annotated[tuple[items.ChatMessageInput, ...], Meta(description="Messages in order.")]
    idempotency_key: items.IdempotencyKey = None
    library: LibraryName = None


@items.write_operation(source="notes", tool=ToolBinding(hints=items.ADD_HINTS))
async def notes_create(context: RequestContext, services: Services, request: NotesCreate) -> items.WriteResult:
    """Create a note

    Create a note. The response contains its id and version. Example: {"title": "Upgrade plan", "content": "Drain the
    node first.", "tags": ["work"]}
    """
    draft = NoteDraft(title=request.title, content=request.content, tags=request.tags)
    async with services.libraries.library(context) as library:
        note = await library.notes.create(draft, idempotency_key=request.idempotency_key)
    return items.published(context, services, items.write_result("notes", note))


@items.write_operation(source="notes", tool=ToolBinding(hints=items.REPLACE_HINTS))
async def notes_update(context: RequestContext, services: Services, request: NotesUpdate) -> items.WriteResult:
    """Update a note

    Replace the title, text or tags of a note. With expected_version, the update fails if the note has changed since you
    read it, and the error contains the current version. Example: {"note_id": "6f1c…", "content": "Drain the node, then
    upgrade.", "expected_version": 3}
    """
    draft = NoteDraft(**_set_fields(request, "title", "content", "tags"))
    async with services.libraries.library(context) as library:
        note = await library.notes.update(
            _note_id(request), draft, request.expected_version, idempotency_key=request.idempotency_key
        )
    return items.published(context, services, items.write_result("notes", note))


@items.write_operation(source="notes", tool=ToolBinding(hints=items.ADD_HINTS))
async def notes_append(context: RequestContext, services: Services, request: NotesAppend) -> items.WriteResult:
    """Append to a note

    Append text to a note, on a new line. Example: {"note_id": "6f1c…", "text": "- rolled back on Friday",
    "idempotency_key": "friday-1"}
    """
    async with services.libraries.library(context) as library:
        note = await library.notes.append(
            _note_id(request),
            request.text,
            request.expected_version,
            separator="\n",
            idempotency_key=request.idempotency_key,
        )
    return items.published(context, services, items.write_result("notes", note))


@items.write_operation(source="notes", tool=ToolBinding(hints=items.IDEMPOTENT_REPLACE_HINTS))
async def notes_delete(context: RequestContext, services: Services, request: NotesDelete) -> items.DeleteResult:
    """Delete a note

    Delete a note. It no longer appears anywhere, but is not erased from the database. Example: {"note_id": "6f1c…",
    "expected_version": 3}
    """
    note_id = _note_id(request)
    async with services.libraries.library(context) as library:
        await library.notes.delete(note_id, request.expected_version, idempotency_key=request.idempotency_key)
    return items.published(context, services, items.DeleteResult(uri=uri_of("notes", note_id)))


def _note_id(request: NotesUpdate | NotesAppend | NotesDelete) -> str:
    return str(whole_item_id("notes", "note_id", request.note_id, request.uri))


@items.write_operation(source="chats", tool=ToolBinding(hints=items.ADD_HINTS))
async def chats_append(context: RequestContext, services: Services, request: ChatsAppend) -> AppendResult:
    """Append messages

    Append messages to a conversation, or create a new one if conversation_id is omitted. Example: {"title": "Lisbon",
    "messages": [{"role": "user", "content": "When is the flight?"}, {"role": "assistant", "content": "Friday,
    10:40."}], "idempotency_key": "turn-7"}
    """
    return await _append(context, services, request)


@items.write_operation(
    "POST /api/v1/items/chats/{conversation_id}/messages", tools=("chats_append",), source="chats", status=201
)
async def append_chat_messages(
    context: RequestContext, services: Services, request: MessagesAppendRequest
) -> AppendResult:
    """Append messages

    Append messages to a conversation, as chats_append does.
    """
    return await _append(context, services, ChatsAppend(**structs.asdict(request)))


async def _append(context: RequestContext, services: Services, request: ChatsAppend) -> AppendResult:
    limit = services.settings.batch_max_items
    if not 1 <= len(request.messages) <= limit:
        raise InvalidParams(f"messages: expected 1 to {limit} messages, got {len(request.messages)}")
    drafts = [message.draft() for message in request.messages]
    is_new = request.conversation_id is None and request.uri is None
    if not is_new and (request.title or request.tags):
        raise InvalidParams("title, tags: only allowed for a new conversation")
    async with services.libraries.library(context) as library:
        chats = library.chats
        if is_new:
            draft = ConversationDraft(title=request.title, tags=request.tags)
            conversation = await chats.create(draft, drafts, idempotency_key=request.idempotency_key)
            written: Sequence[Message] = (await chats.messages(conversation.id, len(drafts), 0)).rows
        else:
            conversation_id = str(whole_item_id("chats", "conversation_id", request.conversation_id, request.uri))
            written = await chats.append(conversation_id, drafts, idempotency_key=request.idempotency_key)
            conversation = await chats.get(conversation_id)
    result = AppendResult(
        uri=uri_of("chats", conversation.id),
        conversation_id=conversation.id,
        title=conversation.title,
        message_ids=tuple(message.id for message in written),
        message_count=conversation.message_count,
    )
    return items.published(context, services, result)


@items.write_operation(source="prompts", tool=ToolBinding(hints=items.REPLACE_HINTS))
async def prompts_save(context: RequestContext, services: Services, request: PromptsSave) -> items.WriteResult:
    """Save a prompt

    Save a prompt. An existing prompt with the same name is updated; otherwise it is created (version 1). Example:
    {"name": "Code review", "user_prompt": "Review {{diff}} for errors.", "arguments": [{"name": "diff", "required":
    true}]}
    """
    fields = ("system_prompt", "user_prompt", "details", "author", "arguments", "tags")
    draft = PromptDraft(name=request.name, **_set_fields(request, *fields))
    async with services.libraries.library(context) as library:
        prompt = await library.prompts.save(draft, request.expected_version, idempotency_key=request.idempotency_key)
    return items.published(context, services, items.write_result("prompts", prompt))


@items.write_operation(source="media", tool=ToolBinding(hints=items.ADD_HINTS))
async def media_add_text(context: RequestContext, services: Services, request: MediaAddText) -> items.WriteResult:
    """Add a text

    Add a long text, such as an article or a transcript, as a media item; media_search finds its passages. Example:
    {"title": "On drift", "text": "Clocks drift apart…", "url": "https://example.org/drift"}
    """
    draft = MediaDraft(
        title=request.title,
        content=request.text,
        media_type=request.media_type,
        url=request.url,
        author=request.author,
        tags=request.tags,
    )
    async with services.libraries.library(context) as library:
        item = await library.media.create(draft, idempotency_key=request.idempotency_key)
    return items.published(context, services, items.write_result("media", item))


def _set_fields(arguments: Struct, *names: str) -> dict[str, Any]:
    """Returns the fields that are set. At least one must be."""
    fields = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if not fields:
        raise InvalidParams(f"{', '.join(names)}: expected at least one of them")
    return fields
