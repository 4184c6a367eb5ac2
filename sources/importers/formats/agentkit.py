"""AgentKit's database, `uploads/conversations.db`. Conversations keep the ids of AgentKit's API, so that they are the
same whether they are imported from the database or from exported JSON.

AgentKit does not remove the messages of deleted conversations; they are skipped.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

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
from sources.importers.engine.values import (
    clean_line,
    json_or_none,
    objects,
    require_storable,
    stored_time,
    text_or_empty,
)
from sources.importers.formats.conversation_archive.reader import require_allowed_id

_CONVERSATIONS = TableSpec(
    "conversations", ("id", "title", "namespace", "session_id", "created_at", "updated_at"), ("metadata",)
)
_MESSAGES = TableSpec(
    "messages",
    ("id", "conversation_id", "role", "content", "timestamp"),
    ("model", "tool_used", "attachments", "citations"),
)
_TABLES = (_CONVERSATIONS, _MESSAGES)


class AgentKitImporter(Importer):
    name = "agentkit"
    title = "AgentKit database"
    suffixes = (".db", ".sqlite", ".sqlite3")

    def recognizes(self, probe: FileProbe) -> float:
        return 0.9 if has_tables(probe, _TABLES) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        with open_database(path, limits) as connection:
            reader = TableReader(connection, limits)
            if not all(map(reader.has, _TABLES)):
                raise InvalidParams("not an AgentKit database")
            row_progress = RowProgress(progress, file_size(path), reader.count(_MESSAGES))
            # Counted down with each conversation that has messages.
            empty = reader.count(_CONVERSATIONS)
            for conversation_id, rowids in reader.grouped_rowids(_MESSAGES, "conversation_id", "timestamp"):
                conversation = next(iter(reader.rows_where(_CONVERSATIONS, "id", conversation_id)), None)
                if conversation is None:
                    for _ in rowids:
                        yield SkippedItem("message of a deleted conversation")
                        row_progress.step()
                else:
                    empty -= 1
                    yield from _read_conversation(reader, conversation, rowids, row_progress)
            yield from (SkippedItem("conversation without messages") for _ in range(empty))
            row_progress.finish()


IMPORTER = AgentKitImporter()


def _read_conversation(
    reader: TableReader, row: TableRow, rowids: Iterable[int], progress: RowProgress
) -> Iterator[ImportEvent]:
    key = row["id"]
    try:
        if not isinstance(key, str):
            raise InvalidParams(f"id: expected text, got {key_label(key)!r}")
        # Ids are kept, and some words are paths of the conversations API.
        require_allowed_id(key)
    except InvalidParams as error:
        yield FailedItem(f"conversation {key_label(key)}", error.message)
        return
    metadata = json_or_none(row["metadata"], reader.limits)
    draft = ConversationDraft(
        uuid=key,
        title=clean_line(row["title"]),
        namespace=clean_line(row["namespace"]) or UNSET,
        session_id=clean_line(row["session_id"]),
        metadata=metadata if isinstance(metadata, dict) else {},
        created_at=stored_time(row["created_at"]) or UNSET,
        last_modified=stored_time(row["updated_at"]) or UNSET,
    )
    yield from conversation_parts(draft, _read_messages(reader, rowids, progress))


def _read_messages(
    reader: TableReader, rowids: Iterable[int], progress: RowProgress
) -> Iterator[MessageDraft | FailedItem]:
    for rowid in rowids:
        try:
            row = reader.row(_MESSAGES, rowid)
            if not isinstance(row["id"], str):
                raise InvalidParams(f"id: expected text, got {key_label(row['id'])!r}")
            content, role = text_or_empty(row["content"]), clean_line(row["role"])
            require_storable(content, reader.limits)
            yield MessageDraft(
                uuid=row["id"],
                role=role,
                sender=role,
                content=content,
                model=clean_line(row["model"]) or None,
                tool=clean_line(row["tool_used"]) or None,
                attachments=tuple(objects(json_or_none(row["attachments"], reader.limits))),
                citations=tuple(objects(json_or_none(row["citations"], reader.limits))),
                created_at=stored_time(row["timestamp"]) or UNSET,
            )
        except InvalidParams as error:
            yield FailedItem(f"{_MESSAGES.name}, row {rowid}", error.message)
        progress.step()
