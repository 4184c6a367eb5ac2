"""The server of `bench.servers.ours` with the demo library, which counts what one call executes.

A line on standard input starts the count, the next one ends it; each is answered with a line. Python functions and
functions written in C are counted on all threads, and so are the statements that SQLite is given.
"""

import asyncio
import os
import sqlite3
import sys
import threading
from types import FrameType
from typing import Any

import msgspec
from msgspec import Struct

from auth.context import READ, WRITE, ClientId, Principal, build_context
from bench.servers import Announcement, announce
from bench.servers.ours import ECHO, create_account, settings_for
from config.logging import configure
from server.app import build_app
from server.lifespan import open_runtime
from server.metrics import Metrics
from server.serving import run, serve
from sources.demo import fill

_EXECUTE = frozenset(("execute", "executemany", "executescript"))


class Counts(Struct):
    python: int = 0
    c: int = 0
    statements: int = 0


class Counter:
    def __init__(self) -> None:
        self._counts: Counts | None = None
        # Threads that exist already are not profiled, so this comes before the runtime starts any.
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def toggle(self) -> None:
        """Starts or ends a count, and prints a line."""
        counts, self._counts = self._counts, None
        sys.stdout.buffer.write(msgspec.json.encode(counts) + b"\n")
        sys.stdout.buffer.flush()
        if counts is None:
            self._counts = Counts()

    def _profile(self, _frame: FrameType, event: str, argument: Any) -> None:
        counts = self._counts
        if counts is None:
            return
        if event == "call":
            counts.python += 1
        elif event == "c_call":
            counts.c += 1
            if argument.__name__ in _EXECUTE and isinstance(argument.__self__, sqlite3.Connection | sqlite3.Cursor):
                counts.statements += 1


async def main(data_dir: str) -> None:
    counter = Counter()
    settings = settings_for(data_dir)
    configure(settings.log_level, settings.log_format)
    metrics = Metrics()
    async with open_runtime(settings, observer=metrics) as runtime:
        runtime.dispatcher.catalog.add_tool(ECHO)
        account = await create_account(runtime, "ada", (READ, WRITE))
        user = await runtime.registry.user_by_name("ada")
        assert user is not None
        principal = Principal(user.id, user.name, ClientId("bench"), frozenset((READ, WRITE)), "jwt", "fill")
        async with runtime.libraries.library(build_context(principal, runtime.data_root, "fill")) as library:
            await fill(library)

        def ready(url: str) -> None:
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), read_line)
            announce(Announcement(url, (account,)))

        def read_line() -> None:
            if os.read(sys.stdin.fileno(), 1) == b"\n":
                counter.toggle()

        await serve(build_app(runtime, metrics), settings, runtime.open_streams, ready)


if __name__ == "__main__":
    run(main(sys.argv[1]))
