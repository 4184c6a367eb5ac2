"""Conversations exported by LibreChat as JSON: messages in a list, or each message inside the one that it answers."""

import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from config.errors import InvalidParams
from sources.importers.engine.chat_messages import ChatMessage, MessageBranches, content_text, conversation_draft
from sources.importers.engine.export_files import is_json
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import FailedItem, file_key, file_size, read_bytes, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.json_stream import JsonScanner
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import clean_line, objects, parse_json, stored_time, text_or_empty, valid_uuid

_NAME = "librechat"
_FIELDS = tuple(
    re.compile(mark) for mark in (rb'"conversationId"\s*:', rb'"messages(?:Tree)?"\s*:\s*\[', rb'"endpoint"')
)
# The lists that contain messages: that of the conversation, and the answers to a message.
_MESSAGE_LISTS = (b"messages", b"messagesTree", b"children")
# Two levels for each message of the longest branch.
_TREE_DEPTH_MAX = 20_000
_OUTPUT_CHARS = 4_000
# Shorter objects are not messages.
_MESSAGE_MIN_BYTES = len('{"messageId":""}')


class LibreChatImporter(Importer):
    name = _NAME
    title = "LibreChat conversation (JSON)"
    suffixes = (".json",)

    def recognizes(self, probe: FileProbe) -> float:
        head = probe.head
        has_fields = is_json(head) and all(field.search(head) for field in _FIELDS)
        return 0.9 if has_fields and not probe.is_folder and b'"messageId"' in head else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        data = read_bytes(path, limits.line_max_bytes)
        parts = list(split_messages(data, limits))
        conversation = parse_json(parts[0], limits)
        if not isinstance(conversation, Mapping):
            raise InvalidParams("expected an exported conversation")
        branches, times = MessageBranches(_NAME, limits), list[str]()
        for number, part in enumerate(parts[1:], 1):
            try:
                message = _message(parse_json(part, limits), number)
            except InvalidParams as error:
                yield FailedItem(f"message {number}", error.message)
                continue
            yield from branches.add(message)
            times += [message.time] if message.time else []
        key = clean_line(conversation.get("conversationId")) or file_key(path, limits)
        options = conversation.get("options")
        draft = conversation_draft(
            _NAME,
            valid_uuid(key) or stable_uuid(_NAME, "conversation", key),
            clean_line(conversation.get("title")),
            created=min(times, default=None),
            modified=max(times, default=None),
            endpoint=clean_line(conversation.get("endpoint")),
            options=options if isinstance(options, Mapping) else None,
        )
        yield from branches.conversation(draft)
        progress(file_size(path))


IMPORTER = LibreChatImporter()


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
    scanner = JsonScanner(io.BytesIO(data), replace(limits, depth_max=_TREE_DEPTH_MAX))
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


def _message(message: Any, number: int) -> ChatMessage:
    if not isinstance(message, Mapping):
        raise InvalidParams("expected a message")
    is_user = message.get("isCreatedByUser") is True
    # Newer versions store the parts of an answer: texts, reasoning, and calls of tools with their output.
    blocks = "\n\n".join(filter(None, map(_block_text, objects(message.get("content")))))
    files = [file for file in objects(message.get("files")) if clean_line(file.get("filename"))]
    return ChatMessage(
        key=clean_line(message.get("messageId")) or str(number),
        role="user" if is_user else "assistant",
        sender=clean_line(message.get("sender")),
        text=text_or_empty(message.get("text")) or blocks,
        time=stored_time(message.get("createdAt")),
        model="" if is_user else clean_line(message.get("model")),
        parent=clean_line(message.get("parentMessageId")) or None,
        attachments=tuple(
            {"name": clean_line(file["filename"]), "type": clean_line(file.get("type"))} for file in files
        ),
        metadata=compact_metadata(is_error=message.get("error") is True or None),
    )


def _block_text(block: Mapping[str, Any]) -> str:
    call = block.get("tool_call")
    if isinstance(call, Mapping):
        output = text_or_empty(call.get("output"))[:_OUTPUT_CHARS]
        return f"[{clean_line(call.get('name')) or 'tool'}] {text_or_empty(call.get('args'))}\n{output}".strip()
    if block.get("type") == "think":
        return ""
    return content_text([block])
