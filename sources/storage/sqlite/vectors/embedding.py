"""Embeds the text of one file, one batch at a time. All state is in the file, so that nothing but the current batch is
lost if the process ends."""

import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from msgspec import Struct
from msgspec.structs import replace

from config.errors import QuotaExceeded
from sources.semantic.model import ModelInfo
from sources.semantic.service import SemanticService
from sources.storage.job_group import background_jobs
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.vectors.vector_tables import (
    PassageBatch,
    VectorCoverage,
    VectorTables,
    count_directly,
    vector_tables,
)

# Opens one file of a user for the duration of a block.
OpenFile = Callable[[], AbstractAsyncContextManager[Database]]
# The source that errors of these reads and writes name.
_SOURCE = "embeddings"


class EmbeddedBatch(Struct, frozen=True):
    """What was done in one turn. `coverage` is that of the file before the turn, `stop` says which quota is reached."""

    passages: int
    coverage: VectorCoverage
    is_done: bool
    stop: str | None = None


class _PendingWork(Struct, frozen=True):
    """What the next turn has to do, in this order: create the tables, embed a batch, drop old vectors."""

    coverage: VectorCoverage
    is_created: bool = True
    batch: PassageBatch | None = None
    has_old_models: bool = False


async def embed_batch(open_file: OpenFile, semantic: SemanticService) -> EmbeddedBatch:
    """Makes the vectors of the next rows of a file, which is not kept open meanwhile, as far as the quotas of the user
    allow. Raises SemanticUnavailable, StorageError or Unavailable."""
    model = semantic.model
    if model is None:
        return EmbeddedBatch(0, VectorCoverage(0, 0), is_done=True)
    with background_jobs():
        async with open_file() as database:
            if not database.has_content:
                return EmbeddedBatch(0, VectorCoverage(0, 0), is_done=True)
            tables = vector_tables(database.kind)
            work = await database.read(_SOURCE, lambda connection: _find_work(connection, tables, model))
            if work.batch is None:
                is_done = await _prepare_or_clean(database, tables, model, work)
                return EmbeddedBatch(0, work.coverage, is_done=is_done)
            try:
                room = await database.quota.require_embedding_room()
            except QuotaExceeded as error:
                return await _stop(database, tables, model, work, error.message)
        batch = work.batch if room is None else work.batch.first_rows(room)
        vectors = await semantic.embed_passages(batch.texts)
        async with open_file() as database:
            saved = await database.write_rows(
                _SOURCE,
                lambda connection: tables.save(connection, model.id, batch, vectors, has_context=model.has_context),
            )
            database.quota.add_passages(saved)
    return EmbeddedBatch(saved, work.coverage, is_done=False)


async def _stop(
    database: Database, tables: VectorTables, model: ModelInfo, work: _PendingWork, reason: str
) -> EmbeddedBatch:
    """Drops the vectors of an older model at a quota: they take the space of those that are to replace them."""
    has_old_models = await database.read(_SOURCE, tables.has_old_models)
    is_done = await _prepare_or_clean(database, tables, model, replace(work, has_old_models=has_old_models))
    return EmbeddedBatch(0, work.coverage, is_done=is_done, stop=reason)


async def _prepare_or_clean(database: Database, tables: VectorTables, model: ModelInfo, work: _PendingWork) -> bool:
    """Creates the tables, or drops old vectors. Returns whether there is nothing else to do."""
    if not work.is_created:
        await database.write_rows(_SOURCE, lambda connection: tables.create(connection, model.id))
        database.vector_model = None
        return False
    if work.has_old_models:
        database.vector_model = None
        return not await database.write_rows(_SOURCE, tables.drop_old_vectors)
    return True


def _find_work(connection: sqlite3.Connection, tables: VectorTables, model: ModelInfo) -> _PendingWork:
    state = tables.state(connection)
    if state is None or state.model != model.id:
        return _PendingWork(tables.coverage(count_directly(connection), None, tables.kinds), is_created=False)
    batch = tables.next_batch(connection, model.id, has_context=model.has_context)
    if batch is None:
        coverage = VectorCoverage(1, 0)
        return _PendingWork(coverage, has_old_models=tables.has_old_models(connection))
    return _PendingWork(tables.coverage(count_directly(connection), state, tables.kinds), batch=batch)
