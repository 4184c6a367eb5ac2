"""Whether a call may start: the queue of the user's jobs and the rates of the user and the tool. MCP and REST calls
share it."""

from msgspec.structs import replace

from auth.principal import Principal
from auth.rate_limits import RateLimits
from config.errors import Overloaded
from config.paths import UserId
from server.read_ahead import CallNeeds, ReadAhead
from sources.storage.contract import Libraries


class CallLimits:
    def __init__(self, libraries: Libraries, limits: RateLimits, read_ahead: ReadAhead) -> None:
        self._libraries = libraries
        self._limits = limits
        self._read_ahead = read_ahead

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

    async def read_ahead(self, needs: CallNeeds) -> None:
        """Reads what a request needs, before `charge` and `take` ask for it."""
        if needs.tool is not None and not self._has_capacity(needs.principal.user_id):
            needs = replace(needs, tool=None)
        await self._read_ahead.read(needs)

    def _has_capacity(self, user_id: UserId) -> bool:
        try:
            self.require_capacity(user_id)
        except Overloaded:
            return False
        return True
