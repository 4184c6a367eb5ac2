"""MCP over WebSocket at `/mcp/ws`: subprotocol `mcp`, one JSON-RPC message a text frame. A custom transport, both eras.

Browsers and the known clients cannot set headers here, so the token may also come as a Basic password or as a
single-use ticket. Close codes: 4401 no (longer) authenticated, 4403 no scope, 1008 too many connections, 1009 frame
too large, 1012 server stopping.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from loguru import logger
from starlette.types import Receive, Scope, Send

from auth.authenticator import as_bearer
from auth.context import RequestContext, build_context
from auth.principal import READ, Principal
from config.errors import (
    FlorilegiumError,
    Forbidden,
    OriginRefused,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from server.doors.headers import AUTHORIZATION, Headers
from server.protocol.connection import Connection
from server.protocol.messages import encode
from server.runtime import Runtime
from sessions.session import Session

SUBPROTOCOL = "mcp"
UNAUTHENTICATED = 4401
FORBIDDEN = 4403
POLICY = 1008
UNSUPPORTED_DATA = 1003
RESTARTING = 1012
TRY_LATER = 1013


class WebSocketDoor:
    """The ASGI application behind `/mcp/ws`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        try:
            headers = Headers(scope["headers"])
            self._runtime.origins.check(headers.get(b"host"), headers.get(b"origin"))
        except (OriginRefused, FlorilegiumError):
            await send({"type": "websocket.close"})  # before the accept: the upgrade itself is answered with 403
            return
        await send({"type": "websocket.accept", "subprotocol": _subprotocol(scope)})
        try:
            principal = await self._authenticate(scope, headers)
            with self._runtime.presence.enter(principal):
                await self._converse(principal, receive, send)
        except FlorilegiumError as error:
            await send({"type": "websocket.close", "code": _close_code(error), "reason": error.message[:120]})

    async def _authenticate(self, scope: Scope, headers: Headers) -> Principal:
        ticket = parse_qs(scope["query_string"].decode("latin-1")).get("ticket")
        if ticket is not None:
            principal = self._runtime.tickets.redeem(ticket[0], time.time())
            await self._runtime.authenticator.recheck(principal)
        else:
            address = scope["client"][0] if scope.get("client") else ""
            sent = as_bearer(headers.get(AUTHORIZATION))
            principal = await self._runtime.authenticator.authenticate(sent, address=address)
        if not principal.scopes:
            raise Forbidden(READ)
        return principal

    async def _converse(self, principal: Principal, receive: Receive, send: Send) -> None:
        runtime = self._runtime

        async def write(message: Mapping[str, Any] | list[Any]) -> None:
            # A client that has gone is noticed where its messages are read; there is nobody left to be told here.
            with suppress(OSError):
                await send({"type": "websocket.send", "text": encode(message).decode()})

        async def admit() -> None:
            if runtime.presence.is_stopping:
                raise Unavailable("the server is stopping")
            await runtime.authenticator.recheck(principal)
            runtime.limits.user.take(principal.user_id)

        def context(request_id: str, session: Session | None) -> RequestContext:
            return build_context(principal, runtime.data_root, request_id, session.id if session else None)

        connection = Connection(
            runtime.dispatcher,
            runtime.sessions,
            principal,
            context,
            write,
            admit,
            runtime.settings.connection_in_flight_max,
        )
        reading = asyncio.create_task(_read(connection, receive))
        watching = asyncio.create_task(runtime.presence.wait_while_open(principal))
        try:
            await asyncio.wait((reading, watching), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await self._end(connection, send)
            elif (refused := reading.exception()) is not None:
                raise refused
        finally:
            reading.cancel()
            watching.cancel()
            await connection.close()

    async def _end(self, connection: Connection, send: Send) -> None:
        """Either access was withdrawn, and the line is cut, or the server stops, and running calls may finish."""
        if self._runtime.presence.is_stopping:
            await connection.finish()
            await send({"type": "websocket.close", "code": RESTARTING, "reason": "the server is stopping"})
        else:
            await send({"type": "websocket.close", "code": UNAUTHENTICATED, "reason": "access has ended"})


async def _read(connection: Connection, receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            logger.debug("websocket closed with {}", message.get("code"))
            return
        text = message.get("text")
        if text is None:
            raise _BinaryFrame("one JSON-RPC message per text frame")
        await connection.receive(text)


class _BinaryFrame(FlorilegiumError):
    """1003: this transport speaks text."""


def _subprotocol(scope: Scope) -> str | None:
    return SUBPROTOCOL if SUBPROTOCOL in scope.get("subprotocols", ()) else None


def _close_code(error: FlorilegiumError) -> int:
    match error:
        case Unauthenticated():
            return UNAUTHENTICATED
        case Forbidden():
            return FORBIDDEN
        case RateLimited():
            return TRY_LATER
        case Unavailable():
            return POLICY
        case _BinaryFrame():
            return UNSUPPORTED_DATA
        case _:
            return 1011
