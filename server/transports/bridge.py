"""A bridge for clients that only speak stdio: their lines become frames of a server's WebSocket, and back.

Messages of both eras pass untouched. When the connection is lost the bridge answers what was in flight with an error,
connects again and repeats the legacy handshake, so that the client's session goes on. The token is sent to the server
and nowhere else.
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

from config.errors import (
    ConfigurationError,
    FlorilegiumError,
    ParseError,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from config.settings import Settings, is_loopback
from server.protocol.messages import MalformedMessage, encode, error_message
from server.transports.bridge_state import Relay
from server.transports.lines import lines, open_reader
from server.version import VERSION

SUBPROTOCOL = Subprotocol("mcp")
OPEN_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 2.0
GREETING_S = 0.25
# Between two attempts to connect there is at least the first of these, and at most the second.
DELAY_MIN_S = 0.25
DELAY_MAX_S = 30.0
# A refused credential is tried seldom: servers take repetition for an attack, and lock the address out.
DELAY_REFUSED_S = 15.0
_REFUSED_STATUS = 401
_REFUSED_CLOSE = 4401
_WRONG_PLACE = (403, 404)
_REASON_MAX_CHARS = 120


class Remote(Struct, frozen=True):
    """The server to speak to."""

    url: str
    token: str

    @classmethod
    def at(cls, mcp_url: str, token: str = "", *, allow_insecure: bool = False) -> "Remote":
        """The server whose MCP endpoint is `mcp_url`; its WebSocket is below that."""
        parts = _split(mcp_url)
        if parts is None:
            raise ConfigurationError(f"--remote: got {mcp_url[:80]!r}, expected a URL such as https://host/mcp")
        if parts.scheme == "http" and not is_loopback(parts.hostname or "") and not allow_insecure:
            raise ConfigurationError(
                f"--remote: {parts.hostname} would be reached without encryption, and everyone on the way could read "
                "the token; expected https://, or --insecure if you accept that"
            )
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise ConfigurationError("the token holds characters that no token has; expected printable ASCII")
        return cls(f"{parts.scheme.replace('http', 'ws')}://{parts.netloc}{parts.path.rstrip('/')}/ws", token)

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    def __repr__(self) -> str:
        """Without the token: a repr ends in logs and tracebacks."""
        return f"Remote({self.url!r})"


class _ClientGoneError(Exception):
    """Nobody reads our stdout any more."""


class Bridge:
    """Carries a `Relay` over real pipes and a real WebSocket."""

    def __init__(
        self,
        remote: Remote,
        settings: Settings,
        output: BinaryIO,
        delays: Callable[[], Iterator[float]] | None = None,
    ) -> None:
        self._remote = remote
        self._settings = settings
        self._output = output
        self._delays = delays or backoff
        self._relay = Relay()
        self._connection: ClientConnection | None = None
        self._held: deque[str] = deque()
        self._is_wanted = asyncio.Event()
        self._progress = asyncio.Event()
        self._failure: FlorilegiumError | None = None
        self._refusal: Unauthenticated | None = None
        self._is_answered = False
        self._was_ever_answered = False

    @property
    def is_well(self) -> bool:
        """False if the server never spoke to us and there is a reason for it."""
        return self._was_ever_answered or self._failure is None

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Until the client's lines end, and then until it has its answers."""
        keeping = asyncio.create_task(self._keep_connected())
        reading = asyncio.create_task(self._read(reader))
        try:
            done, _ = await asyncio.wait((keeping, reading), return_when=asyncio.FIRST_COMPLETED)
            with suppress(_ClientGoneError):
                for task in done:
                    task.result()
        finally:
            reading.cancel()
            keeping.cancel()
            await asyncio.gather(reading, keeping, return_exceptions=True)

    # -- from the client ----------------------------------------------------------------------------------------

    async def _read(self, reader: asyncio.StreamReader) -> None:
        async for line in lines(reader):
            if line is None:
                self._tell(error_message(None, TooLarge("the line", self._settings.body_max_bytes)))
            elif line.strip():
                await self._take(line)
        await self._finish()

    async def _take(self, line: bytes) -> None:
        try:
            frame = self._relay.from_client(line)
        except MalformedMessage as error:
            self._tell(error_message(error.request_id, error))
            return
        except ParseError as error:
            self._tell(error_message(None, error))
            return
        if frame is None:
            return
        if self._connection is None:
            self._hold(frame)
        else:
            with suppress(ConnectionClosed):  # `_keep_connected` hears of it too, and answers
                await self._connection.send(frame)

    def _hold(self, frame: str) -> None:
        """Until the next attempt to connect, which this brings forward."""
        refusal: FlorilegiumError | None = self._refusal
        if len(self._held) >= self._settings.connection_in_flight_max:
            refusal = Unavailable(f"{len(self._held)} messages wait for the connection")
        if refusal is None:
            self._held.append(frame)
            self._is_wanted.set()
            return
        for message in self._relay.refuse(frame, refusal):
            self._tell(message)

    async def _finish(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.shutdown_grace_s):
                while self._relay.is_awaited:
                    self._progress.clear()
                    await self._progress.wait()
        self._give_up(Unavailable("no answer came before the input ended"))

    # -- from the server ----------------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        delays = self._delays()
        while True:
            failure = await self._converse()
            self._connection, self._failure = None, failure
            logger.warning("{}", failure.message)
            self._give_up(failure)
            if self._is_answered:
                delays = self._delays()
            if isinstance(failure, Unauthenticated):
                await self._refuse_for_now(failure, next(delays))
            else:
                await self._pause(next(delays))

    async def _refuse_for_now(self, refusal: Unauthenticated, delay_s: float) -> None:
        self._refusal = refusal
        await asyncio.sleep(max(delay_s, DELAY_REFUSED_S))
        self._refusal = None

    async def _pause(self, delay_s: float) -> None:
        """A message from the client ends the wait, but not its least part: a busy client must not hammer."""
        self._is_wanted.clear()
        await asyncio.sleep(min(delay_s, DELAY_MIN_S))
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._is_wanted.wait()

    async def _converse(self) -> FlorilegiumError:
        """One connection from its beginning to its end, and why it ended."""
        self._is_answered = False
        try:
            async with self._open() as connection:
                await self._resume(connection)
                await self._greet(connection)
                while self._held:
                    await connection.send(self._held.popleft())
                self._connection = connection
                async for frame in connection:
                    self._pass(frame)
                return Unavailable(f"{self._remote.host} closed the connection")
        except (OSError, WebSocketException, ImportError) as error:
            return self._explain(error)
        except Unavailable as error:
            return error

    def _open(self) -> connect:
        token, interval_s = self._remote.token, self._settings.ws_ping_interval_s
        is_local = is_loopback(urlsplit(self._remote.url).hostname or "")
        return connect(
            self._remote.url,
            subprotocols=[SUBPROTOCOL],
            additional_headers={"Authorization": f"Bearer {token}"} if token else None,
            user_agent_header=f"florilegium/{VERSION}",
            proxy=None if is_local else True,
            open_timeout=OPEN_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=interval_s,
            ping_timeout=interval_s,
            max_size=self._settings.body_max_bytes,
        )

    async def _resume(self, connection: ClientConnection) -> None:
        handshake = self._relay.resume()
        if handshake is None:
            return
        await connection.send(encode(handshake).decode())
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            while self._relay.is_resuming:
                self._pass(await connection.recv())
        if (follows := self._relay.resumed()) is not None:
            await connection.send(encode(follows).decode())

    async def _greet(self, connection: ClientConnection) -> None:
        """Sends one message alone and gives the server a moment to turn us away.

        It judges the credential only after it has accepted the connection, and who writes to a connection that the
        other side has closed may never read why.
        """
        if self._is_answered:  # to the repeated handshake
            return
        if self._held:
            await connection.send(self._held.popleft())
        with suppress(TimeoutError):
            async with asyncio.timeout(GREETING_S):
                self._pass(await connection.recv())

    def _pass(self, frame: str | bytes) -> None:
        try:
            line = self._relay.from_server(frame if isinstance(frame, str) else frame.decode())
        except (ParseError, UnicodeDecodeError):
            logger.warning("{} sent a frame that is not JSON", self._remote.host)
            return
        self._is_answered = self._was_ever_answered = True
        if line is not None:
            self._write(line)
        self._progress.set()

    def _explain(self, error: Exception) -> FlorilegiumError:
        """The one place that turns what went wrong into a sentence."""
        host = self._remote.host
        match error:
            case InvalidStatus() if error.response.status_code == _REFUSED_STATUS:
                return Unauthenticated(f"{host} does not accept the credential", presented=True)
            case InvalidStatus() if error.response.status_code in _WRONG_PLACE:
                status = error.response.status_code
                return Unavailable(f"{host} answers with HTTP status {status}; check the URL: most end with /mcp")
            case InvalidStatus():
                return Unavailable(f"{host} refused the connection with HTTP status {error.response.status_code}")
            case ConnectionClosed(rcvd=received) if received is not None and received.code == _REFUSED_CLOSE:
                reason = _plain(received.reason)
                return Unauthenticated(f"{host} does not accept the credential: {reason}", presented=True)
            case ConnectionClosed(rcvd=received) if received is not None:
                return Unavailable(f"{host} closed the connection ({received.code} {_plain(received.reason)})")
            case ConnectionClosed():
                return Unavailable(f"the connection to {host} was lost")
            case ssl.SSLError():
                return Unavailable(f"no secure connection to {host}: {_tls_reason(error)}")
            case socket.gaierror():
                return Unavailable(f"the host name of {host} cannot be resolved")
            case ImportError():  # of the package that websockets needs for it
                return Unavailable("a SOCKS proxy is configured, and those are not supported")
            case TimeoutError():
                return Unavailable(f"{host} did not answer in {OPEN_TIMEOUT_S:.0f} s")
            case OSError():
                cause = os.strerror(error.errno) if error.errno else str(error)
                return Unavailable(f"{host} cannot be reached: {cause.lower()}")
            case _:
                return Unavailable(f"{host} does not speak MCP over WebSocket: {_plain(str(error))}")

    # -- to the client ------------------------------------------------------------------------------------------

    def _give_up(self, reason: FlorilegiumError) -> None:
        """Answers everything that waits; what was held is among it."""
        self._held.clear()
        for message in self._relay.lose(reason):
            self._tell(message)
        self._progress.set()

    def _tell(self, message: Mapping[str, Any]) -> None:
        self._write(encode(message) + b"\n")

    def _write(self, line: bytes) -> None:
        try:
            self._output.write(line)
            self._output.flush()
        except (OSError, ValueError) as error:
            raise _ClientGoneError from error


def _split(url: str) -> SplitResult | None:
    """The parts of an http URL that says nothing but where the server is; None for anything else."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # parsed, and refused, only when it is read
    except ValueError:
        return None
    is_plain = url.isascii() and url.isprintable() and not set(" ?#") & set(url)
    is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
    return parts if is_plain and is_http else None


def backoff() -> Iterator[float]:
    """Doubling delays up to the largest, each spread by a half so that many clients do not come at once."""
    delay_s = DELAY_MIN_S
    while True:
        yield min(delay_s * random.uniform(1.0, 1.5), DELAY_MAX_S)  # noqa: S311 - nothing is secret about a delay
        delay_s = min(delay_s * 2, DELAY_MAX_S)


async def bridge(
    remote: Remote, settings: Settings, stdin: BinaryIO | None = None, stdout: BinaryIO | None = None
) -> bool:
    """Runs until stdin ends. False if the server never let us in."""
    carrier = Bridge(remote, settings, stdout or sys.stdout.buffer)
    await carrier.run(await open_reader(stdin or sys.stdin.buffer, settings.body_max_bytes))
    return carrier.is_well


def _plain(text: str) -> str:
    """A stranger's words, short and on one line."""
    return "".join(character if character.isprintable() else " " for character in text[:_REASON_MAX_CHARS]).strip()


def _tls_reason(error: ssl.SSLError) -> str:
    return _plain(getattr(error, "verify_message", "") or error.reason or "handshake failed").lower()
