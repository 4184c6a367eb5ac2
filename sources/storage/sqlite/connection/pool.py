"""The libraries of all users. A library is opened when its user calls; the number of open libraries is bounded, and the
least recently used one is closed first. A call is rejected before the process runs out of file descriptors."""

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
from sources.storage.sqlite.connection.library import SqliteLibrary, UserDatabases
from sources.storage.sqlite.connection.open import SqliteOptions
from sources.storage.sqlite.write.idempotency import IdempotencyLimits
from sources.storage.sqlite.write.validation import field_limits

# Three files, each with a database and a log for its writer and for all three readers, and one shared-memory file.
_DESCRIPTORS_PER_USER = 3 * (2 * 4 + 1)
# For sockets, logs and the control database.
_DESCRIPTORS_RESERVED = 200
_DESCRIPTORS_WANTED = 65_536
# An open library takes up to 3 MB. More of them are not faster: opening one takes a few milliseconds.
_OPEN_USERS_MAX = 128


class SqliteLibraries:
    """All libraries in one data directory."""

    def __init__(self, data_root: DataRoot, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._data_root = data_root
        self._options = sqlite_options(settings)
        self._settings = CollectionSettings(
            limits=field_limits(settings),
            idempotency=IdempotencyLimits(settings.idempotency_ttl_s, settings.idempotency_max_keys),
            ranked_rows_max=settings.search_ranked_rows_max,
            scanned_rows_max=settings.message_scan_max_rows,
            clock=clock,
        )
        self._open_max = settings.library_open_max or _affordable_users()
        # Least recently used first.
        self._open: OrderedDict[UserId, UserDatabases] = OrderedDict()
        self._closing: dict[UserId, asyncio.Task[None]] = {}
        self._open_lock = asyncio.Lock()
        self._is_closed = False

    def library(self, context: RequestContext) -> "_LibraryLease":
        return _LibraryLease(self._acquire, context)

    async def close(self) -> None:
        """Closes everything. Running calls are stopped and no new ones are started."""
        self._is_closed = True
        async with self._open_lock:
            while self._open:
                await self._close_user(next(iter(self._open)))
            for closing in list(self._closing.values()):
                await closing

    async def _acquire(self, context: RequestContext) -> tuple[UserDatabases, SqliteLibrary]:
        databases = self._open.get(context.user_id) or await self._open_user(context)
        self._open.move_to_end(context.user_id)
        databases.lease_count += 1
        return databases, SqliteLibrary(databases, self._settings, context.client_id, is_agent=context.is_agent)

    async def _open_user(self, context: RequestContext) -> UserDatabases:
        user_id = context.user_id
        assert context.db_paths == self._data_root.paths_of(user_id)
        async with self._open_lock:
            if self._is_closed:
                raise Unavailable("the server is stopping")
            if user_id not in self._open:  # another call may have opened it while this one waited for the lock
                await self._make_room(user_id)
                self._open[user_id] = UserDatabases(self._data_root, user_id, self._options)
            return self._open[user_id]

    async def _make_room(self, user_id: UserId) -> None:
        if user_id in self._closing:
            await asyncio.shield(self._closing[user_id])
        while len(self._open) + len(self._closing) >= self._open_max:
            idle = next((user_id for user_id, databases in self._open.items() if not databases.lease_count), None)
            if idle is None:
                raise Unavailable(f"the libraries of {self._open_max} users are in use; try again in a moment")
            await self._close_user(idle)

    async def _close_user(self, user_id: UserId) -> None:
        """Closes a library. Closing continues if the caller is cancelled."""
        closing = asyncio.create_task(self._open.pop(user_id).close())
        self._closing[user_id] = closing
        closing.add_done_callback(lambda _: self._closing.pop(user_id))
        await asyncio.shield(closing)


class _LibraryLease:
    """A library in use: it is not closed before the block ends."""

    def __init__(
        self,
        acquire: Callable[[RequestContext], Awaitable[tuple[UserDatabases, SqliteLibrary]]],
        context: RequestContext,
    ) -> None:
        self._acquire = acquire
        self._context = context
        self._databases: UserDatabases | None = None

    async def __aenter__(self) -> SqliteLibrary:
        self._databases, library = await self._acquire(self._context)
        return library

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._databases is not None
        self._databases.lease_count -= 1


def sqlite_options(settings: Settings) -> SqliteOptions:
    return SqliteOptions(
        slots=asyncio.Semaphore(settings.library_jobs_max or os.cpu_count() or 1),
        queue_max=settings.library_queue_max,
        deadline_ms=settings.library_deadline_ms,
        cache_kib=settings.library_cache_kib,
        durability=settings.durability,
        copies_max=settings.migration_copies_max,
    )


def _affordable_users() -> int:
    """Returns how many libraries can be open with the available file descriptors. Raises the soft limit first, which is
    often far below the hard limit because of programs that use `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft == resource.RLIM_INFINITY:
        return _OPEN_USERS_MAX
    return clamp((soft - _DESCRIPTORS_RESERVED) // _DESCRIPTORS_PER_USER, 1, _OPEN_USERS_MAX)
