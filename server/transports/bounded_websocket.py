"""uvicorn's WebSocket protocol with limits on what a client can make the server parse and keep.

Nothing that a client sends after the upgrade request is parsed before the application has accepted the connection,
which it does only with a valid credential.
"""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request

from config.settings import Settings
from server.transports.bounded_http import closing_response, parse_slices
from server.transports.client_connections import CONNECTION, ClientConnection, ClientConnections, Pace

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
        # Input that is not parsed yet.
        self._backlog = bytearray()
        self._control_frames = Pace(WS_PINGS_PER_S, WS_PINGS_PER_S)
        self._wake_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # There is room: the connection was registered until its upgrade.
        self._client = self.client_connections.open(self.client[0] if self.client else "", self.transport)
        assert self._client is not None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._wake_up is not None:
            self._wake_up.cancel()
        super().connection_lost(exc)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        # A malformed upgrade request has been answered with an error and has no scope.
        if not self.close_sent and self._client is not None:
            scope: Any = self.scope
            scope["extensions"] = {**scope.get("extensions", {}), CONNECTION: self._client}

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._client is not None:
            self._client.begin_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._client is not None:
            self._client.end_unread()
        self._parse()

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)  # the upgrade request, whose size was checked as HTTP
            if not self.handshake_initiated:
                # The library does not answer what it cannot parse: a body, or more headers than it takes.
                self.transport.write(closing_response(b"400 Bad Request", b""))
                self.transport.close()
            return
        self._backlog += data
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
        has_more = parse_slices(self._backlog, super().data_received, self._can_parse)
        if self._backlog and (has_more or self._frames_wait_s()):
            delay_s = self._frames_wait_s()
            if self._wake_up is not None:
                self._wake_up.cancel()
            self._wake_up = self.loop.call_later(delay_s, self._parse)
        is_busy = bool(self._backlog) or (not self.queue.empty() and not self.close_sent)
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
        self._backlog.clear()
        self.conn.fail(CloseCode.POLICY_VIOLATION, reason)
        self.handle_parser_exception()


def bounded_websocket(settings: Settings, connections: ClientConnections) -> type[WebSocketsSansIOProtocol]:
    """Returns the protocol class for uvicorn."""
    return type("BoundedWebSocket", (BoundedWebSocket,), {"settings": settings, "client_connections": connections})
