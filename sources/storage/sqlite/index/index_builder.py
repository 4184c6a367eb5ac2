"""Makes the indexes of one file that are wanted, in the background, one batch after the other, while it is in use.

One that could not be finished is gone on with when it is wanted next: after an error, after the library was closed,
after a crash.
"""

import asyncio
from contextlib import suppress

from loguru import logger

from config.errors import StorageError, Unavailable
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.index.message_index import MessageIndex, Progress
from sources.storage.sqlite.index.text_index import TextIndex


class _Making:
    """An index that is being made: `has_some` is set when it can be searched, or has failed."""

    def __init__(self, work: "asyncio.Task[None]", has_some: asyncio.Event) -> None:
        self.work = work
        self.has_some = has_some


class IndexMaker:
    """`follows` is the index that every write to the file lets follow."""

    def __init__(self, database: Database, follows: TextIndex) -> None:
        self._database = database
        self._follows = follows
        self._makings: dict[str, _Making] = {}
        self._is_closed = False

    def start(self, index: MessageIndex, rows_first: int = 0) -> None:
        """See to it that the index is made. It is said to have some rows when it has the `rows_first` newest."""
        if index.table in self._makings or self._is_closed:
            return
        has_some = asyncio.Event()
        work = asyncio.create_task(self._make(index, rows_first, has_some))
        self._makings[index.table] = _Making(work, has_some)

    async def wait(self, index: MessageIndex, timeout_s: float) -> bool:
        """Until the index has some rows, or cannot have any, or the time is over. Whether it had none before."""
        making = self._makings.get(index.table)
        if making is None or making.has_some.is_set():
            return False
        with suppress(TimeoutError):
            await asyncio.wait_for(making.has_some.wait(), timeout_s)
        return True

    async def finish(self, index: MessageIndex) -> None:
        """Until nobody works on the index any more."""
        making = self._makings.get(index.table)
        if making is not None:
            await asyncio.wait([making.work])

    async def close(self) -> None:
        """Stop where we are; to be called before the file is closed."""
        self._is_closed = True
        works = [making.work for making in self._makings.values()]
        for work in works:
            work.cancel()
        if works:
            await asyncio.wait(works)

    async def _make(self, index: MessageIndex, rows_first: int, has_some: asyncio.Event) -> None:
        try:
            progress = await self._write(index)
            # Numbers have few gaps, and none of them makes this more than it says.
            enough = progress.messages - rows_first
            while not progress.is_complete:
                if not progress.titles and progress.messages <= enough:
                    has_some.set()
                progress = await self._write(index)
        except (StorageError, Unavailable) as error:
            logger.warning("the {} of a library could not be made: {}", index.table, error.message)
        finally:
            has_some.set()
            del self._makings[index.table]

    async def _write(self, index: MessageIndex) -> Progress:
        return await self._database.write("chats", self._follows, index.fill)
