"""The last MCP calls of each user, in memory: what people see when they ask what their assistants are doing.

Arguments and results are not kept.
"""

import time
from collections import deque
from collections.abc import Sequence

from cachetools import LRUCache
from msgspec import Struct

from config.paths import UserId
from config.settings import Settings
from server.protocol.call import Call

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


class RecentCalls:
    def __init__(self, settings: Settings) -> None:
        self._per_user = settings.recent_calls_max
        self._calls: LRUCache[UserId, deque[RecentCall]] = LRUCache(settings.recent_calls_users_max)

    def record(self, call: Call, method: str, tool: str, outcome: str, seconds: float) -> None:
        if method not in _RECORDED_METHODS or not self._per_user:
            return
        context = call.context
        calls = self._calls.get(context.user_id)
        if calls is None:
            calls = self._calls[context.user_id] = deque(maxlen=self._per_user)
        calls.append(RecentCall(time.time(), method, tool, context.client_id, call.client.name, outcome, seconds))

    def list(self, user_id: UserId, limit: int) -> Sequence[RecentCall]:
        """Returns the newest calls first."""
        return list(reversed(self._calls.get(user_id, ())))[:limit]

    def forget(self, user_id: UserId) -> None:
        self._calls.pop(user_id, None)
