"""MCP over WebSocket at `/mcp/ws`: subprotocol `mcp`, one JSON-RPC message per text frame, for both eras.

`server.error_responses` and `docs/protocol.md` list the close codes.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from loguru import logger
from starlette.types import Receive, Scope, Send

from auth.context import RequestContext, SessionId
from config.errors import FlorilegiumError, InvalidRequest
from server.admission import AdmittedRequest, IncomingRequest
from server.error_responses import BinaryFrame, websocket_close
from server.protocol.connection import Connection
from server.protocol.messages import encode
from server.runtime import Runtime
from server.transports.request_options import query_value
from sessions.session import new_session_id

SUBPROTOCOL = "mcp"
_ACCESS_REVOKED = 4401
_SERVICE_RESTART = 1012


class WebSocketTransport:
    """The ASGI application at `/mcp/ws`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._admission = runtime.admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        try:
            request = IncomingRequest.from_scope(scope)
            self._admission.check_origin(request.headers)
        except FlorilegiumError:
            await send({"type": "websocket.close"})  # before the accept, so the upgrade is answered with 403
            return
        await send({"type": "websocket.accept", "subprotocol": _subprotocol(scope)})
        try:
            admitted = await self._admission.admit_connection(request, _profile(scope))
            with self._runtime.open_streams.enter(admitted.principal):
                await _ConnectionHandler(self._runtime, admitted, scope["path"], send).serve(receive)
        except FlorilegiumError as error:
            await send(websocket_close(error))


class _ConnectionHandler:
    """Serves one accepted connection until the client or the server closes it."""

    def __init__(self, runtime: Runtime, request: AdmittedRequest, path: str, send: Send) -> None:
        self._runtime = runtime
        self._request = request
        self._send_raw = send
        self._connection = Connection(
            runtime.dispatcher,
            runtime.sessions,
            request.principal,
            self._context,
            self._send,
            self._readmit,
            runtime.settings.connection_in_flight_max,
            request.profile,
            new_session_id(),
            f"WS {path}" if runtime.settings.log_requests else None,
        )

    async def serve(self, receive: Receive) -> None:
        reading = asyncio.create_task(_read(self._connection, receive))
        watching = asyncio.create_task(self._runtime.open_streams.wait_while_open(self._request.principal))
        try:
            await asyncio.wait((reading, watching), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await self._close()
            elif (error := reading.exception()) is not None:
                raise error
        finally:
            reading.cancel()
            watching.cancel()
            await self._connection.close()

    async def _close(self) -> None:
        """Closes the connection at once if access was revoked, or after its running calls if the server stops."""
        if self._runtime.open_streams.is_stopping:
            await self._connection.finish()
            code, reason = _SERVICE_RESTART, "the server is stopping"
        else:
            code, reason = _ACCESS_REVOKED, "access was revoked or expired"
        await self._send_raw({"type": "websocket.close", "code": code, "reason": reason})

    async def _send(self, message: Mapping[str, Any] | list[Any]) -> None:
        # A disconnect is noticed where messages are read, so an error here can be ignored.
        with suppress(OSError):
            await self._send_raw({"type": "websocket.send", "text": encode(message).decode()})

    async def _readmit(self) -> None:
        await self._runtime.admission.readmit(self._request.principal)

    def _context(self, request_id: str, session_id: SessionId | None) -> RequestContext:
        return self._runtime.admission.context(self._request, session_id, request_id=request_id)


async def _read(connection: Connection, receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            logger.debug("websocket closed with {}", message.get("code"))
            return
        text = message.get("text")
        if text is None:
            raise BinaryFrame("expected one JSON-RPC message per text frame, got a binary frame")
        await connection.receive(text)


def _profile(scope: Scope) -> str | None:
    """Returns the profile that the address names, in its path or in its query string."""
    in_path, in_query = scope["path_params"].get("profile"), query_value(scope["query_string"], "profile")
    if in_path is not None and in_query is not None:
        raise InvalidRequest("profile: expected it in the path or in the query string, got both")
    return in_path or in_query


def _subprotocol(scope: Scope) -> str | None:
    return SUBPROTOCOL if SUBPROTOCOL in scope.get("subprotocols", ()) else None
