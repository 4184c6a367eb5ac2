"""MCP over WebSocket at `/mcp/ws`: subprotocol `mcp`, one JSON-RPC message a text frame. A custom transport, both eras.

Browsers and the known clients cannot set headers here, so the token may also come as a Basic password or as a
single-use ticket. Close codes: 4400 an address we cannot read, 4401 no (longer) authenticated, 4403 no scope, 4404 no
such profile, 1008 too many connections, 1009 frame too large, 1012 server stopping.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from loguru import logger
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from auth.authenticator import basic_to_bearer
from auth.context import RequestContext, build_context
from auth.principal import READ, Principal
from config.errors import (
    FlorilegiumError,
    Forbidden,
    InvalidRequest,
    NotFound,
    OriginRejected,
    ProtocolError,
    RateLimited,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from server.protocol.connection import Connection
from server.protocol.messages import encode
from server.runtime import Runtime
from server.transports.headers import AUTHORIZATION, Headers
from server.transports.request_options import config_of, query_value, query_values
from sessions.session import Session

SUBPROTOCOL = "mcp"
BAD_ADDRESS = 4400
UNAUTHENTICATED = 4401
FORBIDDEN = 4403
NO_SUCH_PROFILE = 4404
POLICY = 1008
UNSUPPORTED_DATA = 1003
RESTARTING = 1012
TRY_LATER = 1013
# RFC 6455 section 5.5: a control frame holds 125 bytes, two of which are the code.
_REASON_MAX_BYTES = 123


class Visit(Struct, frozen=True):
    """An upgrade that passed the door. `profile` is the one that its address names, if it names one."""

    principal: Principal
    profile: str | None
    config: Mapping[str, Any]


class WebSocketTransport:
    """The ASGI application behind `/mcp/ws`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        try:
            headers = Headers(scope["headers"])
            self._runtime.origins.check(headers.get(b"host"), headers.get(b"origin"))
        except (OriginRejected, FlorilegiumError):
            await send({"type": "websocket.close"})  # before the accept: the upgrade itself is answered with 403
            return
        await send({"type": "websocket.accept", "subprotocol": _subprotocol(scope)})
        try:
            profile = self._profile(scope)
            principal = await self._authenticate(scope, headers)
            config = config_of(headers, scope["query_string"], self._runtime.settings.request_config_max_bytes)
            visit = Visit(principal, profile, config)
            with self._runtime.open_streams.enter(principal):
                await self._converse(visit, receive, send)
        except FlorilegiumError as error:
            reason = error.message.encode()[:_REASON_MAX_BYTES].decode(errors="ignore")
            await send({"type": "websocket.close", "code": _close_code(error), "reason": reason})

    async def _authenticate(self, scope: Scope, headers: Headers) -> Principal:
        tickets = query_values(scope["query_string"], "ticket")
        if tickets:
            principal = self._runtime.tickets.redeem(tickets[0], time.time())
            await self._runtime.authenticator.recheck(principal)
        else:
            address = scope["client"][0] if scope.get("client") else ""
            sent = basic_to_bearer(headers.get(AUTHORIZATION))
            principal = await self._runtime.authenticator.authenticate(sent, address=address)
        if not principal.scopes:
            raise Forbidden(READ)
        return principal

    def _profile(self, scope: Scope) -> str | None:
        below, asked = scope["path_params"].get("profile"), query_value(scope["query_string"], "profile")
        if below is not None and asked is not None:
            raise InvalidRequest("the address names a profile twice; expected it once")
        profile = below or asked
        if profile is not None:
            self._runtime.dispatcher.profiles.get(profile)
        return profile

    async def _converse(self, visit: Visit, receive: Receive, send: Send) -> None:
        runtime, principal = self._runtime, visit.principal

        async def write(message: Mapping[str, Any] | list[Any]) -> None:
            # A client that has gone is noticed where its messages are read; there is nobody left to be told here.
            with suppress(OSError):
                await send({"type": "websocket.send", "text": encode(message).decode()})

        async def admit() -> None:
            if runtime.open_streams.is_stopping:
                raise Unavailable("the server is stopping")
            await runtime.authenticator.recheck(principal)
            runtime.limits.user.take(principal.user_id)

        def context(request_id: str, session: Session | None) -> RequestContext:
            session_id = session.id if session else None
            return build_context(principal, runtime.data_root, request_id, session_id, visit.config)

        connection = Connection(
            runtime.dispatcher,
            runtime.sessions,
            principal,
            context,
            write,
            admit,
            runtime.settings.connection_in_flight_max,
            visit.profile,
        )
        reading = asyncio.create_task(_read(connection, receive))
        watching = asyncio.create_task(runtime.open_streams.wait_while_open(principal))
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
        if self._runtime.open_streams.is_stopping:
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
        case NotFound():
            return NO_SUCH_PROFILE
        case ProtocolError() | TooLarge():
            return BAD_ADDRESS
        case _:
            return 1011
