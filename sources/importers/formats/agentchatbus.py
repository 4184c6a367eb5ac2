"""AgentChatBus's database, `bus.db`: its threads become threads of our bus, with the same ids, so that agents find them
where they left them. Agents, their tokens and events are not read."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.chat_messages import conversation_parts
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import FailedItem, SkippedItem, file_size
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.table_reader import (
    RowProgress,
    TableReader,
    TableRow,
    TableSpec,
    has_tables,
    key_label,
    open_database,
)
from sources.importers.engine.values import clean_line, json_or_none, require_storable, stored_time, text_or_empty
from sources.importers.formats.conversation_archive.reader import require_allowed_id

_THREADS = TableSpec(
    "threads",
    ("id", "topic", "status", "created_at"),
    ("summary", "metadata", "system_prompt", "updated_at", "closed_at"),
)
_MESSAGES = TableSpec(
    "messages",
    ("id", "thread_id", "author", "role", "content", "seq", "created_at"),
    ("metadata", "author_id", "author_name", "reply_to_msg_id", "priority", "deleted_at"),
)
_TABLES = (_THREADS, _MESSAGES)
# As our bus stores threads: their namespace, and the metadata key of what the bus itself knows.
_NAMESPACE = "bus"
_BUS_KEY = "_bus"
_DEFAULTS = ("discuss", "normal")


class AgentChatBusImporter(Importer):
    name = "agentchatbus"
    title = "AgentChatBus database (bus.db)"
    suffixes = (".db", ".sqlite", ".sqlite3")

    def recognizes(self, probe: FileProbe) -> float:
        return 0.9 if has_tables(probe, _TABLES) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        with open_database(path, limits) as connection:
            reader = TableReader(connection, limits)
            if not all(map(reader.has, _TABLES)):
                raise InvalidParams("not a database of AgentChatBus")
            row_progress = RowProgress(progress, file_size(path), reader.count(_MESSAGES))
            empty = reader.count(_THREADS)
            for thread_id, rowids in reader.grouped_rowids(_MESSAGES, "thread_id", "seq"):
                thread = next(iter(reader.rows_where(_THREADS, "id", thread_id)), None)
                # What is left are threads that no message belongs to.
                empty -= thread is not None
                yield from _read_thread(reader, thread, rowids, row_progress)
            yield from (SkippedItem("thread without messages") for _ in range(empty))
            row_progress.finish()


IMPORTER = AgentChatBusImporter()


def _read_thread(
    reader: TableReader, thread: TableRow | None, rowids: Iterable[int], progress: RowProgress
) -> Iterator[ImportEvent]:
    if thread is None:
        yield from (SkippedItem("message of a deleted thread") for _ in rowids)
        return
    try:
        if not isinstance(thread["id"], str):
            raise InvalidParams(f"id: expected text, got {key_label(thread['id'])!r}")
        # The id stays the same, and is part of paths of the API.
        require_allowed_id(thread["id"])
        own = json_or_none(thread["metadata"], reader.limits)
        fields = {name: clean_line(thread[name]) for name in ("summary", "system_prompt") if clean_line(thread[name])}
        draft = ConversationDraft(
            uuid=thread["id"],
            title=clean_line(thread["topic"]),
            namespace=_NAMESPACE,
            metadata=_with_bus_fields({**(own if isinstance(own, dict) else {}), **fields}, status=thread["status"]),
            created_at=stored_time(thread["created_at"]) or UNSET,
            last_modified=stored_time(thread["updated_at"]) or stored_time(thread["closed_at"]) or UNSET,
        )
    except InvalidParams as error:
        yield FailedItem(f"thread {key_label(thread['id'])}", error.message)
        return
    yield from conversation_parts(draft, _read_messages(reader, rowids, progress))


def _read_messages(
    reader: TableReader, rowids: Iterable[int], progress: RowProgress
) -> Iterator[MessageDraft | SkippedItem | FailedItem]:
    for rowid in rowids:
        try:
            row = reader.row(_MESSAGES, rowid)
            yield SkippedItem("deleted message") if row["deleted_at"] else _message_draft(row, reader.limits)
        except InvalidParams as error:
            yield FailedItem(f"{_MESSAGES.name}, row {rowid}", error.message)
        progress.step()


def _message_draft(row: TableRow, limits: ImportLimits) -> MessageDraft:
    if not isinstance(row["id"], str):
        raise InvalidParams(f"id: expected text, got {key_label(row['id'])!r}")
    content = text_or_empty(row["content"])
    require_storable(content, limits)
    own = json_or_none(row["metadata"], limits)
    metadata = own if isinstance(own, dict) else {}
    return MessageDraft(
        uuid=row["id"],
        role=clean_line(row["role"]),
        sender=clean_line(row["author_name"]) or clean_line(row["author"]),
        content=content,
        parent_id=clean_line(row["reply_to_msg_id"]) or None,
        metadata=_with_bus_fields(metadata, priority=row["priority"], author_id=row["author_id"]),
        created_at=stored_time(row["created_at"]) or UNSET,
    )


def _with_bus_fields(metadata: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """Adds the fields of the bus that differ from their defaults."""
    values = {name: clean_line(value) for name, value in fields.items()}
    bus_fields = {name: value for name, value in values.items() if value and value not in _DEFAULTS}
    # The key is ours: metadata of the file must not set what only the bus may.
    own = {name: value for name, value in metadata.items() if name != _BUS_KEY}
    return {**own, _BUS_KEY: bus_fields} if bus_fields else own
