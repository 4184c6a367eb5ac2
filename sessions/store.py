"""Legacy MCP sessions, limited in number and idle time, in this process or in Redis (`sessions.redis`)."""

# About this package: A session of a legacy client (`store`) is what `initialize` negotiated. Session state (`state`) is
# what searches remember: seen items, queries and defaults. Modern clients have no session, but can have state: its
# handle is in every response to a search. Both are bound to the principal, so that an id or a handle alone gives access
# to nothing.

import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from auth.context import Owner, SessionId
from config.errors import SessionNotFound, Unavailable
from config.paths import UserId

# -- session -----------------------------------------------------------------------------------------------------------
# A legacy MCP session: the result of its handshake and the principal it belongs to. It holds no sockets or tasks.


def new_session_id() -> SessionId:
    """Returns 256 random bits in visible ASCII (MCP Streamable HTTP, session management)."""
    return SessionId(secrets.token_urlsafe(32))


class Session(Struct, eq=False, weakref=True):
    """Belongs to the principal that created it. Only `used_at`, `log_level` and `subscriptions` change later."""

    id: SessionId
    owner: Owner
    version: str
    client_name: str
    client_version: str
    capabilities: Mapping[str, Any]
    used_at: float = 0.0
    profile: str = "default"
    log_level: str | None = None
    # Open streams listen to this very set, so it is changed and never replaced.
    subscriptions: set[str] = field(default_factory=set)


class SessionStore(Protocol):
    def __len__(self) -> int:
        """The number of sessions that this process knows."""
        ...

    async def create(self, session: Session) -> None:
        """Stores a new session, in place of one that has the same id.

        A user at the per-user limit loses the session that was unused longest. At the total limit the new session is
        rejected, so that no user can evict another user's sessions.
        """
        ...

    async def get(self, session_id: str, owner: Owner) -> Session:
        """Returns the owner's session and restarts its idle timer.

        Raises the same SessionNotFound for an unknown session and for one that belongs to another owner.
        """
        ...

    async def holds(self, session: Session) -> bool: ...

    async def save(self, session: Session) -> None:
        """Makes a changed log level or changed subscriptions known to other processes."""
        ...

    async def end(self, session: Session) -> None:
        """Ends a session; does nothing if it has ended already."""
        ...


class InProcessSessionStore:
    """Keeps sessions in order of last use, oldest first, so that expiry only examines the front.

    Not a `cachetools.TTLCache`: every call restarts a session's idle timer, for which that takes 5.9 us instead of
    1.6 us, and it would evict a session of another user at the total limit.
    """

    def __init__(
        self, ttl_s: float, max_total: int, max_per_user: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ttl_s = ttl_s
        self._max_total = max_total
        self._max_per_user = max_per_user
        self._clock = clock
        self._sessions: OrderedDict[SessionId, Session] = OrderedDict()
        self._per_user: Counter[UserId] = Counter()

    def __len__(self) -> int:
        self._expire()
        return len(self._sessions)

    async def create(self, session: Session) -> None:
        self._expire()
        owner = session.owner
        if session.id in self._sessions:
            self._drop(self._sessions[session.id])
        # Before the total is compared: a user at the own limit makes room for the new session.
        if self._per_user[owner.user_id] >= self._max_per_user:
            self._drop(next(s for s in self._sessions.values() if s.owner.user_id == owner.user_id))
        if len(self._sessions) >= self._max_total:
            raise too_many_sessions(self._ttl_s)
        session.used_at = self._clock()
        self._sessions[session.id] = session
        self._per_user[owner.user_id] += 1

    async def get(self, session_id: str, owner: Owner) -> Session:
        now, session = self._clock(), self._sessions.get(SessionId(session_id))
        if session is None or session.owner != owner or session.used_at <= now - self._ttl_s:
            raise SessionNotFound
        session.used_at = now
        self._sessions.move_to_end(session.id)
        return session

    async def holds(self, session: Session) -> bool:
        self._expire()
        return session.id in self._sessions

    async def save(self, session: Session) -> None:
        """All requests of the session use this object, so there is nothing to do."""

    async def end(self, session: Session) -> None:
        if session.id in self._sessions:
            self._drop(session)

    def _expire(self) -> None:
        oldest_allowed = self._clock() - self._ttl_s
        while self._sessions:
            session = next(iter(self._sessions.values()))
            if session.used_at > oldest_allowed:
                break
            self._drop(session)

    def _drop(self, session: Session) -> None:
        user_id = session.owner.user_id
        del self._sessions[session.id]
        self._per_user[user_id] -= 1
        if not self._per_user[user_id]:
            del self._per_user[user_id]


def too_many_sessions(ttl_s: float) -> Unavailable:
    return Unavailable("too many open sessions", retry_after_s=ttl_s)
