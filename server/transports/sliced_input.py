"""Input that is parsed in slices, so that a read of many tiny frames, chunks or requests cannot occupy the event loop.

One read brings up to 256 KiB: 43,000 empty WebSocket frames, or 4,000 pipelined requests. Parsers process all of it at
once, which takes seconds.
"""

import time
from collections.abc import Callable

SLICE_BYTES = 2048
# The time after which other connections get their turn.
_TURN_S = 0.002


class SlicedInput:
    """Keeps the input of one connection that is not parsed yet.

    `feed` parses one slice, and `can_feed` tells whether the parser can take another. The owner pauses reading while
    the backlog is not empty, so the backlog never exceeds one read.
    """

    def __init__(self, feed: Callable[[bytes], None], can_feed: Callable[[], bool]) -> None:
        self._feed = feed
        self._can_feed = can_feed
        self._backlog = bytearray()

    def __bool__(self) -> bool:
        return bool(self._backlog)

    def add(self, data: bytes) -> None:
        self._backlog += data

    def clear(self) -> None:
        self._backlog.clear()

    def parse(self) -> bool:
        """Parses slices for one turn. Returns True if the parser could take more when the turn ended."""
        ends_at = time.perf_counter() + _TURN_S
        while self._backlog and self._can_feed():
            if time.perf_counter() > ends_at:
                return True
            part = bytes(self._backlog[:SLICE_BYTES])
            del self._backlog[:SLICE_BYTES]
            self._feed(part)
        return False
