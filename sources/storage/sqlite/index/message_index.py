"""Full-text tables over messages that are made when somebody first needs them: most libraries never do.

Such an index is begun with its triggers, filled from the newest message down in many small transactions, and true to
its rows all the while: a change to a row that it holds follows in the transaction of the change, as `index` explains,
and a row that it does not hold yet is read when its turn comes. How far it is filled is part of the file.
"""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import sqlite3
from collections.abc import Iterator

import msgspec
from msgspec import Struct
from msgspec.structs import replace


class Progress(Struct, frozen=True):
    """How far an index is filled: all messages, and all titles, with a higher number than these are in it."""

    version: str
    messages: int
    titles: int

    @property
    def is_complete(self) -> bool:
        return not (self.messages or self.titles)


class MessageIndex(Struct, frozen=True):
    """Messages stand in it under their number, titles of conversations, where it has any, under theirs made negative.

    `options` are those of the FTS5 table, and `taken` is what it is given of a text `{}`. An index of another `version`
    is made anew. `more` are statements that belong to it.
    """

    table: str
    column: str
    options: str
    version: str
    taken: str = "{}"
    has_titles: bool = False
    more: tuple[str, ...] = ()
    # What one transaction takes in: some tens of milliseconds, so that other writes get their turn.
    batch_rows: int = 1_000
    batch_chars: int = 1_000_000

    # In the file

    def progress(self, connection: sqlite3.Connection) -> Progress | None:
        """Nothing, where the index was never asked for or is not the one we know."""
        found = connection.execute("SELECT value FROM state WHERE name = ?", (self.table,)).fetchone()
        progress = msgspec.json.decode(found[0], type=Progress) if found else None
        return progress if progress is not None and progress.version == self.version else None

    def begin(self, connection: sqlite3.Connection) -> Progress:
        """Make the tables and triggers, unless they are there."""
        progress = self.progress(connection)
        if progress is not None:
            return progress
        for statement in (*self._removal(connection), *self._ddl()):
            connection.execute(statement)
        messages = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0]
        titles = connection.execute("SELECT coalesce(max(id), 0) FROM conversations").fetchone()[0]
        return self._save(connection, Progress(self.version, messages, titles if self.has_titles else 0))

    def fill(self, connection: sqlite3.Connection) -> Progress:
        """Take in some more rows: titles first, then messages, each from the newest down."""
        progress = self.begin(connection)
        # What was changed behind our back is still queued, and says what was in the index before these rows are.
        self.follow(connection)
        if progress.titles:
            return self._save(connection, replace(progress, titles=self._fill_titles(connection, progress.titles)))
        if progress.messages:
            return self._save(
                connection, replace(progress, messages=self._fill_messages(connection, progress.messages))
            )
        return progress

    def remake(self, connection: sqlite3.Connection) -> None:
        """Anew from the rows, all at once, where the index was ever asked for."""
        if connection.execute("DELETE FROM state WHERE name = ?", (self.table,)).rowcount:
            while not self.fill(connection).is_complete:
                pass

    def follow(self, connection: sqlite3.Connection) -> None:
        """Carry over what has changed since; to be called before every transaction that changes messages commits."""
        progress = self.progress(connection)
        if progress is None:
            return
        queue, column = f"{self.table}_queue", self.column
        if not progress.is_complete:
            # Rows that are not in the index yet have nothing to forget, and will be taken in as they are then.
            connection.execute(
                f"DELETE FROM {queue} WHERE (id > 0 AND id <= ?) OR (id < 0 AND id >= ?)",
                (progress.messages, -progress.titles),
            )
        connection.execute(
            f"INSERT INTO {self.table} ({self.table}, rowid, {column}) "
            f"SELECT 'delete', id, {self._taken(column)} FROM {queue} WHERE {column} IS NOT NULL"
        )
        for part in self._parts():
            # CROSS JOIN: SQLite keeps this order, and so looks up the queued rows instead of walking through all.
            connection.execute(
                f"INSERT INTO {self.table} (rowid, {column}) SELECT now.id, {self._taken(f'now.{column}')} "
                f"FROM {queue} queued CROSS JOIN {part}"
            )
        connection.execute(f"DELETE FROM {queue}")

    def _save(self, connection: sqlite3.Connection, progress: Progress) -> Progress:
        value = msgspec.json.encode(progress).decode()
        connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (self.table, value))
        return progress

    # Taking rows in. FTS5 wants the rows of a transaction in rising order.

    def _fill_messages(self, connection: sqlite3.Connection, last: int) -> int:
        sizes = connection.execute("SELECT id, length(content) FROM messages WHERE id <= ? ORDER BY id DESC", (last,))
        first = self._first_of_batch(sizes)
        connection.execute(
            f"INSERT INTO {self.table} (rowid, {self.column}) SELECT id, {self._taken(self.column)} "
            f"FROM {self.table}_source WHERE id BETWEEN ? AND ? ORDER BY id",
            (first, last),
        )
        return max(0, first - 1)

    def _fill_titles(self, connection: sqlite3.Connection, last: int) -> int:
        sizes = connection.execute(
            "SELECT id, length(title) FROM conversations WHERE id <= ? ORDER BY id DESC", (last,)
        )
        first = self._first_of_batch(sizes)
        connection.execute(
            f"INSERT INTO {self.table} (rowid, {self.column}) SELECT id, {self._taken(self.column)} "
            f"FROM {self.table}_titles WHERE conversation_id BETWEEN ? AND ? ORDER BY id",
            (first, last),
        )
        return max(0, first - 1)

    def _first_of_batch(self, sizes: Iterator[tuple[int, int]]) -> int:
        """The lowest number of a batch that begins with the first; 0 when nothing is left below it."""
        chars = 0
        for rows, (number, size) in enumerate(sizes, start=1):
            chars += size
            if rows >= self.batch_rows or chars >= self.batch_chars:
                return number
        return 0

    # What it is made of

    def _taken(self, text: str) -> str:
        return self.taken.format(text)

    def _parts(self) -> tuple[str, ...]:
        parts = (f"{self.table}_source now ON now.id = queued.id",)
        return (*parts, f"{self.table}_titles now ON now.conversation_id = -queued.id") if self.has_titles else parts

    def _ddl(self) -> Iterator[str]:
        table, column = self.table, self.column
        yield f"""CREATE VIEW {table}_source AS
            SELECT m.id, m.content AS {column}, m.conversation_id
            FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE m.deleted = 0 AND c.deleted = 0"""
        if self.has_titles:
            yield f"""CREATE VIEW {table}_titles AS
                SELECT -id AS id, title AS {column}, id AS conversation_id
                FROM conversations WHERE deleted = 0 AND title <> ''"""
        yield f"CREATE VIRTUAL TABLE {table} USING fts5 ({column}, {self.options})"
        yield f"CREATE TABLE {table}_queue (id INTEGER PRIMARY KEY, {column} TEXT) STRICT"
        yield from self._triggers()
        yield from self.more

    def _triggers(self) -> Iterator[str]:
        put = f"INSERT OR IGNORE INTO {self.table}_queue"
        held = f"{put} SELECT id, {self.column} FROM {self.table}_source WHERE"
        whole = f"{held} conversation_id = old.id"
        if self.has_titles:
            title = f"{put} SELECT id, {self.column} FROM {self.table}_titles WHERE conversation_id = old.id"
            whole = f"{whole}; {title}"
            yield self._trigger("titled", f"AFTER INSERT ON conversations BEGIN {put} (id) VALUES (-new.id)")
            renamed = f"{title}; {put} (id) VALUES (-old.id)"
            yield self._trigger("renaming", f"BEFORE UPDATE OF title ON conversations BEGIN {renamed}")
        yield self._trigger("added", f"AFTER INSERT ON messages BEGIN {put} (id) VALUES (new.id)")
        changed = f"{held} id = old.id; {put} (id) VALUES (old.id)"
        yield self._trigger("changing", f"BEFORE UPDATE OF content, deleted ON messages BEGIN {changed}")
        yield self._trigger("removing", f"BEFORE DELETE ON messages BEGIN {held} id = old.id")
        yield self._trigger("hiding", f"BEFORE UPDATE OF deleted ON conversations BEGIN {whole}")
        yield self._trigger("ending", f"BEFORE DELETE ON conversations BEGIN {whole}")

    def _trigger(self, name: str, body: str) -> str:
        return f"CREATE TRIGGER {self.table}_{name} {body}; END"

    def _removal(self, connection: sqlite3.Connection) -> list[str]:
        """Of an index of another version: its triggers, views and tables, but not those that FTS5 itself removes."""
        rows = connection.execute(
            "SELECT type, name FROM sqlite_schema WHERE name GLOB ? AND type IN ('trigger', 'view') "
            "UNION ALL SELECT type, name FROM sqlite_schema WHERE name IN (?, ?, ?) AND type = 'table'",
            (f"{self.table}_*", f"{self.table}_terms", f"{self.table}_queue", self.table),
        )
        return [f"DROP {kind} {name}" for kind, name in rows.fetchall()]
