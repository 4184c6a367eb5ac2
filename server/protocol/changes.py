"""Change events for open streams: a list changed, or a resource was updated.

A slow listener loses individual events, but never uses more than a bounded amount of memory.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from auth.principal import Principal
from config.paths import UserId

LIST_KINDS = frozenset(("tools", "resources", "prompts"))
# Equal events collapse into one, so a listener rarely holds more than a handful.
BACKLOG_MAX = 256


class Change(Struct, frozen=True):
    """`kind` is tools, resources, prompts or updated. With `user_id`, only that user's listeners receive it, and with
    `source`, only those whose credential may use that source."""

    kind: str
    uri: str | None = None
    user_id: UserId | None = None
    source: str | None = None

    def as_notification(self) -> tuple[str, dict[str, str]]:
        if self.kind == "updated":
            return "notifications/resources/updated", {"uri": self.uri or ""}
        return f"notifications/{self.kind}/list_changed", {}


class ChangeListener:
    """The pending changes of one stream, limited to the kinds and URIs it subscribed to."""

    def __init__(self, principal: Principal, kinds: frozenset[str], uris: set[str] | frozenset[str]) -> None:
        self._principal = principal
        self._kinds = kinds
        self._uris = uris
        self._pending: dict[Change, None] = {}
        self._has_pending = asyncio.Event()

    def receive(self, change: Change) -> None:
        if change.user_id not in (None, self._principal.user_id):
            return
        if change.source is not None and not self._principal.permits_source(change.source):
            return
        is_subscribed = change.uri in self._uris if change.kind == "updated" else change.kind in self._kinds
        if is_subscribed and len(self._pending) < BACKLOG_MAX:
            self._pending[change] = None
            self._has_pending.set()

    async def next(self, timeout_s: float | None = None) -> Change | None:
        """Returns the oldest pending change, or None after the timeout, if there is one."""
        if not self._pending:
            self._has_pending.clear()
            try:
                await asyncio.wait_for(self._has_pending.wait(), timeout_s)
            except TimeoutError:
                return None
        change = next(iter(self._pending))
        del self._pending[change]
        return change


class ChangeFeed:
    """Publishes changes to every listener of this process, and to `relay`, which passes them on to other processes."""

    def __init__(self) -> None:
        self._listeners: set[ChangeListener] = set()
        self.relay: Callable[[Change], None] | None = None

    def publish(self, change: Change) -> None:
        self.deliver(change)
        if self.relay is not None:
            self.relay(change)

    def deliver(self, change: Change) -> None:
        """Publishes a change to the listeners of this process only."""
        for listener in self._listeners:
            listener.receive(change)

    @contextmanager
    def listen(
        self, principal: Principal, kinds: frozenset[str], uris: set[str] | frozenset[str]
    ) -> Iterator[ChangeListener]:
        listener = ChangeListener(principal, kinds, uris)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
