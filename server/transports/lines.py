"""Reads lines from a pipe without blocking the event loop and with a limit per line. A regular file is read whole."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from typing import BinaryIO


async def open_reader(stream: BinaryIO, line_max_bytes: int) -> asyncio.StreamReader:
    """The event loop reads pipes, sockets and terminals. A thread reads files and /dev/null, which the event loop
    cannot watch."""
    reader = asyncio.StreamReader(limit=line_max_bytes)
    if _can_be_watched(stream):
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, stream)
    else:
        await _feed(reader, stream)
    return reader


def _can_be_watched(stream: BinaryIO) -> bool:
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty()


async def _feed(reader: asyncio.StreamReader, stream: BinaryIO) -> None:
    while data := await asyncio.to_thread(stream.read, 65_536):
        reader.feed_data(data)
    reader.feed_eof()


async def lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes | None]:
    """Yields each line, and None for a line that was too long and was skipped."""
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as end:
            if end.partial.strip():
                yield end.partial
            return
        except asyncio.LimitOverrunError as overrun:
            await _skip_line(reader, overrun.consumed)
            yield None
        else:
            yield line


async def _skip_line(reader: asyncio.StreamReader, consumed: int) -> None:
    """Discards the rest of a line that is too long, piece by piece."""
    while True:
        await reader.readexactly(consumed)
        try:
            await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as overrun:
            consumed = overrun.consumed
        except asyncio.IncompleteReadError:
            return
        else:
            return
