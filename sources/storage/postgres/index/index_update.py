"""Builds the full-text index of one library again in the background, after an upgrade that segments text differently.
Until then the index contains both forms."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from loguru import logger

from config.errors import FlorilegiumError
from sources.storage.job_group import background_jobs
from sources.storage.postgres.connection import LibraryConnection
from sources.storage.postgres.index.reindex import is_outdated, reindex_library
from sources.storage.postgres.leases import claim, release

if TYPE_CHECKING:
    from sources.storage.postgres.database import PostgresDatabase

_SOURCE = "library"
_LEASE_NAME = "reindex_lease"
# How long other processes wait for one that has ended during its work.
_LEASE_S = 3_600


class IndexUpdate:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Updates the index if it is outdated, unless another process does."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._update())

    async def wait_until_finished(self) -> None:
        if self._task is not None:
            await self._task

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _update(self) -> None:
        database = self._database
        try:
            with background_jobs():
                if await database.read(_SOURCE, is_outdated) and await database.write_vectors(_SOURCE, self._claim):
                    await reindex_library(database)
                    await database.write_vectors(_SOURCE, self._release)
        except FlorilegiumError as error:
            # The batches that were written stay. All are repeated when the library is opened next.
            logger.warning("Updating the index of a library failed: {}", error.message)

    def _claim(self, connection: LibraryConnection) -> bool:
        return is_outdated(connection) and claim(connection, _LEASE_NAME, self._database.process_id, _LEASE_S)

    def _release(self, connection: LibraryConnection) -> None:
        release(connection, _LEASE_NAME, self._database.process_id)
