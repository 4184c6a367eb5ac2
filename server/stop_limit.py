"""Ends the process when stopping takes too long, whatever keeps it alive: a call that ignores cancellation, a thread
that never returns, a disk that does not answer.

Nothing that was acknowledged is lost. To SQLite it is like a crash of the process, which every `durability` survives.
"""

import os
import sys
import threading

from loguru import logger

# Even with a shorter grace period, libraries get this long to be closed.
_LIMIT_MIN_S = 1.0


class StopLimit:
    """A thread, because the event loop may be blocked. It is a daemon, so that it does not keep the process alive."""

    def __init__(self, grace_s: float) -> None:
        self.limit_s = max(_LIMIT_MIN_S, grace_s)
        self._timer = threading.Timer(self.limit_s, self._end_process)
        self._timer.daemon = True
        self._is_running = False

    def start(self) -> None:
        """Starts the time limit; further calls have no effect."""
        if not self._is_running:
            self._is_running = True
            self._timer.start()

    def _end_process(self) -> None:
        logger.warning("the server did not stop within {:g} s; ending the process", self.limit_s)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
