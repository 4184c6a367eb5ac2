"""Keeps full-text tables consistent with the rows they index.

SQLite (3.40, with `trusted_schema` off) does not let triggers write to a full-text table. Instead, triggers add each
changed row to a queue, together with the text that the index has for it, and `apply_queue` updates the index before the
same transaction commits. The view `<table>_source` defines what an index must contain.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import re
import sqlite3
from functools import lru_cache

from msgspec import Struct

from sources.text.folding import fold_bytewise, folds_bytewise
from sources.text.segmentation import SEGMENT_VERSION, TOKENIZER, segment

# Rows segmented again in one transaction after an upgrade: a few milliseconds, so that other writes are not delayed.
_BATCH_ROWS = 200
BEFORE_FIRST_ROWID = -(2**63)

# Everything except ASCII and the Latin-1 letters, signs and punctuation that FTS5's tokenizer folds as `segment` does.
_FOLDED_DIFFERENTLY = re.compile(
    r"[^\x00-\x7f\xa0-\xa9\xab-\xac\xae-\xb1\xb4-\xb8\xbb-\xcf\xd1-\xd7\xd9-\xef\xf1-\xf7\xf9-\xff"
    r"\u2010-\u2027\u2030-\u205e\u20ac]"
)


class TextIndex(Struct, frozen=True):
    """A full-text table. `<table>_source` is the view of what it must contain, `<table>_queue` holds changed rows."""

    table: str
    columns: tuple[str, ...]
    # The views of which `<table>_source` is a union, each with the condition that finds a queued row in it: SQLite can
    # look up single rows in a part, but not in the union.
    parts: tuple[tuple[str, str], ...] = ()
    # Indexes of other rows of the same tables. They are updated together with this one.
    companions: tuple["TextIndex", ...] = ()

    @property
    def collection(self) -> str:
        return self.table.removesuffix("_index")

    def ddl(self) -> tuple[str, str]:
        columns, source = ", ".join(self.columns), f"content='{self.table}_source', content_rowid='id'"
        return (
            f'CREATE VIRTUAL TABLE {self.table} USING fts5 ({columns}, {source}, tokenize="{TOKENIZER}")',
            f"CREATE TABLE {self.table}_queue (id INTEGER PRIMARY KEY, {columns})",
        )

    def triggers(self, rows: str, watched: str) -> tuple[str, str, str]:
        """Returns the triggers for an index with one entry per row of the table `rows`."""
        enqueue = f"INSERT OR IGNORE INTO {self.table}_queue"
        enqueue_indexed = f"{enqueue} SELECT * FROM {self.table}_source WHERE id = old.id"
        enqueue_id = f"{enqueue} (id) VALUES"
        changed = f"{enqueue_indexed}; {enqueue_id} (old.id)"
        return (
            f"CREATE TRIGGER {rows}_added AFTER INSERT ON {rows} BEGIN {enqueue_id} (new.id); END",
            f"CREATE TRIGGER {rows}_changing BEFORE UPDATE OF {watched} ON {rows} BEGIN {changed}; END",
            f"CREATE TRIGGER {rows}_removing BEFORE DELETE ON {rows} BEGIN {enqueue_indexed}; END",
        )


class SegmentedTable(Struct, frozen=True):
    """A table with index form columns, each with the SQL expression of its text."""

    table: str
    forms: tuple[tuple[str, str], ...]
    index: TextIndex
    # Whether its rows are counted for the term frequencies of the library.
    is_counted: bool = True


# Between a text and the tags that are indexed with it. It is part of no word, and no text with it is indexed as it is:
# tags are in the index form only.
_TAGS_SEPARATOR = "\n\u00ad"


def text_with_tags(text: str, tags: str) -> str:
    """Returns what is indexed for a text and a JSON array of tags."""
    return text if tags == "[]" else f"{text}{_TAGS_SEPARATOR}{tags}"


def text_with_tags_sql(column: str) -> str:
    """The SQL expression of `text_with_tags` for a column of an item table."""
    return f"{column} || CASE tags WHEN '[]' THEN '' ELSE char(10) || char(173) || tags END"


def index_form(text: str) -> str | None:
    """Returns what is indexed instead of the text, or None if FTS5 produces the same tokens from the text itself.

    So most Western prose is stored only once. The form is stored with the row because the index must be given the exact
    text to remove, and because scoring counts words in it without segmenting again.
    """
    form = segment(text)
    if folds_bytewise(text) and form == fold_bytewise(text) and not _FOLDED_DIFFERENTLY.search(text):
        return None
    return form


def apply_queue(connection: sqlite3.Connection, index: TextIndex) -> None:
    """Removes the queued rows from the index with their old text and adds them with their new text."""
    for statement in _apply_statements(index):
        connection.execute(statement)


@lru_cache
def _apply_statements(index: TextIndex) -> tuple[str, ...]:
    table, columns = index.table, ", ".join(index.columns)
    old_rows = f"SELECT 'delete', id, {columns} FROM {table}_queue WHERE {index.columns[0]} IS NOT NULL"
    selected = ", ".join(f"now.{name}" for name in ("id", *index.columns))
    # SQLite keeps the order of a CROSS JOIN, so it looks up the queued rows instead of scanning all.
    new_rows = f"SELECT {selected} FROM {table}_queue queued CROSS JOIN {{}} now ON {{}}"
    parts = index.parts or ((f"{table}_source", "now.id = queued.id"),)
    return (
        f"INSERT INTO {table} ({table}, rowid, {columns}) {old_rows}",
        *(f"INSERT INTO {table} (rowid, {columns}) {new_rows.format(*part)}" for part in parts),
        f"DELETE FROM {table}_queue",
        *(statement for companion in index.companions for statement in _apply_statements(companion)),
    )


def resegment_batch(table: SegmentedTable, after: int, connection: sqlite3.Connection) -> int | None:
    """Computes the index forms of one batch of rows again, starting after a rowid. Returns the last rowid of the batch,
    or None if there are no more rows.

    Until the last batch, the index contains forms of two versions. It is consistent with its rows nevertheless, because
    a changed form passes through the queue like any other change.
    """
    names = [name for name, _ in table.forms]
    texts = [text for _, text in table.forms]
    rows = connection.execute(
        f"SELECT id, {', '.join([*texts, *names])} FROM {table.table} WHERE id > ? ORDER BY id LIMIT ?",
        (after, _BATCH_ROWS),
    ).fetchall()
    assignments = ", ".join(f"{name} = ?" for name in names)
    last = None
    for last, *values in rows:
        stored = values[len(names) :]
        forms = [index_form(text) for text in values[: len(names)]]
        if forms != stored:
            connection.execute(f"UPDATE {table.table} SET {assignments} WHERE id = ?", (*forms, last))
    apply_queue(connection, table.index)
    return last


def segment_version(connection: sqlite3.Connection) -> int:
    """Returns the segmentation version that all rows of this file have."""
    row = connection.execute("SELECT value FROM state WHERE name = 'segment_version'").fetchone()
    return int(row[0]) if row else 0


def save_segment_version(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT OR REPLACE INTO state VALUES ('segment_version', ?)", (str(SEGMENT_VERSION),))
