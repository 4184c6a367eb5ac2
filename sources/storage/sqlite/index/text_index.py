"""Keeps full-text tables consistent with the rows they index.

SQLite (3.40, with `trusted_schema` off) does not let triggers write to a full-text table. Instead, triggers add each
changed row to a queue, together with the text that the index has for it, and `apply_queue` updates the index before the
same transaction commits. The view `<table>_source` defines what an index must contain.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
from functools import lru_cache

from sources.storage.tables.sql import (
    BOUNDED_TEXT,
    CONTEXT_CHARS,
    MESSAGE_OWN,
    SegmentedTable,
    TextIndex,
    index_form,
)
from sources.text.segmentation import SEGMENT_VERSION, TOKENIZER
from sources.text.token_estimates import TokenScale

# Rows segmented again in one transaction after an upgrade: a few milliseconds, so that other writes are not delayed.
_BATCH_ROWS = 200
BEFORE_FIRST_ROWID = -(2**63)


# What a message is indexed with. The view `message_source` says the same with a window function, which takes more than
# twice as long as two lookups.
_PREVIOUS = """
    SELECT coalesce(p.text_seg, p.content) AS text, p.role, p.position FROM messages p
    WHERE p.conversation_id = m.conversation_id AND p.position < {before}.position AND p.deleted = 0
        AND p.human_only = 0
    ORDER BY p.position DESC LIMIT 1
"""
MESSAGE_CONTEXT = f"""
    CASE m.human_only WHEN 1 THEN '' ELSE coalesce((
        SELECT {BOUNDED_TEXT} || CASE WHEN length(text) <= {CONTEXT_CHARS} THEN coalesce((
            SELECT ' ' || {BOUNDED_TEXT} FROM ({_PREVIOUS.format(before="last")})), '') ELSE '' END
        FROM ({_PREVIOUS.format(before="m")}) AS last), '') END
"""
_SOURCES = {
    "message_source": f"""(SELECT m.id, '' AS title, {MESSAGE_OWN} AS own, {MESSAGE_CONTEXT} AS context
        FROM messages m JOIN conversations c ON c.id = m.conversation_id
        WHERE m.deleted = 0 AND c.deleted = 0 AND m.human_only = 0)"""
}


def fts_ddl(index: TextIndex) -> tuple[str, str]:
    columns, source = ", ".join(index.columns), f"content='{index.table}_source', content_rowid='id'"
    return (
        f'CREATE VIRTUAL TABLE {index.table} USING fts5 ({columns}, {source}, tokenize="{TOKENIZER}")',
        f"CREATE TABLE {index.table}_queue (id INTEGER PRIMARY KEY, {columns})",
    )


def fts_triggers(index: TextIndex, rows: str, watched: str) -> tuple[str, str, str]:
    """Returns the triggers for an index with one entry per row of the table `rows`."""
    enqueue = f"INSERT OR IGNORE INTO {index.table}_queue"
    enqueue_indexed = f"{enqueue} SELECT * FROM {index.table}_source WHERE id = old.id"
    enqueue_id = f"{enqueue} (id) VALUES"
    changed = f"{enqueue_indexed}; {enqueue_id} (old.id)"
    return (
        f"CREATE TRIGGER {rows}_added AFTER INSERT ON {rows} BEGIN {enqueue_id} (new.id); END",
        f"CREATE TRIGGER {rows}_changing BEFORE UPDATE OF {watched} ON {rows} BEGIN {changed}; END",
        f"CREATE TRIGGER {rows}_removing BEFORE DELETE ON {rows} BEGIN {enqueue_indexed}; END",
    )


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
    added = [new_rows.format(_SOURCES.get(source, source), condition) for source, condition in parts]
    return (
        f"INSERT INTO {table} ({table}, rowid, {columns}) {old_rows}",
        # One statement: FTS5 writes what it has collected to the file before the next one.
        f"INSERT INTO {table} (rowid, {columns}) {' UNION ALL '.join(added)}",
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


def segment_version(connection: sqlite3.Connection, schema: str) -> int:
    """Returns the segmentation version that all rows of a file have."""
    row = connection.execute(f"SELECT value FROM {schema}.state WHERE name = 'segment_version'").fetchone()
    return int(row[0]) if row else 0


def save_segment_version(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT OR REPLACE INTO state VALUES ('segment_version', ?)", (str(SEGMENT_VERSION),))


# -- text weights ------------------------------------------------------------------------------------------------------
# Computes the weights of media texts that were stored before the column `text_weight` existed, while the file is in
# use. If the computation is interrupted, it continues with the rows that still lack a weight.

# How much text is weighed in one transaction: some ten milliseconds, so that other writes are not delayed.
_BATCH_CHARS = 1_000_000


def lacks_weights(connection: sqlite3.Connection) -> bool:
    [is_lacking] = connection.execute("SELECT EXISTS (SELECT 1 FROM media WHERE text_weight IS NULL)").fetchone()
    return bool(is_lacking)


def weigh_batch(connection: sqlite3.Connection) -> bool:
    """Weighs one batch of texts, at least one. Returns whether there are more."""
    rows = connection.execute(
        "SELECT id, length_chars FROM media WHERE text_weight IS NULL ORDER BY id LIMIT ?", (_BATCH_ROWS,)
    ).fetchall()
    left = _BATCH_CHARS
    for rowid, length_chars in rows:
        [content] = connection.execute("SELECT content FROM texts WHERE id = ?", (rowid,)).fetchone()
        weight = TokenScale().weigh(content)
        connection.execute("UPDATE media SET text_weight = ? WHERE id = ?", (weight, rowid))
        left -= length_chars
        if left <= 0:
            break
    return lacks_weights(connection)
