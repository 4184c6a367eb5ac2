"""Connects a stdio client to a remote server: lines become frames of the server's WebSocket, and back.

Messages of both eras are passed on unchanged. If the connection is lost, the bridge answers pending requests with an
error, reconnects and repeats the legacy handshake, so that the client's session continues. The token is sent to the
server only. The server that runs on the data directory is reached through its local socket instead, without a token;
when that server stops, so does the bridge.
"""

import asyncio
import os
import random
import socket
import ssl
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, BinaryIO
from urllib.parse import SplitResult, urlsplit

from loguru import logger
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from config.errors import ConfigurationError, FlorilegiumError, ParseError, TooLarge, Unauthenticated, Unavailable
from config.settings import Settings, is_loopback
from server.protocol.messages import (
    MalformedMessage,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    encode,
    error_message,
    notification_message,
    read_id,
    read_message,
    request_message,
)
from server.transports.stdio import lines, open_reader
from server.version import VERSION

# -- bridge state ------------------------------------------------------------------------------------------------------
# The state of a bridge between a stdio client and a server: pending requests, and the handshake to repeat.
#
# Performs no I/O: lines and frames in, lines and frames out. Messages are passed on unchanged.

# It gets a response only when the client ends it, so the client does not wait for one.
_LONG_LIVED_METHOD = "subscriptions/listen"


class LegacyHandshake(Struct, frozen=True):
    """A successful legacy `initialize`: its parameters and the negotiated protocol version."""

    params: Mapping[str, Any]
    version: Any


class BridgeState:
    """One client, and its successive connections to the server."""

    def __init__(self) -> None:
        self._client_requests: dict[RequestId, str] = {}
        self._server_requests: set[RequestId] = set()
        self._pending_initialize: tuple[RequestId, Mapping[str, Any]] | None = None
        self._handshake: LegacyHandshake | None = None
        self._is_initialized = False
        self._repeat_count = 0
        self._repeat_id: RequestId | None = None

    @property
    def has_pending_requests(self) -> bool:
        """Whether the client waits for a response."""
        return any(method != _LONG_LIVED_METHOD for method in self._client_requests.values())

    @property
    def is_resuming(self) -> bool:
        """Whether a repeated handshake has not been answered yet."""
        return self._repeat_id is not None

    def from_client(self, line: bytes) -> str | None:
        """Returns the frame for the server, or None for a response that the server no longer expects."""
        value = decode(line)
        if isinstance(value, list):
            for message in _messages(value):
                self._track_client_message(message)
        elif not self._track_client_message(read_message(value)):
            return None
        return line.decode().strip()

    def from_server(self, frame: str) -> bytes | None:
        """Returns the line for the client, or None for a message that concerns only the bridge."""
        value = decode(frame)
        for message in _messages(value if isinstance(value, list) else [value]):
            match message:
                case Request():
                    self._server_requests.add(message.id)
                case Notification("notifications/cancelled", {"requestId": str() | int() as request_id}):
                    self._server_requests.discard(request_id)
                case Response(id=request_id) if request_id == self._repeat_id:
                    self._repeat_id = None
                    # The client keeps using the version of its own handshake, so the server must negotiate the same
                    # version again.
                    assert self._handshake is not None
                    if message.result is None or message.result.get("protocolVersion") != self._handshake.version:
                        self._handshake = None
                        raise Unavailable("the server did not resume the session; restart the client")
                    return None
                case Response():
                    self._client_requests.pop(message.id, None)
                    if self._pending_initialize is not None and message.id == self._pending_initialize[0]:
                        if message.result is not None:
                            params = self._pending_initialize[1]
                            self._handshake = LegacyHandshake(params, message.result.get("protocolVersion"))
                        self._pending_initialize = None
        # In JSON, line breaks occur only between tokens.
        return frame.replace("\r", " ").replace("\n", " ").encode() + b"\n"

    def reject(self, frame: str, error: FlorilegiumError) -> list[dict[str, Any]]:
        """Returns the error responses to the requests in a frame that cannot be sent."""
        value = decode(frame)
        messages = _messages(value if isinstance(value, list) else [value])
        request_ids = [message.id for message in messages if isinstance(message, Request)]
        for request_id in request_ids:
            self._client_requests.pop(request_id, None)
        return [error_message(request_id, error) for request_id in request_ids]

    def disconnect(self, error: FlorilegiumError) -> list[dict[str, Any]]:
        """Returns the messages that tell the client that the connection was lost."""
        responses = [error_message(request_id, error) for request_id in self._client_requests]
        # The server's own requests end with its connection; a new connection may reuse their ids.
        cancellations = [
            notification_message("notifications/cancelled", {"requestId": request_id, "reason": error.message})
            for request_id in self._server_requests
        ]
        self._client_requests.clear()
        self._server_requests.clear()
        self._pending_initialize = self._repeat_id = None
        return responses + cancellations

    def repeat_handshake(self) -> dict[str, Any] | None:
        """Returns the `initialize` to send on a new connection; None in the modern era, which has no handshake."""
        if self._handshake is None:
            return None
        self._repeat_count += 1
        self._repeat_id = f"florilegium-bridge-{self._repeat_count}"
        return request_message(self._repeat_id, "initialize", self._handshake.params)

    def repeat_initialized(self) -> dict[str, Any] | None:
        """Returns the notification that completes a repeated handshake, if the client had completed its own."""
        if self._handshake is None or not self._is_initialized:
            return None
        return notification_message("notifications/initialized", {})

    def _track_client_message(self, message: Message) -> bool:
        """Records a message of the client. Returns False if it must not be passed on."""
        match message:
            case Request():
                self._client_requests[message.id] = message.method
                if message.method == "initialize":
                    self._pending_initialize, self._is_initialized = (message.id, message.params), False
            case Notification("notifications/initialized"):
                self._is_initialized = True
            case Notification("notifications/cancelled", {"requestId": str() | int() as request_id}):
                self._client_requests.pop(request_id, None)  # a cancelled request gets no response
            case Response():
                is_expected = message.id in self._server_requests
                self._server_requests.discard(message.id)
                return is_expected
        return True


def _messages(values: list[Any]) -> Iterator[Message]:
    """Yields the well-formed messages. No request waits for the others, such as an error without an id."""
    for value in values:
        with suppress(MalformedMessage):
            yield read_message(value)


SUBPROTOCOL = Subprotocol("mcp")
# For the connection, TLS and the upgrade, and then for the answer to a repeated handshake.
OPEN_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 2.0
# How long a new connection waits for a rejection, before all queued messages are sent.
REJECTION_WAIT_S = 0.25
# The delay between two attempts to connect.
DELAY_MIN_S = 0.25
DELAY_MAX_S = 30.0
# A rejected credential is retried rarely: servers may treat repetition as an attack and block the address.
DELAY_REJECTED_S = 15.0
_REJECTED_STATUS = 401
_REJECTED_CLOSE_CODE = 4401
# They usually mean that the path is not that of an MCP endpoint.
_WRONG_ADDRESS_STATUSES = (403, 404)
_REASON_MAX_CHARS = 120


class RemoteServer(Struct, frozen=True):
    """The WebSocket address of a server, and the token for it; or an open connection to the socket of the data
    directory, and the headers for it."""

    url: str
    token: str
    local_socket: socket.socket | None = None
    local_headers: Mapping[str, str] = {}

    @classmethod
    def at(cls, mcp_url: str, token: str = "", *, allow_insecure: bool = False) -> "RemoteServer":
        """Returns the server whose MCP endpoint is `mcp_url`."""
        parts = _split(mcp_url)
        if parts is None:
            raise ConfigurationError(f"--remote: expected a URL such as https://host/mcp, got {mcp_url[:80]!r}")
        if parts.scheme == "http" and not is_loopback(parts.hostname or "") and not allow_insecure:
            raise ConfigurationError(
                f"--remote: the connection to {parts.hostname} would not be encrypted, so the token could be read in "
                "transit; use https://, or --insecure to accept that"
            )
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise ConfigurationError("token: expected printable ASCII without spaces, got other characters")
        return cls(f"{parts.scheme.replace('http', 'ws')}://{parts.netloc}{parts.path.rstrip('/')}/ws", token)

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    def __repr__(self) -> str:
        """Omits the token, because a repr ends up in logs and tracebacks."""
        return f"RemoteServer({self.url!r})"


class _ClientExitedError(Exception):
    """The client no longer reads stdout."""


class Bridge:
    """Passes messages between the client's pipes and a WebSocket that is reconnected when it fails."""

    def __init__(
        self,
        remote: RemoteServer,
        settings: Settings,
        output: BinaryIO,
        delays: Callable[[], Iterator[float]] | None = None,
    ) -> None:
        self._remote = remote
        self._settings = settings
        self._output = output
        self._delays = delays or backoff
        self._state = BridgeState()
        self._connection: ClientConnection | None = None
        self._queue: deque[str] = deque()
        self._reconnect_now = asyncio.Event()
        self._message_passed = asyncio.Event()
        self._last_error: FlorilegiumError | None = None
        self._rejection: Unauthenticated | None = None
        self._has_response = False  # on the current connection
        self._ever_had_response = False

    @property
    def has_connected(self) -> bool:
        """False if connecting failed and the server never sent a message."""
        return self._ever_had_response or self._last_error is None

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Runs until the client's input ends and its pending requests are answered."""
        connecting = asyncio.create_task(self._keep_connected())
        reading = asyncio.create_task(self._read(reader))
        try:
            done, _ = await asyncio.wait((connecting, reading), return_when=asyncio.FIRST_COMPLETED)
            with suppress(_ClientExitedError):
                for task in done:
                    task.result()
        finally:
            reading.cancel()
            connecting.cancel()
            await asyncio.gather(reading, connecting, return_exceptions=True)

    # -- from the client ----------------------------------------------------------------------------------------

    async def _read(self, reader: asyncio.StreamReader) -> None:
        async for line in lines(reader):
            if line is None:
                self._send_to_client(error_message(None, TooLarge("the line", self._settings.body_max_bytes)))
            elif line.strip():
                await self._forward(line)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.shutdown_grace_s):
                while self._state.has_pending_requests:
                    self._message_passed.clear()
                    await self._message_passed.wait()
        self._fail_pending(Unavailable("the input ended before the server answered"))

    async def _forward(self, line: bytes) -> None:
        """Sends a line to the server, or queues it for the next connection."""
        try:
            frame = self._state.from_client(line)
        except (MalformedMessage, ParseError) as error:
            request_id = error.request_id if isinstance(error, MalformedMessage) else read_id(line)
            self._send_to_client(error_message(request_id, error))
            return
        if frame is None:
            return
        if self._connection is not None:
            with suppress(ConnectionClosed):  # `_keep_connected` notices it too and answers the request
                await self._connection.send(frame)
            return
        refusal: FlorilegiumError | None = self._rejection
        if len(self._queue) >= self._settings.fixed.connection_in_flight_max:
            refusal = Unavailable(f"{len(self._queue)} messages are waiting for a connection")
        if refusal is None:
            self._queue.append(frame)
            self._reconnect_now.set()  # brings the next attempt to connect forward
            return
        for message in self._state.reject(frame, refusal):
            self._send_to_client(message)

    # -- from the server ----------------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        delays = self._delays()
        while True:
            error = await self._run_connection()
            self._connection, self._last_error = None, error
            logger.warning("{}", error.message)
            self._fail_pending(error)
            if self._remote.local_socket is not None:
                return  # what starts next on the data directory may be another server, or the client itself
            if self._has_response:
                delays = self._delays()
            delay_s = next(delays)
            if isinstance(error, Unauthenticated):
                # Rejects the client's requests until the next attempt to connect.
                self._rejection = error
                await asyncio.sleep(max(delay_s, DELAY_REJECTED_S))
                self._rejection = None
            else:
                # A message from the client ends the wait, but not before DELAY_MIN_S.
                self._reconnect_now.clear()
                await asyncio.sleep(min(delay_s, DELAY_MIN_S))
                with suppress(TimeoutError):
                    async with asyncio.timeout(delay_s):
                        await self._reconnect_now.wait()

    async def _run_connection(self) -> FlorilegiumError:
        """Opens one connection and uses it until it ends. Returns why it ended."""
        self._has_response = False
        token, interval_s = self._remote.token, self._settings.sse_keepalive_s
        is_local = is_loopback(urlsplit(self._remote.url).hostname or "")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        local_socket = self._remote.local_socket
        transport: dict[str, Any] = {} if local_socket is None else {"unix": True, "sock": local_socket}
        try:
            async with connect(
                self._remote.url,
                subprotocols=[SUBPROTOCOL],
                additional_headers={**headers, **self._remote.local_headers},
                user_agent_header=f"florilegium/{VERSION}",
                # With True, the proxy that the environment names, but not for a server on this machine.
                proxy=None if is_local else True,
                open_timeout=OPEN_TIMEOUT_S,
                close_timeout=CLOSE_TIMEOUT_S,
                ping_interval=interval_s,
                ping_timeout=interval_s,
                max_size=self._settings.body_max_bytes,
                **transport,
            ) as connection:
                await self._resume(connection)
                if not self._has_response:  # to the repeated handshake
                    # Sends one message and gives the server a moment to reject the credential. The server checks it
                    # only after it accepted the connection, and a client that keeps writing to a closed connection may
                    # never read the reason.
                    if self._queue:
                        await connection.send(self._queue.popleft())
                    with suppress(TimeoutError):
                        async with asyncio.timeout(REJECTION_WAIT_S):
                            self._forward_to_client(await connection.recv())
                while self._queue:
                    await connection.send(self._queue.popleft())
                self._connection = connection
                async for frame in connection:
                    self._forward_to_client(frame)
                return Unavailable(f"{self._remote.host} closed the connection")
        except (OSError, WebSocketException, ImportError) as error:
            return self._describe(error)
        except Unavailable as error:
            return error

    async def _resume(self, connection: ClientConnection) -> None:
        """Repeats the legacy handshake of the client, if there was one."""
        handshake = self._state.repeat_handshake()
        if handshake is None:
            return
        await connection.send(encode(handshake).decode())
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            while self._state.is_resuming:
                self._forward_to_client(await connection.recv())
        if (initialized := self._state.repeat_initialized()) is not None:
            await connection.send(encode(initialized).decode())

    def _forward_to_client(self, frame: str | bytes) -> None:
        try:
            line = self._state.from_server(frame if isinstance(frame, str) else frame.decode())
        except (ParseError, UnicodeDecodeError):
            logger.warning("{} sent a frame that is not JSON", self._remote.host)
            return
        self._has_response = self._ever_had_response = True
        if line is not None:
            self._write(line)
        self._message_passed.set()

    def _describe(self, error: Exception) -> FlorilegiumError:
        """Translates a connection error to a message for the user."""
        host = self._remote.host
        match error:
            case InvalidStatus() if error.response.status_code == _REJECTED_STATUS:
                return Unauthenticated(f"{host} rejected the credential", presented=True)
            case InvalidStatus() if error.response.status_code in _WRONG_ADDRESS_STATUSES:
                status = error.response.status_code
                return Unavailable(f"{host} returned HTTP status {status}; check the URL, which usually ends with /mcp")
            case InvalidStatus():
                return Unavailable(f"{host} rejected the connection with HTTP status {error.response.status_code}")
            case ConnectionClosed(rcvd=received) if received is not None and received.code == _REJECTED_CLOSE_CODE:
                reason = _single_line(received.reason)
                return Unauthenticated(f"{host} rejected the credential: {reason}", presented=True)
            case ConnectionClosed(rcvd=received) if received is not None:
                return Unavailable(f"{host} closed the connection ({received.code} {_single_line(received.reason)})")
            case ConnectionClosed():
                return Unavailable(f"the connection to {host} was lost")
            case ssl.SSLError():
                reason = getattr(error, "verify_message", "") or error.reason or "handshake failed"
                return Unavailable(f"the TLS connection to {host} failed: {_single_line(reason).lower()}")
            case socket.gaierror():
                return Unavailable(f"cannot resolve the host name of {host}")
            case ImportError():  # websockets needs another package for SOCKS
                return Unavailable("a SOCKS proxy is configured, but SOCKS is not supported")
            case TimeoutError():
                return Unavailable(f"{host} did not answer within {OPEN_TIMEOUT_S:.0f} s")
            case OSError():
                cause = os.strerror(error.errno) if error.errno else str(error)
                return Unavailable(f"cannot connect to {host}: {cause.lower()}")
            case _:
                return Unavailable(f"{host} does not support MCP over WebSocket: {_single_line(str(error))}")

    # -- to the client ------------------------------------------------------------------------------------------

    def _fail_pending(self, error: FlorilegiumError) -> None:
        """Answers all pending requests, including queued ones, with an error."""
        self._queue.clear()
        for message in self._state.disconnect(error):
            self._send_to_client(message)
        self._message_passed.set()

    def _send_to_client(self, message: Mapping[str, Any]) -> None:
        self._write(encode(message) + b"\n")

    def _write(self, line: bytes) -> None:
        try:
            self._output.write(line)
            self._output.flush()
        except (OSError, ValueError) as error:
            raise _ClientExitedError from error


def _split(url: str) -> SplitResult | None:
    """Returns the parts of an HTTP URL without user, query string or fragment; None for any other URL."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # validated only when it is read
    except ValueError:
        return None
    is_plain = url.isascii() and url.isprintable() and not set(" ?#") & set(url)
    is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
    return parts if is_plain and is_http else None


def backoff() -> Iterator[float]:
    """Yields doubling delays with random jitter, so that many clients do not reconnect at the same time."""
    delay_s = DELAY_MIN_S
    while True:
        yield min(delay_s * random.uniform(1.0, 1.5), DELAY_MAX_S)  # noqa: S311 - a delay needs no cryptographic randomness
        delay_s = min(delay_s * 2, DELAY_MAX_S)


async def bridge(remote: RemoteServer, settings: Settings) -> bool:
    """Runs until stdin ends. Returns False if no connection succeeded."""
    runner = Bridge(remote, settings, sys.stdout.buffer)
    await runner.run(await open_reader(sys.stdin.buffer, settings.body_max_bytes))
    return runner.has_connected


def _single_line(text: str) -> str:
    """Truncates text from outside and replaces unprintable characters."""
    return "".join(character if character.isprintable() else " " for character in text[:_REASON_MAX_CHARS]).strip()
