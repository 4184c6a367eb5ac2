"""What sessions remember: which items were delivered, the latest queries, the defaults the session was given.

A memory belongs to the principal that made it; to everyone else it does not exist. All of it is bounded, in time and
in number, for a session, for a user and for all: at a limit the oldest is forgotten, and nobody is refused.
"""

import base64
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NewType, Protocol

from cachetools import LRUCache, TTLCache
from msgspec import Struct

from auth.context import SessionId
from config.errors import SessionNotFound
from config.paths import UserId
from sessions.session import Owner

Handle = NewType("Handle", str)

# What an empty memory weighs against one remembered item, by the bytes of its containers.
_BASE_WEIGHT = 8
_HANDLE_BYTES = 16


def new_handle() -> Handle:
    """128 random bits; short, since a model repeats it with every call."""
    return Handle(secrets.token_urlsafe(_HANDLE_BYTES))


def handle_of(session: SessionId) -> Handle:
    """The handle of a session that has an id of its own. The id opens the session, so it is never told to a model;
    from the digest of 256 random bits it cannot be found again."""
    digest = hashlib.sha256(session.encode()).digest()[:_HANDLE_BYTES]
    return Handle(base64.urlsafe_b64encode(digest).rstrip(b"=").decode())


class Remembered(Struct, frozen=True):
    """A session's memory as it is now. `seen` is the version in which each URI was delivered."""

    handle: Handle
    seen: Mapping[str, int]
    queries: tuple[str, ...]
    defaults: Mapping[str, Any]


class Limits(Struct, frozen=True, kw_only=True):
    ttl_s: float
    seen_max: int
    queries_max: int
    total_max: int
    user_max: int


class Memories(Protocol):
    """The store. Each call but `open`, `adopt` and `forget` raises SessionNotFound for a handle that is unknown,
    forgotten or another's, and each starts the memory's idle time anew."""

    async def open(self, owner: Owner) -> Remembered:
        """A new memory under a new handle."""
        ...

    async def adopt(self, handle: Handle, owner: Owner) -> Remembered:
        """The memory of a session that the owner is known to have, new if it is not there."""
        ...

    async def recall(self, handle: Handle, owner: Owner) -> Remembered: ...

    async def remember(self, handle: Handle, owner: Owner, query: str, delivered: Mapping[str, int]) -> None: ...

    async def configure(self, handle: Handle, owner: Owner, defaults: Mapping[str, Any]) -> Remembered:
        """Adds to the defaults, or replaces those of the same name."""
        ...

    async def reset(self, handle: Handle, owner: Owner) -> Remembered:
        """Forgets everything but the handle; answers what was forgotten."""
        ...

    async def forget(self, handle: Handle, owner: Owner) -> None:
        """Ends a memory of the owner's; one that is not there needs no ending."""
        ...


class _Memory:
    """One session's, changed in place."""

    def __init__(self, owner: Owner, seen_max: int) -> None:
        self.owner = owner
        self.seen: LRUCache[str, int] = LRUCache(seen_max)
        self.queries: tuple[str, ...] = ()
        self.defaults: dict[str, Any] = {}


def _weight(memory: _Memory) -> int:
    return _BASE_WEIGHT + len(memory.seen) + len(memory.queries) + len(memory.defaults)


_Shelf = TTLCache[Handle, _Memory]


class ProcessMemories:
    """In this process. Each user has a shelf, so that no user's sessions push out another's before its own."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._user_max = min(limits.user_max, limits.total_max)
        # One full memory always fits, or a cache would refuse it.
        self._seen_max = max(1, min(limits.seen_max, self._user_max // 2))
        self._queries_max = max(1, min(limits.queries_max, self._user_max // 4))
        self._shelves: LRUCache[UserId, _Shelf] = LRUCache(limits.total_max, getsizeof=lambda shelf: shelf.currsize)

    @property
    def weight(self) -> int:
        """What all memories weigh; never above `total_max`."""
        return int(self._shelves.currsize)

    async def open(self, owner: Owner) -> Remembered:
        return self._keep(new_handle(), _Memory(owner, self._seen_max))

    async def adopt(self, handle: Handle, owner: Owner) -> Remembered:
        memory = self._find(handle, owner)
        return self._keep(handle, memory or _Memory(owner, self._seen_max))

    async def recall(self, handle: Handle, owner: Owner) -> Remembered:
        return self._keep(handle, self._own(handle, owner))

    async def remember(self, handle: Handle, owner: Owner, query: str, delivered: Mapping[str, int]) -> None:
        memory = self._own(handle, owner)
        memory.seen.update(delivered)
        if query:
            others = tuple(known for known in memory.queries if known != query)
            memory.queries = (*others, query)[-self._queries_max :]
        self._keep(handle, memory)

    async def configure(self, handle: Handle, owner: Owner, defaults: Mapping[str, Any]) -> Remembered:
        memory = self._own(handle, owner)
        memory.defaults = {**memory.defaults, **defaults}
        return self._keep(handle, memory)

    async def reset(self, handle: Handle, owner: Owner) -> Remembered:
        forgotten = _told(handle, self._own(handle, owner))
        self._keep(handle, _Memory(owner, self._seen_max))
        return forgotten

    async def forget(self, handle: Handle, owner: Owner) -> None:
        if self._find(handle, owner) is None:
            return
        shelf = self._shelves.pop(owner[0])
        del shelf[handle]
        if shelf:
            self._shelves[owner[0]] = shelf

    def _own(self, handle: Handle, owner: Owner) -> _Memory:
        memory = self._find(handle, owner)
        if memory is None:
            raise SessionNotFound
        return memory

    def _find(self, handle: Handle, owner: Owner) -> _Memory | None:
        shelf = self._shelves.get(owner[0])
        memory = shelf.get(handle) if shelf is not None else None
        return memory if memory is not None and memory.owner == owner else None

    def _keep(self, handle: Handle, memory: _Memory) -> Remembered:
        """Puts a memory back, which weighs it, restarts its time and makes room if it grew."""
        user = memory.owner[0]
        shelf = self._shelves.pop(user, None)
        if shelf is None:
            shelf = TTLCache(self._user_max, self._limits.ttl_s, self._clock, getsizeof=_weight)
        shelf[handle] = memory
        self._shelves[user] = shelf
        return _told(handle, memory)


def _told(handle: Handle, memory: _Memory) -> Remembered:
    # A view: a search looks up some twenty URIs, and a copy of thousands would cost more than the search.
    return Remembered(handle, MappingProxyType(memory.seen), memory.queries, MappingProxyType(memory.defaults))
