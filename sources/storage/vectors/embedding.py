"""Embeds the text of a library, one batch at a time. All state is stored with the vectors, so that nothing but the
current batch is lost if the process ends."""

import asyncio
from typing import Protocol

from msgspec import Struct

from config.errors import QuotaExceeded
from sources.semantic.model import ModelInfo, SemanticUnavailable
from sources.semantic.service import SemanticService
from sources.storage.job_group import background_jobs
from sources.storage.vectors.passage_batch import PassageBatch, VectorCoverage

NOTHING = VectorCoverage(0, 0)


class EmbeddedBatch(Struct, frozen=True):
    """What was done in one turn. `coverage` is that before the turn, `stop` says which quota is reached."""

    passages: int
    coverage: VectorCoverage
    is_done: bool
    stop: str | None = None

    def __add__(self, other: "EmbeddedBatch") -> "EmbeddedBatch":
        return EmbeddedBatch(
            self.passages + other.passages,
            self.coverage + other.coverage,
            self.is_done and other.is_done,
            self.stop or other.stop,
        )


class PendingWork(Struct, frozen=True):
    """What the next turn has to do, in this order: create the tables, embed a batch, drop old vectors or improve how
    vectors are stored."""

    coverage: VectorCoverage
    is_created: bool = True
    batch: PassageBatch | None = None
    needs_cleaning: bool = False


class VectorStore(Protocol):
    """Where the vectors of a library, or of a part of it, are stored."""

    async def find_work(self, model: ModelInfo) -> PendingWork:
        """A batch is claimed: no other process can get it until it is saved or released."""
        ...

    async def release(self) -> None:
        """Gives back the batch that `find_work` returned."""
        ...

    async def create(self, model: ModelInfo) -> None:
        """Creates the tables. If they have vectors of another model, new ones are made for all rows."""
        ...

    async def require_room(self) -> int | None:
        """Returns how many passages the quota allows, or None for any number. Raises QuotaExceeded."""
        ...

    async def save(self, model: ModelInfo, batch: PassageBatch, vectors: list[bytes]) -> int:
        """Stores the vectors of the rows that did not change since the batch was read. Returns their number."""
        ...

    async def clean(self) -> bool:
        """Drops vectors of other models, or does other work that waits until all rows have vectors. Returns whether
        there may be more to do."""
        ...


async def embed_batch(store: VectorStore, semantic: SemanticService) -> EmbeddedBatch:
    """Makes the vectors of the next rows, as far as the quotas of the user allow. No transaction is open while the
    model works. Raises SemanticUnavailable, StorageError or Unavailable."""
    model = semantic.model
    if model is None:
        return EmbeddedBatch(0, NOTHING, is_done=True)
    with background_jobs():
        work = await store.find_work(model)
        if not work.is_created:
            await store.create(model)
            return EmbeddedBatch(0, work.coverage, is_done=False)
        if work.batch is None:
            is_done = not (work.needs_cleaning and await store.clean())
            return EmbeddedBatch(0, work.coverage, is_done=is_done)
        try:
            room = await store.require_room()
        except QuotaExceeded as error:
            await store.release()
            # The vectors of an older model take the space of those that are to replace them.
            is_done = not await store.clean()
            return EmbeddedBatch(0, work.coverage, is_done=is_done, stop=error.message)
        batch = work.batch if room is None else work.batch.first_rows(room)
        try:
            vectors = await semantic.embed_passages(batch.texts)
        except (SemanticUnavailable, asyncio.CancelledError):
            await store.release()
            raise
        saved = await store.save(model, batch, vectors)
    return EmbeddedBatch(saved, work.coverage, is_done=False)
