"""MCP over stdin and stdout: one JSON-RPC message per line, logs on stderr. The end of stdin ends the process.

The operator chooses the user on the command line, so there is no credential to check. Starlette is never imported.
"""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, BinaryIO

from auth.context import Principal, build_context
from config.errors import TooLarge
from server.protocol.connection import Connection
from server.protocol.messages import encode, error_message
from server.runtime import Runtime

# -- lines -------------------------------------------------------------------------------------------------------------
# Reads lines from a pipe without blocking the event loop and with a limit per line. A regular file is read whole.


async def open_reader(stream: BinaryIO, line_max_bytes: int) -> asyncio.StreamReader:
    """The event loop reads pipes, sockets and terminals. A thread reads files and /dev/null, which the event loop
    cannot watch."""
    reader = asyncio.StreamReader(limit=line_max_bytes)
    mode = os.fstat(stream.fileno()).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty():
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, stream)
    else:
        while data := await asyncio.to_thread(stream.read, 65_536):
            reader.feed_data(data)
        reader.feed_eof()
    return reader


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


async def serve_stdio(
    runtime: Runtime,
    principal: Principal,
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    profile: str | None = None,
) -> None:
    """Serves until stdin ends, then waits for the running calls."""
    settings, output = runtime.settings, stdout or sys.stdout.buffer

    async def send(message: Mapping[str, Any] | list[Any]) -> None:
        # A client that exits closes stdin too, which is where its end is noticed.
        with suppress(BrokenPipeError):
            output.write(encode(message) + b"\n")
            output.flush()

    async def admit() -> Principal:
        """The process serves one user and is started by the operator, so no limit applies."""
        return await runtime.authenticator.recheck(principal)

    connection = Connection(
        runtime.dispatcher,
        runtime.sessions,
        principal,
        lambda caller, request_id, session_id: build_context(
            caller, runtime.data_root, request_id, session_id, read_log=runtime.audit
        ),
        send,
        admit,
        settings.fixed.connection_in_flight_max,
        profile,
        log_label="stdio" if settings.log_requests else None,
    )
    try:
        async for line in lines(await open_reader(stdin or sys.stdin.buffer, settings.body_max_bytes)):
            if line is None:
                await send(error_message(None, TooLarge("the line", settings.body_max_bytes)))
            elif line.strip():
                await connection.receive(line)
        await connection.finish()
    finally:
        await connection.close()
