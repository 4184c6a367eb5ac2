"""Embeds the libraries of all users in the background, one batch of each in turn.

A user's turn comes after the library was opened, after writes and imports, and from time to time while it is in use,
because another process may have written to it. Users without new text cost one short read.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress

from loguru import logger

from config.errors import FlorilegiumError, SourceTimeout, Unavailable
from config.paths import UserId
from sources.semantic.model import SemanticUnavailable
from sources.semantic.service import SemanticService
from sources.storage.contract import EmbeddingState
from sources.storage.vectors.embedding import NOTHING, EmbeddedBatch
from sources.storage.vectors.passage_batch import VectorCoverage

# Writes often come in series. Waiting a moment embeds them together.
_PAUSE_S = 0.2
# How often a library that is in use is checked for text that another process wrote.
_CHECK_S = 60.0
_CHECKED_MAX = 10_000
_RETRY_FIRST_S = 1.0
_RETRY_MAX_S = 60.0


class EmbeddingScheduler:
    """`take_turn` embeds the next batch of a user's text."""

    def __init__(self, semantic: SemanticService, take_turn: Callable[[UserId], Awaitable[EmbeddedBatch]]) -> None:
        self._semantic = semantic
        self._take_turn = take_turn
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
        self._semantic.warm_up()
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

    def waiting_users(self) -> list[UserId]:
        return list(self._waiting)

    async def wait_until_idle(self) -> None:
        """Waits until no user has text to embed."""
        while self._waiting:
            await self._is_idle.wait()

    def state(self) -> EmbeddingState:
        coverage = NOTHING
        for known in self._waiting.values():
            coverage += known or NOTHING
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
        # Turns in a row that were refused. If all users are, a pause follows.
        refused = 0
        await asyncio.sleep(_PAUSE_S)
        while self._waiting:
            user_id = next(iter(self._waiting))
            self._has_new_text.discard(user_id)
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
                refused += 1
                if refused >= len(self._waiting):
                    refused = 0
                    await asyncio.sleep(_RETRY_FIRST_S)
                continue
            except FlorilegiumError as error:
                # A file that cannot be written to now is tried again when the library is next used.
                self._report(error.message)
                self._forget(user_id)
                await asyncio.sleep(_PAUSE_S)
                continue
            self._problem, retry_s, refused = None, _RETRY_FIRST_S, 0
            self._passages += turn.passages
            if turn.is_done and user_id not in self._has_new_text:
                self._forget(user_id)
            else:
                self._waiting[user_id] = turn.coverage
                self._waiting.move_to_end(user_id)
        self._is_idle.set()

    def _forget(self, user_id: UserId) -> None:
        self._waiting.pop(user_id, None)
        self._has_new_text.discard(user_id)
        if not self._waiting:
            self._is_idle.set()

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            logger.warning("Text cannot be embedded: {}", problem)
        self._problem = problem
