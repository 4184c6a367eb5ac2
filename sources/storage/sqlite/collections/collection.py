"""The base classes of the SQLite collections: how one of a user's files is read and written on behalf of one client."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Struct

from sources.drafts import UpsertResult
from sources.records import HitPage, ListPage, Record
from sources.storage.contract import Search
from sources.storage.sqlite.connection.connection import Work
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.search.fts_search import Ranking
from sources.storage.sqlite.search.target import Target
from sources.storage.sqlite.write.idempotency import KeyMemory, once
from sources.storage.sqlite.write.items import Items, Key, Stamp
from sources.storage.sqlite.write.upsert import Held, Upserter, held_rows, uuid_of
from sources.storage.sqlite.write.validation import Limits, SqlValue, count, name, refusal, time_of

RecordT = TypeVar("RecordT", bound=Record)
DraftT = TypeVar("DraftT", bound=Struct)
IdT = TypeVar("IdT", bound=Key)
T = TypeVar("T")


class CollectionSettings(Struct, frozen=True):
    """The settings that apply to every collection of every user."""

    limits: Limits
    keys: KeyMemory
    ranked_rows_max: int
    scanned_rows_max: int
    clock: Callable[[], float]


class SqliteCollection(Generic[RecordT, DraftT, IdT]):
    """What chats and the item collections have in common."""

    source: ClassVar[str]
    target: ClassVar[Target]
    items: Items[RecordT]

    def __init__(self, database: Database, settings: CollectionSettings, client_id: str) -> None:
        self._database = database
        self._settings = settings
        self._client_id = client_id

    async def search(self, search: Search) -> HitPage:
        limit = self._settings.ranked_rows_max
        statistics = self._database.statistics
        return await self._read(
            lambda connection: Ranking(connection, self.target, search, statistics, limit).find(), search.deadline_ms
        )

    async def get(self, item_id: IdT) -> RecordT:
        return await self._read(lambda connection: self.items.get(connection, item_id))

    async def update(
        self,
        item_id: IdT,
        draft: DraftT,
        expected_version: int | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> RecordT:
        def work(connection: sqlite3.Connection, stamp: Stamp) -> RecordT:
            def make() -> Sequence[str]:
                number = self._change(connection, item_id, draft, expected_version, stamp)
                return [self.items.made(connection, number).uuid]

            [uuid] = self._once(connection, idempotency_key, ("update", item_id, draft, expected_version), make)
            return self.items.get_by_uuid(connection, uuid)

        return await self._write(work)

    async def delete(
        self, item_id: IdT, expected_version: int | None = None, *, idempotency_key: str | None = None
    ) -> None:
        def work(connection: sqlite3.Connection, stamp: Stamp) -> None:
            def make() -> Sequence[str]:
                self.items.delete(connection, item_id, expected_version, stamp)
                return ()

            self._once(connection, idempotency_key, ("delete", item_id, expected_version), make)

        await self._write(work, await self._removal_ms(item_id))

    async def purge(self, item_id: IdT) -> None:
        def work(connection: sqlite3.Connection, _stamp: Stamp) -> None:
            self._remove(connection, item_id)

        await self._write(work, await self._removal_ms(item_id))

    async def _removal_ms(self, _item_id: IdT) -> int:
        """The time that removing an item from the indexes may take beyond the deadline of other writes."""
        return 0

    async def _read(self, work: Work[T], deadline_ms: int | None = None) -> T:
        return await self._database.read(self.source, work, deadline_ms)

    async def _write(self, work: Callable[[sqlite3.Connection, Stamp], T], more_ms: int = 0) -> T:
        stamp = Stamp(self._client_id, time_of(self._settings.clock()))
        return await self._database.write(
            self.source, self.items.index, lambda connection: work(connection, stamp), more_ms
        )

    def _insert(self, connection: sqlite3.Connection, draft: DraftT, stamp: Stamp, **extra: SqlValue) -> int:
        return self.items.insert(connection, draft, stamp, self._settings.limits, **extra)

    def _change(
        self,
        connection: sqlite3.Connection,
        key: Key,
        draft: DraftT,
        expected_version: int | None,
        stamp: Stamp,
        **extra: SqlValue,
    ) -> int:
        return self.items.update(connection, key, draft, expected_version, stamp, self._settings.limits, **extra)

    def _remove(self, connection: sqlite3.Connection, item_id: IdT) -> None:
        self.items.purge(connection, item_id)

    def _holds(self, connection: sqlite3.Connection, number: int, draft: DraftT) -> bool:
        return self.items.holds(connection, number, draft, self._settings.limits)

    def _upserter(self, connection: sqlite3.Connection, drafts: Sequence[DraftT], stamp: Stamp) -> Upserter:
        def insert(draft: Any, arrived: str | None) -> Held:
            return Held(self._insert(connection, draft, stamp, arrived=arrived), uuid_of(draft), arrived)

        def change(found: Held, draft: Any, arrived: str | None) -> None:
            key = found.uuid if self.items.key == "uuid" else found.number
            self._change(connection, key, draft, None, stamp, arrived=arrived)

        return Upserter(
            connection=connection,
            table=self.items.table,
            held=held_rows(connection, self.items.table, drafts),
            insert=insert,
            change=change,
            is_same=lambda found, draft: self._holds(connection, found.number, draft),
        )

    def _once(
        self,
        connection: sqlite3.Connection,
        key: str | None,
        request: object,
        make: Callable[[], Sequence[str]],
    ) -> Sequence[str]:
        if key is None:
            return make()
        key = name(self._settings.limits, "idempotency_key", key)
        request = (self.source, request)
        return once(connection, key, request, make, memory=self._settings.keys, now_s=self._settings.clock())

    def _require_batch(self, drafts: Sequence[object]) -> None:
        limit = self._settings.limits.batch_max_items
        if len(drafts) > limit:
            raise refusal("items", f"{len(drafts)}", f"at most {limit} in one call")


class SqliteItemCollection(SqliteCollection[RecordT, DraftT, IdT]):
    """Implements `ItemCollection` of the storage contract."""

    async def list(self, limit: int, offset: int) -> ListPage[RecordT]:
        return await self._read(lambda connection: self.items.page(connection, limit, offset))

    async def list_after(self, uuid: str, limit: int) -> Sequence[RecordT]:
        parameters = (uuid, count(limit))
        return await self._read(
            lambda connection: self.items.select(connection, "uuid > ? ORDER BY uuid LIMIT ?", parameters)
        )

    async def create(self, draft: DraftT, *, idempotency_key: str | None = None) -> RecordT:
        def work(connection: sqlite3.Connection, stamp: Stamp) -> RecordT:
            def make() -> Sequence[str]:
                return [self.items.made(connection, self._insert(connection, draft, stamp)).uuid]

            [uuid] = self._once(connection, idempotency_key, draft, make)
            return self.items.get_by_uuid(connection, uuid)

        return await self._write(work)

    async def create_many(self, drafts: Sequence[DraftT], *, idempotency_key: str | None = None) -> Sequence[RecordT]:
        self._require_batch(drafts)

        def work(connection: sqlite3.Connection, stamp: Stamp) -> Sequence[RecordT]:
            def make() -> Sequence[RecordT]:
                numbers = [self._insert(connection, draft, stamp) for draft in drafts]
                return [self.items.made(connection, number) for number in numbers]

            if idempotency_key is None:
                return make()
            uuids = self._once(connection, idempotency_key, [*drafts], lambda: [row.uuid for row in make()])
            return [self.items.get_by_uuid(connection, uuid) for uuid in uuids]

        return await self._write(work)

    async def upsert_many(self, drafts: Sequence[DraftT]) -> Sequence[UpsertResult]:
        self._require_batch(drafts)

        def work(connection: sqlite3.Connection, stamp: Stamp) -> Sequence[UpsertResult]:
            upserter = self._upserter(connection, drafts, stamp)
            return [upserter.put(draft) for draft in drafts]

        return await self._write(work)
