"""Grok's export from accounts.x.ai: `prod-grok-backend.json`, alone or in its zip."""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

from msgspec import Raw, Struct, field
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.importers.engine.archives import is_zip, open_archive
from sources.importers.engine.chat_messages import (
    ChatMessage,
    conversation_draft,
    conversation_with_branches,
    link_citations,
    role_of,
)
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.export_files import (
    base_name,
    count_reads,
    first_bytes,
    is_json,
    is_zip_file,
    read_objects,
)
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import FailedItem, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.json_stream import decode_object, read_member_list
from sources.importers.engine.values import clean_line, object_or_empty, stored_time, text_or_empty, texts, valid_uuid

_NAME = "grok"
_MARKS = tuple(
    re.compile(mark)
    for mark in (rb'^\s*\{\s*"conversations"\s*:\s*\[', rb'"conversation"\s*:\s*\{', rb'"responses"\s*:')
)


class GrokImporter(Importer):
    name = _NAME
    title = "Grok export"
    suffixes = (".json", ".zip")
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 0.0
        if is_zip(probe.head):
            return (
                0.9 if any(map(_is_export_file, probe.names)) and is_json(first_bytes(probe, _is_export_file)) else 0.0
            )
        head = probe.head.removeprefix(b"\xef\xbb\xbf")
        return 0.9 if all(mark.search(head) for mark in _MARKS) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        if not is_zip_file(path):
            with open_file(path) as file:
                yield from _read_file("", count_reads(file, limits, progress), limits)
            return
        with open_archive(path, limits, progress) as archive:
            names = [name for name in archive.names if _is_export_file(name)]
            if not names:
                raise InvalidParams("export: expected prod-grok-backend.json, found no such file")
            for name in names:
                with archive.open(name) as file:
                    yield from _read_file(name, file, limits)


IMPORTER = GrokImporter()


class _GrokResponse(Struct, frozen=True):
    key: Any = field(default=None, name="_id")
    id: Any = None
    message: Any = None
    sender: Any = None
    create_time: Any = None
    parent_response_id: Any = None
    model: Any = None
    file_attachments: Any = None
    web_search_results: Any = None
    error: Any = None


class _GrokEntry(Struct, frozen=True):
    conversation: Any = None
    responses: list[Raw] = []


class _GrokResponseEntry(Struct, frozen=True):
    response: _GrokResponse


def _is_export_file(name: str) -> bool:
    return base_name(name) == "prod-grok-backend.json"


def _read_file(name: str, file: IO[bytes], limits: ImportLimits) -> Iterator[ImportEvent]:
    conversations = read_member_list(file, ("conversations",), limits)
    if conversations is None:
        raise InvalidParams("expected an object with a list of conversations")
    objects = ((name, element) for element in conversations.elements)
    yield from read_objects(objects, "conversation", partial(_read_conversation, limits=limits))


def _read_conversation(data: bytes, location: str, limits: ImportLimits) -> Iterator[ImportEvent]:
    entry = decode_object(data, _GrokEntry)
    fields = object_or_empty(entry.conversation)
    messages: list[ChatMessage] = []
    for number, raw in enumerate(entry.responses, 1):
        try:
            messages.append(_message(decode_object(raw, _GrokResponseEntry).response, number))
        except InvalidParams as error:
            yield FailedItem(f"{location}, response {number}", error.message)
    # After the responses, so that their failures are reported in any case.
    key = clean_line(fields.get("id"))
    if not key:
        raise InvalidParams("id: expected the id of the conversation, got nothing")
    draft = conversation_draft(
        _NAME,
        valid_uuid(key) or stable_uuid(_NAME, "conversation", key),
        clean_line(fields.get("title")),
        created=_time(fields.get("create_time")),
        modified=_time(fields.get("modify_time")),
        is_starred=fields.get("starred") is True,
        system_prompt=clean_line(fields.get("system_prompt_name")),
    )
    has_parents = any(message.parent for message in messages)
    if not has_parents:
        # Older exports do not name the message that is answered: it is the one before.
        keys = [None, *(message.key for message in messages)]
        messages = [replace(message, parent=key) for message, key in zip(messages, keys, strict=False)]
    yield from conversation_with_branches(_NAME, draft, messages, limits)


def _message(response: _GrokResponse, number: int) -> ChatMessage:
    role = role_of(response.sender)
    return ChatMessage(
        key=clean_line(response.key) or clean_line(response.id) or str(number),
        role=role,
        text=text_or_empty(response.message),
        time=_time(response.create_time),
        model=clean_line(response.model) if role == "assistant" else "",
        parent=clean_line(response.parent_response_id) or None,
        attachments=tuple({"id": clean_line(key)} for key in texts(response.file_attachments)),
        citations=link_citations(response.web_search_results),
    )


def _time(value: object) -> str | None:
    """Times are ISO 8601, or objects of MongoDB's extended JSON."""
    while isinstance(value, Mapping):
        value = value.get("$date", value.get("$numberLong"))
    return stored_time(value)
