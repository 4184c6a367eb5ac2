"""The sessions of this process, limited in number and idle time."""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from auth.context import SessionId
from auth.principal import Owner
from config.errors import SessionNotFound, Unavailable
from config.paths import UserId
from sessions.session import Session, new_session_id


class InProcessSessionStore:
    """Keeps sessions in order of last use, oldest first, so that expiry only examines the front."""

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

    def create(
        self,
        owner: Owner,
        version: str,
        client_name: str,
        client_version: str,
        capabilities: Mapping[str, Any],
        profile: str = "default",
        session_id: SessionId | None = None,
    ) -> Session:
        """Creates a session, in place of one that has the same id.

        A user at the per-user limit loses the session that was unused longest. At the total limit the new session is
        rejected, so that no user can evict another user's sessions.
        """
        self._expire()
        if session_id is not None and session_id in self._sessions:
            self._drop(self._sessions[session_id])
        if self._per_user[owner.user_id] >= self._max_per_user:
            self._drop(next(s for s in self._sessions.values() if s.owner.user_id == owner.user_id))
        if len(self._sessions) >= self._max_total:
            raise Unavailable("too many open sessions", retry_after_s=self._ttl_s)
        session = Session(
            id=session_id or new_session_id(),
            owner=owner,
            version=version,
            client_name=client_name,
            client_version=client_version,
            capabilities=capabilities,
            used_at=self._clock(),
            profile=profile,
        )
        self._sessions[session.id] = session
        self._per_user[owner.user_id] += 1
        return session

    def get(self, session_id: str, owner: Owner) -> Session:
        """Returns the owner's session and restarts its idle timer.

        Raises the same SessionNotFound for an unknown session and for one that belongs to another owner.
        """
        self._expire()
        session = self._sessions.get(SessionId(session_id))
        if session is None or session.owner != owner:
            raise SessionNotFound
        session.used_at = self._clock()
        self._sessions.move_to_end(session.id)
        return session

    def holds(self, session: Session) -> bool:
        self._expire()
        return session.id in self._sessions

    def end(self, session: Session) -> None:
        """Ends a session; does nothing if it has ended already."""
        if session.id in self._sessions:
            self._drop(session)

    def _expire(self) -> None:
        oldest_allowed = self._clock() - self._ttl_s
        while self._sessions:
            session = next(iter(self._sessions.values()))
            if session.used_at > oldest_allowed:
                return
            self._drop(session)

    def _drop(self, session: Session) -> None:
        user_id = session.owner.user_id
        del self._sessions[session.id]
        self._per_user[user_id] -= 1
        if not self._per_user[user_id]:
            del self._per_user[user_id]
