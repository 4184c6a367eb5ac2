"""Builds the full-text index of one library again in the background, after an upgrade that indexes text differently.
Until then the index contains both forms."""

import asyncio

from loguru import logger

from config.errors import FlorilegiumError
from sources.storage.job_group import background_jobs
from sources.storage.postgres.connection import LibraryConnection
from sources.storage.postgres.index.index_task import IndexTask
from sources.storage.postgres.index.reindex import is_outdated, reindex_library
from sources.storage.postgres.leases import claim, release

_SOURCE = "library"
_LEASE_NAME = "reindex_lease"
# How long other processes wait for one that has ended during its work.
_LEASE_S = 3_600


class IndexUpdate(IndexTask):
    """`is_current` is set by a read that saw it."""

    is_current = False

    def start(self, after: asyncio.Event | None = None) -> None:
        """Updates the index if it is outdated, unless another process does. With `after`, that begins later, and only
        if the library is open then and its index is not known to be current."""
        if not self.is_running:
            self._run(self._update(after))

    async def _update(self, after: asyncio.Event | None) -> None:
        database = self._database
        if after is not None:
            await after.wait()
            if not database.is_open or self.is_current:
                return
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
