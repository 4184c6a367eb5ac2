"""Tokens that are valid once: those that were used are remembered until they expire."""

import time
from collections.abc import Callable
from typing import Protocol

_TOKENS_MAX = 100_000


class UsedTokens(Protocol):
    async def use(self, token: bytes, ttl_s: float) -> bool:
        """Returns False if the token was used before. It is remembered for `ttl_s`."""
        ...


class InProcessUsedTokens:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._expires_at: dict[bytes, float] = {}

    async def use(self, token: bytes, ttl_s: float) -> bool:
        now = self._clock()
        if self._expires_at.get(token, now) > now:
            return False
        if len(self._expires_at) >= _TOKENS_MAX:
            self._expires_at = {token: expires_at for token, expires_at in self._expires_at.items() if expires_at > now}
        self._expires_at[token] = now + ttl_s
        return True
