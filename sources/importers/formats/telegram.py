"""Telegram's JSON export, `result.json`: one chat, or all chats of an account."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from config.errors import InvalidParams
from sources.importers.engine.chat_messages import ChatMessage, MessageReport, conversation_draft, conversation_in_order
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.export_files import count_reads, is_json
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import FailedItem, SkippedItem, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.json_stream import JsonElement, element_object, read_member_list
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import clean_line, stored_time, text_or_empty

_NAME = "telegram"
_CHAT_TYPES = (
    rb'"type"\s*:\s*"(?:personal_chat|bot_chat|saved_messages|(?:private|public)_(?:supergroup|group|channel))"'
)
_FIELDS = (re.compile(_CHAT_TYPES), re.compile(rb'"messages"\s*:\s*\['))
_ALL_CHATS = re.compile(rb'"chats"\s*:\s*\{')
_ALL_CHATS_PATH = ("chats", "list")
# What a message without text contains, by field.
_MEDIA = ("photo", "file", "location_information", "contact_information", "poll", "game_title", "invoice_information")


class TelegramImporter(Importer):
    name = _NAME
    title = "Telegram export (JSON)"
    suffixes = (".json",)
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        if (
            probe.is_folder
            or not is_json(probe.head)
            or (b'"date_unixtime"' not in probe.head and b'"date"' not in probe.head)
        ):
            return 0.0
        return 0.9 if all(field.search(probe.head) for field in _FIELDS) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        with open_file(path) as file:
            is_account = _ALL_CHATS.search(file.read(1 << 16)) is not None
            file.seek(0)
            counted = count_reads(file, limits, progress)
            found = read_member_list(counted, _ALL_CHATS_PATH if is_account else ("messages",), limits)
            if found is None:
                content = "an object with a list of chats" if is_account else "a chat with a list of messages"
                raise InvalidParams(f"expected {content}")
            if not is_account:
                yield from _conversation(found.header, found.elements, limits)
                return
            for element in found.elements:
                try:
                    chat = element_object(element, limits)
                    messages = chat.get("messages")
                    yield from _conversation(chat, messages if isinstance(messages, list) else (), limits)
                except InvalidParams as error:
                    yield FailedItem(f"chat {element.number}", error.message)


IMPORTER = TelegramImporter()


def _conversation(chat: Mapping[str, Any], messages: Any, limits: ImportLimits) -> Iterator[ImportEvent]:
    """The number of a chat is unique in Telegram. Old exports have none for saved messages."""
    kind, number = clean_line(chat.get("type")), chat.get("id")
    key = str(number) if isinstance(number, int) else kind
    if not key:
        raise InvalidParams("id: expected the number of the chat, got nothing")
    title = clean_line(chat.get("name")) or kind.replace("_", " ")
    draft = conversation_draft(_NAME, stable_uuid(_NAME, "conversation", key), title, chat_type=kind)
    yield from conversation_in_order(_NAME, draft, _messages(messages, limits), limits)


def _messages(messages: Any, limits: ImportLimits) -> Iterator[ChatMessage | MessageReport]:
    for number, message in enumerate(messages, 1):
        try:
            fields = element_object(message, limits) if isinstance(message, JsonElement) else message
            # A chat alone is read as a stream; one of an account is decoded as a whole.
            yield _message(fields) if isinstance(fields, Mapping) else SkippedItem("entry other than a message")
        except InvalidParams as error:
            yield FailedItem(f"message {number}", error.message)


def _message(message: Mapping[str, Any]) -> ChatMessage | SkippedItem:
    if message.get("type") != "message":
        return SkippedItem("service message")
    if not isinstance(message.get("id"), int):
        raise InvalidParams(f"id: expected a number, got {repr(message.get('id'))[:60]}")
    # A text is a string, or a list of strings and of parts with a format, such as links.
    content = message.get("text")
    parts = []
    for part in content if isinstance(content, list) else [text_or_empty(content)]:
        if isinstance(part, Mapping):
            text, address = text_or_empty(part.get("text")), clean_line(part.get("href"))
            parts.append(f"{text} ({address})" if address else text)
        else:
            parts.append(text_or_empty(part))
    answered = message.get("reply_to_message_id")
    return ChatMessage(
        key=str(message["id"]),
        role="user",
        sender=clean_line(message.get("from")) or clean_line(message.get("from_id")),
        text="\n".join(filter(None, ("".join(parts), _media(message)))),
        time=stored_time(message.get("date_unixtime")) or stored_time(message.get("date")),
        parent=str(answered) if isinstance(answered, int) else None,
        metadata=compact_metadata(
            forwarded_from=clean_line(message.get("forwarded_from")),
            edited=stored_time(message.get("edited_unixtime")) or stored_time(message.get("edited")),
            via_bot=clean_line(message.get("via_bot")),
        ),
    )


def _media(message: Mapping[str, Any]) -> str:
    """Names what a message contains besides text."""
    field = next((name for name in _MEDIA if message.get(name)), None)
    if field is None:
        return ""
    poll = message.get("poll")
    if isinstance(poll, Mapping):
        return f"[poll] {text_or_empty(poll.get('question'))}"
    kind = clean_line(message.get("media_type")).replace("_", " ") or field.partition("_")[0]
    name = clean_line(message.get("file_name")) or clean_line(message.get("sticker_emoji"))
    return f"[{kind}: {name}]" if name else f"[{kind}]"
