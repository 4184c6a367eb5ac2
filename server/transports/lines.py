"""Lines of a pipe, read without blocking the loop or holding more than one line's limit; a plain file is read whole."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from typing import BinaryIO


async def open_reader(stream: BinaryIO, line_max_bytes: int) -> asyncio.StreamReader:
    """A pipe, socket or terminal is read by the loop; a plain file, which the loop cannot watch, by a thread."""
    reader = asyncio.StreamReader(limit=line_max_bytes)
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        await _feed(reader, stream)
    else:
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, stream)
    return reader


async def _feed(reader: asyncio.StreamReader, stream: BinaryIO) -> None:
    while piece := await asyncio.to_thread(stream.read, 65_536):
        reader.feed_data(piece)
    reader.feed_eof()


async def lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes | None]:
    """Each line; None in place of one that was too long and has been skipped."""
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
    """Throws away the rest of an overlong line, piece by piece."""
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
