"""A server process whose tools do not stop when they are told to. It prints its URL and a token."""

import asyncio
import signal
import sys
import threading
import time
from pathlib import Path

from msgspec import Struct

from config.logging import configure
from server.app import build_app
from server.cli.serve import StopLimit
from server.lifespan import open_runtime
from server.metrics import Metrics
from server.protocol.call import Call
from server.protocol.catalog import Tool
from server.serving import run, serve
from tests.live import LiveServer, make_settings


class NoArguments(Struct, frozen=True):
    """The arguments of a stubborn tool."""


async def ignore_cancellation(call: Call, arguments: NoArguments) -> NoArguments:
    _announce_call()
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


async def block_thread(call: Call, arguments: NoArguments) -> NoArguments:
    _announce_call()
    await asyncio.to_thread(threading.Event().wait)
    return arguments


async def block_event_loop(call: Call, arguments: NoArguments) -> NoArguments:
    _announce_call()
    while True:
        time.sleep(0.01)


def _announce_call() -> None:
    sys.stdout.write("called\n")
    sys.stdout.flush()


TOOLS = {"ignore_cancellation": ignore_cancellation, "block_thread": block_thread, "block_event_loop": block_event_loop}


async def main(data_dir: Path) -> None:
    settings, metrics = make_settings(data_dir, shutdown_grace_s=1.0), Metrics()
    configure("warning", "text")
    # As in the command: uvicorn raises the signal again when it has stopped.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    async with open_runtime(settings, observer=metrics) as runtime:
        for name, handler in TOOLS.items():
            runtime.dispatcher.catalog.add_tool(
                Tool(name=name, title=name, description=name, input=NoArguments, handler=handler)
            )
        token = await LiveServer(runtime, "").token("ada")

        def announce(url: str) -> None:
            sys.stdout.write(f"{url} {token}\n")
            sys.stdout.flush()

        stop_limit = StopLimit(settings.shutdown_grace_s)
        await serve(build_app(runtime, metrics), settings, runtime.open_streams, announce, stop_limit.start)


if __name__ == "__main__":
    run(main(Path(sys.argv[1])))
