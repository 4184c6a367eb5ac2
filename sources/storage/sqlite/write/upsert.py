"""Upserts of imported drafts: decides which are new, which changed since the last import, and which are unchanged.

Each row keeps the import stamp (column `arrived`) of the draft it was last written from: a digest and, if the draft has
one, its modification time. A draft that was imported before costs one lookup, and local edits of an item are
overwritten only when the item changed at its origin. For drafts from an export of this server, the versions decide.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Generic

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from config.errors import Conflict, InvalidParams
from sources.drafts import Bookkeeping, ConversationDraft, UpsertResult
from sources.storage.sqlite.sql import json_array
from sources.storage.sqlite.write.item_table import AnyDraft, DraftT, ItemTable, WriteContext
from sources.storage.sqlite.write.validation import invalid_field, is_storable

# 64 bits are enough to tell two states of the same item apart; digests of different items are never compared.
_DIGEST_BYTES = 8
NEW, UPDATED, UNCHANGED, DELETED = (
    UpsertResult("new"),
    UpsertResult("updated"),
    UpsertResult("unchanged"),
    UpsertResult("deleted"),
)


class StoredRow(Struct, frozen=True):
    """The part of a stored row that an upsert needs. The fields are the columns that `stored_rows` selects."""

    rowid: int
    uuid: str
    import_stamp: str | None
    is_deleted: bool = False
    version: int = 1
    last_modified: str = ""
    # For a message, the rowid of its conversation.
    parent: int = 0


class Upserter(Generic[DraftT]):
    """Upserts drafts into one table, within one transaction. `rows` are the rows that already exist, by uuid."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        table: ItemTable[Any, DraftT],
        drafts: Iterable[DraftT],
        context: WriteContext,
        parent_column: str = "0",
    ) -> None:
        self._connection = connection
        self._table = table
        self._context = context
        self._parent_column = parent_column
        self.rows = stored_rows(connection, table.name, drafts, parent_column)

    def upsert(self, draft: DraftT) -> UpsertResult:
        """Rejected drafts are reported. They are rejected before anything is written."""
        try:
            return self._upsert(draft, uuid_of(draft), _import_stamp(draft))
        except (InvalidParams, Conflict) as error:
            return UpsertResult("refused", error.message)

    def _upsert(self, draft: DraftT, uuid: str, import_stamp: str | None) -> UpsertResult:
        row = self.rows.get(uuid)
        if row is None:
            self._remember(self._insert(draft, uuid, import_stamp), draft)
            return NEW
        if row.is_deleted:
            return DELETED
        # The creation time is kept: that of a file changes whenever the file is copied.
        changes = replace(draft, created_at=UNSET)
        if self._is_known(row, changes, import_stamp):
            return UNCHANGED
        self._update(row, changes, import_stamp)
        self._remember(replace(row, import_stamp=import_stamp), draft)
        return UPDATED

    def _insert(self, draft: DraftT, uuid: str, import_stamp: str | None) -> StoredRow:
        rowid = self._table.insert(self._connection, draft, self._context, arrived=import_stamp)
        return StoredRow(rowid, uuid, import_stamp)

    def _update(self, row: StoredRow, draft: DraftT, import_stamp: str | None) -> None:
        key = row.uuid if self._table.key == "uuid" else row.rowid
        self._table.update(self._connection, key, draft, None, self._context, arrived=import_stamp)

    def _has_values_of(self, row: StoredRow, draft: DraftT) -> bool:
        return self._table.has_values_of(self._connection, row.rowid, draft, self._context.limits)

    def _is_known(self, row: StoredRow, draft: DraftT, import_stamp: str | None) -> bool:
        if draft.bookkeeping is not UNSET:
            return self._is_current(row, draft, draft.bookkeeping)
        if row.import_stamp == import_stamp:
            return True
        if row.import_stamp is None:
            is_known = self._has_values_of(row, draft)
        else:
            is_known = _digest_part(row.import_stamp) == _digest_part(import_stamp)
        if is_known:
            # The item was created here with the same values, or only its time changed: the next import is one lookup.
            sql = f"UPDATE {self._table.name} SET arrived = ? WHERE id = ?"
            self._connection.execute(sql, (import_stamp, row.rowid))
            self._remember(replace(row, import_stamp=import_stamp), draft)
        return is_known

    def _is_current(self, row: StoredRow, draft: DraftT, bookkeeping: Bookkeeping) -> bool:
        """Whether the row is as new as an exported state of the item. The versions decide; if one version was changed
        in two places, the times do."""
        if (bookkeeping.version, bookkeeping.last_modified) < (row.version, row.last_modified):
            return True
        return bookkeeping.version == row.version and self._has_values_of(row, draft)

    def _remember(self, row: StoredRow, draft: DraftT) -> None:
        """Later drafts of the same batch may have the same uuid. Only exported drafts need the version of the row."""
        if draft.bookkeeping is UNSET:
            self.rows[row.uuid] = row
        else:
            self.rows.update(stored_rows(self._connection, self._table.name, [draft], self._parent_column))


def stored_rows(
    connection: sqlite3.Connection, table: str, drafts: Iterable[AnyDraft], parent_column: str = "0"
) -> dict[str, StoredRow]:
    """Returns the existing rows of these drafts by uuid."""
    uuids = [draft.uuid for draft in drafts if isinstance(draft.uuid, str) and is_storable(draft.uuid)]
    # SQLite keeps the order of a CROSS JOIN, so it looks these rows up instead of scanning the table.
    rows = connection.execute(
        f"SELECT r.id, r.uuid, r.arrived, r.deleted, r.version, r.last_modified, {parent_column} "
        f"FROM json_each(?) wanted CROSS JOIN {table} r ON r.uuid = wanted.value",
        (json_array(uuids),),
    )
    return {row.uuid: row for row in (StoredRow(*columns) for columns in rows)}


def uuid_of(draft: AnyDraft) -> str:
    if not isinstance(draft.uuid, str):
        raise invalid_field("uuid", expected="the uuid that identifies the imported item", got="nothing")
    return draft.uuid


def is_older(draft: ConversationDraft, row: StoredRow) -> bool:
    """Whether the draft was modified before the last imported one. False if either modification time is unknown."""
    modified, last_modified = _modification_time(draft), (row.import_stamp or "").partition(" ")[2]
    return bool(modified) and modified < last_modified


def combine_results(own: UpsertResult, messages: Sequence[UpsertResult]) -> UpsertResult:
    """A conversation counts as updated if any of its messages is new or updated."""
    if own.outcome == "unchanged" and any(message.outcome in ("new", "updated") for message in messages):
        return UPDATED
    return own


def _import_stamp(draft: AnyDraft) -> str | None:
    """Returns the value by which a draft is recognized when it is imported again. An exported draft carries the stamp
    that its row had in the exported library."""
    if draft.bookkeeping is not UNSET:
        return draft.bookkeeping.arrived
    return f"{_digest(draft)} {_modification_time(draft)}".rstrip()


def _digest_part(import_stamp: str | None) -> str:
    return (import_stamp or "").partition(" ")[0]


def _modification_time(draft: AnyDraft) -> str:
    """Times in the stored form can be compared as text."""
    return draft.last_modified if isinstance(draft, ConversationDraft) and draft.last_modified is not UNSET else ""


def _digest(draft: AnyDraft) -> str:
    """Returns the digest of the fields that are set, except times. A draft that cannot be encoded as JSON has none; it
    is rejected by validation."""
    without_times: AnyDraft = replace(draft, created_at=UNSET)
    if isinstance(without_times, ConversationDraft):
        without_times = replace(without_times, last_modified=UNSET)
    try:
        encoded = msgspec.json.encode(without_times)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return ""
    return blake2b(encoded, digest_size=_DIGEST_BYTES).hexdigest()
