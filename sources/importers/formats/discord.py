"""Discord: channels as DiscordChatExporter saves them (JSON), and the package with your own messages that Discord sends
you (a zip, or the unpacked folder)."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from config.errors import InvalidParams
from sources.importers.engine.chat_messages import ChatMessage, MessageReport, conversation_draft, conversation_in_order
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.export_files import count_reads, is_zip_file
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.file_trees import FileTree, open_tree
from sources.importers.engine.files import FailedItem, SkippedItem, decode_text, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.json_stream import JsonElement, element_object, read_member_list
from sources.importers.engine.table_reader import compact_metadata, table_rows
from sources.importers.engine.values import clean_line, object_or_empty, objects, parse_json, stored_time, text_or_empty

_NAME = "discord"
_FIELDS = tuple(
    re.compile(pattern) for pattern in (rb'^\s*\{\s*"guild"\s*:\s*\{', rb'"channel"\s*:\s*\{', rb'"messages"\s*:\s*\[')
)
# The folder of a channel in the package. Its name and that of the folder around it are translated in some packages.
_PACKAGE_MESSAGES = re.compile(r"(?P<channel>(?:.{1,300}/)?c?\d{15,20})/messages\.(?:json|csv)\Z", re.IGNORECASE)
_ACCOUNT = re.compile(r"(?:^|/)user\.json\Z", re.IGNORECASE)
# Messages with a text of their own; the others report that a person joined, pinned a message, and so on.
_MESSAGE_TYPES = frozenset(("Default", "Reply", "ChatInputCommand", "ThreadStarterMessage", "ContextMenuCommand"))


class DiscordImporter(Importer):
    name = _NAME
    title = "Discord (DiscordChatExporter JSON, data package)"
    suffixes = (".json", ".zip")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            # Looks two levels down, because the folder itself only contains folders.
            messages = next((name for name in probe.names if name.lower() == "messages"), None)
            return 0.9 if messages is not None and (probe.path / messages / "index.json").is_file() else 0.0
        if probe.names:
            return 0.9 if any(map(_PACKAGE_MESSAGES.fullmatch, probe.names)) else 0.0
        head = probe.head.removeprefix(b"\xef\xbb\xbf")
        return 0.9 if all(field.search(head) for field in _FIELDS) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        if path.is_dir() or is_zip_file(path):
            with open_tree(path, limits, progress) as tree:
                account: Any = next((_load(tree, name, limits) for name in tree.names if _ACCOUNT.search(name)), {})
                author = (
                    clean_line(object_or_empty(account).get("global_name"))
                    or clean_line(object_or_empty(account).get("username"))
                    or "me"
                )
                channels = {
                    found["channel"]: name
                    for name in sorted(tree.names)
                    if (found := _PACKAGE_MESSAGES.fullmatch(name))
                }
                if not channels:
                    raise InvalidParams("package: expected folders with messages.json, found none")
                for folder, name in channels.items():
                    try:
                        yield from _read_own_messages(tree, folder, name, author, limits)
                    except InvalidParams as error:
                        yield FailedItem(name, error.message)
            return
        with open_file(path) as file:
            messages = read_member_list(count_reads(file, limits, progress), ("messages",), limits)
            if messages is None:
                raise InvalidParams("expected a channel with a list of messages")
            guild, channel = (object_or_empty(messages.header.get(name)) for name in ("guild", "channel"))
            key = clean_line(channel.get("id"))
            if not key:
                raise InvalidParams("channel.id: expected the id of the channel, got nothing")
            draft = conversation_draft(
                _NAME,
                stable_uuid(_NAME, "conversation", key),
                f"#{clean_line(channel.get('name'))}",
                server=clean_line(guild.get("name")),
                category=clean_line(channel.get("category")),
                topic=clean_line(channel.get("topic")),
                channel_type=clean_line(channel.get("type")),
            )
            yield from conversation_in_order(_NAME, draft, _messages(messages.elements, limits), limits)


IMPORTER = DiscordImporter()


def _messages(elements: Iterator[JsonElement], limits: ImportLimits) -> Iterator[ChatMessage | MessageReport]:
    for element in elements:
        try:
            yield _message(element_object(element, limits))
        except InvalidParams as error:
            yield FailedItem(f"message {element.number}", error.message)


def _message(message: Mapping[str, Any]) -> ChatMessage | SkippedItem:
    key = clean_line(message.get("id"))
    if not key:
        raise InvalidParams("id: expected the id of the message, got nothing")
    if clean_line(message.get("type")) not in _MESSAGE_TYPES:
        return SkippedItem("service message")
    author, reference = object_or_empty(message.get("author")), object_or_empty(message.get("reference"))
    texts = [text_or_empty(message.get("content"))]
    for embed in objects(message.get("embeds")):
        parts = (text_or_empty(embed.get(name)).strip() for name in ("title", "description", "url"))
        texts.append("\n".join(filter(None, parts)))
    texts += [f"[sticker: {clean_line(sticker.get('name'))}]" for sticker in objects(message.get("stickers"))]
    files = [clean_line(file.get("fileName")) for file in objects(message.get("attachments"))]
    texts += [f"[file: {name or 'unnamed'}]" for name in files]
    return ChatMessage(
        key=key,
        role="assistant" if author.get("isBot") is True else "user",
        sender=clean_line(author.get("nickname")) or clean_line(author.get("name")),
        text="\n".join(filter(None, texts)),
        time=stored_time(message.get("timestamp")),
        parent=clean_line(reference.get("messageId")) or None,
        attachments=tuple({"name": name} for name in files),
        metadata=compact_metadata(
            edited=stored_time(message.get("timestampEdited")), is_pinned=message.get("isPinned") is True or None
        ),
    )


# -- the data package --------------------------------------------------------------------------------------------------


def _read_own_messages(
    tree: FileTree, folder: str, name: str, author: str, limits: ImportLimits
) -> Iterator[ImportEvent]:
    info: Mapping[str, Any] = {}
    if f"{folder}/channel.json" in tree:
        info = object_or_empty(_load(tree, f"{folder}/channel.json", limits))
    # Some packages have a c before the number of the channel.
    key = clean_line(info.get("id")) or folder.rpartition("/")[2].lstrip("c")
    guild = object_or_empty(info.get("guild"))
    title = clean_line(info.get("name"))
    draft = conversation_draft(
        _NAME,
        stable_uuid(_NAME, "own messages", key),
        f"#{title}" if title else f"Discord {key}",
        server=clean_line(guild.get("name")),
        contains="own messages only",
    )
    data = tree.read(name, limits.line_max_bytes)
    rows: list[Mapping[str, Any]] = []
    if name.lower().endswith(".json"):
        rows += objects(parse_json(data, limits))
    else:
        for location, row in table_rows(decode_text(data, limits, name)):
            if isinstance(row, str):
                raise InvalidParams(f"{location}: not a valid row: {row}")
            rows.append(row)
    # Packages list the newest message first.
    rows.sort(key=lambda row: stored_time(row.get("Timestamp")) or "")
    messages = (_own_message(row, author) for row in rows)
    yield from conversation_in_order(_NAME, draft, messages, limits)


def _own_message(row: Mapping[str, Any], author: str) -> ChatMessage | FailedItem:
    key = str(row.get("ID") or "")
    if not key:
        return FailedItem("message", "ID: expected the id of the message, got nothing")
    files = (f"[file: {file[:300]}]" for file in text_or_empty(row.get("Attachments")).split())
    text = "\n".join(filter(None, (text_or_empty(row.get("Contents")), *files)))
    return ChatMessage(key=key, role="user", sender=author, text=text, time=stored_time(row.get("Timestamp")))


def _load(tree: FileTree, name: str, limits: ImportLimits) -> Any:
    with suppress(InvalidParams):
        return parse_json(tree.read(name, limits.line_max_bytes), limits)
    return {}
