"""AgentKit's database, `uploads/conversations.db`: its conversations with the ids that its API gave them, so that they
are the same whether they come as the file or as exported JSON.

AgentKit leaves the messages of deleted conversations where they are; they stay out.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import UNSET

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.database_rows import Pace, Row, Rows, Table, json_of, shown, text_of
from sources.importers.engine.databases import columns_in, is_database, open_database
from sources.importers.engine.files import size_of
from sources.importers.engine.imported_items import FailedItem, ImportEvent, ReadPosition, SkippedItem
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback
from sources.importers.engine.threads import arrivals_of, line_of, require_text
from sources.importers.engine.times import moment_of
from sources.importers.formats.conversation_archive.drafts import RESERVED_IDS

_CONVERSATIONS = Table(
    "conversations", ("id", "title", "namespace", "session_id", "created_at", "updated_at"), ("metadata",)
)
_MESSAGES = Table(
    "messages",
    ("id", "conversation_id", "role", "content", "timestamp"),
    ("model", "tool_used", "attachments", "citations"),
)
_TABLES = (_CONVERSATIONS, _MESSAGES)
_EMPTY = SkippedItem("a conversation without messages")


def _recognizes(probe: FileProbe) -> float:
    if probe.is_folder or not is_database(probe):
        return 0.0
    found = columns_in(probe.path, *(table.name for table in _TABLES))
    return 0.9 if all(found[table.name] >= set(table.needed) for table in _TABLES) else 0.0


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, _mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    with open_database(path, limits) as connection:
        rows = Rows(connection, limits)
        if not all(map(rows.has, _TABLES)):
            raise InvalidParams("the database: got other tables, expected those of AgentKit")
        pace = Pace(progress, size_of(path), rows.count(_MESSAGES))
        silent = rows.count(_CONVERSATIONS)
        for key, found in groupby(rows.grouped(_MESSAGES, ("conversation_id", "timestamp")), key=lambda one: one[0]):
            places = (place for _, place in found)
            owner = next(iter(rows.where(_CONVERSATIONS, "id", key)), None)
            silent -= owner is not None
            yield from _strays(places, pace) if owner is None else _conversation(rows, owner, places, pace)
        yield from (_EMPTY for _ in range(silent))
        pace.finish()


def _strays(places: Iterable[int], pace: Pace) -> Iterator[SkippedItem]:
    for _ in places:
        yield SkippedItem("a message of a deleted conversation")
        pace.step()


def _conversation(rows: Rows, owner: Row, places: Iterable[int], pace: Pace) -> Iterator[ImportEvent]:
    key = owner["id"]
    if not isinstance(key, str) or key in RESERVED_IDS:
        yield FailedItem(f"conversation {shown(key)}", f"id: got {shown(key)!r}, expected one that can be an address")
        return
    metadata = json_of(owner["metadata"], rows.limits)
    draft = ConversationDraft(
        uuid=key,
        title=line_of(owner["title"]),
        namespace=line_of(owner["namespace"]) or UNSET,
        session_id=line_of(owner["session_id"]),
        metadata=metadata if isinstance(metadata, dict) else {},
        created_at=moment_of(owner["created_at"]) or UNSET,
        last_modified=moment_of(owner["updated_at"]) or UNSET,
    )
    yield from arrivals_of(draft, _messages(rows, places, pace))


def _messages(rows: Rows, places: Iterable[int], pace: Pace) -> Iterator[MessageDraft | FailedItem]:
    for place in places:
        try:
            yield _message(rows, rows.at(_MESSAGES, place))
        except InvalidParams as error:
            yield FailedItem(f"{_MESSAGES.name}, row {place}", error.message)
        pace.step()


def _message(rows: Rows, row: Row) -> MessageDraft:
    if not isinstance(row["id"], str):
        raise InvalidParams(f"id: got {shown(row['id'])!r}, expected a text")
    content = text_of(row["content"])
    require_text(content, rows.limits)
    role = line_of(row["role"])
    return MessageDraft(
        uuid=row["id"],
        role=role,
        sender=role,
        content=content,
        model=line_of(row["model"]) or None,
        tool=line_of(row["tool_used"]) or None,
        attachments=_objects(rows, row["attachments"]),
        citations=_objects(rows, row["citations"]),
        created_at=moment_of(row["timestamp"]) or UNSET,
    )


def _objects(rows: Rows, value: Any) -> tuple[Mapping[str, Any], ...]:
    found = json_of(value, rows.limits)
    return tuple(one for one in found if isinstance(one, dict)) if isinstance(found, list) else ()


IMPORTER = Importer(
    name="agentkit",
    title="AgentKit database",
    recognizes=_recognizes,
    read=_read,
    suffixes=(".db", ".sqlite", ".sqlite3"),
)
