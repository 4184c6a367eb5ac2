"""Session state: the items a session has been shown, its recent queries and its defaults.

State is bound to the principal that created it; other callers get the same "not found" as for an unknown handle. Every
dimension is bounded: idle time, items and queries per session, and the total per user and for the whole process. When a
limit is reached the oldest entries are dropped, so a caller is never rejected because of it.
"""

import base64
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any, NewType, Protocol

from msgspec import Struct, field

from auth.context import Owner, SessionId
from config.errors import SessionNotFound
from config.numbers import clamp
from config.paths import UserId

SessionHandle = NewType("SessionHandle", str)

# The size of an empty state, in units of one seen item, measured from the bytes of its containers.
_BASE_SIZE = 8
_HANDLE_BYTES = 16


def new_handle() -> SessionHandle:
    """Returns 128 random bits; short, because a model repeats the handle in every call."""
    return SessionHandle(secrets.token_urlsafe(_HANDLE_BYTES))


def handle_for(session: SessionId) -> SessionHandle:
    """Returns the handle of a transport session.

    A session id is a credential, so models never see it. The handle is a digest of the id's 256 random bits, from which
    the id cannot be recovered.
    """
    digest = hashlib.sha256(session.encode()).digest()[:_HANDLE_BYTES]
    return SessionHandle(base64.urlsafe_b64encode(digest).rstrip(b"=").decode())


class SeenItems(Protocol):
    """The items that a session has been shown."""

    def __len__(self) -> int: ...

    def has(self, uri: str, version: int) -> bool:
        """Whether this version of the item was delivered."""
        ...


class SeenVersions(Struct, frozen=True):
    """The last version delivered of each URI."""

    versions: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.versions)

    def has(self, uri: str, version: int) -> bool:
        return self.versions.get(uri) == version


NOTHING_SEEN = SeenVersions({})


class SessionState(Struct, frozen=True):
    """A read-only view of one session's state. `error` says why the state is empty although the session may have one:
    calls are served without it."""

    handle: SessionHandle
    seen: SeenItems
    queries: tuple[str, ...]
    defaults: Mapping[str, Any]
    error: str = ""


class SessionStateLimits(Struct, frozen=True, kw_only=True):
    """`total_max` and `user_max` count items: seen items, queries and defaults, plus a base size per session."""

    ttl_s: float
    seen_max: int
    queries_max: int
    total_max: int
    user_max: int


class SessionStates(Protocol):
    """Stores session states, in this process or in Redis (`sessions.redis`).

    `get`, `set_defaults` and `reset` raise SessionNotFound if the handle is unknown, expired or belongs to another
    owner. Every call except `delete` restarts the idle timer.
    """

    async def create(self, owner: Owner) -> SessionState:
        """Creates an empty state under a new handle."""
        ...

    async def get_or_create(self, handle: SessionHandle, owner: Owner) -> SessionState:
        """Returns the state of a transport session, which the caller has already verified to belong to the owner."""
        ...

    async def get(self, handle: SessionHandle, owner: Owner) -> SessionState: ...

    async def record(
        self, handle: SessionHandle, owner: Owner, query: str, delivered: Mapping[str, int], seen_max: int | None = None
    ) -> None:
        """Adds a query, unless it is empty, and the items delivered for it. Does nothing if the session has ended.

        Keeps the last `seen_max` items, or as many as the limits allow if that is fewer.
        """
        ...

    async def set_defaults(self, handle: SessionHandle, owner: Owner, defaults: Mapping[str, Any]) -> SessionState:
        """Adds defaults, replacing those with the same name."""
        ...

    async def reset(self, handle: SessionHandle, owner: Owner) -> SessionState:
        """Clears everything but the handle and returns the state as it was before."""
        ...

    async def delete(self, handle: SessionHandle, owner: Owner) -> None:
        """Deletes the owner's state, if there is one under this handle."""
        ...


class _StateEntry(Struct):
    """The mutable state of one session, with its size and end of life as of the last call."""

    owner: Owner
    # Oldest delivery first.
    seen: dict[str, int] = {}
    queries: tuple[str, ...] = ()
    defaults: dict[str, Any] = {}
    size: int = 0
    expires_at: float = 0.0


class _UserStates(Struct):
    """The sessions of one user, the least recently used first. All live equally long, so that it also expires first."""

    entries: OrderedDict[SessionHandle, _StateEntry] = field(default_factory=OrderedDict)
    size: int = 0


class InProcessSessionStates:
    """Keeps session states in this process, by user, so that a user's own sessions are evicted first.

    Ordered dicts instead of a `TTLCache` for each user in an `LRUCache`, which measured each state twice in every
    search and kept evicted ones until the next garbage collection: 28 % more memory after 250,000 sessions."""

    def __init__(self, limits: SessionStateLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._user_max = min(limits.user_max, limits.total_max)
        # One full state must always fit.
        self._seen_max = clamp(limits.seen_max, 1, self._user_max // 2)
        self._queries_max = clamp(limits.queries_max, 1, self._user_max // 4)
        # The least recently active user first.
        self._users: OrderedDict[UserId, _UserStates] = OrderedDict()
        # The size of all states together, in items; never above `total_max`.
        self.size = 0

    async def create(self, owner: Owner) -> SessionState:
        return self._store(new_handle(), _StateEntry(owner))

    async def get_or_create(self, handle: SessionHandle, owner: Owner) -> SessionState:
        entry = self._find(handle, owner)
        return self._store(handle, entry or _StateEntry(owner))

    async def get(self, handle: SessionHandle, owner: Owner) -> SessionState:
        return self._store(handle, self._require(handle, owner))

    async def record(
        self, handle: SessionHandle, owner: Owner, query: str, delivered: Mapping[str, int], seen_max: int | None = None
    ) -> None:
        entry = self._find(handle, owner)
        if entry is None:
            return
        for uri in entry.seen.keys() & delivered.keys():
            del entry.seen[uri]
        entry.seen.update(delivered)
        seen_max = self._seen_max if seen_max is None else clamp(seen_max, 1, self._seen_max)
        if len(entry.seen) > seen_max:
            for uri in [*islice(entry.seen, len(entry.seen) - seen_max)]:
                del entry.seen[uri]
        if query:
            queries = entry.queries
            if query in queries:
                queries = tuple([other for other in queries if other != query])
            entry.queries = (*queries, query)[-self._queries_max :]
        self._store(handle, entry)

    async def set_defaults(self, handle: SessionHandle, owner: Owner, defaults: Mapping[str, Any]) -> SessionState:
        entry = self._require(handle, owner)
        entry.defaults = {**entry.defaults, **defaults}
        return self._store(handle, entry)

    async def reset(self, handle: SessionHandle, owner: Owner) -> SessionState:
        before = self._store(handle, self._require(handle, owner))
        self._store(handle, _StateEntry(owner))
        return before

    async def delete(self, handle: SessionHandle, owner: Owner) -> None:
        if self._find(handle, owner) is None:
            return
        user = self._users[owner.user_id]
        size = user.entries.pop(handle).size
        user.size -= size
        self.size -= size
        if not user.entries:
            del self._users[owner.user_id]

    def _require(self, handle: SessionHandle, owner: Owner) -> _StateEntry:
        entry = self._find(handle, owner)
        if entry is None:
            raise SessionNotFound
        return entry

    def _find(self, handle: SessionHandle, owner: Owner) -> _StateEntry | None:
        user = self._users.get(owner.user_id)
        entry = user.entries.get(handle) if user is not None else None
        if entry is None or entry.owner != owner or entry.expires_at <= self._clock():
            return None
        return entry

    def _store(self, handle: SessionHandle, entry: _StateEntry) -> SessionState:
        """Puts an entry back: measures it again, restarts its idle timer and evicts others if it grew."""
        now, user_id = self._clock(), entry.owner.user_id
        user = self._users.get(user_id)
        if user is None:
            user = self._users[user_id] = _UserStates()
        size_before = user.size
        if (old := user.entries.pop(handle, None)) is not None:
            user.size -= old.size
        entry.size = _BASE_SIZE + len(entry.seen) + len(entry.queries) + len(entry.defaults)
        entry.expires_at = now + self._limits.ttl_s
        user.entries[handle] = entry
        user.size += entry.size
        self._users.move_to_end(user_id)
        while len(user.entries) > 1:
            if user.size <= self._user_max and next(iter(user.entries.values())).expires_at > now:
                break
            user.size -= user.entries.popitem(last=False)[1].size
        self.size += user.size - size_before
        while self.size > self._limits.total_max:
            self.size -= self._users.popitem(last=False)[1].size
        # Not a copy: a search looks up about twenty URIs, and copying thousands would cost more than the search.
        return SessionState(handle, SeenVersions(entry.seen), entry.queries, MappingProxyType(entry.defaults))
