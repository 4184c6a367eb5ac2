"""What the five collections share: how one of a user's files is read and written on behalf of one client."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

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

R = TypeVar("R", bound=Record)
T = TypeVar("T")


class Rules(Struct, frozen=True):
    """What the settings say about items, whoever they belong to."""

    limits: Limits
    keys: KeyMemory
    ranked_rows_max: int
    scanned_rows_max: int
    clock: Callable[[], float]


class Collection(Generic[R]):
    """One kind of item in one user's library."""

    source: str
    items: Items[R]

    def __init__(self, database: Database, rules: Rules, client_id: str) -> None:
        self._database = database
        self._rules = rules
        self._client_id = client_id

    async def _read(self, work: Work[T], deadline_ms: int | None = None) -> T:
        return await self._database.read(self.source, work, deadline_ms)

    async def _write(self, work: Callable[[sqlite3.Connection, Stamp], T], more_ms: int = 0) -> T:
        stamp = Stamp(self._client_id, time_of(self._rules.clock()))
        return await self._database.write(
            self.source, self.items.index, lambda connection: work(connection, stamp), more_ms
        )

    async def _search(self, target: Target, search: Search) -> HitPage:
        limit = self._rules.ranked_rows_max
        statistics = self._database.statistics
        return await self._read(
            lambda connection: Ranking(connection, target, search, statistics, limit).find(), search.deadline_ms
        )

    # What one item needs done in its transaction; an item with parts does more.

    def _insert(self, connection: sqlite3.Connection, draft: Struct, stamp: Stamp, **extra: SqlValue) -> int:
        return self.items.insert(connection, draft, stamp, self._rules.limits, **extra)

    def _change(
        self,
        connection: sqlite3.Connection,
        key: Key,
        draft: Struct,
        expected_version: int | None,
        stamp: Stamp,
        **extra: SqlValue,
    ) -> int:
        return self.items.update(connection, key, draft, expected_version, stamp, self._rules.limits, **extra)

    def _holds(self, connection: sqlite3.Connection, number: int, draft: Struct) -> bool:
        return self.items.holds(connection, number, draft, self._rules.limits)

    # The calls that every collection offers under its own names.

    async def _get(self, key: Key) -> R:
        return await self._read(lambda connection: self.items.get(connection, key))

    async def _list(self, limit: int, offset: int) -> ListPage[R]:
        return await self._read(lambda connection: self.items.page(connection, limit, offset))

    async def _list_after(self, uuid: str, limit: int) -> Sequence[R]:
        parameters = (uuid, count(limit))
        return await self._read(
            lambda connection: self.items.select(connection, "uuid > ? ORDER BY uuid LIMIT ?", parameters)
        )

    async def _create(self, draft: Struct, idempotency_key: str | None) -> R:
        def work(connection: sqlite3.Connection, stamp: Stamp) -> R:
            def make() -> Sequence[str]:
                return [self.items.made(connection, self._insert(connection, draft, stamp)).uuid]

            [uuid] = self._once(connection, idempotency_key, draft, make)
            return self.items.get_by_uuid(connection, uuid)

        return await self._write(work)

    async def _create_many(self, drafts: Sequence[Struct], idempotency_key: str | None = None) -> Sequence[R]:
        self._require_batch(drafts)

        def work(connection: sqlite3.Connection, stamp: Stamp) -> Sequence[R]:
            def make() -> Sequence[R]:
                numbers = [self._insert(connection, draft, stamp) for draft in drafts]
                return [self.items.made(connection, number) for number in numbers]

            if idempotency_key is None:
                return make()
            uuids = self._once(connection, idempotency_key, list(drafts), lambda: [row.uuid for row in make()])
            return [self.items.get_by_uuid(connection, uuid) for uuid in uuids]

        return await self._write(work)

    async def _upsert_many(self, drafts: Sequence[Struct]) -> Sequence[UpsertResult]:
        self._require_batch(drafts)

        def work(connection: sqlite3.Connection, stamp: Stamp) -> Sequence[UpsertResult]:
            upserter = self._upserter(connection, drafts, stamp)
            return [upserter.put(draft) for draft in drafts]

        return await self._write(work)

    def _upserter(self, connection: sqlite3.Connection, drafts: Sequence[Struct], stamp: Stamp) -> Upserter:
        def insert(draft: Struct, arrived: str | None) -> Held:
            return Held(self._insert(connection, draft, stamp, arrived=arrived), uuid_of(draft), arrived)

        def change(found: Held, draft: Struct, arrived: str | None) -> None:
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

    async def _update(
        self, key: Key, draft: Struct, expected_version: int | None, idempotency_key: str | None = None
    ) -> R:
        def work(connection: sqlite3.Connection, stamp: Stamp) -> R:
            def make() -> Sequence[str]:
                number = self._change(connection, key, draft, expected_version, stamp)
                return [self.items.made(connection, number).uuid]

            [uuid] = self._once(connection, idempotency_key, ("update", key, draft, expected_version), make)
            return self.items.get_by_uuid(connection, uuid)

        return await self._write(work)

    async def _delete(
        self, key: Key, expected_version: int | None, idempotency_key: str | None = None, more_ms: int = 0
    ) -> None:
        def work(connection: sqlite3.Connection, stamp: Stamp) -> None:
            def make() -> Sequence[str]:
                self.items.delete(connection, key, expected_version, stamp)
                return ()

            self._once(connection, idempotency_key, ("delete", key, expected_version), make)

        await self._write(work, more_ms)

    async def _purge(self, key: Key) -> None:
        await self._write(lambda connection, _stamp: self.items.purge(connection, key))

    def _once(
        self,
        connection: sqlite3.Connection,
        key: str | None,
        request: object,
        make: Callable[[], Sequence[str]],
    ) -> Sequence[str]:
        if key is None:
            return make()
        key = name(self._rules.limits, "idempotency_key", key)
        request = (self.source, request)
        return once(connection, key, request, make, memory=self._rules.keys, now_s=self._rules.clock())

    def _require_batch(self, drafts: Sequence[object]) -> None:
        limit = self._rules.limits.batch_max_items
        if len(drafts) > limit:
            raise refusal("items", f"{len(drafts)}", f"at most {limit} in one call")
