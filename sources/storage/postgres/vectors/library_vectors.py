"""The vectors of one library, as the embedding of its text reads and writes them."""

from functools import partial

from loguru import logger
from msgspec import Struct

from config.errors import StorageError, Unavailable
from config.postgres.connection import PostgresConnection
from sources.semantic.model import ModelInfo, SemanticUnavailable
from sources.storage.postgres.database import PostgresDatabase
from sources.storage.postgres.leases import claim, release
from sources.storage.postgres.vectors import hnsw_index
from sources.storage.postgres.vectors.extension import VectorExtension
from sources.storage.postgres.vectors.vector_tables import (
    create_tables,
    drop_old_vectors,
    has_queue,
    library_coverage,
    next_batch,
    read_state,
    save_vectors,
)
from sources.storage.vectors.embedding import NOTHING, PendingWork
from sources.storage.vectors.passage_batch import PassageBatch, VectorCoverage

# The source that errors of these reads and writes name.
_SOURCE = "embeddings"
# How long other processes wait for one that has ended while it embedded a batch.
_LEASE_S = 60
EMBEDDING_LEASE = "embedding_lease"


class VectorOptions(Struct, frozen=True, kw_only=True):
    """From `index_min_passages` passages of a source, its vectors are indexed; 0 means never."""

    index_min_passages: int


class LibraryVectors:
    """Implements `VectorStore`. Of several processes, one at a time embeds a library."""

    def __init__(self, database: PostgresDatabase, options: VectorOptions) -> None:
        self._database = database
        self._options = options

    async def find_work(self, model: ModelInfo) -> PendingWork:
        await self._extension()
        if not await self._database.exists():  # its user was deleted meanwhile
            return PendingWork(NOTHING)
        work = await self._database.read(_SOURCE, partial(self._find_work, model))
        if not work.is_created or not work.coverage.missing:
            return work
        batch = await self._database.write_vectors(_SOURCE, partial(self._claim_batch, model))
        return PendingWork(work.coverage, batch=batch)

    async def release(self) -> None:
        await self.end_lease(self._database.process_id)

    async def end_lease(self, process_id: str) -> None:
        """Lets other processes embed the library. Does nothing if the lease is not that of the process."""
        await self._database.write_vectors(_SOURCE, lambda connection: release(connection, EMBEDDING_LEASE, process_id))

    async def create(self, model: ModelInfo) -> None:
        extension = await self._extension()
        await self._database.write_vectors(_SOURCE, lambda connection: create_tables(connection, extension, model.id))
        self._database.vector_model = None

    async def require_room(self) -> int | None:
        return await self._database.quota.require_embedding_room()

    async def save(self, model: ModelInfo, batch: PassageBatch, vectors: list[bytes]) -> int:
        extension = await self._extension()

        def work(connection: PostgresConnection) -> int:
            saved = save_vectors(connection, extension, model, batch, vectors)
            release(connection, EMBEDDING_LEASE, self._database.process_id)
            return saved

        saved = await self._database.write_vectors(_SOURCE, work)
        self._database.quota.add_passages(saved)
        return saved

    async def clean(self) -> bool:
        if await self._database.read(_SOURCE, _has_old_models):
            self._database.vector_model = None
            return await self._database.write_vectors(_SOURCE, drop_old_vectors)
        return await self._build_index()

    async def _extension(self) -> VectorExtension:
        """Raises StorageError, so that the library is tried again when it is next used."""
        try:
            return await self._database.vector_extension()
        except SemanticUnavailable as error:
            raise StorageError(error.reason) from None

    def _find_work(self, model: ModelInfo, connection: PostgresConnection) -> PendingWork:
        state = read_state(connection)
        if state is None or state.model != model.id:
            return PendingWork(library_coverage(connection, None), is_created=False)
        if has_queue(connection):
            return PendingWork(library_coverage(connection, state))
        is_cleaning = state.has_old_models or self._missing_index(connection) is not None
        return PendingWork(VectorCoverage(1, 0), needs_cleaning=is_cleaning)

    def _claim_batch(self, model: ModelInfo, connection: PostgresConnection) -> PassageBatch | None:
        if not claim(connection, EMBEDDING_LEASE, self._database.process_id, _LEASE_S):
            raise Unavailable("another process is embedding this library")
        batch = next_batch(connection, has_context=model.has_context)
        if batch is None:
            release(connection, EMBEDDING_LEASE, self._database.process_id)
        return batch

    def _missing_index(self, connection: PostgresConnection) -> hnsw_index.HnswIndex | None:
        return hnsw_index.find_missing(connection, self._options.index_min_passages)

    async def _build_index(self) -> bool:
        """Builds one index, which does not keep others from reading and writing. Returns whether it did."""
        extension = await self._extension()
        owner = self._database.process_id

        def prepare(connection: PostgresConnection) -> hnsw_index.HnswIndex | None:
            index = None if has_queue(connection) else self._missing_index(connection)
            return index if index is not None and hnsw_index.claim_build(connection, owner, index) else None

        index = await self._database.write_vectors(_SOURCE, prepare)
        if index is None:
            return False
        schema = await self._database.schema_name()
        statement = index.statement(schema, extension)
        if not await self._database.index_builds.run(statement):
            logger.warning("An index of vectors could not be built; searches compare all vectors")
            return False
        await self._database.write_vectors(_SOURCE, partial(hnsw_index.finish_build, index, owner))
        return True


def _has_old_models(connection: PostgresConnection) -> bool:
    state = read_state(connection)
    return state is not None and state.has_old_models
