"""Exports of Chatbot UI: conversations with their folders, and prompts. Version 1 was a list of conversations, later
ones are an object with `history`, `folders` and `prompts`."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from config.errors import InvalidParams
from sources.drafts import PromptDraft
from sources.importers.engine.chat_messages import (
    ChatMessage,
    content_text,
    conversation_draft,
    conversation_in_order,
    role_of,
    title_of,
)
from sources.importers.engine.export_files import is_json
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import FailedItem, ImportedPrompt, SkippedItem, file_size, read_json, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.values import clean_line, clean_tags, objects, require_storable, text_or_empty, valid_uuid

_NAME = "chatbot_ui"
_HISTORY = re.compile(rb'"history"\s*:\s*\[')
_FOLDERS = re.compile(rb'"folders"\s*:\s*\[')
# Fields of a conversation; a list of them is version 1.
_CONVERSATION_FIELDS = (b'"messages"', b'"prompt"', b'"model"', b'"name"')


class ChatbotUiImporter(Importer):
    name = _NAME
    title = "Chatbot UI export"
    suffixes = (".json",)

    def recognizes(self, probe: FileProbe) -> float:
        head = probe.head.removeprefix(b"\xef\xbb\xbf").lstrip()
        if probe.is_folder or not is_json(head):
            return 0.0
        # An export may be so large that only its history is in the first bytes.
        is_history = (
            head.startswith(b"{") and _HISTORY.search(head) and (_FOLDERS.search(head) or b'"messages"' in head)
        )
        has_fields = all(field in head for field in _CONVERSATION_FIELDS)
        is_list = head.startswith(b"[") and has_fields and b'"maxLength"' in head
        return 0.9 if is_history or is_list else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        value = read_json(path, limits)
        export = value if isinstance(value, Mapping) else {"history": value}
        if not isinstance(export.get("history"), list):
            raise InvalidParams("expected an export of Chatbot UI with a list of conversations")
        folders = {str(folder.get("id")): clean_line(folder.get("name")) for folder in objects(export.get("folders"))}
        for number, conversation in enumerate(export["history"], 1):
            yield from _read_conversation(conversation, number, folders, limits)
        for number, prompt in enumerate(objects(export.get("prompts")), 1):
            yield _read_prompt(prompt, number, folders, limits)
        progress(file_size(path))


IMPORTER = ChatbotUiImporter()


def _read_conversation(
    value: Any, number: int, folders: Mapping[str, str], limits: ImportLimits
) -> Iterator[ImportEvent]:
    if not isinstance(value, Mapping) or not isinstance(value.get("messages"), list):
        yield FailedItem(f"conversation {number}", "expected a conversation with a list of messages")
        return
    messages = (
        ChatMessage(
            key=str(index),
            role=role_of(message.get("role")),
            text=content_text(message.get("content")),
            parent=str(index - 1) if index > 1 else None,
        )
        for index, message in enumerate(objects(value["messages"]), 1)
    )
    # The ids of version 1 are small numbers, which the first message tells apart.
    key = str(value.get("id"))
    first = content_text(next(objects(value["messages"]), {}).get("content"))
    model = value.get("model")
    draft = conversation_draft(
        _NAME,
        valid_uuid(key) or stable_uuid(_NAME, "conversation", f"{key}\0{first}"),
        clean_line(value.get("name")) or title_of(first),
        tags=clean_tags([_folder(value, folders)]),
        model=clean_line(model.get("name")) if isinstance(model, Mapping) else "",
        system_prompt=text_or_empty(value.get("prompt")),
    )
    yield from conversation_in_order(_NAME, draft, messages, limits)


def _read_prompt(
    prompt: Mapping[str, Any], number: int, folders: Mapping[str, str], limits: ImportLimits
) -> ImportedPrompt | SkippedItem | FailedItem:
    content, name = text_or_empty(prompt.get("content")), clean_line(prompt.get("name"))
    if not content.strip():
        return SkippedItem("prompt without text")
    try:
        require_storable(content, limits)
    except InvalidParams as error:
        return FailedItem(f"prompt {number}", error.message)
    key = str(prompt.get("id"))
    return ImportedPrompt(
        PromptDraft(
            uuid=valid_uuid(key) or stable_uuid(_NAME, "prompts", f"{key}\0{name}"),
            name=name or title_of(content),
            details=clean_line(prompt.get("description")),
            user_prompt=content,
            tags=clean_tags([_folder(prompt, folders)]),
            metadata={"imported_from": _NAME},
        )
    )


def _folder(item: Mapping[str, Any], folders: Mapping[str, str]) -> str:
    return folders.get(str(item.get("folderId")), "")
