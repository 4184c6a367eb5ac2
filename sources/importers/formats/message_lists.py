"""Conversations as lists of messages, the common form of data sets and of many programs' exports: ShareGPT
(`conversations` with `from` and `value`) and `messages` with `role` and `content`, as JSON Lines or JSON.

The files seldom contain ids or times. A conversation is identified by the location of its file and its id or number.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec

from config.errors import InvalidParams
from sources.importers.engine.chat_messages import (
    ChatMessage,
    content_text,
    conversation_draft,
    conversation_in_order,
    is_role,
    role_of,
    title_of,
)
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.export_files import count_reads
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import FailedItem, file_key, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.json_stream import element_object, iter_objects
from sources.importers.engine.values import clean_line, objects, stored_time, text_or_empty, to_json, valid_uuid

_NAME = "message_lists"
_LISTS = ("conversations", "messages", "conversation", "items")
_SHAREGPT = re.compile(
    rb'"(?:conversations?|items)"\s*:\s*\[\s*\{[^{}]{0,2000}?"from"\s*:\s*"(?:human|gpt|system|user|chatgpt)"'
)
_MESSAGES = re.compile(rb'"(?:messages|conversations?)"\s*:\s*\[\s*\{[^{}]{0,2000}?"role"\s*:\s*"')
_TIME_FIELDS = ("created_at", "create_time", "createdAt", "timestamp", "date")
# Where the title and the time of a conversation without its own come from.
_FIRST_MESSAGES = 100
_ID_FIELDS = ("id", "uuid", "conversation_id", "conversationId")


class MessageListsImporter(Importer):
    name = _NAME
    title = "Lists of messages (ShareGPT, messages with role and content; JSON, JSON Lines)"
    suffixes = (".json", ".jsonl", ".ndjson")
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        head = probe.head.removeprefix(b"\xef\xbb\xbf").lstrip()
        if probe.is_folder or not head.startswith((b"{", b"[")):
            return 0.0
        # Below every format of a certain program, many of which contain such lists, and above prompt files.
        return 0.6 if _starts_with_messages(head) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        key = file_key(path, limits)
        with open_file(path) as file:
            for element in iter_objects(count_reads(file, limits, progress), limits):
                location = f"conversation {element.number}"
                try:
                    value = element_object(element, limits)
                    yield from _read_conversation(value, f"{key}\0{element.number}", key, limits)
                except InvalidParams as error:
                    yield FailedItem(location, error.message)


IMPORTER = MessageListsImporter()


def _starts_with_messages(head: bytes) -> bool:
    """Checks the first conversation, or the start of it if it is longer than the first bytes of the file."""
    try:
        value = msgspec.json.decode(head.partition(b"\n")[0])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return bool(_SHAREGPT.search(head) or _MESSAGES.search(head))
    first = next(objects(value if isinstance(value, list) else [value]), {})
    listed: Any = next((first[name] for name in _LISTS if isinstance(first.get(name), list)), [])
    return any(is_role(message.get("role", message.get("from"))) for message in objects(listed))


def _read_conversation(
    value: Mapping[str, Any], numbered_key: str, file: str, limits: ImportLimits
) -> Iterator[ImportEvent]:
    listed = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)
    if listed is None:
        raise InvalidParams("expected a list of messages in messages or conversations")
    # The others are read one by one, so that a list of junk is given up early.
    others = _messages(listed)
    messages = list(islice(others, _FIRST_MESSAGES))
    # Ids of data sets are unique in their file only.
    own_key = next((clean_line(value[name]) for name in _ID_FIELDS if clean_line(value.get(name))), "")
    key = f"{file}\0id {own_key}" if own_key else numbered_key
    first = next((message.text for message in messages if message.role == "user"), "")
    draft = conversation_draft(
        _NAME,
        valid_uuid(own_key) or stable_uuid(_NAME, "conversation", key),
        clean_line(value.get("title")) or clean_line(value.get("name")) or title_of(first),
        created=_time(value) or next((message.time for message in messages if message.time), None),
        model=clean_line(value.get("model")),
        system_prompt=text_or_empty(value.get("system")) or text_or_empty(value.get("system_prompt")),
    )
    yield from conversation_in_order(_NAME, draft, chain(messages, others), limits)


def _messages(listed: list[Any]) -> Iterator[ChatMessage]:
    for number, message in enumerate(objects(listed), 1):
        speaker = message.get("role") or message.get("from") or message.get("sender") or message.get("author")
        if isinstance(speaker, Mapping):
            speaker = speaker.get("role") or speaker.get("name")
        role = role_of(speaker)
        text = next((content_text(message[name]) for name in ("content", "value", "text") if message.get(name)), "")
        calls = message.get("tool_calls") or message.get("function_call")
        yield ChatMessage(
            key=str(number),
            role=role,
            sender="" if is_role(speaker) else clean_line(speaker),
            # A message without text may be the call of a tool.
            text=text if text.strip() or not calls else to_json(calls),
            time=_time(message),
            model=clean_line(message.get("model")),
            tool=clean_line(message.get("name")) if role == "tool" else "",
            parent=str(number - 1) if number > 1 else None,
        )


def _time(fields: Mapping[str, Any]) -> str | None:
    values = (fields[field] for field in _TIME_FIELDS if field in fields)
    return next((time for value in values if (time := stored_time(value))), None)
