"""The protocol between the server and a service manager such as systemd: listening sockets, readiness, reloads, and
a watchdog for the event loop. See sd_listen_fds(3) and sd_notify(3).
"""

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager, suppress

from loguru import logger

from config.errors import ConfigurationError

# Passed descriptors start here.
_FIRST_DESCRIPTOR = 3


def inherited_sockets(descriptor: int | None, environ: MutableMapping[str, str]) -> Sequence[socket.socket]:
    """Returns the listening sockets that the parent process opened: the one given, or those of `LISTEN_FDS`.

    The variables are removed, so that processes started by this one do not take them for theirs.
    """
    count, pid = environ.pop("LISTEN_FDS", ""), environ.pop("LISTEN_PID", "")
    environ.pop("LISTEN_FDNAMES", None)
    if descriptor is not None:
        return [listening_socket(descriptor)]
    if not count.isdecimal() or pid != str(os.getpid()):
        return []
    return [listening_socket(number) for number in range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + int(count))]


def listening_socket(descriptor: int) -> socket.socket:
    """Returns the inherited socket. Raises ConfigurationError if the descriptor is something else."""
    try:
        inherited = socket.socket(fileno=descriptor)
        is_listening = inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ConfigurationError(f"file descriptor {descriptor}: expected a listening TCP socket") from error
    if not is_listening or inherited.family not in (socket.AF_INET, socket.AF_INET6):
        inherited.detach()
        raise ConfigurationError(f"file descriptor {descriptor}: expected a listening TCP socket")
    inherited.setblocking(False)
    inherited.set_inheritable(False)
    return inherited


class ServiceManager:
    """The process that started the server, if it wants to be notified (`NOTIFY_SOCKET`); otherwise nothing is sent."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        limit_us, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", str(os.getpid()))
        is_watched = limit_us.isdecimal() and pid == str(os.getpid())
        # The manager kills the server if it is not notified for this long. 0: it does not watch.
        self.watchdog_s = int(limit_us) / 1e6 if is_watched else 0.0

    def ready(self, url: str) -> None:
        self._send("READY=1", f"STATUS=Serving at {url}")

    def reloading(self) -> None:
        """Must be followed by `ready`."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=Reloading the settings")

    def stopping(self) -> None:
        self._send("STOPPING=1", "STATUS=Finishing running calls")

    @asynccontextmanager
    async def watchdog(self) -> AsyncIterator[None]:
        """Reports from the event loop, as long as it runs, that it does. A loop that is blocked is not reported."""
        if not self.watchdog_s:
            yield
            return

        async def report_alive() -> None:
            while True:
                self._send("WATCHDOG=1")
                # Half of the limit, as sd_watchdog_enabled(3) recommends.
                await asyncio.sleep(self.watchdog_s / 2)

        reporting = asyncio.create_task(report_alive())
        try:
            yield
        finally:
            reporting.cancel()
            with suppress(asyncio.CancelledError):
                await reporting

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        # A leading @ means an abstract address, which begins with a null byte.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.sendto("\n".join(lines).encode(), address)


# -- stop limit --------------------------------------------------------------------------------------------------------
# Ends the process when stopping takes too long, whatever keeps it alive: a call that ignores cancellation, a thread
# that never returns, a disk that does not answer.
#
# Nothing that was acknowledged is lost. To SQLite it is like a crash of the process, which every `durability`
# survives.

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
