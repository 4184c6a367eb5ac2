"""One process at a time reads a followed source: a server, one of its workers, or a command.

The lease is stored in the library, which all processes of a deployment share. It is extended while the run lasts. After
a process was killed, the next one on the same machine takes the lease over at once, and others when it has ended.
"""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from config.errors import Conflict, FlorilegiumError
from sources.storage.contract import Bookmarks

# Longer than a busy machine delays an extension.
_LEASE_S = 60.0
_EXTENDED_EVERY_S = 15.0
_RETRY_PAUSE_S = 0.1


class SourceBusy(Conflict):
    """Another process reads the source."""


@asynccontextmanager
async def run_lease(bookmarks: Bookmarks, follow_id: str, *, wait_s: float = 0.0) -> AsyncIterator[None]:
    """Raises SourceBusy if the source is still being read after `wait_s`, by another process or another task."""
    owner = f"{socket.gethostname()} {os.getpid()} {_started_at(os.getpid())} {secrets.token_hex(4)}"
    extending = asyncio.create_task(_extend(bookmarks, follow_id, owner))
    try:
        # A claim that is cancelled may have been stored, so that it is released as well.
        await _claim(bookmarks, follow_id, owner, wait_s)
        yield
    finally:
        extending.cancel()
        await asyncio.gather(extending, return_exceptions=True)
        with suppress(FlorilegiumError):  # it ends by itself
            await asyncio.shield(bookmarks.release(follow_id, owner))


async def _claim(bookmarks: Bookmarks, follow_id: str, owner: str, wait_s: float) -> None:
    due = time.monotonic() + wait_s
    while not await _try_claim(bookmarks, follow_id, owner):
        if time.monotonic() >= due:
            raise SourceBusy("the source is being read; try again in a moment")
        await asyncio.sleep(_RETRY_PAUSE_S)


async def _try_claim(bookmarks: Bookmarks, follow_id: str, owner: str) -> bool:
    holder = await bookmarks.claim(follow_id, owner, _LEASE_S)
    if holder != owner and _has_ended(holder):
        holder = await bookmarks.claim(follow_id, owner, _LEASE_S, instead_of=holder)
    return holder == owner


async def _extend(bookmarks: Bookmarks, follow_id: str, owner: str) -> None:
    while True:
        await asyncio.sleep(_EXTENDED_EVERY_S)
        with suppress(FlorilegiumError):  # it is repeated
            await bookmarks.claim(follow_id, owner, _LEASE_S)


def _has_ended(owner: str) -> bool:
    """Whether the process was one of this machine and no longer exists."""
    host, process, started_at, _ = owner.split(" ")
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return started_at != _started_at(int(process))


def _started_at(process: int) -> str:
    """Returns when a process was started, which distinguishes it from a later one with the same number. Only Linux
    says so; see proc(5)."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return "unknown"
