"""Builds the index for substring searches of one library in the background."""

import time
from functools import partial
from typing import TYPE_CHECKING

from loguru import logger

from config.errors import FlorilegiumError
from sources.storage.job_group import background_jobs
from sources.storage.postgres.index.index_task import IndexTask
from sources.storage.postgres.index.trigram_index import needs_index, prepare_build, release_build

if TYPE_CHECKING:
    from sources.storage.postgres.database import PostgresDatabase

_SOURCE = "chats"
# How often a library is checked for whether it needs the index.
_CHECK_S = 60.0


class TrigramIndexBuilder(IndexTask):
    def __init__(self, database: "PostgresDatabase") -> None:
        super().__init__(database)
        self._checked_at = float("-inf")

    def start(self, messages_min: int) -> None:
        """Builds the index, if the library has more messages than that and no index, unless a build is running."""
        now = time.monotonic()
        if now - self._checked_at >= _CHECK_S and not self.is_running:
            self._checked_at = now
            self._run(self._build(messages_min))

    async def _build(self, messages_min: int) -> None:
        database = self._database
        try:
            with background_jobs():
                if not await database.read(_SOURCE, partial(needs_index, messages_min)):
                    return
                statement = await database.write_vectors(_SOURCE, partial(prepare_build, database.process_id))
                if statement is None:
                    return
                if await database.index_builds.run(statement):
                    await database.write_vectors(_SOURCE, partial(release_build, database.process_id))
                else:
                    logger.warning("The index for substring searches could not be built; searches scan all messages")
        except FlorilegiumError as error:
            logger.warning("Building the index for substring searches failed: {}", error.message)
