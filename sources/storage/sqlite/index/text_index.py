"""Keeps full-text tables equal to the rows they stand for.

SQLite (3.40, with `trusted_schema` off) lets no trigger write to a full-text table. So triggers put each row that
changes into a queue, together with the text that the index holds for it, and `drain` carries the queue over before
the same transaction commits. What an index must hold is said once, by its view.
"""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import re
import sqlite3
from functools import lru_cache

from msgspec import Struct

from sources.text.folding import fold_bytewise, folds_bytewise
from sources.text.segmentation import SEGMENT_VERSION, TOKENIZER, segment

# Rows segmented anew in one transaction after an upgrade: some milliseconds, so that other writes get their turn.
_BATCH_ROWS = 200

# Beyond ASCII: the Latin-1 letters and signs, and the punctuation, that FTS5's tokenizer folds just as `segment` does.
_FOLDED_OTHERWISE = re.compile(
    r"[^\x00-\x7f\xa0-\xa9\xab-\xac\xae-\xb1\xb4-\xb8\xbb-\xcf\xd1-\xd7\xd9-\xef\xf1-\xf7\xf9-\xff"
    r"\u2010-\u2027\u2030-\u205e\u20ac]"
)


class TextIndex(Struct, frozen=True):
    """A full-text table; `<table>_source` is the view of what it must hold, `<table>_queue` what is to be renewed."""

    table: str
    columns: tuple[str, ...]
    # The views that `<table>_source` unites, where it does, each with how a queued row is found in it: SQLite finds
    # single rows in a part, but not in the union.
    parts: tuple[tuple[str, str], ...] = ()

    def ddl(self) -> tuple[str, str]:
        columns, source = ", ".join(self.columns), f"content='{self.table}_source', content_rowid='id'"
        return (
            f'CREATE VIRTUAL TABLE {self.table} USING fts5 ({columns}, {source}, tokenize="{TOKENIZER}")',
            f"CREATE TABLE {self.table}_queue (id INTEGER PRIMARY KEY, {columns})",
        )

    def triggers(self, rows: str, watched: str) -> tuple[str, str, str]:
        """For an index with one entry for each row of the table `rows`."""
        put = f"INSERT OR IGNORE INTO {self.table}_queue"
        held = f"{put} SELECT * FROM {self.table}_source WHERE id = old.id"
        bare = f"{put} (id) VALUES"
        return (
            f"CREATE TRIGGER {rows}_added AFTER INSERT ON {rows} BEGIN {bare} (new.id); END",
            f"CREATE TRIGGER {rows}_changing BEFORE UPDATE OF {watched} ON {rows} BEGIN {held}; {bare} (old.id); END",
            f"CREATE TRIGGER {rows}_removing BEFORE DELETE ON {rows} BEGIN {held}; END",
        )


class Segmented(Struct, frozen=True):
    """A table with columns of index forms: each with the SQL expression of the text it is made from."""

    table: str
    forms: tuple[tuple[str, str], ...]
    index: TextIndex
    # Whether its words count when it is asked how common a word is in the library.
    is_counted: bool = True


def index_form(text: str) -> str | None:
    """What the index needs in place of the text: nothing, when FTS5 makes the same tokens of the text itself.

    Most Western prose is stored once. The form is kept with the row, so that the index can be told exactly what to
    forget and a ranking can count words without segmenting again.
    """
    form = segment(text)
    if folds_bytewise(text) and form == fold_bytewise(text) and not _FOLDED_OTHERWISE.search(text):
        return None
    return form


def counted_form(text: str, form: str | None) -> str:
    """The tokens of a stored text, lower case and with spaces between them, as a ranking counts them."""
    return fold_bytewise(text) if form is None else form


def drain(connection: sqlite3.Connection, index: TextIndex) -> None:
    """Take what was queued out of the index as it was, and put it back as it is."""
    for statement in _drain_sql(index):
        connection.execute(statement)


@lru_cache
def _drain_sql(index: TextIndex) -> tuple[str, ...]:
    table, columns = index.table, ", ".join(index.columns)
    forget = f"SELECT 'delete', id, {columns} FROM {table}_queue WHERE {index.columns[0]} IS NOT NULL"
    now = ", ".join(f"now.{name}" for name in ("id", *index.columns))
    # CROSS JOIN: SQLite keeps this order, and so looks up the queued rows instead of walking through all.
    learn = f"SELECT {now} FROM {table}_queue queued CROSS JOIN {{}} now ON {{}}"
    parts = index.parts or ((f"{table}_source", "now.id = queued.id"),)
    return (
        f"INSERT INTO {table} ({table}, rowid, {columns}) {forget}",
        *(f"INSERT INTO {table} (rowid, {columns}) {learn.format(*part)}" for part in parts),
        f"DELETE FROM {table}_queue",
    )


def renew(table: Segmented, after: int, connection: sqlite3.Connection) -> int | None:
    """Segment some rows anew, from the one after `after`; the last that was looked at, or nothing when all were.

    Until the last batch the index holds forms of two versions. It stays true to its rows all the while: a changed
    form passes through the queue like any other change.
    """
    names = [name for name, _ in table.forms]
    texts = [text for _, text in table.forms]
    rows = connection.execute(
        f"SELECT id, {', '.join([*texts, *names])} FROM {table.table} WHERE id > ? ORDER BY id LIMIT ?",
        (after, _BATCH_ROWS),
    ).fetchall()
    assignments = ", ".join(f"{name} = ?" for name in names)
    for number, *values in rows:
        held = values[len(names) :]
        forms = [index_form(text) for text in values[: len(names)]]
        if forms != held:
            connection.execute(f"UPDATE {table.table} SET {assignments} WHERE id = ?", (*forms, number))
    drain(connection, table.index)
    return rows[-1][0] if rows else None


def segment_version(connection: sqlite3.Connection) -> int:
    """Of the newest forms that are known to be in every row of this file."""
    found = connection.execute("SELECT value FROM state WHERE name = 'segment_version'").fetchone()
    return int(found[0]) if found else 0


def mark_segmented(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT OR REPLACE INTO state VALUES ('segment_version', ?)", (str(SEGMENT_VERSION),))
