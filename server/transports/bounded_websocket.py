"""uvicorn's WebSocket protocol with limits on what a client can make the server parse and keep.

Nothing that a client sends after the upgrade request is parsed before the application has accepted the connection,
which it does only with a valid credential.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from loguru import logger
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request

from config.errors import FlorilegiumError, InvalidRequest
from config.settings import Settings
from server.admission import BEARER_SUBPROTOCOL, AdmittedRequest, IncomingRequest, with_config_defaults
from server.middleware import json_error
from server.protocol.connection import Connection
from server.protocol.messages import encode
from server.runtime import Runtime
from server.transports.bounded_http import SlicedInput
from server.transports.client_connections import ClientConnection, ClientConnections, Pace, UnreadOutput, connection_of
from server.transports.headers import NO_CONFIG, query_value
from sessions.store import new_session_id

# Fragments of one message, which may be empty and cost time anyway.
WS_FRAGMENTS_MAX = 1_024

# Pings and pongs on one WebSocket; every one is answered. Faster clients are disconnected.
WS_PINGS_PER_S = 20


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """Frames faster than the user's rate wait. More fragments or control frames than allowed close the connection.

    Settings and connections are class attributes, because uvicorn creates the instances.
    """

    settings: ClassVar[Settings]
    client_connections: ClassVar[ClientConnections]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._client: ClientConnection | None = None
        self._unread: UnreadOutput | None = None
        self._input = SlicedInput(super().data_received, self._can_parse)
        self._control_frames = Pace(WS_PINGS_PER_S, WS_PINGS_PER_S)
        self._wake_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # There is room: the connection was registered until its upgrade.
        self._client = self.client_connections.open(self.client[0] if self.client else "", transport)
        assert self._client is not None
        self._unread = UnreadOutput(self.transport, self._client, self.settings)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._unread is not None and self._client is not None:
            self._unread.stop()
            self._client.close()
            self._client = self._unread = None
        if self._wake_up is not None:
            self._wake_up.cancel()
        super().connection_lost(exc)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        # A malformed upgrade request has been answered with an error and has no scope.
        if not self.close_sent and self._client is not None:
            self._client.add_to(self.scope)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is not None:
            self._unread.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.stop()
        self._parse()

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)  # the upgrade request, whose size was checked as HTTP
            return
        self._input.add(data)
        self._parse()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.accept":
            self._parse()
        elif message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # uvicorn forgets this, and logs an error

    async def receive(self) -> Any:
        message = await self.queue.get()
        if self.queue.empty():
            self._parse()
        return message

    def _can_parse(self) -> bool:
        """Whether the next slice may be parsed: all earlier messages were taken, and the client reads our answers."""
        if not self.handshake_complete or not self.writable.is_set() or self.transport.is_closing():
            return False
        return (self.queue.empty() or self.close_sent) and not self._frames_wait_s()

    def _frames_wait_s(self) -> float:
        frames = self._client.frames if self._client is not None else None
        return frames.wait_s() if frames is not None else 0.0

    def _parse(self) -> None:
        has_more = self._input.parse()
        if self._input and (has_more or self._frames_wait_s()):
            delay_s = self._frames_wait_s()
            if self._wake_up is not None:
                self._wake_up.cancel()
            self._wake_up = self.loop.call_later(delay_s, self._parse)
        is_busy = bool(self._input) or (not self.queue.empty() and not self.close_sent)
        if is_busy == self.read_paused or self.transport.is_closing():
            return
        self.read_paused = is_busy
        if is_busy:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    # -- frames ----------------------------------------------------------------------------------------------------

    def handle_text(self, event: Frame) -> None:
        self._count_frame()
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        self._count_frame()
        super().handle_bytes(event)

    def handle_cont(self, event: Frame) -> None:
        self._count_frame()
        if len(self.frames) >= WS_FRAGMENTS_MAX:
            self._fail(f"a message may have {WS_FRAGMENTS_MAX} fragments")
            self.frames = [b""]
        super().handle_cont(event)

    def handle_ping(self) -> None:
        self._count_control_frame()
        super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        self._count_control_frame()
        super().handle_pong(event)

    def _count_frame(self) -> None:
        if self._client is not None and self._client.frames is not None:
            self._client.frames.count()

    def _count_control_frame(self) -> None:
        self._control_frames.count()
        if self._control_frames.wait_s():
            self._fail(f"at most {WS_PINGS_PER_S} pings per second")

    def _fail(self, reason: str) -> None:
        """Closes the connection. Frames that were parsed with this one are ignored."""
        if self.close_sent or self.transport.is_closing():
            return
        self._input.clear()
        self.conn.fail(CloseCode.POLICY_VIOLATION, reason)
        self.handle_parser_exception()


def bounded_websocket(settings: Settings, connections: ClientConnections) -> type[WebSocketsSansIOProtocol]:
    """Returns the protocol class for uvicorn."""
    return type("BoundedWebSocket", (BoundedWebSocket,), {"settings": settings, "client_connections": connections})


# -- websocket ---------------------------------------------------------------------------------------------------------
# MCP over WebSocket at `/mcp/ws`: subprotocol `mcp`, one JSON-RPC message per text frame, for both eras.
#
# A connection is accepted only with a valid credential; otherwise the upgrade is answered with an HTTP error.
# `docs/protocol.md` lists the close codes.

SUBPROTOCOL = "mcp"
_ACCESS_REVOKED = 4401
_SERVICE_RESTART = 1012
_UNSUPPORTED_DATA = 1003


class WebSocketTransport:
    """The ASGI application at `/mcp/ws`. `config_defaults` are those of requests at its address."""

    def __init__(
        self, runtime: Runtime, config_defaults: Mapping[str, Any] = NO_CONFIG, *, is_handshake_optional: bool = False
    ) -> None:
        self._runtime = runtime
        self._config_defaults = config_defaults
        self._admission = runtime.admission
        self._is_handshake_optional = is_handshake_optional

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

        connection = Connection(
            runtime.dispatcher,
            runtime.sessions,
            principal,
            lambda request_id, session_id: runtime.admission.context(request, session_id, request_id=request_id),
            send_message,
            partial(runtime.admission.readmit, principal),
            runtime.settings.fixed.connection_in_flight_max,
            request.profile,
            new_session_id(),
            f"WS {scope['path']}" if runtime.settings.log_requests else None,
            connection_of(scope),
            is_handshake_optional=self._is_handshake_optional,
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
