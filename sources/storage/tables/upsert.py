"""Upserts of imported drafts: decides which are new, which changed since the last import, and which are unchanged.

Each row keeps the import stamp (column `arrived`) of the draft it was last written from: a digest, the modification
time of the draft if it has one, and the version that the row got (`v3`). A draft that was imported before costs one
lookup, and local edits of an item are overwritten only when the item changed in its source, or not at all with
`keeps_edits`. A row has local edits if its version is not that of its stamp. For drafts from an export of this server,
the versions decide.

An item whose origin has disappeared is withdrawn: it is deleted and its stamp says so, which tells it from an item that
a person deleted. Only a withdrawn item is restored when its origin comes back.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b, sha256
from typing import Any, Generic

import msgspec
from msgspec import UNSET, Struct, structs

from config.errors import Conflict, InvalidParams
from config.times import format_timestamp, parse_time
from sources.drafts import ConversationDraft, ItemDraft, NoteDraft, UpsertResult
from sources.records import WITHDRAWN, has_edits, version_part, with_version, without_version
from sources.storage.tables.item_table import AnyDraft, DraftT, ItemTable, WriteContext, decode_texts
from sources.storage.tables.sql import Delete, Insert, SqlConnection, Update, json_array
from sources.storage.tables.validation import COUNT_MAX, invalid_field, is_storable

# 64 bits are enough to tell two states of the same item apart; digests of different items are never compared.
_DIGEST_BYTES = 8
NEW, UPDATED, UNCHANGED, KEPT, DELETED, CONFLICT = (
    UpsertResult("new"),
    UpsertResult("updated"),
    UpsertResult("unchanged"),
    UpsertResult("kept"),
    UpsertResult("deleted"),
    UpsertResult("conflict"),
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

    @property
    def has_edits(self) -> bool:
        return has_edits(self.import_stamp, self.version)

    @property
    def is_withdrawn(self) -> bool:
        return self.is_deleted and self.import_stamp == with_version(WITHDRAWN, self.version)


class Upserter(Generic[DraftT]):
    """Upserts drafts into one table, within one transaction. `rows` are the rows that already exist, by uuid."""

    def __init__(
        self,
        connection: SqlConnection,
        table: ItemTable[Any, DraftT],
        drafts: Iterable[DraftT],
        context: WriteContext,
        parent_column: str = "0",
        *,
        keeps_edits: bool = False,
    ) -> None:
        self._connection = connection
        self._table = table
        self._context = context
        self._parent_column = parent_column
        self._keeps_edits = keeps_edits
        self.rows = stored_rows(connection, table.name, drafts, parent_column)

    def upsert(self, draft: DraftT) -> UpsertResult:
        """Rejected drafts are reported. They are rejected before anything is written."""
        try:
            if draft.bookkeeping is not UNSET:
                # An exported draft carries the stamp that its row had in the exported library.
                import_stamp = draft.bookkeeping.arrived
            else:
                import_stamp = f"{_digest(draft)} {_modification_time(draft)}".rstrip()
            return self._upsert(draft, uuid_of(draft), import_stamp)
        except (InvalidParams, Conflict) as error:
            return UpsertResult("refused", error.message)

    def _upsert(self, draft: DraftT, uuid: str, import_stamp: str | None) -> UpsertResult:
        row = self.rows.get(uuid)
        if row is None:
            self._remember(self._insert(draft, uuid, import_stamp), draft)
            return NEW
        if row.is_deleted and not row.is_withdrawn:
            return DELETED
        if row.is_deleted:
            # The stamp stays that of a withdrawn item, so that the draft, which follows, counts as changed.
            self._table.restore(self._connection, key_of(self._table, row), self._context)
            version = row.version + 1
            row = structs.replace(row, is_deleted=False, version=version, import_stamp=with_version(WITHDRAWN, version))
        # The creation time is kept: that of a file changes whenever the file is copied.
        changes = structs.replace(draft, created_at=UNSET)
        if self._is_known(row, changes, import_stamp):
            return UNCHANGED
        if self._keeps_edits and row.has_edits and draft.bookkeeping is UNSET:
            if self._has_values_of(row, changes):
                # An edit made the item equal to its origin.
                self._set_stamp(row, with_version(import_stamp, row.version), changes)
                return UNCHANGED
            # People do not edit metadata, such as the path of a file that an item was written to.
            if not self._has_values_of(row, structs.replace(changes, metadata=UNSET)):
                return CONFLICT
        # A followed source decides by itself which state is current, even if it goes back to an older one.
        if not self._keeps_edits and isinstance(draft, NoteDraft | ItemDraft):
            # Older than the last imported state, or than an edit here. The modification time of a row that was not
            # edited is that of its import, and says nothing.
            modified = _modification_time(draft)
            if is_older(draft, row) or (modified and row.has_edits and modified < row.last_modified):
                return KEPT
        stamp = next_stamp(draft, import_stamp, row.version)
        self._update(row, changes, stamp)
        self._remember(structs.replace(row, import_stamp=stamp, version=row.version + 1), draft)
        return UPDATED

    def _insert(self, draft: DraftT, uuid: str, import_stamp: str | None) -> StoredRow:
        stamp = next_stamp(draft, import_stamp, 0)
        rowid = self._table.insert(self._connection, draft, self._context, arrived=stamp)
        return StoredRow(rowid, uuid, stamp)

    def _update(self, row: StoredRow, draft: DraftT, import_stamp: str | None) -> None:
        self._table.update(self._connection, key_of(self._table, row), draft, None, self._context, arrived=import_stamp)

    def _has_values_of(self, row: StoredRow, draft: DraftT) -> bool:
        return self._table.has_values_of(self._connection, row.rowid, draft, self._context.limits)

    def _is_known(self, row: StoredRow, draft: DraftT, import_stamp: str | None) -> bool:
        bookkeeping = draft.bookkeeping
        if bookkeeping is not UNSET:
            # An exported state: the versions decide; if one version was changed in two places, the times do.
            if (bookkeeping.version, bookkeeping.last_modified) < (row.version, row.last_modified):
                return True
            return bookkeeping.version == row.version and self._has_values_of(row, draft)
        if without_version(row.import_stamp) == import_stamp:
            return True
        # The item was created here with the same values, or only its time changed: the next import is one lookup.
        if row.import_stamp is None:
            is_known, stamp = self._has_values_of(row, draft), with_version(import_stamp, row.version)
        else:
            is_known = _digest_part(row.import_stamp) == _digest_part(import_stamp)
            stamp = f"{import_stamp}{version_part(row.import_stamp)}"
        if is_known:
            self._set_stamp(row, stamp, draft)
        return is_known

    def _set_stamp(self, row: StoredRow, stamp: str | None, draft: DraftT) -> None:
        self._connection.execute(Update(self._table.name, "arrived = ?", "id = ?"), (stamp, row.rowid))
        self._remember(structs.replace(row, import_stamp=stamp), draft)

    def _remember(self, row: StoredRow, draft: DraftT) -> None:
        """Later drafts of the same batch may have the same uuid. Only exported drafts need the version of the row."""
        if draft.bookkeeping is UNSET:
            self.rows[row.uuid] = row
        else:
            self.rows.update(stored_rows(self._connection, self._table.name, [draft], self._parent_column))


def stored_rows(
    connection: SqlConnection, table: str, drafts: Iterable[AnyDraft], parent_column: str = "0"
) -> dict[str, StoredRow]:
    """Returns the existing rows of these drafts by uuid."""
    uuids = [draft.uuid for draft in drafts if isinstance(draft.uuid, str) and is_storable(draft.uuid)]
    return rows_by_uuid(connection, table, uuids, parent_column)


def rows_by_uuid(
    connection: SqlConnection, table: str, uuids: Sequence[str], parent_column: str = "0"
) -> dict[str, StoredRow]:
    rows = connection.execute(
        f"SELECT r.id, r.uuid, r.arrived, r.deleted, r.version, r.last_modified, {parent_column} "
        f"FROM {connection.dialect.listed()} CROSS JOIN {table} r WHERE r.uuid = wanted.value",
        (json_array(uuids),),
    )
    return {row.uuid: row for row in (StoredRow(*columns) for columns in rows)}


def withdraw_rows(
    connection: SqlConnection,
    table: ItemTable[Any, Any],
    uuids: Sequence[str],
    context: WriteContext,
    *,
    keeps_edits: bool,
) -> list[str]:
    """Deletes imported items whose origin has disappeared, so that they are restored if it comes back. Returns the
    uuids of those that are kept because they were edited in the library."""
    kept = []
    for row in rows_by_uuid(connection, table.name, uuids).values():
        if row.is_deleted:
            continue
        if keeps_edits and row.has_edits:
            kept.append(row.uuid)
            continue
        table.delete(connection, key_of(table, row), None, context)
        stamp = with_version(WITHDRAWN, row.version + 1)
        connection.execute(Update(table.name, "arrived = ?", "id = ?"), (stamp, row.rowid))
    return kept


def key_of(table: ItemTable[Any, Any], row: StoredRow) -> str | int:
    return row.uuid if table.key == "uuid" else row.rowid


def uuid_of(draft: AnyDraft) -> str:
    if not isinstance(draft.uuid, str):
        raise invalid_field("uuid", expected="the uuid that identifies the imported item", got="nothing")
    return draft.uuid


def is_older(draft: ConversationDraft | NoteDraft | ItemDraft, row: StoredRow) -> bool:
    """Whether the draft was modified before the last imported one. False if either modification time is unknown."""
    stamp = without_version(row.import_stamp) or ""
    modified, last_modified = _modification_time(draft), stamp.partition(" ")[2]
    return bool(modified) and modified < last_modified


def combine_results(own: UpsertResult, messages: Sequence[UpsertResult]) -> UpsertResult:
    """A conversation counts as updated if any of its messages is new or updated."""
    if own.outcome == "unchanged" and any(message.outcome in ("new", "updated") for message in messages):
        return UPDATED
    return own


def next_stamp(draft: AnyDraft, import_stamp: str | None, version: int) -> str | None:
    """Returns the stamp of a row whose version is about to increase by one. An exported stamp has its version."""
    return import_stamp if draft.bookkeeping is not UNSET else with_version(import_stamp, version + 1)


def _digest_part(import_stamp: str | None) -> str:
    return (import_stamp or "").partition(" ")[0]


def _modification_time(draft: AnyDraft) -> str:
    """Times in the stored form can be compared as text."""
    modified = getattr(draft, "last_modified", UNSET)
    return "" if modified is UNSET else modified


def _digest(draft: AnyDraft) -> str:
    """Returns the digest of the fields that are set, except times. A draft that cannot be encoded as JSON has none; it
    is rejected by validation."""
    without_times: AnyDraft = structs.replace(draft, created_at=UNSET)
    if getattr(draft, "last_modified", UNSET) is not UNSET:
        without_times = structs.replace(without_times, last_modified=UNSET)
    try:
        encoded = msgspec.json.encode(without_times)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return ""
    return blake2b(encoded, digest_size=_DIGEST_BYTES).hexdigest()


# -- idempotency -------------------------------------------------------------------------------------------------------
# Idempotency keys: repeating a write with the same key and the same request returns the result of the first call.


class IdempotencyLimits(Struct, frozen=True):
    """How long keys are kept, and how many."""

    ttl_s: float
    max_keys: int


def run_once(
    connection: SqlConnection,
    key: str,
    request: object,
    write: Callable[[], Sequence[str]],
    *,
    limits: IdempotencyLimits,
    now_s: float,
) -> Sequence[str]:
    """Returns the uuids that `write` returns, or those it returned when it ran under this key before.

    Raises `Conflict` if the key was used for a different request. `now_s` must not jump while the process runs, or keys
    would be lost early.
    """
    digest = sha256(repr(request).encode()).hexdigest()
    # Expired keys are deleted, and the oldest ones if there is no room for one more.
    connection.execute(Delete("idempotency", "made_at < ?"), (format_timestamp(now_s - limits.ttl_s),))
    connection.execute(
        Delete(
            "idempotency",
            f"key IN (SELECT key FROM idempotency ORDER BY made_at DESC LIMIT {COUNT_MAX} OFFSET ?)",
        ),
        (limits.max_keys - 1,),
    )
    row = connection.execute("SELECT digest, made FROM idempotency WHERE key = ?", (key,)).fetchone()
    if row is None:
        uuids = write()
        (newest,) = connection.execute("SELECT max(made_at) FROM idempotency").fetchone()
        now = format_timestamp(now_s)
        if newest is not None and newest >= now:
            # Later than every stored key, so that the order of keys survives a clock that was set back.
            now = format_timestamp(parse_time(newest).timestamp() + 0.001)
        values = (key, digest, msgspec.json.encode(uuids).decode(), now)
        connection.execute(Insert("idempotency", "key, digest, made, made_at"), values)
        return uuids
    stored_digest, stored_uuids = row
    if stored_digest != digest:
        raise Conflict(f"idempotency key {key!r} was already used for a different request")
    return decode_texts(stored_uuids)
