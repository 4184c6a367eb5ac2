"""Run as a process by tests: `supervise` starts two workers of this program on a free port; `work` is one of them.

A worker answers each connection with its process id and how often it got SIGHUP. With `fail`, workers end at once,
and with `fail-one`, the second one does. With `fail-first`, the first serves only after the second has failed often.
"""

import asyncio
import os
import signal
import socket
import sys

from config.errors import ConfigurationError
from server.cli.serve import listening_socket
from server.worker_processes import WorkerProcesses, worker_place

HANG_S = 1.0


async def supervise(worker: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    command = [sys.executable, "-m", "tests.server.worker_program", worker]
    try:
        await WorkerProcesses(command, 2, [listener], None, lambda: print(f"port {port}", flush=True), HANG_S).run()
    except ConfigurationError as error:
        print(error.message, flush=True)
        sys.exit(2)


async def work(*, fails_second: bool = False, failures_before: int = 0) -> None:
    place = worker_place(os.environ)
    assert place is not None
    if fails_second and place.number == 1:
        sys.exit(3)
    while place.table().starts(1) <= failures_before:
        await asyncio.sleep(0.01)
    stopped, hangups = asyncio.Event(), 0

    def hang_up() -> None:
        nonlocal hangups
        hangups += 1

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"{os.getpid()} {hangups}".encode())
        writer.close()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, hang_up)
    async with await asyncio.start_server(answer, sock=listening_socket(place.sockets[0])):
        with place.stop_with_parent():
            place.report_ready()
            await stopped.wait()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["supervise", worker]:
            asyncio.run(supervise(worker))
        case ["work"]:
            asyncio.run(work())
        case ["fail-one"]:
            asyncio.run(work(fails_second=True))
        case ["fail-first"]:
            asyncio.run(work(fails_second=True, failures_before=4))
        case _:
            sys.exit(3)
