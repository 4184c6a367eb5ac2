"""The vectors of one library, as the embedding of its text reads and writes them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from loguru import logger

from config.errors import FlorilegiumError, StorageError, Unavailable
from config.paths import UserId
from config.postgres.connection import PostgresConnection
from sources.semantic.model import ModelInfo, SemanticUnavailable
from sources.storage.embedding import NOTHING, EmbeddingScheduler, PassageBatch, PendingWork, TextSample, VectorCoverage
from sources.storage.postgres.connection import LibraryConnection, NoLibrary, claim, release
from sources.storage.postgres.database import PostgresDatabase
from sources.storage.postgres.vectors import vector_tables

# The source that errors of these reads and writes name.
_SOURCE = "embeddings"
# How long other processes wait for one that has ended while it embedded a batch.
_LEASE_S = 60
EMBEDDING_LEASE = "embedding_lease"


class LibraryVectors:
    """Implements `VectorStore`. Of several processes, one at a time embeds a library. From `index_min_passages`
    passages of a source, its vectors are indexed; 0 means never."""

    def __init__(self, database: PostgresDatabase, index_min_passages: int) -> None:
        self._database = database
        self._index_min_passages = index_min_passages

    async def sample(self) -> TextSample:
        with suppress(NoLibrary):
            return await self._database.read(_SOURCE, vector_tables.sample)
        return TextSample(None, ())

    async def find_work(self, model: ModelInfo) -> PendingWork:
        await self._extension()

        def claim_batch(connection: PostgresConnection) -> PassageBatch | None:
            if not claim(connection, EMBEDDING_LEASE, self._database.process_id, _LEASE_S):
                raise Unavailable("another process is embedding this library")
            batch = vector_tables.next_batch(connection, has_context=model.has_context)
            if batch is None:
                release(connection, EMBEDDING_LEASE, self._database.process_id)
            return batch

        with suppress(NoLibrary):  # its user was deleted meanwhile
            work = await self._database.read(_SOURCE, partial(self._find_work, model))
            if not work.is_created or not work.coverage.missing:
                return work
            return PendingWork(work.coverage, batch=await self._database.write_vectors(_SOURCE, claim_batch))
        return PendingWork(NOTHING)

    async def release(self) -> None:
        await self.end_lease(self._database.process_id)

    async def end_lease(self, process_id: str) -> None:
        """Lets other processes embed the library. Does nothing if the lease is not that of the process."""
        with suppress(NoLibrary):
            await self._database.write_vectors(
                _SOURCE, lambda connection: release(connection, EMBEDDING_LEASE, process_id)
            )

    async def create(self, model: ModelInfo) -> None:
        await self._extension()
        await self._database.write_vectors(_SOURCE, lambda connection: vector_tables.start_model(connection, model.id))
        self._database.vector_model = None

    async def require_room(self) -> int | None:
        return await self._database.quota.require_embedding_room()

    async def save(self, model: ModelInfo, batch: PassageBatch, vectors: list[bytes]) -> int:
        extension = await self._extension()

        def work(connection: PostgresConnection) -> int:
            saved = vector_tables.save_vectors(connection, extension, model, batch, vectors)
            release(connection, EMBEDDING_LEASE, self._database.process_id)
            return saved

        saved = await self._database.write_vectors(_SOURCE, work)
        self._database.quota.add_passages(saved)
        return saved

    async def clean(self) -> bool:
        state = await self._database.read(_SOURCE, vector_tables.read_state)
        if state is not None and state.has_old_models:
            self._database.vector_model = None
            return await self._database.write_vectors(_SOURCE, vector_tables.drop_old_vectors)
        # Builds one index, which does not keep others from reading and writing. Returns whether it did.
        extension = await self._extension()
        owner, index_min = self._database.process_id, self._index_min_passages
        index = await self._database.write_vectors(
            _SOURCE, lambda connection: vector_tables.start_build(connection, index_min, owner)
        )
        if index is None:
            return False
        if not await self._database.run_outside_transaction(index.statements(extension)):
            logger.warning("An index of vectors could not be built; searches compare all vectors")
            return False
        await self._database.write_vectors(_SOURCE, partial(vector_tables.finish_build, index, owner))
        return True

    async def _extension(self) -> vector_tables.VectorExtension:
        """Raises StorageError, so that the library is tried again when it is next used."""
        try:
            return await self._database.vector_extension()
        except SemanticUnavailable as error:
            raise StorageError(error.reason) from None

    def _find_work(self, model: ModelInfo, connection: LibraryConnection) -> PendingWork:
        state = vector_tables.read_state(connection)
        if state is None or state.model != model.id:
            return PendingWork(vector_tables.count_missing(connection, None), is_created=False)
        if vector_tables.has_queue(connection):
            return PendingWork(vector_tables.count_missing(connection, state))
        missing = vector_tables.find_missing(connection, self._index_min_passages)
        return PendingWork(VectorCoverage(1, 0), needs_cleaning=state.has_old_models or missing is not None)


# -- embedding takeover ------------------------------------------------------------------------------------------------
# Which users have text to embed, in a table that all processes share: another process continues the work of one that
# has ended. Within a library, the lease of `library_vectors` keeps two processes from embedding the same text.

# How often a process says that it is still at work, and looks for the work of others.
_EXCHANGE_S = 5.0
# New users are written together.
_PAUSE_S = 0.5
# A process that has said nothing for this long has ended.
_SILENCE_MAX_S = 15
_TAKEN_MAX = 100
_NOW_S = "extract(epoch FROM clock_timestamp())"
_FIND_ABANDONED = f"""
    SELECT user_id, process FROM embedding_users WHERE process <> ?1 AND until < {_NOW_S}
    ORDER BY user_id LIMIT {_TAKEN_MAX} FOR UPDATE SKIP LOCKED
"""  # noqa: S608 - constants
_KEEP = f"""
    INSERT INTO embedding_users (user_id, process, until)
    SELECT waiting.user_id, ?1, {_NOW_S} + {_SILENCE_MAX_S} FROM unnest(CAST(?2 AS TEXT[])) AS waiting (user_id)
    ON CONFLICT (user_id) DO UPDATE SET process = excluded.process, until = excluded.until
    WHERE embedding_users.process = excluded.process OR embedding_users.until < {_NOW_S}
"""  # noqa: S608 - constants
_FORGET = "DELETE FROM embedding_users WHERE process = ?1 AND user_id <> ALL (CAST(?2 AS TEXT[]))"
_RELEASE = "UPDATE embedding_users SET until = 0 WHERE process = ?"

AbandonedUser = tuple[UserId, str]


class EmbeddingTakeover:
    """Exchanges the users of `scheduler` with other processes, in transactions of `control`. `end_lease` ends the lease
    that a process has left behind in the library of a user."""

    def __init__(
        self,
        scheduler: EmbeddingScheduler,
        control: PostgresDatabase,
        end_lease: Callable[[UserId, str], Awaitable[None]],
    ) -> None:
        self._scheduler = scheduler
        self._control = control
        self._end_lease = end_lease
        self._has_new_text = asyncio.Event()
        # At once: a process that no user calls must continue the work of one that has ended, too.
        self._task = asyncio.create_task(self._run())

    def notify(self) -> None:
        """Called after a write, so that the user is written down at once."""
        self._has_new_text.set()

    async def close(self) -> None:
        """Lets other processes continue at once."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        if self._scheduler.waiting_users():
            with suppress(FlorilegiumError):
                process = self._control.process_id
                await self._control.run_control(_SOURCE, lambda connection: connection.execute(_RELEASE, (process,)))

    async def _run(self) -> None:
        while True:
            # If the server cannot be reached, the next exchange makes up for it.
            with suppress(FlorilegiumError):
                waiting = sorted(self._scheduler.waiting_users())
                exchange = partial(_exchange_users, self._control.process_id, waiting)
                for user_id, process in await self._control.run_control(_SOURCE, exchange):
                    await self._end_lease(user_id, process)
                    self._scheduler.wake(user_id, has_new_text=True)
            await asyncio.sleep(_PAUSE_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(_EXCHANGE_S):
                    await self._has_new_text.wait()
            self._has_new_text.clear()


def _exchange_users(process: str, waiting: Sequence[UserId], connection: PostgresConnection) -> Sequence[AbandonedUser]:
    """Writes down who waits for this process, and takes over the users of processes that have ended."""
    abandoned = connection.execute(_FIND_ABANDONED, (process,)).fetchall()
    users = sorted({*waiting, *(user_id for user_id, _ in abandoned)})
    connection.execute(_FORGET, (process, users))
    if users:
        connection.execute(_KEEP, (process, users))
    return [(UserId(user_id), former) for user_id, former in abandoned]
