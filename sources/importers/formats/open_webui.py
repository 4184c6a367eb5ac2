"""Open WebUI: its database `webui.db` with chats, prompts and notes, and its JSON export of chats."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET

from config.errors import InvalidParams
from sources.drafts import NoteDraft, PromptDraft
from sources.importers.engine.chat_messages import (
    ChatMessage,
    content_text,
    conversation_draft,
    conversation_with_branches,
    role_of,
)
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.export_files import count_reads, is_json
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import FailedItem, ImportedNote, ImportedPrompt, SkippedItem, file_size, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.json_stream import element_object, iter_objects
from sources.importers.engine.table_reader import (
    RowProgress,
    TableReader,
    TableRow,
    TableSpec,
    has_tables,
    is_database,
    open_database,
)
from sources.importers.engine.values import (
    clean_line,
    clean_tags,
    json_or_none,
    object_or_empty,
    objects,
    require_storable,
    stored_time,
    text_or_empty,
    texts,
    valid_uuid,
)

_NAME = "open_webui"
_CHATS = TableSpec(
    "chat", ("id", "user_id", "title", "chat", "created_at", "updated_at"), ("archived", "pinned", "meta", "folder_id")
)
_USERS = TableSpec("user", ("id", "name"), ("email",))
_PROMPTS = TableSpec("prompt", ("command", "title", "content"), ("user_id", "timestamp"))
_NOTES = TableSpec("note", ("id", "title", "data"), ("user_id", "created_at", "updated_at"))
_TABLES = (_CHATS, _PROMPTS, _NOTES)
_DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
# Times of notes are in nanoseconds; a number above this is not in milliseconds.
_NANOSECONDS_FROM = 1e16


class OpenWebUiImporter(Importer):
    name = _NAME
    title = "Open WebUI (webui.db, JSON)"
    suffixes = (".json", *_DATABASE_SUFFIXES)

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 0.0
        if is_database(probe):
            return 0.9 if has_tables(probe, (_CHATS,)) else 0.0
        head = probe.head
        fields = (b'"chat"', b'"history"', b'"messages"')
        has_ids = b'"currentId"' in head or b'"childrenIds"' in head
        return 0.9 if is_json(head) and has_ids and all(field in head for field in fields) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        with open_file(path) as file:
            if is_json(file.read(64)):
                file.seek(0)
                for element in iter_objects(count_reads(file, limits, progress), limits):
                    try:
                        yield from _read_chat(element_object(element, limits), limits, "")
                    except InvalidParams as error:
                        yield FailedItem(f"chat {element.number}", error.message)
                return
        with open_database(path, limits) as connection:
            reader = TableReader(connection, limits)
            if not reader.has(_CHATS):
                raise InvalidParams("not a database of Open WebUI")
            rows_total = sum(reader.count(table) for table in _TABLES if reader.has(table))
            row_progress = RowProgress(progress, file_size(path), rows_total)
            # One database serves all users of a server; if there are several, their names are kept.
            users = [reader.row(_USERS, rowid) for rowid in reader.rowids(_USERS)] if reader.has(_USERS) else []
            names = {row["id"]: clean_line(row["name"]) for row in users}
            for table, read in ((_CHATS, _read_chat_row), (_PROMPTS, _read_prompt), (_NOTES, _read_note)):
                for rowid in reader.rowids(table) if reader.has(table) else ():
                    try:
                        row = reader.row(table, rowid)
                        owner = names.get(row["user_id"], "") if len(names) > 1 else ""
                        yield from read(row, limits, owner)
                    except InvalidParams as error:
                        yield FailedItem(f"{table.name}, row {rowid}", error.message)
                    row_progress.step()
            row_progress.finish()


IMPORTER = OpenWebUiImporter()


# -- the database ------------------------------------------------------------------------------------------------------
def _read_chat_row(row: TableRow, limits: ImportLimits, owner: str) -> Iterator[ImportEvent]:
    chat = json_or_none(row["chat"], limits)
    if not isinstance(chat, Mapping):
        raise InvalidParams("chat: expected a JSON object")
    meta = json_or_none(row["meta"], limits)
    yield from _read_chat({**row, "chat": chat, "meta": meta}, limits, owner)


def _read_prompt(row: TableRow, limits: ImportLimits, owner: str) -> Iterator[ImportEvent]:
    content = text_or_empty(row["content"])
    if not content.strip():
        yield SkippedItem("prompt without text")
        return
    require_storable(content, limits)
    command = clean_line(row["command"])
    yield ImportedPrompt(
        PromptDraft(
            uuid=stable_uuid(_NAME, "prompts", f"{row['user_id']}\0{command}"),
            name=clean_line(row["title"]) or command.lstrip("/"),
            user_prompt=content,
            author=owner,
            metadata={"imported_from": _NAME, "command": command},
            created_at=stored_time(row["timestamp"]) or UNSET,
        )
    )


def _read_note(row: TableRow, limits: ImportLimits, owner: str) -> Iterator[ImportEvent]:
    data = json_or_none(row["data"], limits)
    text = text_or_empty(object_or_empty(object_or_empty(data).get("content")).get("md"))
    if not text.strip():
        yield SkippedItem("empty note")
        return
    require_storable(text, limits)
    key = clean_line(row["id"])
    yield ImportedNote(
        NoteDraft(
            uuid=valid_uuid(key) or stable_uuid(_NAME, "notes", key),
            title=clean_line(row["title"]),
            content=text,
            metadata={"imported_from": _NAME, **({"owner": owner} if owner else {})},
            created_at=_time(row["created_at"]) or UNSET,
            last_modified=_time(row["updated_at"]) or UNSET,
        )
    )


def _read_chat(fields: Mapping[str, Any], limits: ImportLimits, owner: str) -> Iterator[ImportEvent]:
    """Older versions exported the inner object alone."""
    chat = fields["chat"] if isinstance(fields.get("chat"), Mapping) else fields
    key = clean_line(fields.get("id")) or clean_line(chat.get("id"))
    if not key:
        raise InvalidParams("id: expected the id of the chat, got nothing")
    draft = conversation_draft(
        _NAME,
        valid_uuid(key) or stable_uuid(_NAME, "conversation", key),
        clean_line(fields.get("title")) or clean_line(chat.get("title")),
        created=stored_time(fields.get("created_at")) or stored_time(chat.get("timestamp")),
        modified=stored_time(fields.get("updated_at")),
        tags=clean_tags([*texts(object_or_empty(fields.get("meta")).get("tags")), *texts(chat.get("tags"))]),
        owner=owner,
        models=list(texts(chat.get("models"))),
        is_archived=bool(fields.get("archived")),
        is_pinned=bool(fields.get("pinned")),
    )
    # A tree of messages, and the key of the one shown last. Old chats have a list instead.
    history = object_or_empty(chat.get("history"))
    messages: list[ChatMessage] = []
    if isinstance(tree := history.get("messages"), Mapping):
        for key, message in tree.items():
            if isinstance(message, Mapping):
                messages.append(_message(clean_line(key), message, clean_line(message.get("parentId")) or None))
        current = clean_line(history.get("currentId"))
    else:
        for number, message in enumerate(objects(chat.get("messages")), 1):
            key = clean_line(message.get("id")) or str(number)
            messages.append(_message(key, message, messages[-1].key if messages else None))
        current = None
    yield from conversation_with_branches(_NAME, draft, messages, limits, current)


def _message(key: str, message: Mapping[str, Any], parent: str | None) -> ChatMessage:
    role = role_of(message.get("role"))
    files = (clean_line(file.get("name")) for file in objects(message.get("files")))
    sources = (source.get("source") for name in ("sources", "citations") for source in objects(message.get(name)))
    citations = (
        {"title": clean_line(source.get("name")), "url": clean_line(source.get("url"))}
        for source in sources
        if isinstance(source, Mapping)
    )
    return ChatMessage(
        key=key,
        role=role,
        text=content_text(message.get("content")),
        time=stored_time(message.get("timestamp")),
        model=clean_line(message.get("model")) if role == "assistant" else "",
        parent=parent,
        attachments=tuple({"name": name} for name in files if name),
        citations=tuple(citation for citation in citations if citation["title"]),
    )


def _time(value: object) -> str | None:
    is_nanoseconds = isinstance(value, int | float) and value > _NANOSECONDS_FROM
    return stored_time(value / 1e9 if is_nanoseconds and isinstance(value, int | float) else value)
