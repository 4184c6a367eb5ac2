"""ChatGPT: its data export, and the database of the viewer chatGPT-browser.

Both give a conversation the same id. The export contains more, so importing it later adds what the viewer left out.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.chat_messages import (
    MessageTree,
    SkipMessage,
    conversation_draft,
    conversation_parts,
    thread_messages,
)
from sources.importers.engine.export_files import base_name, first_bytes, is_in_unpacked_export, is_json, read_export
from sources.importers.engine.files import FailedItem, SkippedItem, stable_uuid
from sources.importers.engine.importer import Events, FileProbe, Importer, ImportLimits, ProgressCallback, StartPosition
from sources.importers.engine.json_stream import decode_object, require_depth
from sources.importers.engine.table_reader import columns_of, is_database, open_database, table_columns
from sources.importers.engine.values import (
    clean_line,
    objects,
    require_storable,
    stored_time,
    text_or_empty,
    texts,
    to_json,
    valid_uuid,
)

# -- data export -------------------------------------------------------------------------------------------------------
# ChatGPT exports: a zip with `conversations.json` or its shards, or one of these files alone.
#
# Every node with content becomes a message. Edited and regenerated messages are kept as alternate branches; the path
# that the export marks as current is canonical. Media files stay in the zip; messages refer to them by name.

# -- content -----------------------------------------------------------------------------------------------------------
# The content of a ChatGPT message as plain text. Media are replaced by a short description; content of an unknown type
# is kept as JSON, so that nothing is lost.

_MEDIA_LABELS = {
    "image_asset_pointer": "image",
    "audio_asset_pointer": "audio",
    "real_time_user_audio_video_asset_pointer": "audio and video",
    "video_container_asset_pointer": "video",
}
# The fields with text, by content type.
_TEXT_FIELDS: Mapping[str, tuple[str, ...]] = {
    "code": ("text",),
    "execution_output": ("text",),
    "tether_quote": ("title", "url", "text"),
    "tether_browsing_display": ("result", "summary"),
    "sonic_webpage": ("title", "url", "text"),
    "user_editable_context": ("user_profile", "user_instructions"),
    "model_editable_context": ("model_set_context",),
    "reasoning_recap": ("content",),
    "system_error": ("name", "text"),
}


def content_text(content: Mapping[str, Any]) -> str:
    content_type = clean_line(content.get("content_type"))
    if content_type in _TEXT_FIELDS:
        return _join_fields(content, _TEXT_FIELDS[content_type])
    if content_type == "thoughts":
        thoughts = objects(content.get("thoughts"))
        return "\n\n".join(_join_fields(thought, ("summary", "content")) for thought in thoughts)
    if isinstance(content.get("parts"), list):
        return parts_text(content["parts"])
    if isinstance(content.get("text"), str):
        return str(content["text"])
    rest = {name: value for name, value in content.items() if name != "content_type" and value not in (None, "", [])}
    # Content of a type that is not known is kept as it is.
    return to_json(rest) if rest else ""


def parts_text(parts: Any) -> str:
    """Joins the parts of a message, which are strings or objects."""
    found: list[str] = []
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            found.append(part["text"])
        elif isinstance(part, dict) and part:
            label = _MEDIA_LABELS.get(clean_line(part.get("content_type")))
            # A generated image has the text that it was made from.
            prompt: Any = part
            for name in ("metadata", "dalle", "prompt"):
                prompt = prompt.get(name) if isinstance(prompt, dict) else None
            if label is None:
                found.append(to_json(part))
            else:
                found.append(f"[{label}: {prompt}]" if isinstance(prompt, str) and prompt else f"[{label}]")
    return "\n".join(filter(None, found))


def _join_fields(content: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return "\n".join(texts([content.get(name) for name in names]))


_EXPORT_ROLES = frozenset(("user", "assistant", "system", "tool"))
# Files found next to the conversations in ChatGPT exports only.
_COMPANIONS = frozenset(("chat.html", "user.json", "export_manifest.json", "message_feedback.json"))
# The most attachments or citations of one message, and the longest value of their fields.
_LINKS_MAX = 100
_LINK_CHARS = 2_000
_NULL = Raw(b"null")

EMPTY_MESSAGE, HIDDEN_MESSAGE, SYSTEM_MESSAGE = "empty message", "hidden message", "system message"


class ChatGptImporter(Importer):
    name = "chatgpt"
    title = "ChatGPT export"
    suffixes = (".zip", ".json")
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        names = {base_name(name) for name in probe.names}
        # Claude.ai and DeepSeek name their files `conversations.json`, too.
        if any(map(_is_export_file, names)) and names & _COMPANIONS:
            return 0.95
        if probe.is_folder:
            return 0.0
        head = first_bytes(probe, _is_export_file)
        return 0.9 if is_json(head) and b'"mapping"' in head and b'"chat_messages"' not in head else 0.0

    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        read = partial(_read_conversation, limits=limits)
        yield from read_export(path, limits, progress, _is_export_file, "chat", read)

    def reads_from_folder(self, name: str) -> bool:
        return is_in_unpacked_export(name, _is_export_file)


class _ChatGptAuthor(Struct, frozen=True):
    role: Any = None
    name: Any = None


class _ChatGptMetadata(Struct, frozen=True):
    """The metadata of a message that is imported."""

    model_slug: Any = None
    attachments: Any = None
    citations: Any = None
    content_references: Any = None
    is_visually_hidden_from_conversation: Any = None
    is_user_system_message: Any = None


class _ChatGptMessage(Struct, frozen=True):
    author: _ChatGptAuthor | None = None
    create_time: Any = None
    content: Any = None
    weight: Any = None
    recipient: Any = None
    channel: Any = None
    metadata: _ChatGptMetadata | None = None


class _ChatGptNode(Struct, frozen=True):
    """A node of the message tree. Its message is decoded separately, so that a malformed one keeps its position."""

    parent: Any = None
    children: Any = None
    message: Raw = _NULL


class _ChatGptConversation(Struct, frozen=True):
    mapping: dict[str, Raw]
    id: Any = None
    conversation_id: Any = None
    title: Any = None
    create_time: Any = None
    update_time: Any = None
    current_node: Any = None
    default_model_slug: Any = None
    gizmo_id: Any = None
    conversation_template_id: Any = None
    is_archived: Any = None
    is_starred: Any = None


def message_uuid(conversation: str, key: str) -> str:
    """Includes the conversation, because a branched conversation repeats the message ids of the original."""
    return stable_uuid("chatgpt", "message", f"{conversation}\0{key}")


def conversation_uuid(key: str) -> str:
    return valid_uuid(key) or stable_uuid("chatgpt", "conversation", key)


def _is_export_file(name: str) -> bool:
    return fnmatchcase(base_name(name), "conversations*.json")


def _read_conversation(data: bytes, location: str, limits: ImportLimits) -> Events:
    conversation = decode_object(data, _ChatGptConversation)
    nodes: dict[str, _ChatGptNode] = {}
    messages: dict[str, _ChatGptMessage] = {}
    drafts: dict[str, MessageDraft] = {}
    for key, raw in conversation.mapping.items():
        try:
            # One by one, so that a malformed node does not cost the others.
            nodes[key] = _ChatGptNode() if _is_null(raw) else decode_object(raw, _ChatGptNode)
            if not _is_null(nodes[key].message):
                messages[key] = decode_object(nodes[key].message, _ChatGptMessage)
                drafts[key] = _message_draft(messages[key], conversation.default_model_slug, limits)
        except SkipMessage as skip:
            yield SkippedItem(skip.reason)
        except InvalidParams as error:
            yield FailedItem(f"{location}, message {key[:40]}", error.message)
            nodes.setdefault(key, _ChatGptNode())
    # A node that names no parent gets the one that lists it as a child. Siblings keep the order in which their parent
    # lists them.
    listed = {child: key for key, node in nodes.items() for child in texts(node.children) if child in nodes}
    parents: dict[str, str | None] = {}
    for key in (*listed, *nodes):
        parent = nodes[key].parent
        parents[key] = parent if isinstance(parent, str) and parent in nodes else listed.get(key)
    tree = MessageTree(parents)
    ids = (key for key in (conversation.conversation_id, conversation.id) if isinstance(key, str) and key)
    # A conversation without an id is identified by its creation time and root node.
    root = next((key for key, node in nodes.items() if node.parent is None), "")
    uuid = conversation_uuid(next(ids, f"{conversation.create_time}\0{root}"))
    path = _canonical_path(tree, conversation.current_node, messages, drafts)
    draft = conversation_draft(
        "chatgpt",
        uuid,
        clean_line(conversation.title),
        created=stored_time(conversation.create_time),
        modified=stored_time(conversation.update_time),
        model=clean_line(conversation.default_model_slug),
        gizmo_id=clean_line(conversation.gizmo_id),
        project_id=clean_line(conversation.conversation_template_id),
        is_archived=conversation.is_archived is True,
        is_starred=conversation.is_starred is True,
    )
    threaded = thread_messages(tree, path, drafts, lambda key: message_uuid(uuid, key), draft.created_at)
    yield from conversation_parts(draft, threaded)


def _is_null(raw: Raw) -> bool:
    return bytes(raw) == b"null"


def _canonical_path(
    tree: MessageTree, current: Any, messages: Mapping[str, _ChatGptMessage], drafts: Mapping[str, MessageDraft]
) -> tuple[str, ...]:
    """Returns the path to the current node. If that is missing, or no message on its path is imported, the leaf with
    the greatest weight, and among those the newest, is used."""
    path = tuple(tree.path_to(current)) if isinstance(current, str) else ()
    if any(key in drafts for key in path):
        return path

    def rank(key: str) -> tuple[float, str]:
        weight = messages[key].weight
        return weight if isinstance(weight, int | float) else 1.0, stored_time(messages[key].create_time) or ""

    return tuple(tree.path_to(max((key for key in tree.leaves() if key in messages), key=rank, default=None)))


def _message_draft(message: _ChatGptMessage, default_model: Any, limits: ImportLimits) -> MessageDraft:
    author, metadata = message.author or _ChatGptAuthor(), message.metadata or _ChatGptMetadata()
    content = message.content if isinstance(message.content, dict) else {"parts": [message.content]}
    content_type = clean_line(content.get("content_type")) or "text"
    role = clean_line(author.role)
    role = role if role in _EXPORT_ROLES or not role else "tool"
    # Hidden and system messages are skipped, except custom instructions: ChatGPT hides them in every conversation, but
    # the user wrote them.
    if metadata.is_user_system_message is True or content_type == "user_editable_context":
        reason = None
    elif metadata.is_visually_hidden_from_conversation is True:
        reason = HIDDEN_MESSAGE
    else:
        reason = SYSTEM_MESSAGE if role == "system" else None
    if reason:
        raise SkipMessage(reason)
    text = content_text(content)
    if not text.strip():
        raise SkipMessage(EMPTY_MESSAGE)
    require_storable(text, limits)
    # The tool that wrote the message, or the one that it is addressed to.
    recipient = clean_line(message.recipient) if message.recipient != "all" else ""
    content_metadata: dict[str, Any] = {} if content_type == "text" else {"content_type": content_type}
    if channel := clean_line(message.channel):
        content_metadata["channel"] = channel
    if message.weight == 0:
        content_metadata["weight"] = 0
    uploads = [_select_fields(one, ("id", "name", "size", "mime_type")) for one in objects(metadata.attachments)]
    asset_fields = ("content_type", "asset_pointer", "width", "height", "size_bytes")
    assets = (part for part in objects(content.get("parts")) if "asset_pointer" in part)
    return MessageDraft(
        role=role,
        sender=clean_line(author.name) or role,
        content=text,
        model=clean_line(metadata.model_slug) or (clean_line(default_model) if role == "assistant" else "") or None,
        tool=(clean_line(author.name) if role == "tool" else recipient) or None,
        attachments=[*uploads, *(_select_fields(part, asset_fields) for part in assets)][:_LINKS_MAX],
        citations=_citations(metadata),
        metadata=content_metadata,
        created_at=stored_time(message.create_time) or UNSET,
    )


def _citations(metadata: _ChatGptMetadata) -> Sequence[Mapping[str, Any]]:
    references = [citation.get("metadata") for citation in objects(metadata.citations)]
    for reference in objects(metadata.content_references):
        references += [reference, *objects(reference.get("items"))]
    links = [_select_fields(reference, ("title", "url")) for reference in objects(references)]
    # Several places of a text may refer to the same page.
    return list({link["url"]: link for link in links if link.get("url")}.values())[:_LINKS_MAX]


def _select_fields(fields: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Returns the named fields that are numbers or non-empty strings, with strings shortened."""
    selected: dict[str, Any] = {}
    for name in names:
        value = fields.get(name)
        if isinstance(value, int | float):
            selected[name] = value
        elif isinstance(value, str) and value:
            selected[name] = clean_line(value)[:_LINK_CHARS]
    return selected


# -- chatGPT-browser ---------------------------------------------------------------------------------------------------
# Databases of chatGPT-browser, a viewer for ChatGPT exports: its working database, whose conversations branch, and its
# canonical export, whose messages are numbered. Conversations keep their ChatGPT ids.
#
# The databases that origin_conversation searches have the same tables; some of them have no times for conversations.

_CONVERSATION_COLUMNS = frozenset(("id", "title"))
_CONVERSATION_TIMES = frozenset(("create_time", "update_time"))
_MESSAGE_COLUMNS = frozenset(("id", "conversation_id", "role", "content", "create_time"))
_BROWSER_ROLES = frozenset(("user", "assistant", "system", "tool"))

# The queries depend on the column that orders messages. The file has no index on conversations: the short keys are
# sorted first, and rows are then read by rowid.
_ROWIDS = {
    "parent_id": "SELECT conversation_id, rowid FROM messages ORDER BY conversation_id, rowid",
    "position": "SELECT conversation_id, rowid FROM messages ORDER BY conversation_id, position, rowid",
}
_MESSAGE = {
    "parent_id": "SELECT id, role, content, create_time, parent_id FROM messages WHERE rowid = ?",
    "position": "SELECT id, role, content, create_time, NULL FROM messages WHERE rowid = ?",
}
# By whether conversations have times. Without them, those of their first and last message are used.
_CONVERSATION = {
    True: "SELECT title, create_time, update_time FROM conversations WHERE id = ?",
    False: "SELECT title, NULL, NULL FROM conversations WHERE id = ?",
}
_EMPTY_CONVERSATIONS = """
    SELECT count(*) FROM conversations
    WHERE id NOT IN (SELECT conversation_id FROM messages WHERE conversation_id IS NOT NULL)
"""
_MODEL = "SELECT model_slug FROM message_metadata WHERE message_id = ?"


class ChatGptBrowserImporter(Importer):
    name = "chatgpt_browser"
    title = "chatGPT-browser database"
    suffixes = (".db", ".sqlite", ".sqlite3")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder or not is_database(probe):
            return 0.0
        # Many databases have tables of these names, so the columns decide.
        columns = table_columns(probe.path, "conversations", "messages")
        return 0.9 if _order_column(columns["conversations"], columns["messages"]) else 0.0

    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        with open_database(path, limits) as connection:
            order_column = _order_column(columns_of(connection, "conversations"), columns_of(connection, "messages"))
            if order_column is None:
                raise InvalidParams("not a chatGPT-browser database")
            reader = _ViewerDatabase(connection, order_column, limits)
            size, rows_read, rows_total = path.stat().st_size, 0, reader.message_count()
            for key, rowids in reader.conversations():
                yield from reader.read_conversation(key, rowids)
                rows_read += len(rowids)
                progress(size * rows_read // rows_total)
            yield from reader.empty_conversations()


def _order_column(conversations: frozenset[str], messages: frozenset[str]) -> str | None:
    """Returns the column that orders messages, which depends on the kind of database; None for other databases."""
    if not (conversations >= _CONVERSATION_COLUMNS and messages >= _MESSAGE_COLUMNS):
        return None
    return next((column for column in ("parent_id", "position") if column in messages), None)


class _ViewerThread(Struct):
    """The messages of one conversation, by key."""

    parents: dict[str, str | None] = {}
    times: dict[str, str] = {}
    drafts: dict[str, MessageDraft] = {}


class _ViewerDatabase:
    def __init__(self, connection: sqlite3.Connection, order_column: str, limits: ImportLimits) -> None:
        self._connection = connection
        self._order_column = order_column
        self._limits = limits
        self._has_times = columns_of(connection, "conversations") >= _CONVERSATION_TIMES
        self._has_models = columns_of(connection, "message_metadata") >= {"message_id", "model_slug"}

    def message_count(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM messages").fetchone()[0])

    def conversations(self) -> Iterator[tuple[Any, Sequence[int]]]:
        """Yields the id of each conversation with the rowids of its messages."""
        rows = self._connection.execute(_ROWIDS[self._order_column])
        for key, group in groupby(rows, key=lambda row: row[0]):
            yield key, [rowid for _, rowid in group]

    def empty_conversations(self) -> Iterator[SkippedItem]:
        (count,) = self._connection.execute(_EMPTY_CONVERSATIONS).fetchone()
        yield from (SkippedItem("conversation without messages") for _ in range(count))

    def read_conversation(self, key: Any, rowids: Sequence[int]) -> Events:
        row = self._connection.execute(_CONVERSATION[self._has_times], (key,)).fetchone()
        if row is None or not isinstance(key, str):
            yield from (SkippedItem("message without a conversation") for _ in rowids)
            return
        title, create_time, update_time = row
        draft = ConversationDraft(
            uuid=conversation_uuid(key),
            title=clean_line(title),
            metadata={"imported_from": "chatgpt_browser"},
            created_at=stored_time(create_time) or UNSET,
            last_modified=stored_time(update_time) or UNSET,
        )
        thread = _ViewerThread()
        location = f"conversation {key[:40]}"
        try:
            yield from self._read_messages(rowids, thread, location)
        except InvalidParams as error:
            yield FailedItem(location, error.message)
            return
        if not self._has_times:
            times = sorted(filter(None, thread.times.values()))
            draft = replace(draft, created_at=times[0], last_modified=times[-1]) if times else draft
        tree = MessageTree(thread.parents)
        # The database does not store the branch last seen. Like the viewer, take the one with the newest message.
        newest = max(tree.leaves(), key=lambda leaf: thread.times[leaf], default=None)
        uuid = str(draft.uuid)
        threaded = thread_messages(
            tree, tree.path_to(newest), thread.drafts, lambda message: message_uuid(uuid, message), draft.created_at
        )
        yield from conversation_parts(draft, threaded)

    def _read_messages(
        self, rowids: Sequence[int], thread: _ViewerThread, location: str
    ) -> Iterator[SkippedItem | FailedItem]:
        """Adds the messages to the thread, and yields reports of those that are left out."""
        chars, previous = 0, None
        for rowid in rowids:
            row = self._connection.execute(_MESSAGE[self._order_column], (rowid,)).fetchone()
            key, message_role, content, create_time, parent = row
            key, content, created_at = (
                clean_line(key) or f"row {rowid}",
                text_or_empty(content),
                stored_time(create_time),
            )
            thread.parents[key] = previous if self._order_column == "position" else clean_line(parent)
            thread.times[key] = created_at or ""
            previous = key
            chars += len(content)
            # The drafts of a conversation are held until its branches are known.
            if chars > self._limits.line_max_bytes:
                raise InvalidParams(f"conversation is longer than {self._limits.line_max_bytes} characters")
            try:
                role = clean_line(message_role)
                if role == "system":
                    raise SkipMessage(SYSTEM_MESSAGE)
                text = _content_text(content, self._limits)
                if not text.strip():
                    raise SkipMessage(EMPTY_MESSAGE)
                require_storable(text, self._limits)
                role = role if role in _BROWSER_ROLES or not role else "tool"
                model = self._connection.execute(_MODEL, (key,)).fetchone() if self._has_models else None
                thread.drafts[key] = MessageDraft(
                    role=role,
                    sender=role,
                    content=text,
                    model=clean_line(model[0]) or None if model else None,
                    created_at=created_at or UNSET,
                )
            except SkipMessage as skip:
                yield SkippedItem(skip.reason)
            except InvalidParams as error:
                yield FailedItem(f"{location}, message {key[:40]}", error.message)


def _content_text(content: str, limits: ImportLimits) -> str:
    """The viewer stores the parts of a message as a JSON list; some of its versions stored plain text."""
    if not content.startswith("["):
        return content
    # Text that only looks like JSON is kept as it is.
    data = content.encode("utf-8", "replace")
    try:
        require_depth(data, limits)
        parts = decode_object(data, list[Any])
    except InvalidParams:
        return content
    return parts_text(parts) if all(isinstance(part, str | dict) for part in parts) else content
