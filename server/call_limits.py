"""Whether a call may start: the queue of the user's jobs and the rates of the user and the tool. MCP and REST calls
share it.
"""

from auth.context import Principal
from auth.rate_limits import RateLimits
from config.paths import UserId
from sources.storage.contract import Libraries


class CallLimits:
    def __init__(self, libraries: Libraries, limits: RateLimits) -> None:
        self._libraries = libraries
        self._limits = limits

    def require_capacity(self, user_id: UserId) -> None:
        """Raises Overloaded if a call of the user would wait too long."""
        self._libraries.require_capacity(user_id)

    async def charge(self, principal: Principal, requests: int = 1) -> None:
        """Counts requests against the user's rate limit."""
        await self._limits.user.take(principal.user_id, requests)

    async def take(self, key: tuple[UserId, str]) -> None:
        """Counts a call of a user and a tool. The queue is checked first: a refused call is not charged."""
        self.require_capacity(key[0])
        await self._limits.tool.take(key)
