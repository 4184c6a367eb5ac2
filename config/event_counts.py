"""Counts what happens to the connections of this process to other servers, on any thread. The metrics show it.

Kept for the process and not passed through every layer: a connection is opened, lost and replaced far below the
services that a server constructs.
"""

import threading
from collections import Counter
from collections.abc import Mapping


class EventCounts:
    """`names` are all events, so that a counter exists before it is needed."""

    def __init__(self, *names: str) -> None:
        self._guard = threading.Lock()
        self._counts = Counter(dict.fromkeys(names, 0))

    def add(self, name: str) -> None:
        with self._guard:
            self._counts[name] += 1

    def read(self) -> Mapping[str, int]:
        with self._guard:
            return dict(self._counts)


# connected and closed: their difference is the number of open connections. lost: by the server or the network.
# unconfirmed: writes whose connection was lost while they were being committed. busy: calls that waited too long for a
# lock.
POSTGRES_EVENTS = EventCounts("connected", "refused", "closed", "lost", "unconfirmed", "busy", "disk_full")
# failed: commands that got no answer or a refusal. After one, none is sent for a while.
SESSION_SERVER_EVENTS = EventCounts("connected", "failed")
