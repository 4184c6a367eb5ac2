"""Which users have text to embed, in a table that all processes share: another process continues the work of one that
has ended. Within a library, the lease of `library_vectors` keeps two processes from embedding the same text."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from config.errors import FlorilegiumError
from config.paths import UserId
from config.postgres.connection import PostgresConnection
from sources.storage.postgres.database import PostgresDatabase
from sources.storage.vectors.embedding_scheduler import EmbeddingScheduler

_SOURCE = "embeddings"
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
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def notify(self) -> None:
        """Called after a write, so that the user is written down at once."""
        self._has_new_text.set()

    async def close(self) -> None:
        """Lets other processes continue at once."""
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        if self._scheduler.waiting_users():
            with suppress(FlorilegiumError):
                await self._control.run_control(_SOURCE, self._release)

    async def _run(self) -> None:
        while True:
            # If the server cannot be reached, the next exchange makes up for it.
            with suppress(FlorilegiumError):
                await self._exchange()
            await asyncio.sleep(_PAUSE_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(_EXCHANGE_S):
                    await self._has_new_text.wait()
            self._has_new_text.clear()

    async def _exchange(self) -> None:
        waiting = sorted(self._scheduler.waiting_users())
        exchange = partial(_exchange_users, self._control.process_id, waiting)
        for user_id, process in await self._control.run_control(_SOURCE, exchange):
            await self._end_lease(user_id, process)
            self._scheduler.wake(user_id, has_new_text=True)

    def _release(self, connection: PostgresConnection) -> None:
        connection.execute(_RELEASE, (self._control.process_id,))


def _exchange_users(process: str, waiting: Sequence[UserId], connection: PostgresConnection) -> Sequence[AbandonedUser]:
    """Writes down who waits for this process, and takes over the users of processes that have ended."""
    abandoned = connection.execute(_FIND_ABANDONED, (process,)).fetchall()
    users = sorted({*waiting, *(user_id for user_id, _ in abandoned)})
    connection.execute(_FORGET, (process, users))
    if users:
        connection.execute(_KEEP, (process, users))
    return [(UserId(user_id), former) for user_id, former in abandoned]
