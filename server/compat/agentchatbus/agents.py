"""The agents of a bus, and reply tokens, each of which permits one message in one thread."""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, Protocol

from msgspec import Struct, structs

from config.errors import Unavailable
from config.paths import UserId
from config.times import format_time_microseconds, format_timestamp
from server.compat.agentchatbus.schemas import InvalidAgentToken, ReplyWindow, SyncContext
from sources.records import RegisteredAgent
from sources.storage.contract import Agents

# 192 random bits: nobody can guess a token, so that its plain SHA-256 hash can be stored.
TOKEN_BYTES = 24

ReplyTokenError = Literal["TOKEN_INVALID", "TOKEN_EXPIRED", "TOKEN_REPLAY"]


class ReplyToken(Struct, frozen=True, kw_only=True):
    thread_id: str
    agent_id: str | None  # the agent that the token was issued to, if it is known
    expires_at: float
    consumed_at: float | None = None


class ReplyTokenStore(Protocol):
    """Tokens per user, kept for twice their lifetime to tell an expired or consumed token from an unknown one.

    A user at the per-user limit loses that user's least recently used token. At the limit for all users together a new
    token is rejected, so that no user can evict another's.
    """

    async def get(self, user_id: UserId, key: str) -> ReplyToken | None: ...

    async def put(self, user_id: UserId, key: str, token: ReplyToken) -> None: ...

    async def consume(self, user_id: UserId, key: str, token: ReplyToken, now: float) -> bool:
        """Marks the token as consumed. Returns False if it was consumed or restored meanwhile."""
        ...


class ReplyTokenLimits(Struct, frozen=True):
    # An agent answers within minutes; an hour also covers one that waits for a person.
    ttl_s: float = 3600.0
    # The oldest of a user are dropped first. They are kept in the process.
    user_max: int = 1_000
    total_max: int = 100_000


REPLY_TOKEN_LIMITS = ReplyTokenLimits()


class ReplyTokens:
    """Uses wall-clock time, because clients are told when a token expires."""

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        store: ReplyTokenStore | None = None,
        limits: ReplyTokenLimits = REPLY_TOKEN_LIMITS,
    ) -> None:
        self._ttl_s = limits.ttl_s
        self._clock = clock
        self._tokens = store or InProcessReplyTokenStore(clock, limits)

    async def issue(self, user_id: UserId, thread_id: str, agent_id: str | None = None) -> tuple[str, float]:
        """Returns a token and the time at which it expires."""
        token, expires_at = secrets.token_urlsafe(TOKEN_BYTES), self._clock() + self._ttl_s
        await self._tokens.put(
            user_id, _key(token), ReplyToken(thread_id=thread_id, agent_id=agent_id, expires_at=expires_at)
        )
        return token, expires_at

    async def sync_context(
        self, user_id: UserId, thread_id: str, current_seq: int, agent_id: str | None = None
    ) -> SyncContext:
        """Returns what the next message must contain, with a new token that is issued to the agent, if it is known."""
        token, expires_at = await self.issue(user_id, thread_id, agent_id)
        window = ReplyWindow(expires_at=format_expiry(expires_at))
        return SyncContext(current_seq=current_seq, reply_token=token, reply_window=window)

    async def is_issued_to(self, user_id: UserId, token: str, agent_id: str) -> bool:
        stored = await self._tokens.get(user_id, _key(token))
        return stored is not None and stored.agent_id == agent_id

    async def consume(self, user_id: UserId, thread_id: str, token: str) -> tuple[ReplyTokenError, float | None] | None:
        """Consumes a token. Returns None, or why it cannot be used and since when."""
        stored, now = await self._tokens.get(user_id, _key(token)), self._clock()
        if stored is None or stored.thread_id != thread_id:
            return "TOKEN_INVALID", None
        if stored.consumed_at is not None:
            return "TOKEN_REPLAY", stored.consumed_at
        if now >= stored.expires_at:
            return "TOKEN_EXPIRED", stored.expires_at
        if not await self._tokens.consume(user_id, _key(token), stored, now):
            # Another process with the same store was faster.
            return "TOKEN_REPLAY", now
        return None

    async def restore(self, user_id: UserId, token: str) -> None:
        """Makes a consumed token usable again, after its message was not written."""
        stored = await self._tokens.get(user_id, _key(token))
        if stored is not None:
            await self._tokens.put(user_id, _key(token), structs.replace(stored, consumed_at=None))


class InProcessReplyTokenStore:
    def __init__(self, clock: Callable[[], float], limits: ReplyTokenLimits) -> None:
        self._max_per_user = limits.user_max
        self._max_total = limits.total_max
        # Expired and consumed tokens are told apart from unknown ones for as long as they were valid.
        self._ttl_s = 2 * limits.ttl_s
        self._clock = clock
        # Both are ordered by last use, oldest first. The first one has the time of it.
        self._tokens: OrderedDict[tuple[UserId, str], tuple[ReplyToken, float]] = OrderedDict()
        self._keys_by_user: dict[UserId, OrderedDict[str, None]] = {}

    async def get(self, user_id: UserId, key: str) -> ReplyToken | None:
        self._remove_expired()
        stored = self._tokens.get((user_id, key))
        return stored[0] if stored is not None else None

    async def put(self, user_id: UserId, key: str, token: ReplyToken) -> None:
        self._remove_expired()
        keys = self._keys_by_user.get(user_id, OrderedDict())
        if key not in keys and len(keys) >= self._max_per_user:
            self._remove(user_id, next(iter(keys)))
        if key not in keys and len(self._tokens) >= self._max_total:
            raise too_many_reply_tokens(self._max_total, self._ttl_s)
        self._keys_by_user.setdefault(user_id, OrderedDict())[key] = None
        self._keys_by_user[user_id].move_to_end(key)
        self._tokens[user_id, key] = (token, self._clock())
        self._tokens.move_to_end((user_id, key))

    async def consume(self, user_id: UserId, key: str, token: ReplyToken, now: float) -> bool:
        await self.put(user_id, key, structs.replace(token, consumed_at=now))
        return True

    def _remove_expired(self) -> None:
        expired_since = self._clock() - self._ttl_s
        while self._tokens and next(iter(self._tokens.values()))[1] <= expired_since:
            self._remove(*next(iter(self._tokens)))

    def _remove(self, user_id: UserId, key: str) -> None:
        del self._tokens[user_id, key]
        del self._keys_by_user[user_id][key]
        if not self._keys_by_user[user_id]:
            del self._keys_by_user[user_id]


def too_many_reply_tokens(limit: int, ttl_s: float) -> Unavailable:
    return Unavailable(f"the limit of {limit} reply tokens is reached", ttl_s)


def format_expiry(seconds: float) -> str:
    return format_time_microseconds(datetime.fromtimestamp(seconds, UTC))


def token_hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _key(token: str) -> str:
    return token_hash(token).hex()


# -- agents ------------------------------------------------------------------------------------------------------------
# The agents of each user's bus, stored in the user's library, so that they are still registered after a restart.
#
# An agent's token identifies an agent among those of one user. It does not identify the user and grants nothing that
# the caller's own credential does not.

# The time of an agent's last use is stored with this precision, to save writes.
_USE_PRECISION_S = 60


# The least recently active agent is dropped first.
_AGENTS_MAX = 100
# An agent that was idle for so long has to register again. Projects rest for weeks.
_AGENT_TTL_S = 90 * 86_400.0


class AgentRegistry:
    """The agents of each user, at most `agents_max` of them."""

    def __init__(
        self, clock: Callable[[], float] = time.time, *, agents_max: int = _AGENTS_MAX, ttl_s: float = _AGENT_TTL_S
    ) -> None:
        self._max_per_user = agents_max
        self._ttl_s = ttl_s
        self._clock = clock

    async def register(self, agents: Agents, name: str) -> tuple[RegisteredAgent, str]:
        """Returns a new agent and its token. Only the token's hash is stored."""
        token = secrets.token_urlsafe(TOKEN_BYTES)
        agent = await agents.register(
            name,
            token_hash(token),
            time=self._time_before(0),
            idle_since=self._time_before(self._ttl_s),
            limit=self._max_per_user,
        )
        return agent, token

    async def find(self, agents: Agents, agent_id: str) -> RegisteredAgent | None:
        agent = await agents.find(agent_id)
        return agent if agent is not None and agent.used_at >= self._time_before(self._ttl_s) else None

    async def verify(self, agents: Agents, agent_id: str, token: str) -> RegisteredAgent | None:
        """Returns the agent if the token is correct, and counts that as use."""
        agent = await self.find(agents, agent_id)
        if agent is None or not hmac.compare_digest(agent.token_hash, token_hash(token)):
            return None
        await self.set_used(agents, agent)
        return agent

    async def require(self, agents: Agents, agent_id: str, token: str | None, action: str) -> RegisteredAgent:
        """Raises InvalidAgentToken unless the token is correct. `action` is what the agent needs it for."""
        if not token:
            raise InvalidAgentToken(f"X-Agent-Token header required to {action} as a registered agent")
        agent = await self.verify(agents, agent_id, token)
        if agent is None:
            raise InvalidAgentToken("Invalid agent token")
        return agent

    async def set_used(self, agents: Agents, agent: RegisteredAgent) -> None:
        if agent.used_at < self._time_before(_USE_PRECISION_S):
            await agents.set_used(agent.id, self._time_before(0))

    def _time_before(self, seconds: float) -> str:
        return format_timestamp(max(0, self._clock() - seconds))
