"""Work on an index of one library, in the background."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sources.storage.postgres.database import PostgresDatabase


class IndexTask:
    """Runs at most once at a time. Subclasses add `start`, which says when there is work."""

    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def wait_until_finished(self) -> None:
        if self._task is not None:
            await self._task

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
