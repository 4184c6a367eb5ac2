"""ChatGPT: its data export, and the database of the viewer chatGPT-browser.

Both give a conversation the same id. The export contains more, so importing it later adds what the viewer left out.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from msgspec import UNSET, Raw

from config.errors import InvalidParams
from sources.drafts import MessageDraft
from sources.importers.engine import chat_messages
from sources.importers.engine.chat_messages import EMPTY_MESSAGE, MessageTree, SkipMessage
from sources.importers.engine.events import FailedItem, SkippedItem, report_failure, stable_uuid
from sources.importers.engine.file_probe import is_json
from sources.importers.engine.importer import Events, ExportImporter, FileImporter, FileProbe, ImportLimits, InputFile
from sources.importers.engine.input_file import base_name
from sources.importers.engine.json_stream import decode_apart, decode_fields, decode_object, require_depth
from sources.importers.engine.table_reader import TableReader, TableSpec, table_columns
from sources.importers.engine.values import Fields, clean_line, require_storable, texts, to_json, valid_uuid

# -- data export -------------------------------------------------------------------------------------------------------
# ChatGPT exports: a zip with `conversations.json` or its shards, or one of these files alone.
#
# Every node with content becomes a message. Edited and regenerated messages are kept as alternate branches; the path
# that the export marks as current is canonical. Media files stay in the zip; messages refer to them by name, and their
# text has a short description. Content of an unknown type is kept as JSON, so that nothing is lost.

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


def content_text(content: Fields) -> str:
    content_type = content.line("content_type")
    if content_type in _TEXT_FIELDS:
        return _join_fields(content, _TEXT_FIELDS[content_type])
    if content_type == "thoughts":
        thoughts = content.objects("thoughts")
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


_ROLES = frozenset(("user", "assistant", "system", "tool"))
# Files found next to the conversations in ChatGPT exports only.
_COMPANIONS = frozenset(("chat.html", "user.json", "export_manifest.json", "message_feedback.json"))
# The most attachments or citations of one message, and the longest value of their fields.
_LINKS_MAX = 100
_LINK_CHARS = 2_000

_SYSTEM_MESSAGE = "system message"


class ChatGptImporter(ExportImporter):
    name = "chatgpt"
    title = "ChatGPT export"
    noun = "chat"
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        names = {base_name(name) for name in probe.names}
        # Claude.ai and DeepSeek name their files `conversations.json`, too.
        if any(map(self.is_export_file, names)) and names & _COMPANIONS:
            return 0.95
        head = probe.first_bytes(self.is_export_file)
        return 0.9 if is_json(head, b'"mapping"') and b'"chat_messages"' not in head else 0.0

    def is_export_file(self, name: str) -> bool:
        return fnmatchcase(base_name(name), "conversations*.json")

    def read_object(self, data: bytes, location: str, limits: ImportLimits) -> Events:
        conversation, mapping = decode_apart(data, "mapping")
        nodes: dict[str, Fields] = {}
        messages: dict[str, Fields] = {}
        drafts: dict[str, MessageDraft] = {}
        for key, raw in decode_object(mapping, dict[str, Raw]).items():
            nodes[key] = Fields()
            try:
                if bytes(raw) == b"null":
                    continue
                # The message by itself, so that a malformed one keeps its position.
                nodes[key], message = decode_apart(raw, "message")
                if bytes(message) != b"null":
                    messages[key] = decode_fields(message)
                    drafts[key] = _message_draft(messages[key], conversation.line("default_model_slug"), limits)
            except SkipMessage as skip:
                yield SkippedItem(skip.reason)
            except InvalidParams as error:
                yield FailedItem(f"{location}, message {key[:40]}", error.message)
        # A node that names no parent gets the one that lists it as a child. Siblings keep the order in which their
        # parent lists them.
        listed = {child: key for key, node in nodes.items() for child in node.texts("children") if child in nodes}
        parents: dict[str, str | None] = {}
        for key in (*listed, *nodes):
            parent = nodes[key].get("parent")
            parents[key] = parent if isinstance(parent, str) and parent in nodes else listed.get(key)
        tree = MessageTree(parents)
        # A conversation without an id is identified by its creation time and root node.
        root = next((key for key, node in nodes.items() if node.get("parent") is None), "")
        own_id = conversation.text("conversation_id", "id")
        uuid = conversation_uuid(own_id or f"{conversation.get('create_time')}\0{root}")
        path = _canonical_path(tree, conversation.get("current_node"), messages, drafts)
        draft = chat_messages.conversation_draft(
            "chatgpt",
            uuid,
            conversation.line("title"),
            created=conversation.time("create_time"),
            modified=conversation.time("update_time"),
            model=conversation.line("default_model_slug"),
            gizmo_id=conversation.line("gizmo_id"),
            project_id=conversation.line("conversation_template_id"),
            is_archived=conversation.get("is_archived") is True,
            is_starred=conversation.get("is_starred") is True,
        )
        threaded = tree.messages(path, drafts, partial(message_uuid, uuid), draft.created_at)
        yield from chat_messages.conversation_parts(draft, threaded)


# Both formats give a message the same id.
message_uuid = partial(chat_messages.message_id, "chatgpt")


def conversation_uuid(key: str) -> str:
    return valid_uuid(key) or stable_uuid("chatgpt", "conversation", key)


def _canonical_path(
    tree: MessageTree, current: Any, messages: Mapping[str, Fields], drafts: Mapping[str, MessageDraft]
) -> tuple[str, ...]:
    """Returns the path to the current node. If that is missing, or no message on its path is imported, the leaf with
    the greatest weight, and among those the newest, is used."""
    path = tuple(tree.path_to(current)) if isinstance(current, str) else ()
    if any(key in drafts for key in path):
        return path

    def rank(key: str) -> tuple[float, str]:
        weight = messages[key].get("weight")
        return weight if isinstance(weight, int | float) else 1.0, messages[key].time("create_time") or ""

    return tuple(tree.path_to(max((key for key in tree.leaves() if key in messages), key=rank, default=None)))


def _message_draft(message: Fields, default_model: str, limits: ImportLimits) -> MessageDraft:
    author, metadata = (
        Fields() if message.get(name) is None else Fields.require(message[name], f"{name}: expected an object")
        for name in ("author", "metadata")
    )
    content = message.nested("content") or Fields(parts=[message.get("content")])
    content_type = content.line("content_type") or "text"
    role = author.line("role")
    role = role if role in _ROLES or not role else "tool"
    # Hidden and system messages are skipped, except custom instructions: ChatGPT hides them in every conversation, but
    # the user wrote them.
    is_written_by_user = metadata.get("is_user_system_message") is True or content_type == "user_editable_context"
    if metadata.get("is_visually_hidden_from_conversation") is True and not is_written_by_user:
        raise SkipMessage("hidden message")
    if role == "system" and not is_written_by_user:
        raise SkipMessage(_SYSTEM_MESSAGE)
    text = content_text(content)
    if not text.strip():
        raise SkipMessage(EMPTY_MESSAGE)
    require_storable(text, limits)
    # The tool that wrote the message, or the one that it is addressed to.
    recipient = message.line("recipient") if message.get("recipient") != "all" else ""
    content_metadata: dict[str, Any] = {} if content_type == "text" else {"content_type": content_type}
    if channel := message.line("channel"):
        content_metadata["channel"] = channel
    if message.get("weight") == 0:
        content_metadata["weight"] = 0
    uploads = [_select_fields(one, ("id", "name", "size", "mime_type")) for one in metadata.objects("attachments")]
    # Several places of a text may refer to the same page.
    references = [citation.get("metadata") for citation in metadata.objects("citations")]
    for reference in metadata.objects("content_references"):
        references += [reference, *reference.objects("items")]
    links = [_select_fields(reference, ("title", "url")) for reference in Fields.each(references)]
    asset_fields = ("content_type", "asset_pointer", "width", "height", "size_bytes")
    assets = (part for part in content.objects("parts") if "asset_pointer" in part)
    return MessageDraft(
        role=role,
        sender=author.line("name") or role,
        content=text,
        model=metadata.line("model_slug") or (default_model if role == "assistant" else "") or None,
        tool=(author.line("name") if role == "tool" else recipient) or None,
        attachments=[*uploads, *(_select_fields(part, asset_fields) for part in assets)][:_LINKS_MAX],
        citations=list({link["url"]: link for link in links if link.get("url")}.values())[:_LINKS_MAX],
        metadata=content_metadata,
        created_at=message.time("create_time") or UNSET,
    )


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

_CONVERSATIONS = TableSpec("conversations", ("id", "title"), ("create_time", "update_time"))
_MESSAGES = TableSpec(
    "messages", ("id", "conversation_id", "role", "content", "create_time"), ("parent_id", "position")
)
_MODELS = TableSpec("message_metadata", ("message_id", "model_slug"))
_BROWSER_TABLES = (_CONVERSATIONS, _MESSAGES)
# Messages of the working database name their parents, those of the export are numbered.
_ORDER_COLUMNS = frozenset(("parent_id", "position"))


class ChatGptBrowserImporter(FileImporter):
    name = "chatgpt_browser"
    title = "chatGPT-browser database"
    suffixes = (".db", ".sqlite", ".sqlite3")

    def recognizes(self, probe: FileProbe) -> float:
        # Many databases have tables of these names, so the columns decide.
        if not probe.has_tables(*_BROWSER_TABLES):
            return 0.0
        return 0.9 if table_columns(probe.path, "messages")["messages"] & _ORDER_COLUMNS else 0.0

    def read_file(self, file: InputFile) -> Events:
        with file.open_database() as reader:
            columns = reader.columns("messages") if all(map(reader.has, _BROWSER_TABLES)) else frozenset()
            if not columns & _ORDER_COLUMNS:
                raise InvalidParams("not a chatGPT-browser database")
            reader.expect_rows(_MESSAGES)
            # Counted down with each conversation that has messages.
            empty = reader.count(_CONVERSATIONS)
            order_column = "rowid" if "parent_id" in columns else "position"
            for key, rowids in reader.grouped_rowids(_MESSAGES, "conversation_id", order_column):
                conversation = next(iter(reader.rows_where(_CONVERSATIONS, "id", key)), None)
                empty -= conversation is not None
                if conversation is None or not isinstance(key, str):
                    yield from (SkippedItem("message without a conversation") for _ in rowids)
                    continue
                events = _read_viewer_conversation(reader, conversation, rowids)
                yield from report_failure(f"conversation {key[:40]}", events)
            yield from (SkippedItem("conversation without messages") for _ in range(empty))


def _read_viewer_conversation(reader: TableReader, conversation: Fields, rowids: Iterable[int]) -> Events:
    parents: dict[str, str | None] = {}
    times: dict[str, str] = {}
    drafts: dict[str, MessageDraft] = {}
    is_numbered, chars = "parent_id" not in reader.columns("messages"), 0
    for rowid in rowids:
        row = reader.row(_MESSAGES, rowid)
        # The messages of a conversation are held until its branches are known, so their length is limited.
        chars += len(row.text("content"))
        if chars > reader.limits.line_max_bytes:
            raise InvalidParams(f"conversation is longer than {reader.limits.line_max_bytes} characters")
        reader.step()
        key = row.line("id") or f"row {rowid}"
        parents[key] = next(reversed(parents), None) if is_numbered else row.line("parent_id")
        times[key] = row.time("create_time") or ""
        try:
            role = row.line("role")
            if role == "system":
                raise SkipMessage(_SYSTEM_MESSAGE)
            text = _content_text(row.text("content"), reader.limits)
            if not text.strip():
                raise SkipMessage(EMPTY_MESSAGE)
            require_storable(text, reader.limits)
            role = role if role in _ROLES or not role else "tool"
            models = reader.rows_where(_MODELS, "message_id", key)
            drafts[key] = MessageDraft(
                role=role,
                sender=role,
                content=text,
                model=models[0].line("model_slug") or None if models else None,
                created_at=times[key] or UNSET,
            )
        except SkipMessage as skip:
            yield SkippedItem(skip.reason)
        except InvalidParams as error:
            yield FailedItem(f"conversation {conversation['id'][:40]}, message {key[:40]}", error.message)
    created, modified = conversation.time("create_time"), conversation.time("update_time")
    if not reader.columns("conversations") >= {"create_time", "update_time"}:
        known = sorted(filter(None, times.values()))
        created, modified = (known[0], known[-1]) if known else (None, None)
    uuid = conversation_uuid(conversation["id"])
    draft = chat_messages.conversation_draft(
        "chatgpt_browser", uuid, conversation.line("title"), created=created, modified=modified
    )
    tree = MessageTree(parents)
    # The database does not store the branch last seen. Like the viewer, take the one with the newest message.
    path = tree.path_to(max(tree.leaves(), key=lambda leaf: times[leaf], default=None))
    threaded = tree.messages(path, drafts, partial(message_uuid, uuid), draft.created_at)
    yield from chat_messages.conversation_parts(draft, threaded)


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
