"""Builds the on-demand indexes of one file in the background, batch by batch, while the file is in use.

A build that was interrupted, by an error, by closing the library or by a crash, continues when the index is next
needed.
"""

import asyncio
from contextlib import suppress

from loguru import logger

from config.errors import StorageError, Unavailable
from sources.storage.job_group import background_jobs
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.index.message_index import IndexProgress, MessageIndex
from sources.storage.tables.text_index import TextIndex


class _IndexBuild:
    """A running build. `is_usable` is set when the index can be searched, or when the build ended."""

    def __init__(self, task: "asyncio.Task[None]", is_usable: asyncio.Event) -> None:
        self.task = task
        self.is_usable = is_usable


class IndexBuilder:
    """`text_index` is the index that every write to the file keeps up to date."""

    def __init__(self, database: Database, text_index: TextIndex) -> None:
        self._database = database
        self._text_index = text_index
        self._builds: dict[str, _IndexBuild] = {}
        self._is_closed = False

    def start(self, index: MessageIndex, usable_rows: int = 0) -> None:
        """Starts the build unless it is running. The index is usable once it contains the `usable_rows` newest
        messages."""
        if index.table in self._builds or self._is_closed:
            return
        is_usable = asyncio.Event()
        task = asyncio.create_task(self._build(index, usable_rows, is_usable))
        self._builds[index.table] = _IndexBuild(task, is_usable)

    async def wait_until_usable(self, index: MessageIndex, timeout_s: float) -> bool:
        """Waits until the index is usable, its build has ended, or the timeout has passed. Returns whether there was
        anything to wait for."""
        build = self._builds.get(index.table)
        if build is None or build.is_usable.is_set():
            return False
        with suppress(TimeoutError):
            await asyncio.wait_for(build.is_usable.wait(), timeout_s)
        return True

    async def wait_until_finished(self, index: MessageIndex) -> None:
        build = self._builds.get(index.table)
        if build is not None:
            await asyncio.wait([build.task])

    async def close(self) -> None:
        """Stops all builds. Must be called before the file is closed."""
        self._is_closed = True
        tasks = [build.task for build in self._builds.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _build(self, index: MessageIndex, usable_rows: int, is_usable: asyncio.Event) -> None:
        try:
            progress = await self._fill_batch(index)
            # An estimate by rowid: with gaps the index is usable a little later.
            usable_from = progress.messages - usable_rows
            while not progress.is_complete:
                if not progress.titles and progress.messages <= usable_from:
                    is_usable.set()
                progress = await self._fill_batch(index)
        except (StorageError, Unavailable) as error:
            logger.warning("Building the {} of a library failed: {}", index.table, error.message)
        finally:
            is_usable.set()
            del self._builds[index.table]

    async def _fill_batch(self, index: MessageIndex) -> IndexProgress:
        with background_jobs():
            return await self._database.write("chats", self._text_index, index.fill)
