"""MCP over stdin and stdout: one JSON-RPC message a line, logs on stderr, the end of stdin is the end of the process.

The user is the operator's choice on the command line; there is no credential to check. Starlette is never imported.
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO

from auth.context import RequestContext, build_context
from auth.principal import Principal
from config.errors import TooLarge
from server.protocol.connection import Connection
from server.protocol.messages import encode, error_message
from server.runtime import Runtime
from server.transports.lines import lines, open_reader
from sessions.session import Session


async def serve_stdio(
    runtime: Runtime,
    principal: Principal,
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    profile: str | None = None,
) -> None:
    """Serves until stdin ends, then lets the running calls finish."""
    reader = await open_reader(stdin or sys.stdin.buffer, runtime.settings.body_max_bytes)
    output = stdout or sys.stdout.buffer

    async def write(message: Mapping[str, Any] | list[Any]) -> None:
        # A client that has gone has closed our input too, and that is where its end is noticed.
        with suppress(BrokenPipeError):
            output.write(encode(message) + b"\n")
            output.flush()

    async def admit() -> None:
        """Admits every message: the operator runs this process for one user, so there is nobody to protect."""

    def context(request_id: str, session: Session | None) -> RequestContext:
        return build_context(principal, runtime.data_root, request_id, session.id if session else None)

    limit = runtime.settings.connection_in_flight_max
    connection = Connection(runtime.dispatcher, runtime.sessions, principal, context, write, admit, limit, profile)
    try:
        async for line in lines(reader):
            if line is None:
                await write(error_message(None, TooLarge("the line", runtime.settings.body_max_bytes)))
            elif line.strip():
                await connection.receive(line)
        await connection.finish()
    finally:
        await connection.close()
