"""The event loops of this process: those of uvloop if it is installed (the extra `fast`), or else of asyncio."""

import asyncio
import importlib


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    except ImportError:
        return asyncio.new_event_loop()
    return loop
