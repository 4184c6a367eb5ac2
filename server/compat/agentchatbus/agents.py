"""Who is on the message bus, and which answers are awaited there: agents and reply tokens, in this process's memory.

An agent's token tells the agents of one user apart. It identifies no user and opens nothing that the caller's own
credential does not; after a restart an agent registers again.
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


class _Shelf(Generic[T]):
    """Values of users, each forgotten when it was unused for `ttl_s`. A user with too many loses the own one unused
    longest; where all users together have too many, a new one is refused: nobody can push out another's."""

    def __init__(self, what: str, max_per_user: int, max_: int, ttl_s: float, clock: Clock) -> None:
        self._what = what
        self._max_per_user = max_per_user
        self._max = max_
        self._ttl_s = ttl_s
        self._clock = clock
        # Both unused longest first.
        self._all: OrderedDict[tuple[UserId, str], _Entry[T]] = OrderedDict()
        self._own: dict[UserId, OrderedDict[str, None]] = {}

    def get(self, user_id: UserId, key: str) -> T | None:
        self._drop_expired()
        entry = self._all.get((user_id, key))
        return entry.value if entry is not None else None

    def put(self, user_id: UserId, key: str, value: T) -> None:
        self._drop_expired()
        own = self._own.get(user_id, OrderedDict())
        if key not in own and len(own) >= self._max_per_user:
            self._drop(user_id, next(iter(own)))
        if key not in own and len(self._all) >= self._max:
            raise Unavailable(f"there are as many {self._what} as there may be; try again later", self._ttl_s)
        self._own.setdefault(user_id, OrderedDict())[key] = None
        self._own[user_id].move_to_end(key)
        self._all[user_id, key] = _Entry(value, self._clock())
        self._all.move_to_end((user_id, key))

    def values(self, user_id: UserId) -> list[T]:
        self._drop_expired()
        return [self._all[user_id, key].value for key in self._own.get(user_id, ())]

    def _drop_expired(self) -> None:
        oldest_kept = self._clock() - self._ttl_s
        while self._all and next(iter(self._all.values())).used_at <= oldest_kept:
            self._drop(*next(iter(self._all)))

    def _drop(self, user_id: UserId, key: str) -> None:
        del self._all[user_id, key]
        del self._own[user_id][key]
        if not self._own[user_id]:
            del self._own[user_id]


class Agent(Struct, frozen=True, kw_only=True):
    """One of a user's agents, under a name that no other of them has."""

    id: str
    name: str
    token_hash: bytes


class Agents:
    def __init__(self, settings: Settings, clock: Clock = time.monotonic) -> None:
        self._shelf: _Shelf[Agent] = _Shelf(
            "agents", settings.bus_agent_max_per_user, settings.bus_agent_max, settings.bus_agent_ttl_s, clock
        )

    def register(self, user_id: UserId, name: str) -> tuple[Agent, str]:
        """A new agent, and its token, which is kept nowhere."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        agent = Agent(id=str(uuid4()), name=self._free_name(user_id, name), token_hash=_hash(token))
        self._shelf.put(user_id, agent.id, agent)
        return agent, token

    def find(self, user_id: UserId, agent_id: str) -> Agent | None:
        return self._shelf.get(user_id, agent_id)

    def verify(self, user_id: UserId, agent_id: str, token: str) -> Agent | None:
        """The agent, if the token is its own; it counts as seen then."""
        agent = self._shelf.get(user_id, agent_id)
        if agent is None or not hmac.compare_digest(agent.token_hash, _hash(token)):
            return None
        self._shelf.put(user_id, agent_id, agent)
        return agent

    def _free_name(self, user_id: UserId, name: str) -> str:
        taken = {agent.name for agent in self._shelf.values(user_id)}
        names = (name if number == 1 else f"{name} {number}" for number in range(1, len(taken) + 2))
        return next(free for free in names if free not in taken)


class ReplyToken(Struct, frozen=True, kw_only=True):
    """Good for one message in one thread."""

    thread_id: str
    expires_at: float
    spent_at: float | None = None


Refused = Literal["TOKEN_INVALID", "TOKEN_EXPIRED", "TOKEN_REPLAY"]


class ReplyTokens:
    """Times are those of the clock on the wall: clients are told when a token expires."""

    def __init__(self, settings: Settings, clock: Clock = time.time) -> None:
        self._ttl_s = settings.bus_reply_token_ttl_s
        self._clock = clock
        # Kept for as long again, so that one that expired or was spent can be told from one that never was.
        self._shelf: _Shelf[ReplyToken] = _Shelf(
            "reply tokens", settings.bus_reply_token_max_per_user, settings.bus_reply_token_max, 2 * self._ttl_s, clock
        )

    def issue(self, user_id: UserId, thread_id: str) -> tuple[str, float]:
        """A token, and when it expires."""
        token, expires_at = secrets.token_urlsafe(_TOKEN_BYTES), self._clock() + self._ttl_s
        self._shelf.put(user_id, _key(token), ReplyToken(thread_id=thread_id, expires_at=expires_at))
        return token, expires_at

    def spend(self, user_id: UserId, thread_id: str, token: str) -> tuple[Refused, float | None] | None:
        """Uses a token up, or says why it cannot be, and since when."""
        held = self._shelf.get(user_id, _key(token))
        if held is None or held.thread_id != thread_id:
            return "TOKEN_INVALID", None
        if held.spent_at is not None:
            return "TOKEN_REPLAY", held.spent_at
        if self._clock() >= held.expires_at:
            return "TOKEN_EXPIRED", held.expires_at
        self._shelf.put(user_id, _key(token), replace(held, spent_at=self._clock()))
        return None

    def give_back(self, user_id: UserId, token: str) -> None:
        """For a message that was not written after all."""
        held = self._shelf.get(user_id, _key(token))
        if held is not None:
            self._shelf.put(user_id, _key(token), replace(held, spent_at=None))


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _key(token: str) -> str:
    return _hash(token).hex()
