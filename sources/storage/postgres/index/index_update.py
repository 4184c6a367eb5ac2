"""Builds the full-text index of one library again in the background, after an upgrade that indexes text differently.
Until then the index contains both forms.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import asyncio
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from loguru import logger

from config.errors import FlorilegiumError
from sources.storage.job_queue import background_jobs
from sources.storage.postgres.connection import IndexTask, LibraryConnection, claim, release
from sources.storage.postgres.index.entries import (
    CHAT_ENTRIES,
    ENTRIES_VERSION,
    ENTRY_KINDS,
    HUMAN_ONLY_ENTRIES,
    MEDIA_ENTRIES,
    TABLE_ENTRIES,
    EntryKind,
    index_rows,
    index_state,
)
from sources.storage.postgres.search.substring import STATE_NAME, index_trigrams
from sources.storage.postgres.vectors.vector_tables import update_vectors
from sources.storage.tables.dialect import POSTGRES
from sources.storage.tables.kind_tables import segmented_tables
from sources.storage.tables.sql import CHUNK_BITS, NOTES_INDEX, SAVE_STATE, Delete, SegmentedTable, Update, index_form

if TYPE_CHECKING:
    from sources.storage.postgres.database import PostgresDatabase


# -- reindex -----------------------------------------------------------------------------------------------------------
# Builds the full-text index of a library again from its rows, in batches between which reads and writes go on.
#
# That is done after an upgrade that indexes text differently, and by `florilegium reindex`. A run that was interrupted
# is repeated as a whole.

_SOURCE = "library"
_BATCH_ROWS = 200
# A batch of long texts takes longer than other writes.
_BATCH_EXTRA_MS = 60_000
_TABLES = tuple(table for tables in segmented_tables(POSTGRES).values() for table in tables)


async def reindex_library(database: "PostgresDatabase") -> dict[str, int]:

    def remove_unused(connection: LibraryConnection) -> None:
        # Words, which the entries of the batches add again, and entries without a row.
        connection.execute(Delete("index_words"))
        for kind in ENTRY_KINDS.values():
            connection.execute(Delete("index_entries", kind.without_row))

    def count_entries(connection: LibraryConnection) -> dict[str, int]:
        rows = connection.execute("SELECT kind, count(*) FROM index_entries GROUP BY kind").fetchall()
        counts: dict[int, int] = dict(rows)
        return {kind.collection: counts.get(kind.number, 0) for kind in ENTRY_KINDS.values()}

    await database.write(_SOURCE, NOTES_INDEX, remove_unused, _BATCH_EXTRA_MS)
    for table in _TABLES:
        last: int | None = 0
        while last is not None:
            last = await database.write(_SOURCE, NOTES_INDEX, partial(_index_batch, table, last), _BATCH_EXTRA_MS)
    # Last, so that a run that was interrupted is repeated.
    version = ("segment_version", ENTRIES_VERSION)
    await database.write(_SOURCE, NOTES_INDEX, lambda connection: connection.execute(SAVE_STATE, version))
    return await database.read(_SOURCE, count_entries)


async def check_index(database: "PostgresDatabase") -> dict[str, int]:
    """Reads every text. Returns how many texts are indexed in another form, how many rows have no entry, and how many
    entries have no row."""

    def count(queries: Iterable[str], connection: LibraryConnection) -> int:
        return sum(connection.execute(query).fetchall()[0][0] for query in queries)

    def compare(table: SegmentedTable, after: int, connection: LibraryConnection) -> tuple[int, int | None]:
        names, rows = [name for name, _ in table.forms], _read_forms(table, after, connection)
        others = sum([index_form(text) for text in texts[: len(names)]] != texts[len(names) :] for _, *texts in rows)
        return others, rows[-1][0] if rows else None

    forms = 0
    for table in _TABLES:
        last: int | None = 0
        while last is not None:
            others, last = await database.read(_SOURCE, partial(compare, table, last), _BATCH_EXTRA_MS)
            forms += others
    missing = [query for kind in ENTRY_KINDS.values() for query in kind.without_entry]
    surplus = [f"SELECT count(*) FROM index_entries WHERE {kind.without_row}" for kind in ENTRY_KINDS.values()]
    return {
        "texts": forms,
        "rows": await database.read(_SOURCE, partial(count, missing), _BATCH_EXTRA_MS),
        "entries": await database.read(_SOURCE, partial(count, surplus), _BATCH_EXTRA_MS),
    }


def is_outdated(connection: LibraryConnection) -> bool:
    """Whether entries were made by another version."""
    return index_state(connection).segment_version != ENTRIES_VERSION


def _read_forms(table: SegmentedTable, after: int, connection: LibraryConnection) -> list[tuple[Any, ...]]:
    """Returns the rowid, the texts and the stored index forms of the rows after a rowid."""
    columns = ", ".join([*(text for _, text in table.forms), *(name for name, _ in table.forms)])
    return connection.execute(
        f"SELECT id, {columns} FROM {table.table} WHERE id > ? ORDER BY id LIMIT ?", (after, _BATCH_ROWS)
    ).fetchall()


def _index_batch(table: SegmentedTable, after: int, connection: LibraryConnection) -> int | None:
    """Computes the index forms of the rows after a rowid and their entries. Returns the last rowid, or None if there
    are no more rows."""
    names, rows = [name for name, _ in table.forms], _read_forms(table, after, connection)
    if not rows:
        return None
    changed = []
    for rowid, *values in rows:
        forms = [index_form(text) for text in values[: len(names)]]
        if forms != values[len(names) :]:
            changed.append((*forms, rowid))
    assignments = ", ".join(f"{name} = ?" for name in names)
    connection.executemany(Update(table.table, assignments, "id = ?"), changed)
    rowids: list[int] = [rowid for rowid, *_ in rows]
    if table.table == "chunks":
        index_rows(connection, MEDIA_ENTRIES, rowids)
        update_vectors(connection, {MEDIA_ENTRIES.number: rowids})
    elif table.table != "media":
        connection.add_changes(table.table, rowids)
    return rowids[-1]


_LEASE_NAME = "reindex_lease"
# How long other processes wait for one that has ended during its work.
_LEASE_S = 3_600


class IndexUpdate(IndexTask):
    """`is_current` is set by a read that saw it."""

    is_current = False

    def start(self, after: asyncio.Event | None = None) -> None:
        """Updates the index if it is outdated, unless another process does. With `after`, that begins later, and only
        if the library is open then and its index is not known to be current."""
        if not self.is_running:
            self._task = asyncio.create_task(self._update(after))

    async def _update(self, after: asyncio.Event | None) -> None:
        database = self._database
        owner = database.process_id

        def claim_update(connection: LibraryConnection) -> bool:
            # Another process may have updated the index since it was read.
            return is_outdated(connection) and claim(connection, _LEASE_NAME, owner, _LEASE_S)

        if after is not None:
            await after.wait()
            if not database.is_open or self.is_current:
                return
        try:
            with background_jobs(is_maintenance=True):
                if await database.read(_SOURCE, is_outdated) and await database.write_vectors(_SOURCE, claim_update):
                    try:
                        await reindex_library(database)
                    finally:
                        # Also if a command is stopped, so that a server can continue at once.
                        await database.write_vectors(
                            _SOURCE, lambda connection: release(connection, _LEASE_NAME, owner)
                        )
        except FlorilegiumError as error:
            # The batches that were written stay. All are repeated when the library is opened next.
            logger.warning("Updating the index of a library failed: {}", error.message)


# -- index changes -----------------------------------------------------------------------------------------------------
# Indexes the rows that a transaction wrote, before it is committed, so that a search sees every write that it can
# read.

_IS_INDEXED = f"""
    EXISTS (SELECT 1 FROM index_entries e WHERE e.id = m.id AND e.kind = CASE m.human_only
        WHEN 1 THEN {HUMAN_ONLY_ENTRIES.number} ELSE {CHAT_ENTRIES.number} END)
"""
# Messages of conversations that were hidden or are visible again.
_MESSAGES_TO_INDEX = f"""
    SELECT m.id FROM conversations c JOIN messages m ON m.conversation_id = c.id
    WHERE c.id = ANY(CAST(? AS BIGINT[])) AND CASE c.deleted WHEN 1 THEN {_IS_INDEXED}
        ELSE m.deleted = 0 AND NOT {_IS_INDEXED} END
"""
_PURGED = "SELECT id FROM unnest(CAST(? AS BIGINT[])) AS changed (id) WHERE id NOT IN (SELECT id FROM conversations)"
_ENTRIES_WITHOUT_MESSAGE = Delete(
    "index_entries",
    f"kind IN ({CHAT_ENTRIES.number}, {HUMAN_ONLY_ENTRIES.number}) AND id > 0 "
    "AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = index_entries.id)",
    returning="kind, id",
)
# For each item by itself, so that the primary keys are used.
_CHUNKS_OF = f"""
    SELECT chunk.id FROM unnest(CAST(? AS BIGINT[])) AS item (id) JOIN LATERAL (
        SELECT c.id FROM chunks c WHERE c.id >= item.id << {CHUNK_BITS} AND c.id < (item.id + 1) << {CHUNK_BITS}
        UNION SELECT e.id FROM index_entries e WHERE e.kind = {MEDIA_ENTRIES.number}
            AND e.id >= item.id << {CHUNK_BITS} AND e.id < (item.id + 1) << {CHUNK_BITS}) AS chunk ON TRUE
"""
_HAS_TRIGRAMS = f"SELECT 1 FROM state WHERE name = '{STATE_NAME}'"
# The two messages after each of these, whose context they are part of. The conditions are ranges, as in `entries.py`.
_FOLLOWING = """
    SELECT DISTINCT following.id FROM messages m JOIN LATERAL (
        SELECT f.id FROM messages f WHERE (f.conversation_id, f.position) > (m.conversation_id, m.position)
        AND f.conversation_id < m.conversation_id + 1 AND f.deleted <> 1 AND f.human_only <> 1
        ORDER BY f.conversation_id, f.position LIMIT 2) AS following ON TRUE
    WHERE m.id = ANY(CAST(? AS BIGINT[]))
"""


def index_changes(connection: LibraryConnection, changes: Mapping[str, Collection[int]]) -> None:
    """`changes` are the rowids of rows that were inserted, updated or deleted, by table. Updates full-text entries and
    vectors."""
    indexed: dict[int, set[int]] = {}

    def index(kind: EntryKind, rowids: Collection[int]) -> None:
        index_rows(connection, kind, rowids)
        indexed.setdefault(kind.number, set()).update(rowids)

    for table, kind in TABLE_ENTRIES.items():
        if rowids := changes.get(table):
            index(kind, rowids)
    conversations, messages = changes.get("conversations", ()), set(changes.get("messages", ()))
    if conversations:
        # The messages of a purged conversation are gone, so their entries are found by that.
        if connection.execute(f"{_PURGED} LIMIT 1", (sorted(conversations),)).fetchone():
            for number, rowid in connection.execute(_ENTRIES_WITHOUT_MESSAGE).fetchall():
                indexed.setdefault(number, set()).add(rowid)
        rows = connection.execute(_MESSAGES_TO_INDEX, (sorted(conversations),))
        messages |= {rowid for (rowid,) in rows}
    if messages:
        following = {rowid for (rowid,) in connection.execute(_FOLLOWING, (sorted(messages),))}
        index(HUMAN_ONLY_ENTRIES, messages)
        index(CHAT_ENTRIES, messages | following)
        if connection.execute(_HAS_TRIGRAMS).fetchone() is not None:
            index_trigrams(connection, messages)
    if conversations:
        index(CHAT_ENTRIES, [-rowid for rowid in conversations])
    if media := changes.get("media"):
        index(MEDIA_ENTRIES, [rowid for (rowid,) in connection.execute(_CHUNKS_OF, (sorted(media),))])
    update_vectors(connection, indexed)


def index_all(connection: LibraryConnection) -> None:
    tables = (*TABLE_ENTRIES, "conversations", "messages", "media")
    rowids = {table: [rowid for (rowid,) in connection.execute(f"SELECT id FROM {table}")] for table in tables}
    index_changes(connection, rowids)
