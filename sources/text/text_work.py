"""Work whose time grows with a text does not run on the event loop: every other call would wait for it."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# A few milliseconds of chunking, the most expensive work on a text. Below that, a thread would cost more than it saves.
SHORT_CHARS = 10_000


async def run_text_work(chars: int, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Runs a function on texts of `chars` characters in total: at once if they are short, otherwise on a thread."""
    if chars <= SHORT_CHARS:
        return function(*args, **options)
    return await asyncio.to_thread(function, *args, **options)
