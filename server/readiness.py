"""Whether the server can do its work: the control database answers and the data directory can be written."""

import asyncio
import time
from collections.abc import Callable

from auth.registry import Registry
from config.errors import StorageError
from config.paths import DataRoot

# A disk that does not answer in this time cannot be used.
_CHECK_MAX_S = 2.0
# Anyone may ask, so that a check is made at most once per second.
_VALID_S = 1.0


class Readiness:
    def __init__(
        self, data_root: DataRoot, registry: Registry, user_name: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._data_root = data_root
        self._registry = registry
        self._user_name = user_name
        self._clock = clock
        self._checked_at = float("-inf")
        self._checking: asyncio.Task[bool] | None = None

    async def is_ready(self) -> bool:
        """Returns the result of the last check if it is recent. Concurrent callers share one check."""
        if self._checking is None or (self._checking.done() and self._clock() - self._checked_at >= _VALID_S):
            self._checking = asyncio.create_task(self._check())
        try:
            async with asyncio.timeout(_CHECK_MAX_S):
                return await asyncio.shield(self._checking)
        except TimeoutError:
            return False

    async def _check(self) -> bool:
        try:
            await asyncio.to_thread(self._data_root.check_writable)
            await self._registry.user_by_name(self._user_name)
        except StorageError:
            return False
        finally:
            self._checked_at = self._clock()
        return True
