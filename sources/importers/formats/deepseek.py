"""DeepSeek's export: `conversations.json`, alone or in its zip. Its tree resembles ChatGPT's, but not its messages."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Raw, Struct

from config.errors import InvalidParams
from sources.importers.engine.chat_messages import (
    ChatMessage,
    conversation_draft,
    conversation_with_branches,
    link_citations,
)
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.export_files import base_name, first_bytes, is_in_unpacked_export, is_json, read_export
from sources.importers.engine.file_probe import HEAD_BYTES, FileProbe
from sources.importers.engine.files import FailedItem, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.json_stream import decode_object
from sources.importers.engine.values import clean_line, objects, stored_time, text_or_empty, valid_uuid

_NAME = "deepseek"
# The kinds of fragments, and the role and content type of the message that each becomes.
_FRAGMENTS = {
    "REQUEST": ("user", ""),
    "RESPONSE": ("assistant", ""),
    "THINK": ("assistant", "thinking"),
    "SEARCH": ("tool", "search"),
}


class DeepSeekImporter(Importer):
    name = _NAME
    title = "DeepSeek export"
    suffixes = (".json", ".zip")
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        head = b""
        if probe.is_folder:
            # An unpacked export has the same file names as ChatGPT's.
            name = next(filter(_is_export_file, probe.names), "")
            with suppress(OSError), open_file(probe.path / name) as file:
                head = file.read(HEAD_BYTES)
        else:
            head = first_bytes(probe, _is_export_file)
        # More certain than ChatGPT's importer, which also knows `mapping` and `user.json`.
        return 0.97 if is_json(head) and b'"mapping"' in head and b'"inserted_at"' in head else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        read = partial(_read_conversation, limits=limits)
        yield from read_export(path, limits, progress, _is_export_file, "chat", read)

    def reads_from_folder(self, name: str) -> bool:
        return is_in_unpacked_export(name, _is_export_file)


IMPORTER = DeepSeekImporter()


class _DeepSeekMessage(Struct, frozen=True):
    content: Any = None
    reasoning_content: Any = None
    role: Any = None
    model: Any = None
    inserted_at: Any = None
    files: Any = None
    search_results: Any = None
    fragments: Any = None


class _DeepSeekNode(Struct, frozen=True):
    parent: Any = None
    message: _DeepSeekMessage | None = None


class _DeepSeekConversation(Struct, frozen=True):
    mapping: dict[str, Raw]
    id: Any = None
    title: Any = None
    inserted_at: Any = None
    updated_at: Any = None


def _is_export_file(name: str) -> bool:
    return base_name(name) == "conversations.json"


def _read_conversation(data: bytes, location: str, limits: ImportLimits) -> Iterator[ImportEvent]:
    conversation = decode_object(data, _DeepSeekConversation)
    messages: list[ChatMessage] = []
    # The last fragment of each node, which the next node answers.
    last: dict[str, str] = {}
    turns = 0
    for key, raw in conversation.mapping.items():
        try:
            node = decode_object(raw, _DeepSeekNode)
        except InvalidParams as error:
            yield FailedItem(f"{location}, node {key[:40]}", error.message)
            continue
        parent = clean_line(node.parent)
        for message in _messages(key, node.message, last.get(parent, parent) or None, turns):
            messages.append(message)
            last[key] = message.key
        # A node without messages passes on those that follow it to its own parent.
        last.setdefault(key, last.get(parent, parent))
        turns += node.message is not None
    key = clean_line(conversation.id) or clean_line(conversation.inserted_at)
    draft = conversation_draft(
        _NAME,
        valid_uuid(key) or stable_uuid(_NAME, "conversation", key),
        clean_line(conversation.title),
        created=stored_time(conversation.inserted_at),
        modified=stored_time(conversation.updated_at),
    )
    yield from conversation_with_branches(_NAME, draft, messages, limits)


def _messages(key: str, message: _DeepSeekMessage | None, parent: str | None, turn: int) -> Iterator[ChatMessage]:
    """Yields the fragments of a node as messages that follow each other. Older exports have one text and a separate
    one with the reasoning, and questions and answers take turns."""
    if message is None:
        return
    fragments = list(objects(message.fragments))
    if not fragments:
        role = clean_line(message.role).lower()
        is_answer = role == "assistant" or (not role and (bool(message.reasoning_content) or turn % 2 == 1))
        fragments = [{"type": "RESPONSE" if is_answer else "REQUEST", "content": message.content}]
        if message.reasoning_content:
            fragments.insert(0, {"type": "THINK", "content": message.reasoning_content})
    files = (clean_line(file.get("file_name") or file.get("name")) for file in objects(message.files))
    attachments = tuple({"name": name} for name in files if name)
    for index, fragment in enumerate(fragments):
        role, kind = _FRAGMENTS.get(clean_line(fragment.get("type")).upper(), ("assistant", ""))
        results = link_citations(fragment.get("results"))
        found = "\n".join(f"{citation['title']} {citation['url']}".strip() for citation in results)
        text = text_or_empty(fragment.get("content")) or found
        fragment_key = key if index == len(fragments) - 1 else f"{key}\0{index}"
        yield ChatMessage(
            key=fragment_key,
            role=role,
            text=text,
            time=stored_time(message.inserted_at),
            model=clean_line(message.model) if role == "assistant" else "",
            tool="search" if role == "tool" else "",
            parent=parent,
            attachments=attachments if role == "user" else (),
            citations=link_citations(message.search_results) if role == "assistant" and not kind else (),
            metadata={"content_type": kind} if kind else {},
        )
        if text.strip():
            parent = fragment_key
