"""The tools that write: notes, messages, prompts, texts and tags. Each writes through the caller's own library, so that
the next search finds it. None takes a path, and nothing is deleted for good."""

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

# Repeated without a key, it would add another one.
_ADDS = Hints(read_only_hint=False, idempotent_hint=False)
# It takes the place of what was there; each call makes another version.
_REPLACES = Hints(read_only_hint=False, destructive_hint=True, idempotent_hint=False)
_SETTLES = Hints(read_only_hint=False, destructive_hint=True)

_Key = Annotated[str | None, Meta(description="A call repeated with its key writes nothing twice.")]
_Expected = Annotated[int | None, Meta(description="The version you have read; refused if it is no longer that.")]
_Tags = Annotated[tuple[str, ...], Meta(description="To filter by.")]
_NewTags = Annotated[tuple[str, ...] | None, Meta(description="All of them; those there are replaced.")]
_NoteId = Annotated[str, Meta(description="id of a hit.")]
# Somebody else may tag the same item at the same moment; more often than this is a loop of theirs.
_TAGGING_TRIES = 5


class NotesCreate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: Annotated[str, Meta(description="What it is called in lists.")]
    content: Annotated[str, Meta(description="Markdown.")] = ""
    tags: _Tags = ()
    idempotency_key: _Key = None


class NotesUpdate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    note_id: _NoteId
    title: Annotated[str | None, Meta(description="Stays if left out, as the others do.")] = None
    content: Annotated[str | None, Meta(description="The whole text.")] = None
    tags: _NewTags = None
    expected_version: _Expected = None
    idempotency_key: _Key = None


class NotesAppend(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    note_id: _NoteId
    text: Annotated[str, Meta(description="Begins on a line of its own.")]
    expected_version: _Expected = None
    idempotency_key: _Key = None


class NotesDelete(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    note_id: _NoteId
    expected_version: _Expected = None
    idempotency_key: _Key = None


class NewMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    content: Annotated[str, Meta(description="What was said.")]
    role: Annotated[Role, Meta(description="Who said it.")] = "user"
    sender: Annotated[str, Meta(description="A name; the role if left out.")] = ""
    model: Annotated[str | None, Meta(description="That wrote it.")] = None
    time: Annotated[str | None, Meta(description="ISO 8601; now if left out.")] = None


class ChatsAppend(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[tuple[NewMessage, ...], Meta(description="In their order.")]
    conversation_id: Annotated[str | None, Meta(description="Of a hit; a new conversation if left out.")] = None
    title: Annotated[str, Meta(description="Of a new conversation.")] = ""
    tags: Annotated[tuple[str, ...], Meta(description="Of a new conversation.")] = ()
    idempotency_key: _Key = None


class PromptsSave(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(description="The prompt of that name is updated, or else it is new.")]
    system_prompt: Annotated[str | None, Meta(description="Stays if left out, as the others do.")] = None
    user_prompt: Annotated[str | None, Meta(description="{{argument}} stands for what is filled in.")] = None
    details: Annotated[str | None, Meta(description="What it is for.")] = None
    author: Annotated[str | None, Meta(description="Who wrote it.")] = None
    arguments: Annotated[tuple[SavedPromptArgument, ...] | None, Meta(description="To be filled in.")] = None
    tags: _NewTags = None
    expected_version: Annotated[int | None, Meta(description="The version you have read; 0 if it must be new.")] = None
    idempotency_key: _Key = None


class MediaAddText(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: Annotated[str, Meta(description="What it is called in lists.")]
    text: Annotated[str, Meta(description="The whole text; it is searched passage by passage.")]
    media_type: Annotated[str, Meta(description="Such as article, document, transcript.")] = "text"
    url: Annotated[str, Meta(description="Where it was taken from.")] = ""
    author: Annotated[str, Meta(description="Who wrote it.")] = ""
    tags: _Tags = ()
    idempotency_key: _Key = None


class ItemsTag(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    uri: Annotated[str, Meta(description="Of a hit of any source.")]
    add: Annotated[tuple[str, ...], Meta(description="Beside those it has.")] = ()
    remove: Annotated[tuple[str, ...], Meta(description="In any case.")] = ()


class Written(Struct, frozen=True, kw_only=True):
    """An item as it stands now."""

    uri: str
    id: str | int
    title: str
    version: Annotated[int, Meta(description="For expected_version.")]
    tags: tuple[str, ...]
    last_modified: str


class Appended(Struct, frozen=True, kw_only=True):
    uri: str
    conversation_id: str
    title: str
    message_ids: Annotated[tuple[str, ...], Meta(description="Of the messages that were given.")]
    message_count: Annotated[int, Meta(description="Of the whole conversation.")]


class Deleted(Struct, frozen=True, kw_only=True):
    uri: str
    is_deleted: Literal[True] = True


def add_writing(catalog: Catalog, libraries: Libraries, settings: Settings) -> None:
    for declared in _TOOLS:
        catalog.add_tool(_tool(declared, catalog, libraries, settings))


class _Declared(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    description: str
    input: type[Struct]
    write: Callable[[Library, Any, Settings], Awaitable["Written | Appended | Deleted"]]
    output: type[Struct] = Written
    hints: Hints = _ADDS


def _tool(declared: _Declared, catalog: Catalog, libraries: Libraries, settings: Settings) -> Tool:
    async def run(call: Call, asked: Any) -> Written | Appended | Deleted:
        async with libraries.library(call.context) as library:
            written = await declared.write(library, asked, settings)
        for change in _news(written.uri, call.context.user_id):
            catalog.changes.publish(change)
        return written

    return Tool(
        name=declared.name,
        title=declared.title,
        description=declared.description,
        input=declared.input,
        output=declared.output,
        scope=WRITE,
        hints=declared.hints,
        handler=run,
    )


def _news(uri: str, user_id: UserId) -> Iterator[Change]:
    """For the writer's own open streams: lists are ordered by age, so each write changes one."""
    yield Change("updated", uri, user_id)
    yield Change("resources", user_id=user_id)
    if uri.startswith(("prompts://", "characters://")):
        yield Change("prompts", user_id=user_id)


# -- notes -------------------------------------------------------------------------------------------------------------


async def _create_note(library: Library, asked: NotesCreate, _settings: Settings) -> Written:
    draft = NoteDraft(title=asked.title, content=asked.content, tags=asked.tags)
    return _written("notes", await library.notes.create(draft, idempotency_key=asked.idempotency_key))


async def _update_note(library: Library, asked: NotesUpdate, _settings: Settings) -> Written:
    draft = NoteDraft(**_given(asked, "title", "content", "tags"))
    note = await library.notes.update(
        asked.note_id, draft, asked.expected_version, idempotency_key=asked.idempotency_key
    )
    return _written("notes", note)


async def _append_to_note(library: Library, asked: NotesAppend, _settings: Settings) -> Written:
    note = await library.notes.append(
        asked.note_id, asked.text, asked.expected_version, separator="\n", idempotency_key=asked.idempotency_key
    )
    return _written("notes", note)


async def _delete_note(library: Library, asked: NotesDelete, _settings: Settings) -> Deleted:
    await library.notes.delete(asked.note_id, asked.expected_version, idempotency_key=asked.idempotency_key)
    return Deleted(uri=uri_of("notes", asked.note_id))


# -- chats, prompts, media ---------------------------------------------------------------------------------------------


async def _append_messages(library: Library, asked: ChatsAppend, settings: Settings) -> Appended:
    limit = settings.batch_max_items
    if not 1 <= len(asked.messages) <= limit:
        raise InvalidParams(f"messages: got {len(asked.messages)}, expected 1 to {limit}")
    drafts = [_message(one) for one in asked.messages]
    if asked.conversation_id is None:
        return await _begin_chat(library, asked, drafts)
    if asked.title or asked.tags:
        raise InvalidParams("title, tags: got one for a conversation that is there, expected it for a new one")
    written = await library.chats.append(asked.conversation_id, drafts, idempotency_key=asked.idempotency_key)
    return _appended(await library.chats.get(asked.conversation_id), written)


async def _begin_chat(library: Library, asked: ChatsAppend, drafts: Sequence[MessageDraft]) -> Appended:
    draft = ConversationDraft(title=asked.title, tags=asked.tags)
    chat = await library.chats.create(draft, drafts, idempotency_key=asked.idempotency_key)
    return _appended(chat, (await library.chats.messages(chat.id, len(drafts), 0)).rows)


def _message(one: NewMessage) -> MessageDraft:
    return MessageDraft(
        role=one.role,
        sender=one.sender,
        content=one.content,
        model=one.model,
        created_at=UNSET if one.time is None else one.time,
    )


async def _save_prompt(library: Library, asked: PromptsSave, _settings: Settings) -> Written:
    fields = ("system_prompt", "user_prompt", "details", "author", "arguments", "tags")
    draft = PromptDraft(name=asked.name, **_given(asked, *fields))
    prompt = await library.prompts.save(draft, asked.expected_version, idempotency_key=asked.idempotency_key)
    return _written("prompts", prompt)


async def _add_text(library: Library, asked: MediaAddText, _settings: Settings) -> Written:
    draft = MediaDraft(
        title=asked.title,
        content=asked.text,
        media_type=asked.media_type,
        url=asked.url,
        author=asked.author,
        tags=asked.tags,
    )
    return _written("media", await library.media.create(draft, idempotency_key=asked.idempotency_key))


# -- tags --------------------------------------------------------------------------------------------------------------


_Item = Note | MediaItem | Conversation | Character | SavedPrompt


class _Tagged(Struct, frozen=True):
    """How an item of one source is read and tagged. `key` makes an id of the text that a URI has."""

    collection: Callable[[Library], Any]
    draft: type[Struct]
    key: Callable[[str], str | int]


_NUMBERS_MAX_CHARS = 18


def _number(text: str) -> int:
    """What is no number is the id of nothing."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _NUMBERS_MAX_CHARS else 0


_TAGGED: Mapping[str, _Tagged] = {
    "notes": _Tagged(lambda library: library.notes, NoteDraft, str),
    "media": _Tagged(lambda library: library.media, MediaDraft, _number),
    "chats": _Tagged(lambda library: library.chats, ConversationDraft, str),
    "characters": _Tagged(lambda library: library.characters, CharacterDraft, _number),
    "prompts": _Tagged(lambda library: library.prompts, PromptDraft, _number),
}


async def _tag_item(library: Library, asked: ItemsTag, _settings: Settings) -> Written:
    source, identity = _address(asked.uri)
    if not asked.add and not asked.remove:
        raise InvalidParams("add, remove: got none of them, expected a tag in one of them")
    for _ in range(_TAGGING_TRIES - 1):
        try:
            return _written(source, await _tag(library, source, identity, asked))
        except Conflict:
            continue
    return _written(source, await _tag(library, source, identity, asked))


async def _tag(library: Library, source: str, identity: str, asked: ItemsTag) -> _Item:
    """`Conflict` where somebody changed it between our look at it and our write."""
    how = _TAGGED[source]
    collection, key = how.collection(library), how.key(identity)
    held: _Item = await collection.get(key)
    gone = {tag.strip().casefold() for tag in asked.remove}
    tags = [tag for tag in (*held.tags, *asked.add) if tag.strip().casefold() not in gone]
    if _folded(tags) == _folded(held.tags):
        return held
    changed: _Item = await collection.update(key, how.draft(tags=tags), held.version)
    return changed


def _folded(tags: Sequence[str]) -> set[str]:
    return {tag.strip().casefold() for tag in tags if tag.strip()}


def _address(uri: str) -> tuple[str, str]:
    source, _, path = uri.partition("://")
    if source not in _TAGGED or not path or "/" in path:
        known = ", ".join(f"{name}://" for name in _TAGGED)
        raise InvalidParams(f"uri: got {uri[:60]!r}, expected that of an item, which begins with one of {known}")
    return source, unquote(path)


# -- answers -----------------------------------------------------------------------------------------------------------


def _written(source: str, item: _Item) -> Written:
    return Written(
        uri=uri_of(source, item.id),
        id=item.id,
        title=item.name if isinstance(item, Character | SavedPrompt) else item.title,
        version=item.version,
        tags=item.tags,
        last_modified=item.last_modified,
    )


def _appended(chat: Conversation, messages: Sequence[Message]) -> Appended:
    return Appended(
        uri=uri_of("chats", chat.id),
        conversation_id=chat.id,
        title=chat.title,
        message_ids=tuple(message.id for message in messages),
        message_count=chat.message_count,
    )


def _given(asked: Struct, *names: str) -> dict[str, Any]:
    """The fields that are set; one at least."""
    given = {name: value for name in names if (value := getattr(asked, name)) is not None}
    if not given:
        raise InvalidParams(f"{', '.join(names)}: got none of them, expected one at least")
    return given


# -- the tools ---------------------------------------------------------------------------------------------------------

_TOOLS = (
    _Declared(
        name="notes_create",
        title="Write a note",
        description=(
            "Write a new note. The answer has its id and version. "
            'Example: {"title": "Upgrade plan", "content": "Drain the node first.", "tags": ["work"]}'
        ),
        input=NotesCreate,
        write=_create_note,
    ),
    _Declared(
        name="notes_update",
        title="Change a note",
        description=(
            "Replace the title, text or tags of a note. With expected_version nobody's change is overwritten: if the "
            "note changed since, nothing is written and the answer tells the version it has now. "
            'Example: {"note_id": "6f1c…", "content": "Drain the node, then upgrade.", "expected_version": 3}'
        ),
        input=NotesUpdate,
        write=_update_note,
        hints=_REPLACES,
    ),
    _Declared(
        name="notes_append",
        title="Add to a note",
        description=(
            "Add a text at the end of a note, on a line of its own. "
            'Example: {"note_id": "6f1c…", "text": "- rolled back on Friday", "idempotency_key": "friday-1"}'
        ),
        input=NotesAppend,
        write=_append_to_note,
    ),
    _Declared(
        name="notes_delete",
        title="Delete a note",
        description=(
            "Delete a note: nothing shows it any more. It is hidden in the database, not erased. "
            'Example: {"note_id": "6f1c…", "expected_version": 3}'
        ),
        input=NotesDelete,
        write=_delete_note,
        output=Deleted,
        hints=_SETTLES,
    ),
    _Declared(
        name="chats_append",
        title="Keep messages",
        description=(
            "Write messages at the end of a conversation, or without conversation_id into a new one. "
            'Example: {"title": "Lisbon", "messages": [{"role": "user", "content": "When is the flight?"}, '
            '{"role": "assistant", "content": "Friday, 10:40."}], "idempotency_key": "turn-7"}'
        ),
        input=ChatsAppend,
        write=_append_messages,
        output=Appended,
    ),
    _Declared(
        name="prompts_save",
        title="Save a prompt",
        description=(
            "Save a prompt under its name: the one of that name is updated, or else it is new (version 1). "
            'Example: {"name": "Code review", "user_prompt": "Review {{diff}} for errors.", '
            '"arguments": [{"name": "diff", "required": true}]}'
        ),
        input=PromptsSave,
        write=_save_prompt,
        hints=_REPLACES,
    ),
    _Declared(
        name="media_add_text",
        title="Keep a text",
        description=(
            "Keep a long text as a media item, such as an article or a transcript; media_search finds its passages. "
            'Example: {"title": "On drift", "text": "Clocks drift apart…", "url": "https://example.org/drift"}'
        ),
        input=MediaAddText,
        write=_add_text,
    ),
    _Declared(
        name="items_tag",
        title="Tag an item",
        description=(
            "Add tags to an item of any source, or remove some. "
            'Example: {"uri": "notes://6f1c…", "add": ["work"], "remove": ["inbox"]}'
        ),
        input=ItemsTag,
        write=_tag_item,
        hints=_SETTLES,
    ),
)
