"""The last MCP calls of each user, in memory or in Redis: what people see who ask what their assistants are doing.

Arguments and results are not kept.
"""

import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from cachetools import LRUCache
from msgspec import Struct

from config.paths import UserId
from server.protocol.call import Call

# Users whose calls are kept. The least recent caller is forgotten first.
_RECENT_CALLS_USERS_MAX = 1000

# What a page of the console shows.
RECENT_CALLS_MAX = 50

# Others only list what there is, or keep a connection alive.
_RECORDED_METHODS = frozenset(("tools/call", "resources/read", "prompts/get"))


class RecentCall(Struct, frozen=True, gc=False):
    """`client` is the id of the credential, `application` the name by which the client introduced itself."""

    time: float
    method: str
    tool: str
    client: str
    application: str
    outcome: str
    seconds: float


class RecentCalls(Protocol):
    def record(self, call: Call, method: str, tool: str, outcome: str, seconds: float) -> None: ...

    async def list(self, user_id: UserId, limit: int) -> Sequence[RecentCall]:
        """Returns the newest calls first."""
        ...

    async def forget(self, user_id: UserId) -> None: ...


def recent_call(call: Call, method: str, tool: str, outcome: str, seconds: float) -> RecentCall | None:
    """Returns the record of a call, or None if calls of its method are not recorded."""
    if method not in _RECORDED_METHODS:
        return None
    return RecentCall(time.time(), method, tool, call.context.client_id, call.client.name, outcome, seconds)


class InProcessRecentCalls:
    def __init__(self) -> None:
        self._calls: LRUCache[UserId, deque[RecentCall]] = LRUCache(_RECENT_CALLS_USERS_MAX)

    def record(self, call: Call, method: str, tool: str, outcome: str, seconds: float) -> None:
        record, user_id = recent_call(call, method, tool, outcome, seconds), call.context.user_id
        if record is None:
            return
        try:
            calls = self._calls[user_id]
        except KeyError:
            calls = self._calls[user_id] = deque(maxlen=RECENT_CALLS_MAX)
        calls.append(record)

    async def list(self, user_id: UserId, limit: int) -> Sequence[RecentCall]:
        return list(reversed(self._calls.get(user_id, ())))[:limit]

    async def forget(self, user_id: UserId) -> None:
        self._calls.pop(user_id, None)
