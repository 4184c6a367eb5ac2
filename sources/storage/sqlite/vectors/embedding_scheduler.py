"""Embeds the libraries of all users in the background, one batch of each in turn.

A user's turn comes after the library was opened, after writes and imports, and from time to time while it is in use,
because another process may have written to it. Users without new text cost one short read.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial

from loguru import logger
from msgspec import Struct

from config.errors import FlorilegiumError, SourceTimeout, Unavailable
from config.paths import UserId
from sources.semantic.model import SemanticUnavailable
from sources.semantic.service import SemanticService
from sources.storage.contract import EmbeddingState
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.connection.library import UserDatabases
from sources.storage.sqlite.vectors.embedding import embed_batch
from sources.storage.sqlite.vectors.vector_tables import VectorCoverage

# Writes often come in series. Waiting a moment embeds them together.
_PAUSE_S = 0.2
# How often a library that is in use is checked for text that another process wrote.
_CHECK_S = 60.0
_CHECKED_MAX = 10_000
_FILES = 3
_RETRY_FIRST_S = 1.0
_RETRY_MAX_S = 60.0


class _Turn(Struct, frozen=True):
    passages: int
    coverage: VectorCoverage
    is_done: bool


class EmbeddingScheduler:
    """`lease` opens the files of a user for the duration of a block."""

    def __init__(
        self,
        semantic: SemanticService,
        lease: Callable[[UserId], AbstractAsyncContextManager[UserDatabases]],
    ) -> None:
        self._semantic = semantic
        self._lease = lease
        # In the order of their turns, with what was missing at the last one.
        self._waiting: OrderedDict[UserId, VectorCoverage | None] = OrderedDict()
        # Users who wrote since their turn started.
        self._has_new_text: set[UserId] = set()
        self._checked_at: dict[UserId, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_idle = asyncio.Event()
        self._is_closed = False
        self._passages = 0
        self._problem: str | None = None

    def wake(self, user_id: UserId, *, has_new_text: bool) -> None:
        """Gives the user a turn. Without new text, only if the last check was a while ago."""
        if not self._semantic.is_enabled or self._is_closed:
            return
        if user_id in self._waiting:
            if has_new_text:
                self._has_new_text.add(user_id)
            return
        now = time.monotonic()
        if len(self._checked_at) > _CHECKED_MAX:
            self._checked_at.clear()
        if not has_new_text and now - self._checked_at.get(user_id, float("-inf")) < _CHECK_S:
            return
        self._checked_at[user_id] = now
        self._waiting[user_id] = None
        self._is_idle.clear()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def wait_until_idle(self) -> None:
        """Waits until no user has text to embed."""
        while self._waiting:
            await self._is_idle.wait()

    def state(self) -> EmbeddingState:
        coverage = VectorCoverage(0, 0)
        for known in self._waiting.values():
            coverage += known or VectorCoverage(0, 0)
        return EmbeddingState(
            is_enabled=self._semantic.is_enabled,
            users_waiting=len(self._waiting),
            rows_missing=coverage.missing,
            coverage=coverage.share,
            passages_total=self._passages,
            problem=self._problem,
        )

    async def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        retry_s = _RETRY_FIRST_S
        await asyncio.sleep(_PAUSE_S)
        while self._waiting:
            user_id = next(iter(self._waiting))
            try:
                turn = await self._take_turn(user_id)
            except SemanticUnavailable as error:
                self._report(error.reason)
                self._waiting.move_to_end(user_id)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, _RETRY_MAX_S)
                continue
            except (Unavailable, SourceTimeout):
                # All libraries are in use, another process is writing to this one, or the machine is busy.
                self._waiting.move_to_end(user_id)
                await asyncio.sleep(_RETRY_FIRST_S)
                continue
            except FlorilegiumError as error:
                # A file that cannot be written to now is tried again when the library is next used.
                self._report(error.message)
                self._forget(user_id)
                await asyncio.sleep(_PAUSE_S)
                continue
            self._problem, retry_s = None, _RETRY_FIRST_S
            self._passages += turn.passages
            if turn.is_done and user_id not in self._has_new_text:
                self._forget(user_id)
            else:
                self._waiting[user_id] = turn.coverage
                self._waiting.move_to_end(user_id)
        self._is_idle.set()

    async def _take_turn(self, user_id: UserId) -> _Turn:
        self._has_new_text.discard(user_id)
        batches = [
            await embed_batch(partial(self._open_file, user_id, number), self._semantic) for number in range(_FILES)
        ]
        async with self._lease(user_id) as databases:
            databases.quota.embedding_stop = next((batch.stop for batch in batches if batch.stop), None)
        coverage = VectorCoverage(0, 0)
        for batch in batches:
            coverage += batch.coverage
        passages = sum(batch.passages for batch in batches)
        return _Turn(passages, coverage, is_done=all(batch.is_done for batch in batches))

    @asynccontextmanager
    async def _open_file(self, user_id: UserId, number: int) -> AsyncIterator[Database]:
        async with self._lease(user_id) as databases:
            yield databases.all[number]

    def _forget(self, user_id: UserId) -> None:
        self._waiting.pop(user_id, None)
        self._has_new_text.discard(user_id)
        if not self._waiting:
            self._is_idle.set()

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            logger.warning("Text cannot be embedded: {}", problem)
        self._problem = problem
