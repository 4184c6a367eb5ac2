"""Open WebSockets and event streams: limited per user, and closed when access is revoked or the server stops."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from auth.authenticator import Authenticator
from auth.context import Principal
from config.errors import Unauthenticated, Unavailable
from config.paths import UserId


class OpenStreams:
    """Counts open streams, and decides whether a stream may stay open."""

    def __init__(self, authenticator: Authenticator, max_per_user: int, recheck_s: float) -> None:
        self._authenticator = authenticator
        self._max_per_user = max_per_user
        self._recheck_s = recheck_s
        self._open: Counter[UserId] = Counter()
        self._is_draining = False
        self._stopping = asyncio.Event()
        # Set while no stream is open. A shutdown waits for it.
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return self._open.total()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def is_draining(self) -> bool:
        """Whether the server stops soon or is stopping: callers should go elsewhere."""
        return self._is_draining

    def drain(self) -> None:
        self._is_draining = True

    def stop(self) -> None:
        self._is_draining = True
        self._stopping.set()

    @contextmanager
    def enter(self, principal: Principal) -> Iterator[None]:
        """Counts a stream for the duration of the block. Raises Unavailable at the user's limit."""
        user_id = principal.user_id
        if self._open[user_id] >= self._max_per_user:
            raise Unavailable(f"this user has {self._max_per_user} open streams, which is the limit")
        self._open[user_id] += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._open[user_id] -= 1
            # Otherwise everyone who ever had a stream would stay in memory.
            if not self._open[user_id]:
                del self._open[user_id]
            if not self._open:
                self._empty.set()

    async def wait_until_empty(self, timeout_s: float) -> None:
        """Returns when no stream is open, or after the timeout."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), timeout_s)

    async def is_open(self, principal: Principal) -> bool:
        """Returns False if the server is stopping or the principal has lost access."""
        if self._stopping.is_set():
            return False
        try:
            await self._authenticator.recheck(principal)
        except Unauthenticated:
            return False
        return True

    async def wait_while_open(self, principal: Principal) -> None:
        """Returns when the stream has to end. Access is rechecked every `recheck_s` seconds."""
        while await self.is_open(principal):
            try:
                await asyncio.wait_for(self._stopping.wait(), self._recheck_s)
            except TimeoutError:
                continue
