"""The vectors of one file, as the embedding of its text reads and writes them."""

import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from sources.semantic.model import ModelInfo
from sources.storage.embedding import NOTHING, PassageBatch, PendingWork, TextSample, VectorCoverage
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.vectors.vector_tables import FileBatch, VectorTables, count_directly, vector_tables

# Opens one file of a user for the duration of a block.
OpenFile = Callable[[], AbstractAsyncContextManager[Database]]
# The source that errors of these reads and writes name.
_SOURCE = "embeddings"


class FileVectors:
    """Implements `VectorStore`. The file is not kept open while the model works. If it was removed meanwhile, it is not
    created again: its user may have been deleted."""

    def __init__(self, open_file: OpenFile) -> None:
        self._open_file = open_file

    async def sample(self) -> TextSample:
        async with self._open_file() as database:
            if not database.has_content:
                return TextSample(None, ())
            tables = vector_tables(database.kind)
            return await database.read(_SOURCE, tables.sample)

    async def find_work(self, model: ModelInfo) -> PendingWork:
        async with self._open_file() as database:
            if not database.has_content:
                return PendingWork(NOTHING)
            tables = vector_tables(database.kind)
            return await database.read(_SOURCE, lambda connection: _find_work(connection, tables, model))

    async def release(self) -> None:
        """Nothing to do: one process uses a file."""

    async def create(self, model: ModelInfo) -> None:
        async with self._open_file() as database:
            if not database.has_content:
                return
            tables = vector_tables(database.kind)
            await database.write_rows(_SOURCE, lambda connection: tables.create(connection, model.id))
            database.vector_model = None

    async def require_room(self) -> int | None:
        async with self._open_file() as database:
            return await database.quota.require_embedding_room()

    async def save(self, model: ModelInfo, batch: PassageBatch, vectors: list[bytes]) -> int:
        assert isinstance(batch, FileBatch)
        async with self._open_file() as database:
            if not database.has_content:
                return 0
            tables = vector_tables(database.kind)
            saved = await database.write_rows(
                _SOURCE,
                lambda connection: tables.save(connection, model.id, batch, vectors, has_context=model.has_context),
            )
            database.quota.add_passages(saved)
        return saved

    async def clean(self) -> bool:
        async with self._open_file() as database:
            tables = vector_tables(database.kind)
            if not database.has_content or not await database.read(_SOURCE, tables.has_old_models):
                return False
            database.vector_model = None
            return await database.write_rows(_SOURCE, tables.drop_old_vectors)


def _find_work(connection: sqlite3.Connection, tables: VectorTables, model: ModelInfo) -> PendingWork:
    state = tables.state(connection)
    if state is None or state.model != model.id:
        return PendingWork(tables.coverage(count_directly(connection), None, tables.kinds), is_created=False)
    batch = tables.next_batch(connection, model.id, has_context=model.has_context)
    if batch is None:
        return PendingWork(VectorCoverage(1, 0), needs_cleaning=tables.has_old_models(connection))
    return PendingWork(tables.coverage(count_directly(connection), state, tables.kinds), batch=batch)
