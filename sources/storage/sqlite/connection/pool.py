"""Every user's library: opened when its user calls, a bounded number of them at once, the one unused longest closed
first. It refuses a call before it would run out of files."""

import asyncio
import os
import resource
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from types import TracebackType

from auth.context import RequestContext
from config.errors import Unavailable
from config.numbers import clamp
from config.paths import DataRoot, UserId
from config.settings import Settings
from sources.storage.sqlite.collections.collection import CollectionSettings
from sources.storage.sqlite.connection.library import Shelf, SqliteLibrary
from sources.storage.sqlite.connection.open import Engine
from sources.storage.sqlite.write.idempotency import KeyMemory
from sources.storage.sqlite.write.validation import limits_of

# Three files, each a database and a log for its writer and for all three readers, and the memory that these share.
_DESCRIPTORS_PER_USER = 3 * (2 * 4 + 1)
# For sockets, logs and the control database.
_DESCRIPTORS_RESERVED = 200
_DESCRIPTORS_WANTED = 65_536
# Each takes up to 3 MB. More of them are not faster: a closed library is open again in a few milliseconds.
_OPEN_USERS = 128


class SqliteLibraries:
    """All libraries under one data root."""

    def __init__(self, data_root: DataRoot, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._data_root = data_root
        self._engine = engine_of(settings)
        self._settings = CollectionSettings(
            limits=limits_of(settings),
            keys=KeyMemory(settings.idempotency_ttl_s, settings.idempotency_max_keys),
            ranked_rows_max=settings.search_ranked_rows_max,
            scanned_rows_max=settings.message_scan_max_rows,
            clock=clock,
        )
        self._open_max = settings.library_open_max or _affordable_users()
        self._shelves: OrderedDict[UserId, Shelf] = OrderedDict()
        self._closing: dict[UserId, asyncio.Task[None]] = {}
        self._making_room = asyncio.Lock()
        self._is_closed = False

    def library(self, context: RequestContext) -> "_Visit":
        return _Visit(self._take, context)

    async def close(self) -> None:
        """Close everything; calls that still run are stopped, and none is begun again."""
        self._is_closed = True
        async with self._making_room:
            while self._shelves:
                await self._retire(next(iter(self._shelves)))
            for closing in list(self._closing.values()):
                await closing

    async def _take(self, context: RequestContext) -> tuple[Shelf, SqliteLibrary]:
        shelf = self._shelves.get(context.user_id) or await self._open(context)
        self._shelves.move_to_end(context.user_id)
        shelf.users += 1
        return shelf, SqliteLibrary(shelf, self._settings, context.client_id, is_agent=context.is_agent)

    async def _open(self, context: RequestContext) -> Shelf:
        user_id = context.user_id
        assert context.db_paths == self._data_root.paths_of(user_id)
        async with self._making_room:
            if self._is_closed:
                raise Unavailable("the server is stopping")
            if user_id not in self._shelves:  # somebody may have opened it while we waited
                await self._make_room(user_id)
                self._shelves[user_id] = Shelf(self._data_root, user_id, self._engine)
            return self._shelves[user_id]

    async def _make_room(self, user_id: UserId) -> None:
        if user_id in self._closing:
            await asyncio.shield(self._closing[user_id])
        while len(self._shelves) + len(self._closing) >= self._open_max:
            idle = next((user_id for user_id, shelf in self._shelves.items() if not shelf.users), None)
            if idle is None:
                raise Unavailable(f"the libraries of {self._open_max} users are in use; try again in a moment")
            await self._retire(idle)

    async def _retire(self, user_id: UserId) -> None:
        """Close a library. A caller that is cancelled meanwhile leaves the closing to itself."""
        closing = asyncio.create_task(self._shelves.pop(user_id).close())
        self._closing[user_id] = closing
        closing.add_done_callback(lambda _: self._closing.pop(user_id))
        await asyncio.shield(closing)


class _Visit:
    """A library in use: it is not closed before the block ends."""

    def __init__(
        self, take: Callable[[RequestContext], Awaitable[tuple[Shelf, SqliteLibrary]]], context: RequestContext
    ) -> None:
        self._take = take
        self._context = context
        self._shelf: Shelf | None = None

    async def __aenter__(self) -> SqliteLibrary:
        self._shelf, library = await self._take(self._context)
        return library

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._shelf is not None
        self._shelf.users -= 1


def engine_of(settings: Settings) -> Engine:
    return Engine(
        slots=asyncio.Semaphore(settings.library_jobs_max or os.cpu_count() or 1),
        queue_max=settings.library_queue_max,
        deadline_ms=settings.library_deadline_ms,
        cache_kib=settings.library_cache_kib,
        durability=settings.durability,
        copies_max=settings.migration_copies_max,
    )


def _affordable_users() -> int:
    """As many users as there are descriptors for. The soft limit is raised first: it is often far below the hard one,
    because of programs that use `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft == resource.RLIM_INFINITY:
        return _OPEN_USERS
    return clamp((soft - _DESCRIPTORS_RESERVED) // _DESCRIPTORS_PER_USER, 1, _OPEN_USERS)
