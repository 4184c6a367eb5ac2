"""The SQLite file of chatGPT-browser, a viewer of ChatGPT exports: its own database, in which conversations branch, and
its canonical export, in which messages are numbered. Conversations have the ids that ChatGPT gave them.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.databases import columns_in, columns_of, is_database, open_database
from sources.importers.engine.imported_items import FailedItem, ImportEvent, ReadPosition, SkippedItem
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback
from sources.importers.engine.json_stream import decode, require_depth
from sources.importers.engine.threads import SkipMessage, Tree, arrivals_of, line_of, require_text, threaded
from sources.importers.engine.times import moment_of
from sources.importers.formats.chatgpt import EMPTY, SYSTEM, conversation_uuid, message_uuid
from sources.importers.formats.chatgpt_content import parts_text

_NAME = "chatgpt_browser"
_CONVERSATION = frozenset(("id", "title", "create_time", "update_time"))
_MESSAGE = frozenset(("id", "conversation_id", "role", "content", "create_time"))
_ROLES = frozenset(("user", "assistant", "system", "tool"))

# The file has no index on conversations: the short keys are sorted, and each row is then taken by its place.
_PLACES = {
    "parent_id": "SELECT conversation_id, rowid FROM messages ORDER BY conversation_id, rowid",
    "position": "SELECT conversation_id, rowid FROM messages ORDER BY conversation_id, position, rowid",
}
_MESSAGE_AT = {
    "parent_id": "SELECT id, role, content, create_time, parent_id FROM messages WHERE rowid = ?",
    "position": "SELECT id, role, content, create_time, NULL FROM messages WHERE rowid = ?",
}
_CONVERSATION_WITH = "SELECT title, create_time, update_time FROM conversations WHERE id = ?"
_WITHOUT_MESSAGES = """
    SELECT count(*) FROM conversations
    WHERE id NOT IN (SELECT conversation_id FROM messages WHERE conversation_id IS NOT NULL)
"""
_MODEL_OF = "SELECT model_slug FROM message_metadata WHERE message_id = ?"


def _recognizes(probe: FileProbe) -> float:
    if probe.is_folder or not is_database(probe):
        return 0.0
    found = columns_in(probe.path, "conversations", "messages")
    return 0.9 if _form_of(found["conversations"], found["messages"]) else 0.0


def _form_of(conversations: frozenset[str], messages: frozenset[str]) -> str | None:
    """By the column that says how messages follow one another: the one they answer, or their number."""
    if not (conversations >= _CONVERSATION and messages >= _MESSAGE):
        return None
    return next((column for column in ("parent_id", "position") if column in messages), None)


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, _mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    with open_database(path, limits) as connection:
        form = _form_of(columns_of(connection, "conversations"), columns_of(connection, "messages"))
        if form is None:
            raise InvalidParams("the database: got other tables, expected those of chatGPT-browser")
        reader = _Reader(connection, form, limits)
        size, done, total = path.stat().st_size, 0, reader.count()
        for key, places in reader.conversations():
            yield from reader.conversation(key, places)
            done += len(places)
            progress(size * done // total)
        yield from reader.silent()


class _Row(Struct, frozen=True):
    key: str
    role: str
    content: str
    created_at: str | None
    parent: str | None


class _Thread(Struct):
    """A conversation as its rows are read."""

    parents: dict[str, str | None] = {}
    times: dict[str, str] = {}
    drafts: dict[str, MessageDraft] = {}


class _Reader:
    """One file. `form` is the column that puts messages in order."""

    def __init__(self, connection: sqlite3.Connection, form: str, limits: ImportLimits) -> None:
        self._connection = connection
        self._form = form
        self._limits = limits
        self._has_models = columns_of(connection, "message_metadata") >= {"message_id", "model_slug"}

    def count(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM messages").fetchone()[0])

    def conversations(self) -> Iterator[tuple[Any, Sequence[int]]]:
        """Each with the places of its messages."""
        rows = self._connection.execute(_PLACES[self._form])
        for key, places in groupby(rows, key=lambda row: row[0]):
            yield key, [place for _, place in places]

    def silent(self) -> Iterator[SkippedItem]:
        (count,) = self._connection.execute(_WITHOUT_MESSAGES).fetchone()
        yield from (SkippedItem("a conversation without messages") for _ in range(count))

    def conversation(self, key: Any, places: Sequence[int]) -> Iterator[ImportEvent]:
        found = self._connection.execute(_CONVERSATION_WITH, (key,)).fetchone()
        if found is None or not isinstance(key, str):
            yield from (SkippedItem("a message without its conversation") for _ in places)
            return
        draft = _conversation_draft(key, *found)
        thread = _Thread()
        try:
            yield from self._messages(places, thread, f"conversation {key[:40]}")
        except InvalidParams as error:
            yield FailedItem(f"conversation {key[:40]}", error.message)
            return
        tree = Tree(thread.parents)
        # What the reader saw is not kept here; the viewer shows what leads to the newest message, as is done now.
        newest = max(tree.leaves(), key=lambda key: thread.times[key], default=None)
        uuid = str(draft.uuid)
        said = threaded(
            tree, tree.path_to(newest), thread.drafts, lambda key: message_uuid(uuid, key), draft.created_at
        )
        yield from arrivals_of(draft, said)

    def _messages(
        self, places: Sequence[int], thread: "_Thread", conversation: str
    ) -> Iterator[SkippedItem | FailedItem]:
        """Puts them into the thread, and tells those that it leaves out."""
        chars, before = 0, None
        for place in places:
            row = self._row(place, before)
            before = row.key
            thread.parents[row.key], thread.times[row.key] = row.parent, row.created_at or ""
            chars += len(row.content)
            if chars > self._limits.line_max_bytes:
                raise InvalidParams(f"got more than {self._limits.line_max_bytes} characters, expected fewer")
            try:
                thread.drafts[row.key] = self._draft(row)
            except SkipMessage as left_out:
                yield SkippedItem(left_out.reason)
            except InvalidParams as error:
                yield FailedItem(f"{conversation}, message {row.key[:40]}", error.message)

    def _draft(self, row: _Row) -> MessageDraft:
        if row.role == "system":
            raise SkipMessage(SYSTEM)
        text = _plain(row.content, self._limits)
        if not text.strip():
            raise SkipMessage(EMPTY)
        require_text(text, self._limits)
        role = row.role if row.role in _ROLES else "tool"
        return MessageDraft(
            role=role, sender=role, content=text, model=self._model(row.key), created_at=row.created_at or UNSET
        )

    def _model(self, key: str) -> str | None:
        found = self._connection.execute(_MODEL_OF, (key,)).fetchone() if self._has_models else None
        return line_of(found[0]) or None if found else None

    def _row(self, place: int, before: str | None) -> _Row:
        key, role, content, created, parent = self._connection.execute(_MESSAGE_AT[self._form], (place,)).fetchone()
        return _Row(
            key=line_of(key) or f"row {place}",
            role=line_of(role),
            content=content if isinstance(content, str) else "",
            created_at=moment_of(created),
            parent=before if self._form == "position" else line_of(parent),
        )


def _conversation_draft(key: str, title: Any, begun: Any, changed: Any) -> ConversationDraft:
    return ConversationDraft(
        uuid=conversation_uuid(key),
        title=line_of(title),
        metadata={"imported_from": _NAME},
        created_at=moment_of(begun) or UNSET,
        last_modified=moment_of(changed) or UNSET,
    )


def _plain(content: str, limits: ImportLimits) -> str:
    """The viewer keeps the parts of a message as a JSON list; versions of it kept the text."""
    if not content.startswith("["):
        return content
    data = content.encode("utf-8", "replace")
    try:
        require_depth(data, limits)
        parts = decode(data, list[Any])
    except InvalidParams:
        return content
    return parts_text(parts) if all(isinstance(part, str | dict) for part in parts) else content


IMPORTER = Importer(
    name=_NAME,
    title="chatGPT-browser database",
    recognizes=_recognizes,
    read=_read,
    suffixes=(".db", ".sqlite", ".sqlite3"),
)
