"""Whether a call may start: the queue of the user's jobs and the rates of the user and the tool. MCP and REST calls
share it.
"""

import time
from collections.abc import Callable
from typing import Protocol

from cachetools import LRUCache
from msgspec import Struct
from msgspec.structs import replace

from auth.context import Principal, SessionId
from auth.rate_limits import RATE_KEYS_MAX, RateLimits, tool_rule, user_rule
from config.errors import FlorilegiumError, Overloaded, RateLimited
from config.paths import UserId
from config.settings import Settings
from sessions.state import SessionHandle
from sources.storage.contract import Libraries

# -- read ahead --------------------------------------------------------------------------------------------------------
# What a call needs of the state between calls, read in one step.
#
# Rate limits, sessions and session states are separate stores. In this process they cost nothing to ask. In Redis each
# is a round trip, so what a message will ask for is read together, as soon as the message is known.


class CallNeeds(Struct, frozen=True, kw_only=True):
    """`session` is a legacy session to find, `tool` the tool that is called, and `state` the session state it uses.
    `can_start_early` says that the tool itself waits for the limits (`Tool.waits_for_limits`)."""

    principal: Principal
    session: SessionId | None = None
    tool: str | None = None
    state: SessionHandle | None = None
    can_start_early: bool = False


class ReadAhead(Protocol):
    def start(self, needs: CallNeeds) -> bool:
        """Takes from the limits of the user and the tool, finds the session and reads its state, until one of them
        refuses. Does not wait: the stores do when the call asks them, and report what failed. Returns whether they have
        something to wait for."""
        ...


class NoReadAhead:
    """For stores in this process."""

    def start(self, needs: CallNeeds) -> bool:
        return False


class EarlyStarts:
    """Which calls may start before the rate limits have answered: one of a user at a time, and after a refusal none
    until the user's limits could have recovered. So a user whose calls are refused causes no more work than before,
    however many calls that are."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pause_s = max(rule.burst * rule.interval_s for rule in (user_rule(settings), tool_rule(settings)))
        self._waiting: set[UserId] = set()
        self._paused_until: LRUCache[UserId, float] = LRUCache(RATE_KEYS_MAX)

    def begin(self, user_id: UserId) -> bool:
        """Returns whether a call may start early. If so, `end` has to follow."""
        if user_id in self._waiting or self._clock() < self._paused_until.get(user_id, 0.0):
            return False
        self._waiting.add(user_id)
        return True

    def end(self, user_id: UserId) -> None:
        self._waiting.discard(user_id)

    def pause(self, user_id: UserId) -> None:
        """Called when a limit has refused a call of the user."""
        self._paused_until[user_id] = self._clock() + self._pause_s


class CallLimits:
    def __init__(self, libraries: Libraries, limits: RateLimits, read_ahead: ReadAhead, settings: Settings) -> None:
        self._libraries = libraries
        self._limits = limits
        self._read_ahead = read_ahead
        self._early_starts = EarlyStarts(settings)

    def require_capacity(self, user_id: UserId) -> None:
        """Raises Overloaded if a call of the user would wait too long."""
        self._libraries.require_capacity(user_id)

    async def charge(self, principal: Principal, requests: int = 1) -> None:
        """Counts requests against the user's rate limit."""
        try:
            await self._limits.user.take(principal.user_id, requests)
        except RateLimited:
            self._early_starts.pause(principal.user_id)
            raise

    async def take(self, key: tuple[UserId, str]) -> None:
        """Counts a call of a user and a tool. The queue is checked first: a refused call is not charged."""
        self.require_capacity(key[0])
        try:
            await self._limits.tool.take(key)
        except RateLimited:
            self._early_starts.pause(key[0])
            raise

    async def charge_call(self, needs: CallNeeds) -> None:
        """Counts a request against the user's rate limit, and reads what else it needs in the same step."""
        self._read_ahead.start(self._affordable(needs))
        await self.charge(needs.principal)

    async def start_call(self, needs: CallNeeds) -> "LimitCheck | None":
        """Does what `charge_call` does, or returns the check for which the call has to wait after it has started."""
        principal, needs = needs.principal, self._affordable(needs)
        is_sent = self._read_ahead.start(needs)
        if is_sent and needs.tool and needs.can_start_early and self._early_starts.begin(principal.user_id):
            return LimitCheck(self, self._early_starts, principal, needs.tool)
        await self.charge(principal)
        return None

    def _affordable(self, needs: CallNeeds) -> CallNeeds:
        """Without the tool if the queue is going to refuse the call."""
        if needs.tool is None or self._has_capacity(needs.principal.user_id):
            return needs
        return replace(needs, tool=None)

    def _has_capacity(self, user_id: UserId) -> bool:
        try:
            self.require_capacity(user_id)
        except Overloaded:
            return False
        return True


class LimitCheck:
    """The limits of a call that has started before they have answered. Until then it changes nothing and sends nothing
    to the client, and if they refuse, its work is thrown away. `end` has to be called when the call has ended."""

    def __init__(self, limits: CallLimits, early_starts: EarlyStarts, principal: Principal, tool: str) -> None:
        self._limits = limits
        self._early_starts = early_starts
        self._principal = principal
        self._tool = tool
        self._is_charged = self._is_taken = self._has_ended = False
        self._tool_refusal: FlorilegiumError | None = None
        # The call counts as not admitted, whatever else is wrong with it.
        self.refusal: RateLimited | None = None

    async def wait(self) -> None:
        """Waits for the limits of the user and the tool. Raises RateLimited or Overloaded, also if called again."""
        await self.charge()
        if not self._is_taken:
            self._is_taken = True
            try:
                await self._limits.take((self._principal.user_id, self._tool))
            except (RateLimited, Overloaded) as error:
                self._tool_refusal = error
        if self._tool_refusal is not None:
            raise self._tool_refusal

    async def charge(self) -> None:
        """Waits for the limit of the user. Raises RateLimited, also if called again."""
        if not self._is_charged:
            self._is_charged = True
            try:
                await self._limits.charge(self._principal)
            except RateLimited as error:
                self.refusal = error
            finally:
                self.end()
        if self.refusal is not None:
            raise self.refusal

    def end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._early_starts.end(self._principal.user_id)
