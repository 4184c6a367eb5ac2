"""The libraries of all users. A library is opened when its user calls; the number of open libraries is bounded, and the
least recently used one is closed first. A call is rejected before the process runs out of file descriptors."""

import asyncio
import os
import resource
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from loguru import logger

from auth.context import RequestContext
from auth.library_files import forget_file
from auth.quotas import Quotas, apply_overrides
from config.errors import DATABASE_ERRORS, Conflict, Overloaded, Unavailable
from config.numbers import clamp
from config.paths import DATABASE_KINDS, DataRoot, UserId, stored_bytes_of_user
from config.settings import Settings
from config.times import steady_time
from sources.semantic.service import SemanticService
from sources.storage.contract import EmbeddingState, LibrariesState, Library
from sources.storage.embedding import EmbeddedBatch, EmbeddingScheduler, embed_batch
from sources.storage.job_queue import LIBRARY_QUEUE_MAX, JobQueue, charged_to
from sources.storage.search.vocabulary import SEARCH_VOCABULARY_MIB, VocabularyMemory
from sources.storage.shared_part import shared_part
from sources.storage.sqlite.collections import SqliteLibrary, SqliteSettings, UserDatabases
from sources.storage.sqlite.connection.database import Database, count_items_of_closed
from sources.storage.sqlite.connection.open import SqliteOptions
from sources.storage.sqlite.vectors.file_vectors import FileVectors
from sources.storage.sqlite.vectors.vector_tables import VectorMemory

T = TypeVar("T")

# Copies of a file from before its schema was migrated: the last version that worked, and one more.
_MIGRATION_COPIES_MAX = 2

# A read past its deadline is interrupted. If it has not stopped after this time, its connection is replaced.
_LIBRARY_STOP_MS = 1000

# With `durability = normal`, a power failure loses at most the writes of this time.
_LIBRARY_FLUSH_S = 5.0

# Three files, each with a database and a log for its writer and for the reader, and one shared-memory file.
_DESCRIPTORS_PER_USER = 3 * (2 * 2 + 1)
# For sockets, logs and the control database.
_DESCRIPTORS_RESERVED = 200
_DESCRIPTORS_WANTED = 65_536
# An open library takes about 1 MB, and its caches up to 10. More of them are not faster: opening one takes a few
# milliseconds.
_OPEN_USERS_MAX = 128
# One library may be closing for this many that may be open.
_OPEN_PER_CLOSING = 8
# Jobs of a call by which the wait is estimated. Most have one or two, because the reads of all sources are one job;
# that makes little difference in a long queue.
_JOBS_PER_CALL = 3
# How long deleting or moving a library waits for the calls that use it, and for the background work, which may have to
# load a model first.
_REMOVE_WAIT_S = 30.0
_REMOVE_POLL_S = 0.05


class SqliteLibraries:
    """All libraries in one data directory. With a semantic service, their text is embedded while they are in use; a
    command that runs only for a moment sets `embeds_in_background` to false."""

    def __init__(
        self,
        data_root: DataRoot,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        steady_clock: Callable[[], float] = steady_time,
        semantic: SemanticService | None = None,
        quotas: Quotas | None = None,
        *,
        embeds_in_background: bool = True,
    ) -> None:
        self._data_root = data_root
        self._options = sqlite_options(settings)
        memory = VectorMemory(settings.semantic_memory_mib * 1024 * 1024)
        self._settings = SqliteSettings.of(settings, clock, steady_clock, semantic, vector_memory=memory)
        # Without them, the quotas of the settings apply to every user.
        self._quotas = quotas
        self._embeds_in_background = embeds_in_background
        self._embedding = (
            EmbeddingScheduler(semantic, partial(self._embed_next, semantic)) if semantic is not None else None
        )
        self._open_max = settings.library_open_max or _affordable_users()
        self._closing_max = self._open_max // _OPEN_PER_CLOSING
        self._wait_max_s = settings.fixed.library_wait_max_ms / 1000
        # Least recently used first.
        self._open: OrderedDict[UserId, UserDatabases] = OrderedDict()
        self._closing: dict[UserId, asyncio.Task[None]] = {}
        # Cleared while a library is used in the background, which takes only a moment.
        self._background_ended = asyncio.Event()
        self._background_ended.set()
        self._is_closed = False

    @asynccontextmanager
    async def library(self, context: RequestContext) -> AsyncIterator[Library]:
        user_id = context.user_id
        assert context.db_paths == self._data_root.paths_of(user_id)
        limits = await self._quotas.limits(user_id) if self._quotas is not None else self._options.quota
        is_open = user_id in self._open
        databases = self._open.get(user_id) or await self._open_user(user_id)
        if limits != databases.quota.limits:
            databases.quota.change_limits(limits)
            if is_open and self._embedding is not None and self._embeds_in_background:
                # There may be room for text that did not fit.
                self._embedding.wake(user_id, has_new_text=True)
        self._open.move_to_end(user_id)
        databases.lease_count += 1
        library = SqliteLibrary(databases, self._settings, context)
        try:
            if context.library is None:
                yield library
            else:
                # Jobs in a library of someone else count for the caller.
                with charged_to(context.principal.user_id):
                    yield shared_part(library, context)
        finally:
            databases.lease_count -= 1
            if len(self._open) > self._open_max:
                self._close_surplus()
            if self._embedding is not None and self._embeds_in_background:
                self._embedding.wake(user_id, has_new_text=databases.has_new_writes())

    def require_capacity(self, user_id: UserId) -> None:
        wait_s = self._options.jobs.expected_wait_s(user_id, _JOBS_PER_CALL)
        if wait_s > self._wait_max_s:
            raise Overloaded.until_served(wait_s - self._wait_max_s)

    def state(self) -> LibrariesState:
        return LibrariesState(
            open=len(self._open),
            open_max=self._open_max,
            closing=len(self._closing),
            queue=self._options.jobs.state(),
            embedding=self._embedding.state() if self._embedding is not None else EmbeddingState(),
        )

    async def stored_bytes(self, user_ids: Sequence[UserId]) -> Mapping[UserId, int]:
        return {user_id: stored_bytes_of_user(self._data_root.paths_of(user_id)) for user_id in user_ids}

    async def embed(self, user_id: UserId) -> str | None:
        """Also waits for the other users who have their turns meanwhile."""
        if self._embedding is None:
            return None
        self._embedding.wake(user_id, has_new_text=True)
        await self._embedding.wait_until_idle()
        databases = self._open.get(user_id)
        return databases.quota.embedding_stop if databases is not None else None

    async def remove(self, user_id: UserId) -> None:
        """Deletes all files of a user. Calls that arrive meanwhile wait, and find an empty library."""
        await self.run_while_closed([user_id], partial(self._remove_files, user_id))

    async def move(self, source: UserId, target: UserId) -> None:
        """Gives the files of a user to another, whose own are deleted. Raises Conflict if there are items in them."""

        def move() -> None:
            # Now, because a call may have written to them until they were closed.
            paths = self._data_root.paths_of(target)
            if any(count_items_of_closed(kind, getattr(paths, kind)) for kind in DATABASE_KINDS):
                raise Conflict("the user already has items; only an empty library can be replaced")
            self._data_root.move_user(source, target)

        await self.run_while_closed([source, target], move)

    async def run_while_closed(
        self, user_ids: Sequence[UserId], work: Callable[[], T], wait_s: float = _REMOVE_WAIT_S
    ) -> T:
        """Runs `work`, which needs the files of these users for itself, on a thread. Waits up to `wait_s` for calls and
        background work that use the libraries; calls that arrive meanwhile wait, too."""
        due = time.monotonic() + wait_s
        while any(user_id in self._open or user_id in self._closing for user_id in user_ids):
            for user_id in user_ids:
                if user_id in self._open and not self._open[user_id].lease_count:
                    self._start_closing(user_id)
            closing = [self._closing[user_id] for user_id in user_ids if user_id in self._closing]
            if closing:
                await asyncio.wait(closing)
            elif time.monotonic() >= due:
                raise Unavailable("the library is in use; try again in a moment")
            else:
                await asyncio.sleep(_REMOVE_POLL_S)
        working = asyncio.create_task(asyncio.to_thread(work))
        for user_id in user_ids:
            self._closing[user_id] = closed = asyncio.create_task(_wait_for(working))
            closed.add_done_callback(lambda _, user_id=user_id: self._closing.pop(user_id))  # type: ignore[misc]  # bound now
        return await asyncio.shield(working)

    def _remove_files(self, user_id: UserId) -> None:
        self._data_root.remove_user(user_id)
        for kind in DATABASE_KINDS:
            forget_file(self._data_root.control_path, user_id, kind)

    async def close(self) -> None:
        """Closes everything, all libraries at the same time. Running calls are stopped and no new ones are started."""
        self._is_closed = True
        if self._embedding is not None:
            await self._embedding.close()
        for user_id in list(self._open):
            self._start_closing(user_id)
        while self._closing:
            await asyncio.wait(self._closing.values())

    async def _embed_next(self, semantic: SemanticService, user_id: UserId) -> EmbeddedBatch:
        """Embeds the next batch of each file."""
        batches = [
            await embed_batch(FileVectors(partial(self._open_file, user_id, number)), semantic)
            for number in range(len(DATABASE_KINDS))
        ]
        turn = batches[0] + batches[1] + batches[2]
        async with self._lease_in_background(user_id) as databases:
            databases.quota.embedding_stop = turn.stop
        return turn

    @asynccontextmanager
    async def _open_file(self, user_id: UserId, number: int) -> AsyncIterator[Database]:
        async with self._lease_in_background(user_id) as databases:
            yield databases.all[number]

    @asynccontextmanager
    async def _lease_in_background(self, user_id: UserId) -> AsyncIterator[UserDatabases]:
        """A library that is opened in the background is the first to be closed, because it is not in use."""
        limits = await self._quotas.limits(user_id) if self._quotas is not None else self._options.quota
        databases = self._open.get(user_id)
        if databases is None:
            databases = await self._open_user(user_id)
            self._open.move_to_end(user_id, last=False)
        if limits != databases.quota.limits:
            databases.quota.change_limits(limits)
        databases.lease_count += 1
        self._background_ended.clear()
        try:
            yield databases
        finally:
            databases.lease_count -= 1
            if len(self._open) > self._open_max:
                self._close_surplus()
            self._background_ended.set()

    async def _open_user(self, user_id: UserId) -> UserDatabases:
        """Opens a library. If others have to be closed first, calls that do not need them are not held up."""
        while True:
            if self._is_closed:
                raise Unavailable("the server is stopping")
            if user_id in self._open:  # opened by another call while this one waited
                return self._open[user_id]
            if user_id in self._closing:
                await asyncio.wait([self._closing[user_id]])
            elif self._has_room():
                self._open[user_id] = UserDatabases(self._data_root, user_id, self._options)
            elif self._closing:
                await asyncio.wait(self._closing.values(), return_when=asyncio.FIRST_COMPLETED)
            else:
                await self._background_ended.wait()

    def _has_room(self) -> bool:
        """Some libraries may be closing in addition to those that are open, so that opening one need not wait for the
        disk. While few are, a library is opened first and the least recently used one is closed after the call, which
        would otherwise share the processor with that."""
        if len(self._open) >= self._open_max:
            idle = self._idle_libraries()
            if len(idle) > len(self._open) - self._open_max:
                if len(self._open) + len(self._closing) < self._open_max + self._closing_max:
                    return True
                self._start_closing(idle[0])
            elif not self._closing and self._background_ended.is_set():
                raise Unavailable(f"the libraries of {self._open_max} users are in use; try again in a moment")
        return len(self._open) + max(0, len(self._closing) - self._closing_max) < self._open_max

    def _close_surplus(self) -> None:
        for user_id in self._idle_libraries()[: len(self._open) - self._open_max]:
            self._start_closing(user_id)

    def _idle_libraries(self) -> list[UserId]:
        """Returns the libraries that are not in use, the least recently used first."""
        return [user_id for user_id, databases in self._open.items() if not databases.lease_count]

    def _start_closing(self, user_id: UserId) -> None:
        """Closing continues whatever happens to the caller."""
        databases = self._open.pop(user_id)
        self._options.vocabularies.forget(databases.reader.indexes)
        for database in databases.all:
            self._settings.vector_memory.forget(database)
        closing = asyncio.create_task(_close(databases))
        self._closing[user_id] = closing
        closing.add_done_callback(lambda _: self._closing.pop(user_id))


async def _wait_for(task: asyncio.Task[T]) -> None:
    await asyncio.wait([task])


async def _close(databases: UserDatabases) -> None:
    """A file that cannot be closed, for example because the disk is full, has lost nothing: its log is still there."""
    try:
        await databases.close()
    except DATABASE_ERRORS as error:
        logger.warning("Closing a library failed: {}", error)


def sqlite_options(settings: Settings) -> SqliteOptions:
    return SqliteOptions(
        jobs=JobQueue(settings.fixed.library_jobs_max or os.cpu_count() or 1),
        vocabularies=VocabularyMemory(SEARCH_VOCABULARY_MIB * 1024 * 1024),
        queue_max=LIBRARY_QUEUE_MAX,
        deadline_ms=settings.library_deadline_ms,
        stop_ms=_LIBRARY_STOP_MS,
        cache_kib=settings.library_cache_kib,
        durability=settings.durability,
        flush_s=_LIBRARY_FLUSH_S if settings.durability == "normal" else 0.0,
        copies_max=_MIGRATION_COPIES_MAX,
        quota=apply_overrides(settings),
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
    users = (soft - _DESCRIPTORS_RESERVED) // _DESCRIPTORS_PER_USER
    return clamp(users * _OPEN_PER_CLOSING // (_OPEN_PER_CLOSING + 1), 1, _OPEN_USERS_MAX)
