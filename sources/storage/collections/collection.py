"""The base classes of collections: how the tables of a user are read and written on behalf of one client."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from config.times import format_timestamp
from sources.drafts import UpsertResult
from sources.records import ListPage
from sources.storage.contract import ItemFilter, TagCount
from sources.storage.tables import validation
from sources.storage.tables.item_table import DraftT, ItemKey, ItemTable, RecordT, WriteContext
from sources.storage.tables.kind_tables import has_tags
from sources.storage.tables.sql import SqlConnection, TableWork, TextIndex, between, equals
from sources.storage.tables.upsert import IdempotencyLimits, Upserter, run_once, withdraw_rows
from sources.storage.tables.validation import (
    FieldLimits,
    clamp_count,
    invalid_field,
    is_storable,
    storable_beginning,
)

IdT = TypeVar("IdT", bound=ItemKey)
T = TypeVar("T")


class QuotaRoom(Protocol):
    """The quota of a user, as far as writes need it."""

    def room(self, new_items: int, *, may_exist: bool = False) -> AbstractAsyncContextManager[None]: ...


class UserDatabase(Protocol):
    """Tables of one user. Each call runs its work in one transaction. `index` is the full-text index of the rows that
    a write changes, and `extra_ms` extends the deadline of the settings."""

    @property
    def quota(self) -> QuotaRoom: ...

    async def read(self, source: str, work: TableWork[T], deadline_ms: int | None = None) -> T: ...
    async def write(self, source: str, index: TextIndex, work: TableWork[T], extra_ms: int = 0) -> T: ...


class StorageSettings(Struct, frozen=True, kw_only=True):
    """The settings that apply to every collection of every user."""

    limits: FieldLimits
    idempotency: IdempotencyLimits
    clock: Callable[[], float]
    steady_clock: Callable[[], float]


class StoredCollection(Generic[RecordT, DraftT, IdT]):
    """Base class of chats and of the item collections."""

    source: str
    table: ItemTable[RecordT, DraftT]

    def __init__(self, database: UserDatabase, settings: StorageSettings, client_id: str) -> None:
        self._database = database
        self._settings = settings
        self._client_id = client_id

    async def get(self, item_id: IdT) -> RecordT:
        return await self._read(lambda connection: self.table.get(connection, item_id))

    async def browse(self, where: ItemFilter, limit: int, offset: int) -> ListPage[RecordT]:
        table = self.table
        columns = {"media_type": where.media_type, "namespace": where.namespace}
        # No row can have a value of a column that the table lacks, or that cannot be stored.
        if any(value is not None and not table.has_column(name) for name, value in columns.items()):
            return ListPage((), 0)
        if not all(is_storable(value) for value in (*where.tags, *columns.values()) if value is not None):
            return ListPage((), 0)
        condition = has_tags(where.tags, table.name, f"{table.name}.id")
        for name, value in columns.items():
            condition &= equals(name, value)
        condition &= between("last_modified", where.date_from, where.date_to)
        sql, parameters = f"TRUE{condition.sql}", condition.parameters
        return await self._read(lambda connection: self.table.page(connection, limit, offset, sql, parameters))

    async def tags(self, limit: int) -> Sequence[TagCount]:
        return await self._read(lambda connection: self.table.tag_counts(connection, limit))

    async def update(
        self,
        item_id: IdT,
        draft: DraftT,
        expected_version: int | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> RecordT:
        def work(connection: SqlConnection, context: WriteContext) -> RecordT:
            def write() -> Sequence[str]:
                rowid = self.table.update(connection, item_id, draft, expected_version, context)
                return [self.table.get_by_rowid(connection, rowid).uuid]

            request = ("update", item_id, draft, expected_version)
            [uuid] = self._run_once(connection, idempotency_key, request, write)
            return self.table.get_by_uuid(connection, uuid)

        return await self._write(work)

    async def delete(
        self, item_id: IdT, expected_version: int | None = None, *, idempotency_key: str | None = None
    ) -> None:
        def work(connection: SqlConnection, context: WriteContext) -> None:
            def write() -> Sequence[str]:
                self.table.delete(connection, item_id, expected_version, context)
                return ()

            self._run_once(connection, idempotency_key, ("delete", item_id, expected_version), write)

        await self._remove(work, await self._removal_ms(item_id))

    async def restore(self, item_id: IdT) -> RecordT:
        def work(connection: SqlConnection, context: WriteContext) -> RecordT:
            return self.table.get_by_rowid(connection, self.table.restore(connection, item_id, context))

        return await self._write(work, 1)

    async def purge(self, item_id: IdT) -> None:
        def work(connection: SqlConnection, _context: WriteContext) -> None:
            self.table.purge(connection, item_id)

        await self._remove(work, await self._removal_ms(item_id))

    async def _read(self, work: TableWork[T], deadline_ms: int | None = None) -> T:
        return await self._database.read(self.source, work, deadline_ms)

    async def _write(
        self, work: Callable[[SqlConnection, WriteContext], T], new_items: int = 0, *, may_exist: bool = False
    ) -> T:
        """Runs work that adds `new_items` items, or fewer if some of them may exist, within the user's quota."""
        async with self._database.quota.room(new_items, may_exist=may_exist):
            return await self._remove(work)

    async def _remove(self, work: Callable[[SqlConnection, WriteContext], T], extra_ms: int = 0) -> T:
        """Runs work that removes something, which a user whose quota is reached must be able to do."""
        context = self._write_context()
        return await self._database.write(
            self.source, self.table.index, lambda connection: work(connection, context), extra_ms
        )

    def _write_context(self) -> WriteContext:
        return WriteContext(self._client_id, format_timestamp(self._settings.clock()), self._settings.limits)

    async def _removal_ms(self, _item_id: IdT) -> int:
        """The time that removing an item from the indexes may take beyond the deadline of other writes."""
        return 0

    def _run_once(
        self,
        connection: SqlConnection,
        key: str | None,
        request: object,
        write: Callable[[], Sequence[str]],
    ) -> Sequence[str]:
        """Runs `write`, or returns its earlier result if this key was used before."""
        if key is None:
            return write()
        # The source is part of the request: a key that another collection has used is a conflict, not a repetition.
        key = validation.required_short_text(self._settings.limits, "idempotency_key", key)
        limits, now_s = self._settings.idempotency, self._settings.steady_clock()
        return run_once(connection, key, (self.source, request), write, limits=limits, now_s=now_s)

    def _require_batch(self, drafts: Sequence[object]) -> None:
        limit = self._settings.limits.batch_max_items
        if len(drafts) > limit:
            raise invalid_field("items", expected=f"at most {limit} per call", got=f"{len(drafts)}")


class StoredItems(StoredCollection[RecordT, DraftT, IdT]):
    """Implements `ItemCollection` of the storage contract, except for the search."""

    async def list(self, limit: int, offset: int) -> ListPage[RecordT]:
        return await self._read(lambda connection: self.table.page(connection, limit, offset))

    async def list_after(self, uuid: str, limit: int) -> Sequence[RecordT]:
        parameters = (storable_beginning(uuid), clamp_count(limit))
        return await self._read(
            lambda connection: self.table.select(connection, "uuid > ? ORDER BY uuid LIMIT ?", parameters)
        )

    async def create(self, draft: DraftT, *, idempotency_key: str | None = None) -> RecordT:
        def work(connection: SqlConnection, context: WriteContext) -> RecordT:
            def write() -> Sequence[str]:
                rowid = self.table.insert(connection, draft, context)
                return [self.table.get_by_rowid(connection, rowid).uuid]

            [uuid] = self._run_once(connection, idempotency_key, draft, write)
            return self.table.get_by_uuid(connection, uuid)

        return await self._write(work, 1)

    async def create_many(self, drafts: Sequence[DraftT], *, idempotency_key: str | None = None) -> Sequence[RecordT]:
        self._require_batch(drafts)

        def work(connection: SqlConnection, context: WriteContext) -> Sequence[RecordT]:
            def write() -> Sequence[RecordT]:
                rowids = [self.table.insert(connection, draft, context) for draft in drafts]
                return self.table.get_by_rowids(connection, rowids)

            if idempotency_key is None:
                return write()
            uuids = self._run_once(connection, idempotency_key, [*drafts], lambda: [row.uuid for row in write()])
            return [self.table.get_by_uuid(connection, uuid) for uuid in uuids]

        return await self._write(work, len(drafts))

    async def upsert_many(self, drafts: Sequence[DraftT], *, keeps_edits: bool = False) -> Sequence[UpsertResult]:
        self._require_batch(drafts)

        def work(connection: SqlConnection, context: WriteContext) -> Sequence[UpsertResult]:
            upserter = Upserter(connection, self.table, drafts, context, keeps_edits=keeps_edits)
            return [upserter.upsert(draft) for draft in drafts]

        return await self._write(work, len(drafts), may_exist=True)

    async def withdraw_many(self, uuids: Sequence[str], *, keeps_edits: bool = True) -> Sequence[str]:
        self._require_batch(uuids)
        return await self._remove(
            lambda connection, context: withdraw_rows(connection, self.table, uuids, context, keeps_edits=keeps_edits)
        )
