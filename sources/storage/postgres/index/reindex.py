"""Builds the full-text index of a library again from its rows, in batches between which reads and writes go on.

That is done after an upgrade that indexes text differently, and by `florilegium reindex`. A run that was interrupted
is repeated as a whole.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from functools import partial
from typing import TYPE_CHECKING

from sources.storage.postgres.connection import LibraryConnection
from sources.storage.postgres.index.entries import (
    CHARACTER_ENTRIES,
    CHAT_ENTRIES,
    ENTRIES_VERSION,
    ENTRY_KINDS,
    HUMAN_ONLY_ENTRIES,
    MEDIA_ENTRIES,
    NOTE_ENTRIES,
    OBSERVATION_ENTRIES,
    PROMPT_ENTRIES,
    index_rows,
    index_state,
)
from sources.storage.postgres.vectors.changed_rows import update_vectors
from sources.storage.sqlite.schema.chacha import CHACHA
from sources.storage.sqlite.schema.media import MEDIA
from sources.storage.sqlite.schema.prompts import PROMPTS
from sources.storage.tables.indexes import NOTES_INDEX
from sources.storage.tables.text_index import SegmentedTable, index_form

if TYPE_CHECKING:
    from sources.storage.postgres.database import PostgresDatabase

_SOURCE = "library"
_BATCH_ROWS = 200
# A batch of long texts takes longer than other writes.
_BATCH_EXTRA_MS = 60_000
# Media items before their chunks, which are indexed with their titles.
_TABLES = (*CHACHA.segmented, *MEDIA.segmented, *PROMPTS.segmented)
_SAVE_VERSION = """
    INSERT INTO state (name, value) VALUES ('segment_version', ?)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
_ROWS_OF_KINDS = {
    NOTE_ENTRIES: "SELECT 1 FROM notes r WHERE r.id = e.id AND r.deleted = 0",
    CHARACTER_ENTRIES: "SELECT 1 FROM characters r WHERE r.id = e.id AND r.deleted = 0",
    OBSERVATION_ENTRIES: "SELECT 1 FROM observations r WHERE r.id = e.id AND r.deleted = 0",
    PROMPT_ENTRIES: "SELECT 1 FROM prompts r WHERE r.id = e.id AND r.deleted = 0",
    MEDIA_ENTRIES: "SELECT 1 FROM chunks r WHERE r.id = e.id",
    HUMAN_ONLY_ENTRIES: "SELECT 1 FROM messages r WHERE r.id = e.id AND r.deleted = 0 AND r.human_only = 1",
    CHAT_ENTRIES: """
        SELECT 1 FROM messages r WHERE r.id = e.id AND r.deleted = 0 AND r.human_only = 0
        UNION ALL SELECT 1 FROM conversations r WHERE r.id = -e.id AND r.deleted = 0""",
}


async def reindex_library(database: "PostgresDatabase") -> dict[str, int]:
    """Returns the number of entries by collection."""
    await database.write(_SOURCE, NOTES_INDEX, _remove_unused, _BATCH_EXTRA_MS)
    for table in _TABLES:
        last: int | None = 0
        while last is not None:
            last = await database.write(_SOURCE, NOTES_INDEX, partial(_index_batch, table, last), _BATCH_EXTRA_MS)
    await database.write(_SOURCE, NOTES_INDEX, _save_version)
    return await database.read(_SOURCE, _count_entries)


def is_outdated(connection: LibraryConnection) -> bool:
    """Whether entries were made by another version."""
    return index_state(connection).segment_version != ENTRIES_VERSION


def _remove_unused(connection: LibraryConnection) -> None:
    """Removes words, which the entries of the batches add again, and entries without a row."""
    connection.execute("DELETE FROM index_words")
    for kind, rows in _ROWS_OF_KINDS.items():
        connection.execute(f"DELETE FROM index_entries e WHERE e.kind = {kind.number:d} AND NOT EXISTS ({rows})")


def _index_batch(table: SegmentedTable, after: int, connection: LibraryConnection) -> int | None:
    """Computes the index forms of the rows after a rowid and their entries. Returns the last rowid, or None if there
    are no more rows."""
    names = [name for name, _ in table.forms]
    # PostgreSQL calls the function differently.
    texts = [text.replace("char(", "chr(") for _, text in table.forms]
    rows = connection.execute(
        f"SELECT id, {', '.join([*texts, *names])} FROM {table.table} WHERE id > ? ORDER BY id LIMIT ?",
        (after, _BATCH_ROWS),
    ).fetchall()
    if not rows:
        return None
    changed = []
    for rowid, *values in rows:
        forms = [index_form(text) for text in values[: len(names)]]
        if forms != values[len(names) :]:
            changed.append((*forms, rowid))
    assignments = ", ".join(f"{name} = ?" for name in names)
    connection.executemany(f"UPDATE {table.table} SET {assignments} WHERE id = ?", changed)
    rowids: list[int] = [rowid for rowid, *_ in rows]
    if table.table == "chunks":
        index_rows(connection, MEDIA_ENTRIES, rowids)
        update_vectors(connection, {MEDIA_ENTRIES.number: rowids})
    elif table.table != "media":
        connection.add_changes(table.table, rowids)
    return rowids[-1]


def _save_version(connection: LibraryConnection) -> None:
    connection.execute(_SAVE_VERSION, (ENTRIES_VERSION,))


def _count_entries(connection: LibraryConnection) -> dict[str, int]:
    rows = connection.execute("SELECT kind, count(*) FROM index_entries GROUP BY kind").fetchall()
    counts: dict[int, int] = dict(rows)
    return {kind.collection: counts.get(kind.number, 0) for kind in ENTRY_KINDS.values()}
