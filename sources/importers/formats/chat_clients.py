"""Chats of programs that talk to any model: Open WebUI, LibreChat and Chatbot UI; and plain lists of messages, the form
of data sets and of many other programs' exports.
"""

import io
import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

import msgspec
from msgspec import UNSET, structs

from config.errors import InvalidParams
from sources.drafts import NoteDraft, PromptDraft
from sources.importers.engine import chat_messages, events, values
from sources.importers.engine.chat_messages import ChatMessage, MessageBranches
from sources.importers.engine.events import FailedItem, ImportedNote, ImportedPrompt, SkippedItem
from sources.importers.engine.file_probe import is_json
from sources.importers.engine.importer import Events, FileImporter, FileProbe, ImportLimits, InputFile
from sources.importers.engine.json_stream import JsonElement, JsonScanner, element_object
from sources.importers.engine.table_reader import TableSpec
from sources.importers.engine.values import Fields

# -- Open WebUI --------------------------------------------------------------------------------------------------------
# Open WebUI: its database `webui.db` with chats, prompts and notes, and its JSON export of chats.

_CHATS = TableSpec(
    "chat", ("id", "user_id", "title", "chat", "created_at", "updated_at"), ("archived", "pinned", "meta", "folder_id")
)
_USERS = TableSpec("user", ("id", "name"), ("email",))
_PROMPTS = TableSpec("prompt", ("command", "title", "content"), ("user_id", "timestamp"))
_NOTES = TableSpec("note", ("id", "title", "data"), ("user_id", "created_at", "updated_at"))
_TABLES = (_CHATS, _PROMPTS, _NOTES)
# Times of notes are in nanoseconds; a number above this is not in milliseconds.
_NANOSECONDS_FROM = 1e16


class OpenWebUiImporter(FileImporter):
    name = "open_webui"
    title = "Open WebUI (webui.db, JSON)"
    suffixes = (".json", ".db", ".sqlite", ".sqlite3")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_database:
            return 0.9 if probe.has_tables(_CHATS) else 0.0
        has_ids = b'"currentId"' in probe.head or b'"childrenIds"' in probe.head
        return 0.9 if has_ids and probe.is_json(b'"chat"', b'"history"', b'"messages"') else 0.0

    def read_file(self, file: InputFile) -> Events:
        limits = file.limits
        if is_json(file.head()):
            for element in file.elements():
                yield from events.report_failure(f"chat {element.number}", _read_chat(element, limits, ""))
            return
        with file.open_database() as reader:
            reader.require((_CHATS,), "a database of Open WebUI")
            reader.expect_rows(*_TABLES)
            # One database serves all users of a server; if there are several, their names are kept.
            users = [reader.row(_USERS, rowid) for rowid in reader.rowids(_USERS)] if reader.has(_USERS) else []
            names = {row["id"]: row.line("name") for row in users}

            def read(table: TableSpec, row: Fields) -> Events:
                owner = names.get(row["user_id"], "") if len(names) > 1 else ""
                if table is _CHATS:
                    chat = Fields.require(values.json_or_none(row["chat"], limits), "chat: expected a JSON object")
                    fields = Fields({**row, "chat": chat, "meta": values.json_or_none(row["meta"], limits)})
                    yield from _read_chat(fields, limits, owner)
                elif table is _PROMPTS:
                    command = row.line("command")
                    yield _prompt(
                        "open_webui",
                        f"{row['user_id']}\0{command}",
                        row.text("content"),
                        limits,
                        name=row.line("title") or command.lstrip("/"),
                        author=owner,
                        metadata={"imported_from": "open_webui", "command": command},
                        created_at=row.time("timestamp") or UNSET,
                    )
                else:
                    text = Fields.of(values.json_or_none(row["data"], limits)).nested("content").text("md")
                    if not text.strip():
                        yield SkippedItem("empty note")
                        return
                    values.require_storable(text, limits)
                    draft = NoteDraft(
                        uuid=values.valid_uuid(row.line("id"))
                        or events.stable_uuid("open_webui", "notes", row.line("id")),
                        title=row.line("title"),
                        content=text,
                        metadata={"imported_from": "open_webui", **({"owner": owner} if owner else {})},
                        created_at=_webui_time(row["created_at"]) or UNSET,
                        last_modified=_webui_time(row["updated_at"]) or UNSET,
                    )
                    yield ImportedNote(draft)

            yield from reader.read_rows(_TABLES, read)


def _prompt(
    importer: str, key: str, text: str, limits: ImportLimits, uuid: str | None = None, **fields: Any
) -> ImportedPrompt | SkippedItem:
    if not text.strip():
        return SkippedItem("prompt without text")
    values.require_storable(text, limits)
    own_uuid = uuid or events.stable_uuid(importer, "prompts", key)
    return ImportedPrompt(PromptDraft(uuid=own_uuid, user_prompt=text, **fields))


def _read_chat(value: JsonElement | Fields, limits: ImportLimits, owner: str) -> Events:
    """Older versions exported the inner object alone."""
    fields = element_object(value, limits) if isinstance(value, JsonElement) else value
    chat = fields.nested("chat") if isinstance(fields.get("chat"), dict) else fields
    key = fields.line("id") or chat.line("id")
    if not key:
        raise InvalidParams("id: expected the id of the chat, got nothing")
    draft = chat_messages.conversation_draft(
        "open_webui",
        key,
        fields.line("title") or chat.line("title"),
        created=fields.time("created_at") or chat.time("timestamp"),
        modified=fields.time("updated_at"),
        tags=values.clean_tags([*fields.nested("meta").texts("tags"), *chat.texts("tags")]),
        owner=owner,
        models=list(chat.texts("models")),
        is_archived=bool(fields.get("archived")),
        is_pinned=bool(fields.get("pinned")),
    )
    # A tree of messages, and the key of the one shown last. Old chats have a list instead.
    history = chat.nested("history")
    messages: list[ChatMessage] = []
    if isinstance(tree := history.get("messages"), dict):
        for key, node in tree.items():
            if isinstance(node, dict):
                message = Fields(node)
                messages.append(_webui_message(values.clean_line(key), message, message.line("parentId") or None))
        current = history.line("currentId")
    else:
        for number, message in enumerate(chat.objects("messages"), 1):
            key = message.line("id") or str(number)
            messages.append(_webui_message(key, message, messages[-1].key if messages else None))
        current = None
    yield from chat_messages.conversation_with_branches("open_webui", draft, messages, limits, current)


def _webui_message(key: str, message: Fields, parent: str | None) -> ChatMessage:
    role = chat_messages.role_of(message.get("role"))
    files = (file.line("name") for file in message.objects("files"))
    sources = (source.nested("source") for name in ("sources", "citations") for source in message.objects(name))
    citations = ({"title": source.line("name"), "url": source.line("url")} for source in sources)
    return ChatMessage(
        key=key,
        role=role,
        text=chat_messages.content_text(message.get("content")),
        time=message.time("timestamp"),
        model=message.line("model") if role == "assistant" else "",
        parent=parent,
        attachments=tuple({"name": name} for name in files if name),
        citations=tuple(citation for citation in citations if citation["title"]),
    )


def _webui_time(value: object) -> str | None:
    return values.stored_time(value / 1e9 if isinstance(value, int | float) and value > _NANOSECONDS_FROM else value)


# -- LibreChat ---------------------------------------------------------------------------------------------------------
# Conversations exported by LibreChat as JSON: messages in a list, or each message inside the one that it answers.

_LIBRECHAT_MARKS = (re.compile(rb'"conversationId"\s*:'), re.compile(rb'"messages(?:Tree)?"\s*:\s*\['), b'"endpoint"')
# The lists that contain messages: that of the conversation, and the answers to a message.
_MESSAGE_LISTS = (b"messages", b"messagesTree", b"children")
# Two levels for each message of the longest branch.
_TREE_DEPTH_MAX = 20_000
_OUTPUT_CHARS = 4_000
# Shorter objects are not messages.
_MESSAGE_MIN_BYTES = len('{"messageId":""}')


class LibreChatImporter(FileImporter):
    name = "librechat"
    title = "LibreChat conversation (JSON)"
    suffixes = (".json",)

    def recognizes(self, probe: FileProbe) -> float:
        return 0.9 if probe.is_json(b'"messageId"', *_LIBRECHAT_MARKS) else 0.0

    def read_file(self, file: InputFile) -> Events:
        limits = file.limits
        parts = list(split_messages(file.content(), limits))
        conversation = Fields.require(values.parse_json(parts[0], limits), "expected an exported conversation")
        branches, times = MessageBranches("librechat", limits), list[str]()
        for number, part in enumerate(parts[1:], 1):
            try:
                fields = Fields.require(values.parse_json(part, limits), "expected a message")
            except InvalidParams as error:
                yield FailedItem(f"message {number}", error.message)
                continue
            is_user = fields.get("isCreatedByUser") is True
            # Newer versions store the parts of an answer: texts, reasoning, and calls of tools with their output.
            blocks = "\n\n".join(filter(None, map(_block_text, fields.objects("content"))))
            files = [one for one in fields.objects("files") if one.line("filename")]
            message = ChatMessage(
                key=fields.line("messageId") or str(number),
                role="user" if is_user else "assistant",
                sender=fields.line("sender"),
                text=fields.text("text") or blocks,
                time=fields.time("createdAt"),
                model="" if is_user else fields.line("model"),
                parent=fields.line("parentMessageId") or None,
                attachments=tuple({"name": one.line("filename"), "type": one.line("type")} for one in files),
                metadata=values.compact_metadata(is_error=fields.get("error") is True or None),
            )
            yield from branches.add(message)
            times += [message.time] if message.time else []
        options = conversation.get("options")
        draft = chat_messages.conversation_draft(
            "librechat",
            conversation.line("conversationId") or file.key,
            conversation.line("title"),
            created=min(times, default=None),
            modified=max(times, default=None),
            endpoint=conversation.line("endpoint"),
            options=options if isinstance(options, Mapping) else None,
        )
        yield from branches.conversation(draft)


class _OpenObject:
    """An object or list whose end has not been reached: its text so far, where the rest of it starts, and how many
    brackets are open in it."""

    def __init__(self, start: int, *, is_list: bool = False) -> None:
        self.start = self.first = start
        self.is_list = is_list
        self.depth = 0
        self._parts: list[bytes] = []

    def pause(self, data: bytes, end: int) -> None:
        self._parts.append(data[self.start : end])

    def text(self, data: bytes, end: int) -> bytes:
        return b"".join((*self._parts, data[self.start : end]))


def split_messages(data: bytes, limits: ImportLimits) -> Iterator[bytes]:
    """Yields the JSON of the conversation without its messages, and then that of every message without its answers. In
    the tree of a long conversation, messages are nested hundreds of levels deep, more than a JSON parser can decode."""
    # The scanner does not recurse, so the depth may be far above that of other JSON.
    scanner = JsonScanner(io.BytesIO(data), structs.replace(limits, depth_max=_TREE_DEPTH_MAX))
    root = _OpenObject(0)
    open_objects, finished, empty_count = [root], list[tuple[int, bytes]](), 0
    for token, start in scanner:
        current = open_objects[-1]
        if token in (b"{", b"["):
            if token == b"[" and current.depth == 1 and scanner.key in _MESSAGE_LISTS:
                current.pause(data, start + 1)
                open_objects.append(_OpenObject(start, is_list=True))
            elif token == b"{" and current.is_list and current.depth == 0:
                open_objects.append(_OpenObject(start))
                open_objects[-1].depth = 1
            else:
                current.depth += 1
        elif current.is_list and current.depth == 0:
            open_objects.pop()
            open_objects[-1].start = start
        else:
            current.depth -= 1
            if current.depth == 0 and current is not root and not current.is_list:
                finished.append((current.first, current.text(data, start + 1)))
                open_objects.pop()
                empty_count += start + 1 - current.first < _MESSAGE_MIN_BYTES
                if empty_count > limits.skipped_max:
                    raise InvalidParams(f"{empty_count} messages are empty; the file was not read")
    if len(open_objects) != 1 or root.depth != 0:
        raise InvalidParams("file is truncated")
    yield root.text(data, len(data))
    # In the order of the file: an answer ends before the message that contains it.
    yield from (text for _, text in sorted(finished))


def _block_text(block: Fields) -> str:
    if isinstance(block.get("tool_call"), dict):
        call = block.nested("tool_call")
        output = call.text("output")[:_OUTPUT_CHARS]
        return f"[{call.line('name') or 'tool'}] {call.text('args')}\n{output}".strip()
    if block.get("type") == "think":
        return ""
    return chat_messages.content_text([block])


# -- Chatbot UI --------------------------------------------------------------------------------------------------------
# Exports of Chatbot UI: conversations with their folders, and prompts. Version 1 was a list of conversations, later
# ones are an object with `history`, `folders` and `prompts`.

_HISTORY = re.compile(rb'"history"\s*:\s*\[')
_FOLDERS = re.compile(rb'"folders"\s*:\s*\[')
# Fields of a conversation; a list of them is version 1.
_CONVERSATION_FIELDS = (b'"messages"', b'"prompt"', b'"model"', b'"name"')


class ChatbotUiImporter(FileImporter):
    name = "chatbot_ui"
    title = "Chatbot UI export"
    suffixes = (".json",)

    def recognizes(self, probe: FileProbe) -> float:
        head = probe.head.removeprefix(b"\xef\xbb\xbf").lstrip()
        # An export may be so large that only its history is in the first bytes.
        has_chats = _FOLDERS.search(head) or b'"messages"' in head
        is_history = head.startswith(b"{") and _HISTORY.search(head) and has_chats
        is_list = head.startswith(b"[") and probe.is_json(b'"maxLength"', *_CONVERSATION_FIELDS)
        return 0.9 if is_history or is_list else 0.0

    def read_file(self, file: InputFile) -> Events:
        value, limits = file.json(), file.limits
        export = Fields(value if isinstance(value, dict) else {"history": value})
        if not isinstance(export.get("history"), list):
            raise InvalidParams("expected an export of Chatbot UI with a list of conversations")
        folders = {str(folder.get("id")): folder.line("name") for folder in export.objects("folders")}
        for number, conversation in enumerate(export["history"], 1):
            yield from events.report_failure(
                f"conversation {number}", _chatbot_conversation(conversation, folders, limits)
            )
        for number, prompt in enumerate(export.objects("prompts"), 1):
            name, text, key = prompt.line("name"), prompt.text("content"), str(prompt.get("id"))
            try:
                yield _prompt(
                    "chatbot_ui",
                    f"{key}\0{name}",
                    text,
                    limits,
                    values.valid_uuid(key),
                    name=name or chat_messages.title_of(text),
                    details=prompt.line("description"),
                    tags=values.clean_tags([_folder(prompt, folders)]),
                    metadata={"imported_from": "chatbot_ui"},
                )
            except InvalidParams as error:
                yield FailedItem(f"prompt {number}", error.message)


def _chatbot_conversation(conversation: object, folders: Mapping[str, str], limits: ImportLimits) -> Events:
    value = Fields.of(conversation)
    if not isinstance(value.get("messages"), list):
        raise InvalidParams("expected a conversation with a list of messages")
    messages = (
        ChatMessage(
            key=str(index),
            role=chat_messages.role_of(message.get("role")),
            text=chat_messages.content_text(message.get("content")),
            parent=str(index - 1) if index > 1 else None,
        )
        for index, message in enumerate(value.objects("messages"), 1)
    )
    # The ids of version 1 are small numbers, which the first message tells apart.
    key = str(value.get("id"))
    first = chat_messages.content_text(next(value.objects("messages"), Fields()).get("content"))
    draft = chat_messages.conversation_draft(
        "chatbot_ui",
        values.valid_uuid(key) or events.stable_uuid("chatbot_ui", "conversation", f"{key}\0{first}"),
        value.line("name") or chat_messages.title_of(first),
        tags=values.clean_tags([_folder(value, folders)]),
        model=value.nested("model").line("name"),
        system_prompt=value.text("prompt"),
    )
    yield from chat_messages.conversation_in_order("chatbot_ui", draft, messages, limits)


def _folder(item: Mapping[str, Any], folders: Mapping[str, str]) -> str:
    return folders.get(str(item.get("folderId")), "")


# -- lists of messages -------------------------------------------------------------------------------------------------
# Conversations as lists of messages, the common form of data sets and of many programs' exports: ShareGPT
# (`conversations` with `from` and `value`) and `messages` with `role` and `content`, as JSON Lines or JSON.
#
# The files seldom contain ids or times. A conversation is identified by the location of its file and its id or number.

_LISTS = ("conversations", "messages", "conversation", "items")
_SHAREGPT = re.compile(
    rb'"(?:conversations?|items)"\s*:\s*\[\s*\{[^{}]{0,2000}?"from"\s*:\s*"(?:human|gpt|system|user|chatgpt)"'
)
_MESSAGES = re.compile(rb'"(?:messages|conversations?)"\s*:\s*\[\s*\{[^{}]{0,2000}?"role"\s*:\s*"')
_TIME_FIELDS = ("created_at", "create_time", "createdAt", "timestamp", "date")
# Where the title and the time of a conversation without its own come from.
_FIRST_MESSAGES = 100


class MessageListsImporter(FileImporter):
    name = "message_lists"
    title = "Lists of messages (ShareGPT, messages with role and content; JSON, JSON Lines)"
    suffixes = (".json", ".jsonl", ".ndjson")
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        head = probe.head.removeprefix(b"\xef\xbb\xbf").lstrip()
        if probe.is_folder or not head.startswith((b"{", b"[")):
            return 0.0
        # The first conversation, or the start of it if it is longer than the first bytes of the file.
        try:
            value = msgspec.json.decode(head.partition(b"\n")[0])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            is_list = bool(_SHAREGPT.search(head) or _MESSAGES.search(head))
        else:
            first = next(Fields.each(value if isinstance(value, list) else [value]), Fields())
            listed: Any = next((first[name] for name in _LISTS if isinstance(first.get(name), list)), [])
            is_list = any(
                chat_messages.is_role(message.get("role", message.get("from"))) for message in Fields.each(listed)
            )
        # Below every format of a certain program, many of which contain such lists, and above prompt files.
        return 0.6 if is_list else 0.0

    def read_file(self, file: InputFile) -> Events:
        key = file.key
        for element in file.elements():
            yield from events.report_failure(f"conversation {element.number}", _listed(element, key, file.limits))


def _listed(element: JsonElement, file: str, limits: ImportLimits) -> Events:
    value = element_object(element, limits)
    listed = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)
    if listed is None:
        raise InvalidParams("expected a list of messages in messages or conversations")
    # The others are read one by one, so that a list of junk is given up early.
    others = _messages(listed)
    messages = list(islice(others, _FIRST_MESSAGES))
    # Ids of data sets are unique in their file only.
    own_key = value.line("id", "uuid", "conversation_id", "conversationId")
    key = f"{file}\0id {own_key}" if own_key else f"{file}\0{element.number}"
    first = next((message.text for message in messages if message.role == "user"), "")
    draft = chat_messages.conversation_draft(
        "message_lists",
        values.valid_uuid(own_key) or events.stable_uuid("message_lists", "conversation", key),
        value.line("title", "name") or chat_messages.title_of(first),
        created=value.time(*_TIME_FIELDS) or next((message.time for message in messages if message.time), None),
        model=value.line("model"),
        system_prompt=value.text("system", "system_prompt"),
    )
    yield from chat_messages.conversation_in_order("message_lists", draft, chain(messages, others), limits)


def _messages(listed: list[Any]) -> Iterator[ChatMessage]:
    for number, message in enumerate(Fields.each(listed), 1):
        speaker = message.get("role") or message.get("from") or message.get("sender") or message.get("author")
        if isinstance(speaker, Mapping):
            speaker = speaker.get("role") or speaker.get("name")
        role = chat_messages.role_of(speaker)
        text = next(
            (chat_messages.content_text(message[name]) for name in ("content", "value", "text") if message.get(name)),
            "",
        )
        calls = message.get("tool_calls") or message.get("function_call")
        yield ChatMessage(
            key=str(number),
            role=role,
            sender="" if chat_messages.is_role(speaker) else values.clean_line(speaker),
            # A message without text may be the call of a tool.
            text=text if text.strip() or not calls else values.to_json(calls),
            time=message.time(*_TIME_FIELDS),
            model=message.line("model"),
            tool=message.line("name") if role == "tool" else "",
            parent=str(number - 1) if number > 1 else None,
        )
