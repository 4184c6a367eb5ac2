"""Full-text tables over messages that are built on demand, because most libraries never need them.

Creating an index installs its triggers. It is then filled from the newest message to the oldest in many small
transactions. It is always consistent: a change to an indexed row is applied in the transaction of the change, as
described in `text_index`, and a row that is not indexed yet is read when its turn comes. The progress is stored in the
file.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import suppress

import msgspec
from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from config.errors import StorageError, Unavailable
from sources.storage.job_queue import background_jobs
from sources.storage.sqlite.connection.database import Database
from sources.storage.tables.sql import TextIndex


class IndexProgress(Struct, frozen=True):
    """How far an index is filled: it contains all messages and titles with rowids greater than these."""

    version: str
    messages: int
    titles: int

    @property
    def is_complete(self) -> bool:
        return not (self.messages or self.titles)


class MessageIndex(Struct, frozen=True):
    """An entry has the rowid of its message; with `has_titles`, titles of conversations have their negative rowid.

    An index contains either the human-only messages or all others (`is_human_only`), so that what an agent finds cannot
    depend on a text that is hidden from it.

    `options` are those of the FTS5 table. `text_expression` is the SQL expression that is indexed for a text `{}`. An
    index of another `version` is dropped and built again. `extra_ddl` are further statements that create it.
    """

    table: str
    column: str
    options: str
    version: str
    text_expression: str = "{}"
    has_titles: bool = False
    is_human_only: bool = False
    extra_ddl: tuple[str, ...] = ()
    # The size of one transaction: a few tens of milliseconds, so that other writes are not delayed.
    batch_rows: int = 1_000
    batch_chars: int = 1_000_000

    def progress(self, connection: sqlite3.Connection) -> IndexProgress | None:
        """Returns None if the index was never needed or has another version."""
        row = connection.execute("SELECT value FROM state WHERE name = ?", (self.table,)).fetchone()
        progress = msgspec.json.decode(row[0], type=IndexProgress) if row else None
        return progress if progress is not None and progress.version == self.version else None

    def create(self, connection: sqlite3.Connection) -> IndexProgress:
        """Creates the tables and triggers unless they exist."""
        progress = self.progress(connection)
        if progress is not None:
            return progress
        # Drops the triggers, views and tables of another version, except the shadow tables, which FTS5 drops.
        rows = connection.execute(
            "SELECT type, name FROM sqlite_schema WHERE name GLOB ? AND type IN ('trigger', 'view') "
            "UNION ALL SELECT type, name FROM sqlite_schema WHERE name IN (?, ?, ?) AND type = 'table'",
            (f"{self.table}_*", f"{self.table}_terms", f"{self.table}_queue", self.table),
        )
        for statement in (*[f"DROP {kind} {name}" for kind, name in rows.fetchall()], *self._ddl()):
            connection.execute(statement)
        [messages] = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
        [titles] = connection.execute("SELECT coalesce(max(id), 0) FROM conversations").fetchone()
        return self._save(connection, IndexProgress(self.version, messages, titles if self.has_titles else 0))

    def fill(self, connection: sqlite3.Connection) -> IndexProgress:
        """Adds one batch of rows: titles before messages, each from the newest to the oldest."""
        progress = self.create(connection)
        # Changes by other programs may still be queued. They refer to the index as it was before this batch.
        self.apply_changes(connection)
        if progress.titles:
            title_sizes = connection.execute(
                "SELECT id, length(title) FROM conversations WHERE id <= ? ORDER BY id DESC", (progress.titles,)
            )
            first_untitled = self._first_of_batch(title_sizes)
            connection.execute(
                f"INSERT INTO {self.table} (rowid, {self.column}) SELECT id, {self._indexed_text(self.column)} "
                f"FROM {self.table}_titles WHERE conversation_id BETWEEN ? AND ? ORDER BY id",
                (first_untitled, progress.titles),
            )
            return self._save(connection, replace(progress, titles=max(0, first_untitled - 1)))
        if progress.messages:
            # Adding rows, in ascending order: FTS5 flushes its buffer whenever a rowid is lower than the one before.
            # The index of human-only messages reads only these: most libraries have few or none.
            rows = "messages INDEXED BY messages_human_only" if self.is_human_only else "messages"
            condition = "human_only = 1 AND deleted = 0 AND id <= ?" if self.is_human_only else "id <= ?"
            sizes = connection.execute(
                f"SELECT id, length(content) FROM {rows} WHERE {condition} ORDER BY id DESC", (progress.messages,)
            )
            first = self._first_of_batch(sizes)
            connection.execute(
                f"INSERT INTO {self.table} (rowid, {self.column}) SELECT id, {self._indexed_text(self.column)} "
                f"FROM {self.table}_source WHERE id BETWEEN ? AND ? ORDER BY id",
                (first, progress.messages),
            )
            return self._save(connection, replace(progress, messages=max(0, first - 1)))
        return progress

    def rebuild(self, connection: sqlite3.Connection) -> None:
        """Builds the index again from the rows, all at once, if it was ever needed."""
        if connection.execute("DELETE FROM state WHERE name = ?", (self.table,)).rowcount:
            while not self.fill(connection).is_complete:
                pass

    def apply_changes(self, connection: sqlite3.Connection) -> None:
        """Applies the queued changes. Must be called before a transaction that changes messages is committed."""
        progress = self.progress(connection)
        if progress is None:
            return
        queue, column = f"{self.table}_queue", self.column
        if not progress.is_complete:
            # Rows that are not in the index yet need not be removed from it, and are added later with their new text.
            connection.execute(
                f"DELETE FROM {queue} WHERE (id > 0 AND id <= ?) OR (id < 0 AND id >= ?)",
                (progress.messages, -progress.titles),
            )
        connection.execute(
            f"INSERT INTO {self.table} ({self.table}, rowid, {column}) "
            f"SELECT 'delete', id, {self._indexed_text(column)} FROM {queue} WHERE {column} IS NOT NULL"
        )
        for rows in self._current_rows():
            # SQLite keeps the order of a CROSS JOIN, so it looks up the queued rows instead of scanning all.
            connection.execute(
                f"INSERT INTO {self.table} (rowid, {column}) SELECT now.id, {self._indexed_text(f'now.{column}')} "
                f"FROM {queue} queued CROSS JOIN {rows}"
            )
        connection.execute(f"DELETE FROM {queue}")

    def _save(self, connection: sqlite3.Connection, progress: IndexProgress) -> IndexProgress:
        value = msgspec.json.encode(progress).decode()
        connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (self.table, value))
        return progress

    def _first_of_batch(self, sizes: Iterator[tuple[int, int]]) -> int:
        """Returns the lowest rowid of a batch, given rowids and sizes in descending order; 0 if the rest fits."""
        chars = 0
        for rows, (rowid, size) in enumerate(sizes, start=1):
            chars += size
            if rows >= self.batch_rows or chars >= self.batch_chars:
                return rowid
        return 0

    # The schema. Its SQL texts must not change: they are stored in existing databases.

    def _indexed_text(self, text: str) -> str:
        return self.text_expression.format(text)

    def _current_rows(self) -> tuple[str, ...]:
        rows = (f"{self.table}_source now ON now.id = queued.id",)
        return (*rows, f"{self.table}_titles now ON now.conversation_id = -queued.id") if self.has_titles else rows

    def _ddl(self) -> Iterator[str]:
        table, column = self.table, self.column
        yield f"""CREATE VIEW {table}_source AS
            SELECT m.id, m.content AS {column}, m.conversation_id
            FROM messages m JOIN conversations c ON c.id = m.conversation_id
            WHERE m.deleted = 0 AND c.deleted = 0 AND m.human_only = {int(self.is_human_only)}"""
        if self.has_titles:
            yield f"""CREATE VIEW {table}_titles AS
                SELECT -id AS id, title AS {column}, id AS conversation_id
                FROM conversations WHERE deleted = 0 AND title <> ''"""
        yield f"CREATE VIRTUAL TABLE {table} USING fts5 ({column}, {self.options})"
        yield f"CREATE TABLE {table}_queue (id INTEGER PRIMARY KEY, {column} TEXT) STRICT"
        enqueue = f"INSERT OR IGNORE INTO {self.table}_queue"
        enqueue_indexed = f"{enqueue} SELECT id, {self.column} FROM {self.table}_source WHERE"
        enqueue_conversation = f"{enqueue_indexed} conversation_id = old.id"
        if self.has_titles:
            enqueue_title = (
                f"{enqueue} SELECT id, {self.column} FROM {self.table}_titles WHERE conversation_id = old.id"
            )
            enqueue_conversation = f"{enqueue_conversation}; {enqueue_title}"
            yield self._trigger("titled", f"AFTER INSERT ON conversations BEGIN {enqueue} (id) VALUES (-new.id)")
            renamed = f"{enqueue_title}; {enqueue} (id) VALUES (-old.id)"
            yield self._trigger("renaming", f"BEFORE UPDATE OF title ON conversations BEGIN {renamed}")
        yield self._trigger("added", f"AFTER INSERT ON messages BEGIN {enqueue} (id) VALUES (new.id)")
        changed = f"{enqueue_indexed} id = old.id; {enqueue} (id) VALUES (old.id)"
        yield self._trigger("changing", f"BEFORE UPDATE OF content, deleted, human_only ON messages BEGIN {changed}")
        yield self._trigger("removing", f"BEFORE DELETE ON messages BEGIN {enqueue_indexed} id = old.id")
        yield self._trigger("hiding", f"BEFORE UPDATE OF deleted ON conversations BEGIN {enqueue_conversation}")
        yield self._trigger("ending", f"BEFORE DELETE ON conversations BEGIN {enqueue_conversation}")
        yield from self.extra_ddl

    def _trigger(self, name: str, body: str) -> str:
        return f"CREATE TRIGGER {self.table}_{name} {body}; END"


# -- index builder -----------------------------------------------------------------------------------------------------
# Builds the on-demand indexes of one file in the background, batch by batch, while the file is in use.
#
# A build that was interrupted, by an error, by closing the library or by a crash, continues when the index is next
# needed.


class _IndexBuild:
    """A running build. `is_usable` is set when the index can be searched, or when the build ended."""

    def __init__(self, task: "asyncio.Task[None]", is_usable: asyncio.Event) -> None:
        self.task = task
        self.is_usable = is_usable


class IndexBuilder:
    """`text_index` is the index that every write to the file keeps up to date."""

    def __init__(self, database: Database, text_index: TextIndex) -> None:
        self._database = database
        self._text_index = text_index
        self._builds: dict[str, _IndexBuild] = {}
        self._is_closed = False

    def start(self, index: MessageIndex, usable_rows: int = 0) -> None:
        """Starts the build unless it is running. The index is usable once it contains the `usable_rows` newest
        messages."""
        if index.table in self._builds or self._is_closed:
            return
        is_usable = asyncio.Event()
        task = asyncio.create_task(self._build(index, usable_rows, is_usable))
        self._builds[index.table] = _IndexBuild(task, is_usable)

    async def wait_until_usable(self, index: MessageIndex, timeout_s: float) -> bool:
        """Waits until the index is usable, its build has ended, or the timeout has passed. Returns whether there was
        anything to wait for."""
        build = self._builds.get(index.table)
        if build is None or build.is_usable.is_set():
            return False
        with suppress(TimeoutError):
            await asyncio.wait_for(build.is_usable.wait(), timeout_s)
        return True

    async def wait_until_finished(self, index: MessageIndex) -> None:
        build = self._builds.get(index.table)
        if build is not None:
            await asyncio.wait([build.task])

    async def close(self) -> None:
        """Stops all builds. Must be called before the file is closed."""
        self._is_closed = True
        tasks = [build.task for build in self._builds.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _build(self, index: MessageIndex, usable_rows: int, is_usable: asyncio.Event) -> None:
        try:
            progress = await self._fill_batch(index)
            # An estimate by rowid: with gaps the index is usable a little later.
            usable_from = progress.messages - usable_rows
            while not progress.is_complete:
                if not progress.titles and progress.messages <= usable_from:
                    is_usable.set()
                progress = await self._fill_batch(index)
        except (StorageError, Unavailable) as error:
            logger.warning("Building the {} of a library failed: {}", index.table, error.message)
        finally:
            is_usable.set()
            del self._builds[index.table]

    async def _fill_batch(self, index: MessageIndex) -> IndexProgress:
        with background_jobs():
            return await self._database.write("chats", self._text_index, index.fill)
