"""MCP over stdin and stdout: one JSON-RPC message per line, logs on stderr. The end of stdin ends the process.

The operator chooses the user on the command line, so there is no credential to check. Starlette is never imported.
"""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO

from auth.context import RequestContext, SessionId, build_context
from auth.principal import Principal
from config.errors import TooLarge
from server.protocol.connection import Connection
from server.protocol.messages import encode, error_message
from server.read_ahead import CallNeeds
from server.runtime import Runtime
from server.transports.lines import lines, open_reader


async def serve_stdio(
    runtime: Runtime,
    principal: Principal,
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    profile: str | None = None,
) -> None:
    """Serves until stdin ends, then waits for the running calls."""
    reader = await open_reader(stdin or sys.stdin.buffer, runtime.settings.body_max_bytes)
    await _StdioServer(runtime, principal, stdout or sys.stdout.buffer, profile).serve(reader)


class _StdioServer:
    def __init__(self, runtime: Runtime, principal: Principal, output: BinaryIO, profile: str | None) -> None:
        self._runtime = runtime
        self._principal = principal
        self._output = output
        self._connection = Connection(
            runtime.dispatcher,
            runtime.sessions,
            principal,
            self._context,
            self._send,
            self._admit,
            runtime.settings.connection_in_flight_max,
            profile,
            log_label="stdio" if runtime.settings.log_requests else None,
        )

    async def serve(self, reader: asyncio.StreamReader) -> None:
        try:
            async for line in lines(reader):
                if line is None:
                    error = TooLarge("the line", self._runtime.settings.body_max_bytes)
                    await self._send(error_message(None, error))
                elif line.strip():
                    await self._connection.receive(line)
            await self._connection.finish()
        finally:
            await self._connection.close()

    async def _send(self, message: Mapping[str, Any] | list[Any]) -> None:
        # A client that exits closes stdin too, which is where its end is noticed.
        with suppress(BrokenPipeError):
            self._output.write(encode(message) + b"\n")
            self._output.flush()

    async def _admit(self, needs: CallNeeds) -> None:
        """Admits every message. The process serves one user and is started by the operator, so no limit applies."""

    def _context(self, request_id: str, session_id: SessionId | None) -> RequestContext:
        return build_context(
            self._principal, self._runtime.data_root, request_id, session_id, read_log=self._runtime.audit
        )
