"""The agents on the bus and their reply tokens. Both are held in the memory of this process.

An agent's token identifies an agent among those of one user. It does not identify the user and grants nothing that the
caller's own credential does not. After a restart, agents register again.
"""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Literal, TypeVar
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from config.errors import Unavailable
from config.paths import UserId
from config.settings import Settings

Clock = Callable[[], float]
T = TypeVar("T")
_TOKEN_BYTES = 24


class _Entry(Struct, Generic[T], frozen=True):
    value: T
    used_at: float


class _ExpiringStore(Generic[T]):
    """Values per user, dropped after `ttl_s` without use.

    A user at the per-user limit loses that user's least recently used value. At the limit for all users together a new
    value is rejected, so that no user can evict another's.
    """

    def __init__(self, value_name: str, max_per_user: int, max_total: int, ttl_s: float, clock: Clock) -> None:
        self._value_name = value_name
        self._max_per_user = max_per_user
        self._max_total = max_total
        self._ttl_s = ttl_s
        self._clock = clock
        # Both are ordered by last use, oldest first.
        self._entries: OrderedDict[tuple[UserId, str], _Entry[T]] = OrderedDict()
        self._keys_by_user: dict[UserId, OrderedDict[str, None]] = {}

    def get(self, user_id: UserId, key: str) -> T | None:
        self._remove_expired()
        entry = self._entries.get((user_id, key))
        return entry.value if entry is not None else None

    def put(self, user_id: UserId, key: str, value: T) -> None:
        self._remove_expired()
        keys = self._keys_by_user.get(user_id, OrderedDict())
        if key not in keys and len(keys) >= self._max_per_user:
            self._remove(user_id, next(iter(keys)))
        if key not in keys and len(self._entries) >= self._max_total:
            raise Unavailable(f"the limit of {self._max_total} {self._value_name} is reached", self._ttl_s)
        self._keys_by_user.setdefault(user_id, OrderedDict())[key] = None
        self._keys_by_user[user_id].move_to_end(key)
        self._entries[user_id, key] = _Entry(value, self._clock())
        self._entries.move_to_end((user_id, key))

    def values(self, user_id: UserId) -> list[T]:
        self._remove_expired()
        return [self._entries[user_id, key].value for key in self._keys_by_user.get(user_id, ())]

    def _remove_expired(self) -> None:
        expired_since = self._clock() - self._ttl_s
        while self._entries and next(iter(self._entries.values())).used_at <= expired_since:
            self._remove(*next(iter(self._entries)))

    def _remove(self, user_id: UserId, key: str) -> None:
        del self._entries[user_id, key]
        del self._keys_by_user[user_id][key]
        if not self._keys_by_user[user_id]:
            del self._keys_by_user[user_id]


class Agent(Struct, frozen=True, kw_only=True):
    """One of a user's agents. Its name is unique among them."""

    id: str
    name: str
    token_hash: bytes


class AgentRegistry:
    def __init__(self, settings: Settings, clock: Clock = time.monotonic) -> None:
        self._agents: _ExpiringStore[Agent] = _ExpiringStore(
            "agents", settings.bus_agent_max_per_user, settings.bus_agent_max, settings.bus_agent_ttl_s, clock
        )

    def register(self, user_id: UserId, name: str) -> tuple[Agent, str]:
        """Returns a new agent and its token. Only the token's hash is stored."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        agent = Agent(id=str(uuid4()), name=self._unique_name(user_id, name), token_hash=_hash(token))
        self._agents.put(user_id, agent.id, agent)
        return agent, token

    def find(self, user_id: UserId, agent_id: str) -> Agent | None:
        return self._agents.get(user_id, agent_id)

    def verify(self, user_id: UserId, agent_id: str, token: str) -> Agent | None:
        """Returns the agent if the token is correct, and counts that as use."""
        agent = self._agents.get(user_id, agent_id)
        if agent is None or not hmac.compare_digest(agent.token_hash, _hash(token)):
            return None
        self._agents.put(user_id, agent_id, agent)
        return agent

    def _unique_name(self, user_id: UserId, name: str) -> str:
        existing = {agent.name for agent in self._agents.values(user_id)}
        candidates = (name if number == 1 else f"{name} {number}" for number in range(1, len(existing) + 2))
        return next(candidate for candidate in candidates if candidate not in existing)


class ReplyToken(Struct, frozen=True, kw_only=True):
    """Permits one message in one thread."""

    thread_id: str
    expires_at: float
    consumed_at: float | None = None


ReplyTokenError = Literal["TOKEN_INVALID", "TOKEN_EXPIRED", "TOKEN_REPLAY"]


class ReplyTokens:
    """Uses wall-clock time, because clients are told when a token expires."""

    def __init__(self, settings: Settings, clock: Clock = time.time) -> None:
        self._ttl_s = settings.bus_reply_token_ttl_s
        self._clock = clock
        # Stored for twice their lifetime, to tell an expired or consumed token from an unknown one.
        self._tokens: _ExpiringStore[ReplyToken] = _ExpiringStore(
            "reply tokens", settings.bus_reply_token_max_per_user, settings.bus_reply_token_max, 2 * self._ttl_s, clock
        )

    def issue(self, user_id: UserId, thread_id: str) -> tuple[str, float]:
        """Returns a token and the time at which it expires."""
        token, expires_at = secrets.token_urlsafe(_TOKEN_BYTES), self._clock() + self._ttl_s
        self._tokens.put(user_id, _key(token), ReplyToken(thread_id=thread_id, expires_at=expires_at))
        return token, expires_at

    def consume(self, user_id: UserId, thread_id: str, token: str) -> tuple[ReplyTokenError, float | None] | None:
        """Consumes a token. Returns None, or why it cannot be used and since when."""
        stored = self._tokens.get(user_id, _key(token))
        if stored is None or stored.thread_id != thread_id:
            return "TOKEN_INVALID", None
        if stored.consumed_at is not None:
            return "TOKEN_REPLAY", stored.consumed_at
        if self._clock() >= stored.expires_at:
            return "TOKEN_EXPIRED", stored.expires_at
        self._tokens.put(user_id, _key(token), replace(stored, consumed_at=self._clock()))
        return None

    def restore(self, user_id: UserId, token: str) -> None:
        """Makes a consumed token usable again, after its message was not written."""
        stored = self._tokens.get(user_id, _key(token))
        if stored is not None:
            self._tokens.put(user_id, _key(token), replace(stored, consumed_at=None))


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _key(token: str) -> str:
    return _hash(token).hex()
