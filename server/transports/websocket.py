"""MCP over WebSocket at `/mcp/ws`: subprotocol `mcp`, one JSON-RPC message per text frame, for both eras.

A connection is accepted only with a valid credential; otherwise the upgrade is answered with an HTTP error.
`docs/protocol.md` lists the close codes.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from loguru import logger
from starlette.types import Message, Receive, Scope, Send

from aggregator.libraries import own_only
from auth.context import Principal, RequestContext, SessionId
from config.errors import FlorilegiumError, InvalidRequest
from server.admission import BEARER_SUBPROTOCOL, AdmittedRequest, IncomingRequest, with_config_defaults
from server.error_responses import json_error
from server.protocol.connection import Connection
from server.protocol.messages import encode
from server.runtime import Runtime
from server.transports.client_connections import connection_of
from server.transports.headers import NO_CONFIG, query_value
from sessions.store import new_session_id

SUBPROTOCOL = "mcp"
_ACCESS_REVOKED = 4401
_SERVICE_RESTART = 1012
_UNSUPPORTED_DATA = 1003


class WebSocketTransport:
    """The ASGI application at `/mcp/ws`. `config_defaults` are those of requests at its address."""

    def __init__(
        self, runtime: Runtime, config_defaults: Mapping[str, Any] = NO_CONFIG, *, is_for_tldw: bool = False
    ) -> None:
        self._runtime = runtime
        self._config_defaults = config_defaults
        self._admission = runtime.admission
        self._is_for_tldw = is_for_tldw

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        # The client may disconnect before it is answered.
        with suppress(OSError):
            try:
                incoming = IncomingRequest.from_scope(scope)
                # The profile that the address names, in its path or in its query string.
                in_path, in_query = scope["path_params"].get("profile"), query_value(scope["query_string"], "profile")
                if in_path is not None and in_query is not None:
                    raise InvalidRequest("profile: expected it in the path or in the query string, got both")
                admitted = await self._admission.admit_connection(incoming, in_path or in_query)
                admitted = with_config_defaults(admitted, self._config_defaults)
                with self._runtime.open_streams.enter(admitted.principal):
                    # One of the offered subprotocols (RFC 6455 section 4.2.2), never the one that is a token.
                    offered = scope.get("subprotocols", ())
                    bearer = next((name for name in offered if name.lower() == BEARER_SUBPROTOCOL), None)
                    subprotocol = SUBPROTOCOL if SUBPROTOCOL in offered else bearer
                    await send({"type": "websocket.accept", "subprotocol": subprotocol})
                    await self._serve(admitted, scope, receive, send)
            except FlorilegiumError as error:
                # Answers the upgrade request with an HTTP error.
                response = json_error(self._runtime.settings, error)
                start = {
                    "type": "websocket.http.response.start",
                    "status": response.status_code,
                    "headers": response.raw_headers,
                }
                await send(start)
                await send({"type": "websocket.http.response.body", "body": bytes(response.body)})

    async def _serve(self, request: AdmittedRequest, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one accepted connection until the client or the server closes it."""
        runtime, principal = self._runtime, request.principal

        async def send_message(message: Mapping[str, Any] | list[Any]) -> None:
            # A disconnect is noticed where messages are read, so an error here can be ignored.
            with suppress(OSError):
                await send({"type": "websocket.send", "text": encode(message).decode()})

        def build_context(caller: Principal, request_id: str, session_id: SessionId | None) -> RequestContext:
            context = runtime.admission.context(request, session_id, request_id=request_id, principal=caller)
            # tldw knows of one library.
            return own_only(context) if self._is_for_tldw else context

        connection = Connection(
            runtime.dispatcher,
            runtime.sessions,
            principal,
            build_context,
            send_message,
            partial(runtime.admission.readmit, principal),
            runtime.settings.fixed.connection_in_flight_max,
            request.profile,
            new_session_id(),
            f"WS {scope['path']}" if runtime.settings.log_requests else None,
            connection_of(scope),
            is_for_tldw=self._is_for_tldw,
        )
        reading = asyncio.create_task(_read(connection, receive))
        watching = asyncio.create_task(runtime.open_streams.wait_while_open(principal))
        try:
            await asyncio.wait((reading, watching), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                # Closes the connection at once if access was revoked, or after its running calls if the server stops.
                if runtime.open_streams.is_stopping:
                    await connection.finish()
                    code, reason = _SERVICE_RESTART, "the server is stopping"
                else:
                    code, reason = _ACCESS_REVOKED, "access was revoked or expired"
                await send({"type": "websocket.close", "code": code, "reason": reason})
            elif (closing := reading.result()) is not None:
                await send(closing)
        finally:
            reading.cancel()
            watching.cancel()
            await connection.close()


async def _read(connection: Connection, receive: Receive) -> Message | None:
    """Reads until the client disconnects, or returns the message that closes the connection."""
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            logger.debug("websocket closed with {}", message.get("code"))
            return None
        text = message.get("text")
        if text is None:
            reason = "expected one JSON-RPC message per text frame, got a binary frame"
            return {"type": "websocket.close", "code": _UNSUPPORTED_DATA, "reason": reason}
        await connection.receive(text)
