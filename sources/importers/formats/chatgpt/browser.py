"""Databases of chatGPT-browser, a viewer for ChatGPT exports: its working database, whose conversations branch, and its
canonical export, whose messages are numbered. Conversations keep their ChatGPT ids.

The databases that origin_conversation searches have the same tables; some of them have no times for conversations."""

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.chat_messages import MessageTree, SkipMessage, conversation_parts, thread_messages
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import FailedItem, SkippedItem
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.json_stream import decode_object, require_depth
from sources.importers.engine.table_reader import columns_of, is_database, open_database, table_columns
from sources.importers.engine.values import clean_line, require_storable, stored_time, text_or_empty
from sources.importers.formats.chatgpt.export import (
    EMPTY_MESSAGE,
    SYSTEM_MESSAGE,
    conversation_uuid,
    message_uuid,
    parts_text,
)

_NAME = "chatgpt_browser"
_CONVERSATION_COLUMNS = frozenset(("id", "title"))
_CONVERSATION_TIMES = frozenset(("create_time", "update_time"))
_MESSAGE_COLUMNS = frozenset(("id", "conversation_id", "role", "content", "create_time"))
_ROLES = frozenset(("user", "assistant", "system", "tool"))

# The queries depend on the column that orders messages. The file has no index on conversations: the short keys are
# sorted first, and rows are then read by rowid.
_ROWIDS = {
    "parent_id": "SELECT conversation_id, rowid FROM messages ORDER BY conversation_id, rowid",
    "position": "SELECT conversation_id, rowid FROM messages ORDER BY conversation_id, position, rowid",
}
_MESSAGE = {
    "parent_id": "SELECT id, role, content, create_time, parent_id FROM messages WHERE rowid = ?",
    "position": "SELECT id, role, content, create_time, NULL FROM messages WHERE rowid = ?",
}
# By whether conversations have times. Without them, those of their first and last message are used.
_CONVERSATION = {
    True: "SELECT title, create_time, update_time FROM conversations WHERE id = ?",
    False: "SELECT title, NULL, NULL FROM conversations WHERE id = ?",
}
_EMPTY_CONVERSATIONS = """
    SELECT count(*) FROM conversations
    WHERE id NOT IN (SELECT conversation_id FROM messages WHERE conversation_id IS NOT NULL)
"""
_MODEL = "SELECT model_slug FROM message_metadata WHERE message_id = ?"


class ChatGptBrowserImporter(Importer):
    name = _NAME
    title = "chatGPT-browser database"
    suffixes = (".db", ".sqlite", ".sqlite3")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder or not is_database(probe):
            return 0.0
        # Many databases have tables of these names, so the columns decide.
        columns = table_columns(probe.path, "conversations", "messages")
        return 0.9 if _order_column(columns["conversations"], columns["messages"]) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        with open_database(path, limits) as connection:
            order_column = _order_column(columns_of(connection, "conversations"), columns_of(connection, "messages"))
            if order_column is None:
                raise InvalidParams("not a chatGPT-browser database")
            reader = _ViewerDatabase(connection, order_column, limits)
            size, rows_read, rows_total = path.stat().st_size, 0, reader.message_count()
            for key, rowids in reader.conversations():
                yield from reader.read_conversation(key, rowids)
                rows_read += len(rowids)
                progress(size * rows_read // rows_total)
            yield from reader.empty_conversations()


IMPORTER = ChatGptBrowserImporter()


def _order_column(conversations: frozenset[str], messages: frozenset[str]) -> str | None:
    """Returns the column that orders messages, which depends on the kind of database; None for other databases."""
    if not (conversations >= _CONVERSATION_COLUMNS and messages >= _MESSAGE_COLUMNS):
        return None
    return next((column for column in ("parent_id", "position") if column in messages), None)


class _ViewerThread(Struct):
    """The messages of one conversation, by key."""

    parents: dict[str, str | None] = {}
    times: dict[str, str] = {}
    drafts: dict[str, MessageDraft] = {}


class _ViewerDatabase:
    def __init__(self, connection: sqlite3.Connection, order_column: str, limits: ImportLimits) -> None:
        self._connection = connection
        self._order_column = order_column
        self._limits = limits
        self._has_times = columns_of(connection, "conversations") >= _CONVERSATION_TIMES
        self._has_models = columns_of(connection, "message_metadata") >= {"message_id", "model_slug"}

    def message_count(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM messages").fetchone()[0])

    def conversations(self) -> Iterator[tuple[Any, Sequence[int]]]:
        """Yields the id of each conversation with the rowids of its messages."""
        rows = self._connection.execute(_ROWIDS[self._order_column])
        for key, group in groupby(rows, key=lambda row: row[0]):
            yield key, [rowid for _, rowid in group]

    def empty_conversations(self) -> Iterator[SkippedItem]:
        (count,) = self._connection.execute(_EMPTY_CONVERSATIONS).fetchone()
        yield from (SkippedItem("conversation without messages") for _ in range(count))

    def read_conversation(self, key: Any, rowids: Sequence[int]) -> Iterator[ImportEvent]:
        row = self._connection.execute(_CONVERSATION[self._has_times], (key,)).fetchone()
        if row is None or not isinstance(key, str):
            yield from (SkippedItem("message without a conversation") for _ in rowids)
            return
        title, create_time, update_time = row
        draft = ConversationDraft(
            uuid=conversation_uuid(key),
            title=clean_line(title),
            metadata={"imported_from": _NAME},
            created_at=stored_time(create_time) or UNSET,
            last_modified=stored_time(update_time) or UNSET,
        )
        thread = _ViewerThread()
        location = f"conversation {key[:40]}"
        try:
            yield from self._read_messages(rowids, thread, location)
        except InvalidParams as error:
            yield FailedItem(location, error.message)
            return
        if not self._has_times:
            times = sorted(filter(None, thread.times.values()))
            draft = replace(draft, created_at=times[0], last_modified=times[-1]) if times else draft
        tree = MessageTree(thread.parents)
        # The database does not store the branch last seen. Like the viewer, take the one with the newest message.
        newest = max(tree.leaves(), key=lambda leaf: thread.times[leaf], default=None)
        uuid = str(draft.uuid)
        threaded = thread_messages(
            tree, tree.path_to(newest), thread.drafts, lambda message: message_uuid(uuid, message), draft.created_at
        )
        yield from conversation_parts(draft, threaded)

    def _read_messages(
        self, rowids: Sequence[int], thread: _ViewerThread, location: str
    ) -> Iterator[SkippedItem | FailedItem]:
        """Adds the messages to the thread, and yields reports of those that are left out."""
        chars, previous = 0, None
        for rowid in rowids:
            row = self._connection.execute(_MESSAGE[self._order_column], (rowid,)).fetchone()
            key, message_role, content, create_time, parent = row
            key, content, created_at = (
                clean_line(key) or f"row {rowid}",
                text_or_empty(content),
                stored_time(create_time),
            )
            thread.parents[key] = previous if self._order_column == "position" else clean_line(parent)
            thread.times[key] = created_at or ""
            previous = key
            chars += len(content)
            # The drafts of a conversation are held until its branches are known.
            if chars > self._limits.line_max_bytes:
                raise InvalidParams(f"conversation is longer than {self._limits.line_max_bytes} characters")
            try:
                role = clean_line(message_role)
                if role == "system":
                    raise SkipMessage(SYSTEM_MESSAGE)
                text = _content_text(content, self._limits)
                if not text.strip():
                    raise SkipMessage(EMPTY_MESSAGE)
                require_storable(text, self._limits)
                role = role if role in _ROLES or not role else "tool"
                model = self._connection.execute(_MODEL, (key,)).fetchone() if self._has_models else None
                thread.drafts[key] = MessageDraft(
                    role=role,
                    sender=role,
                    content=text,
                    model=clean_line(model[0]) or None if model else None,
                    created_at=created_at or UNSET,
                )
            except SkipMessage as skip:
                yield SkippedItem(skip.reason)
            except InvalidParams as error:
                yield FailedItem(f"{location}, message {key[:40]}", error.message)


def _content_text(content: str, limits: ImportLimits) -> str:
    """The viewer stores the parts of a message as a JSON list; some of its versions stored plain text."""
    if not content.startswith("["):
        return content
    # Text that only looks like JSON is kept as it is.
    data = content.encode("utf-8", "replace")
    try:
        require_depth(data, limits)
        parts = decode_object(data, list[Any])
    except InvalidParams:
        return content
    return parts_text(parts) if all(isinstance(part, str | dict) for part in parts) else content
