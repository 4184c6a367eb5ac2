"""News for open streams: a list changed, a resource was updated. A slow listener loses detail, never memory."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from config.paths import UserId

# News collapse (one `tools` is as good as ten), so a listener rarely holds more than a handful.
BACKLOG_MAX = 256


class Change(Struct, frozen=True):
    """`kind` is tools, resources, prompts or updated; `user_id` limits it to one user's listeners."""

    kind: str
    uri: str | None = None
    user_id: UserId | None = None

    def as_notification(self) -> tuple[str, dict[str, str]]:
        if self.kind == "updated":
            return "notifications/resources/updated", {"uri": self.uri or ""}
        return f"notifications/{self.kind}/list_changed", {}


class Listener:
    """What one stream wants to hear, and what it has not been told yet."""

    def __init__(self, user_id: UserId, kinds: frozenset[str], uris: set[str] | frozenset[str]) -> None:
        self._user_id = user_id
        self._kinds = kinds
        self._uris = uris
        self._news: dict[Change, None] = {}
        self._arrived = asyncio.Event()

    def hear(self, change: Change) -> None:
        if change.user_id not in (None, self._user_id):
            return
        wanted = change.uri in self._uris if change.kind == "updated" else change.kind in self._kinds
        if wanted and len(self._news) < BACKLOG_MAX:
            self._news[change] = None
            self._arrived.set()

    async def next(self, timeout_s: float) -> Change | None:
        """The oldest untold change, or None when the time is up."""
        if not self._news:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), timeout_s)
            except TimeoutError:
                return None
        change = next(iter(self._news))
        del self._news[change]
        return change


class Changes:
    """Publishes to every listener of this process."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()

    def publish(self, change: Change) -> None:
        for listener in self._listeners:
            listener.hear(change)

    @contextmanager
    def listen(self, user_id: UserId, kinds: frozenset[str], uris: set[str] | frozenset[str]) -> Iterator[Listener]:
        listener = Listener(user_id, kinds, uris)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
