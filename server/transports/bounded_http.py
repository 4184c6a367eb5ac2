"""uvicorn's HTTP protocol with limits on the size, the duration and the number of parts of a request.

Requests are parsed before authentication. Without these limits anyone could hold memory, sockets and the event loop.
"""

import asyncio
import re
import time
from collections.abc import Callable, Sized
from typing import Any, ClassVar
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from config.settings import Settings
from server.protocol.messages import TEXT_BYTES
from server.transports.client_connections import CONNECTION, PROGRESS_BYTES, ClientConnection, ClientConnections
from server.transports.headers import SECURITY_HEADERS

# Chunks of less than 64 bytes in one request body: each costs as much as a large one.
BODY_SMALL_CHUNKS_MAX = 4096

# -- sliced input ------------------------------------------------------------------------------------------------------
# Input that is parsed in slices, so that a read of many tiny frames, chunks or requests cannot occupy the event loop.
#
# One read brings up to 256 KiB: 43,000 empty WebSocket frames, or 4,000 pipelined requests. Parsers process all of it
# at once, which takes seconds.

SLICE_BYTES = 2048
# The time after which other connections get their turn.
_TURN_S = 0.002


def parse_slices(backlog: bytearray, feed: Callable[[bytes], None], can_feed: Callable[[], bool]) -> bool:
    """Parses slices of the backlog for one turn. Returns True if the parser could take more when the turn ended.

    `feed` parses one slice, and `can_feed` tells whether the parser can take another. The owner pauses reading while
    the backlog is not empty, so the backlog never exceeds one read.
    """
    ends_at = time.perf_counter() + _TURN_S
    while backlog and can_feed():
        if time.perf_counter() > ends_at:
            return True
        part = bytes(backlog[:SLICE_BYTES])
        del backlog[:SLICE_BYTES]
        feed(part)
    return False


# Smaller chunks cost more to parse than to send.
_SMALL_CHUNK_BYTES = 64
# The bytes around the method and the URL, around a name and a value, and at the end of the headers.
_LINE_BYTES = len("  HTTP/1.1\r\n\r\n")
_HEADER_BYTES = len(": \r\n")


def closing_response(status: bytes, body: bytes, *headers: tuple[bytes, bytes]) -> bytes:
    """Returns a response that no application sends."""
    length = (b"content-length", b"%d" % len(body))
    lines = [b"%s: %s\r\n" % pair for pair in (*headers, length, (b"connection", b"close"), *SECURITY_HEADERS)]
    return b"HTTP/1.1 %s\r\n%s\r\n%s" % (status, b"".join(lines), body)


_INVALID = "Invalid HTTP request received."
_TOO_MANY_CONNECTIONS = closing_response(b"503 Service Unavailable", b"", (b"retry-after", b"1"))


class _TooLarge(Exception):
    """Stops the parser; the client gets its message with status 400."""


class BoundedHttp(HttpToolsProtocol):
    """Settings and connections are class attributes, because uvicorn creates the instances."""

    settings: ClassVar[Settings]
    client_connections: ClassVar[ClientConnections]
    # While the server stops, each response closes its connection.
    is_draining: ClassVar[bool] = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._client_connection: ClientConnection | None = None
        # Input that is not parsed yet.
        self._backlog = bytearray()
        self._head_max_bytes = self.settings.fixed.head_max_bytes + self.settings.fixed.token_max_bytes
        self._fed_bytes = self._body_bytes = self._small_chunks = 0
        self._is_in_head = self._head_began = self._is_in_body = self._has_upgraded = False
        self._problem = ""
        self._input_flow: _InputFlow
        self._timer: asyncio.TimerHandle | None = None
        self._requests = 0
        # While requests wait in the pipeline: the one that is being answered.
        self._answered: RequestResponseCycle | None = None
        self._closes_at = self.loop.time() + self.settings.fixed.connection_max_s
        self._idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        super().connection_made(transport)
        self.flow = self._input_flow = _InputFlow(transport, self._parse_soon, self.pipeline)
        client = self._client_connection = self.client_connections.open(
            self.client[0] if self.client else "", transport
        )
        if client is None:
            transport.write(_TOO_MANY_CONNECTIONS)
            transport.close()
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        # uvicorn tells only the last request.
        if (answered := self._answered) is not None and not answered.response_complete:
            answered.disconnected = True
            answered.message_event.set()
        super()._unset_keepalive_if_required()
        if self._client_connection is not None:
            self._client_connection.close()
            self._client_connection = None
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._client_connection is not None:
            self._client_connection.begin_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._client_connection is not None:
            self._client_connection.end_unread()

    def handle_websocket_upgrade(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[redundant-expr] # None at first
            # The client did not wait for a response, which would now end up between the frames.
            self._close()
            return
        self._has_upgraded = True
        super()._unset_keepalive_if_required()
        self._backlog.clear()
        if self._client_connection is not None:
            self._client_connection.close()  # the WebSocket protocol registers it again
            self._client_connection = None
        super().handle_websocket_upgrade()

    def data_received(self, data: bytes) -> None:
        """Parses a small read at once, and a large one in slices."""
        if not self._backlog and len(data) <= SLICE_BYTES and self._can_parse():
            self._feed(data)
            return
        self._backlog += data
        self._parse()

    def send_400_response(self, msg: str) -> None:
        cycle, content_type = self.cycle, (b"content-type", b"text/plain; charset=utf-8")
        # After the beginning of another response, or before that of an earlier request, it would be taken for part of
        # that one.
        is_next = cycle is None or (not cycle.response_started if self._is_in_body else cycle.response_complete)  # type: ignore[redundant-expr] # None at first
        if is_next and not self.pipeline:
            self.transport.write(closing_response(b"400 Bad Request", (self._problem or msg).encode(), content_type))
        self._close()

    # -- slices ----------------------------------------------------------------------------------------------------

    def _can_parse(self) -> bool:
        """Whether the parser can take more: no request waits for the one before, and the body was taken."""
        return not self.flow.read_paused and not self.transport.is_closing() and not self._has_upgraded

    def _parse(self) -> None:
        if parse_slices(self._backlog, self._feed, self._can_parse):
            self._parse_soon()
        if self.transport.is_closing():
            self._backlog.clear()
        elif not self._has_upgraded:
            self._input_flow.set_backlog(bool(self._backlog))

    def _parse_soon(self) -> None:
        self.loop.call_soon(self._parse)

    def _feed(self, data: bytes) -> None:
        """Replaces uvicorn's `data_received`, which loses what follows a request for an upgrade that is ignored.

        The parser takes the body of such a request for the next request, which someone could hide there from a proxy.
        So the header section is parsed once more, without the upgrade.
        """
        self._head_began = False
        body_bytes = self._body_bytes
        parser: Any = self.parser  # None only after the connection is lost
        try:
            parser.feed_data(data)
        except httptools.HttpParserError:
            self.logger.warning(_INVALID)
            self.send_400_response(_INVALID)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                # Another parser, because this one takes no more requests after `Connection: close`.
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self._feed(self._head_without_upgrade() + data[upgrade.args[0] :])
                return
        if self.transport.is_closing() or not (self._is_in_head or self._is_in_body):
            return
        # This bounds a header section that never ends, and trailers and chunk extensions, which are not body. A header
        # section that is complete is measured in `on_headers_complete`.
        is_new = self._head_began or self._body_bytes != body_bytes
        self._fed_bytes = 0 if is_new else self._fed_bytes + len(data)
        if self._fed_bytes > self._head_max_bytes:
            self.send_400_response("The request headers are too large.")
        elif self._timer is None:
            self._watch()

    def _head_without_upgrade(self) -> bytes:
        method, version = self.scope["method"].encode(), self.scope["http_version"].encode()
        lines = [b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        return b"%s %s HTTP/%s\r\n%s\r\n" % (method, self.url, version, b"".join(lines))

    # -- parser callbacks --------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = self._head_began = True
        self._fed_bytes = self._small_chunks = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Replaces uvicorn's, which adds trailers to the headers: a proxy that checks or removes headers has not seen
        them (RFC 9110 section 6.5.1)."""
        if self._is_in_head:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Replaces uvicorn's, which has settings that this server does not use and another class of cycle."""
        parser: Any = self.parser
        scope: Any = self.scope
        app: Any = self.app
        previous: RequestResponseCycle | None = self.cycle
        method = parser.get_method()
        # Most header sections are far below the limit, even with all of their first and of their last slice.
        if self._fed_bytes + 2 * SLICE_BYTES > self._head_max_bytes:
            size = _LINE_BYTES + len(method) + len(self.url)
            size += sum(len(name) + len(value) + _HEADER_BYTES for name, value in self.headers)
            if size > self._head_max_bytes:
                self._reject("The request headers are too large.")
        if method == b"CONNECT":
            self._reject("CONNECT is not supported.")  # its body would be parsed as the next request
        self._is_in_head = False
        self._is_in_body = True
        if self._timer is not None:
            self._stop_timer()
        self._body_bytes = self._fed_bytes = 0
        client = self._client_connection
        if client is not None:
            client.has_whole_request = False
            scope["extensions"] = {CONNECTION: client}
        scope["method"], version = method.decode("ascii"), parser.get_http_version()
        if version != "1.1":
            scope["http_version"] = version
        if parser.should_upgrade():
            return
        self._requests += 1
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"], scope["query_string"] = url.path, url.query or b""
        self.cycle = cycle = _Cycle(
            scope,
            self.transport,
            self.flow,
            self.logger,
            self.access_logger,
            self.access_log,
            self.server_state.default_headers,
            asyncio.Event(),
            self.expect_100_continue,
            version != "1.0" and parser.should_keep_alive(),
            self.on_response_complete,
        )
        cycle.client_connection = client
        # With several workers, a connection ends after a while, so that the client's next one can go to another.
        if self.is_draining or (
            self.settings.workers > 1
            and (self._requests >= self.settings.connection_max_requests or self.loop.time() >= self._closes_at)
        ):
            cycle.keep_alive = False
            if client is not None:
                client.begin_closing()
        if previous is None or previous.response_complete:
            self._start_asgi_task(cycle, app)
        else:  # pipelined
            if not self.pipeline:
                self._answered = previous
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, app))

    def on_body(self, body: bytes) -> None:
        if len(body) < _SMALL_CHUNK_BYTES:
            self._small_chunks += 1
            if self._small_chunks > BODY_SMALL_CHUNKS_MAX:
                self._reject("The body has too many small chunks.")
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_body = False
        if self._timer is not None:
            self._stop_timer()
            if self.timeout_keep_alive_task is None:
                # It may have fired while a refused body arrived, which no other response follows.
                self._watch_idle(self.timeout_keep_alive)
        if self._client_connection is not None:
            self._client_connection.has_whole_request = True
        parser: Any = self.parser
        if not parser.should_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Replaces uvicorn's, which sets a new timer after each response."""
        if self.transport.is_closing():
            self._close()
            return
        if self.pipeline:
            self._answered, app = self.pipeline.pop()
            self._start_asgi_task(self._answered, app)
        self.flow.resume_reading()
        if self._is_in_body and self.cycle.response_complete:
            # The request was refused before its body arrived. Closing at once could destroy the response on its way
            # (RFC 9112 section 9.6), so the rest is discarded for a while.
            self._start_timer(self.settings.fixed.refused_body_timeout_s, self._close)
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._watch_idle(self.timeout_keep_alive)

    def _reject(self, problem: str) -> None:
        self._problem = problem
        raise _TooLarge(problem)

    # -- timer -----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Closes the connection unless the headers, or enough of the body, arrive within the timeout."""
        self._start_timer(self.settings.client_timeout_s, self._check, self._body_bytes)

    def _check(self, bytes_before: int) -> None:
        # The client waits for the server: its input is not read because earlier input is not done.
        is_waiting = self.flow.read_paused or bool(self._backlog)
        if is_waiting or (self._is_in_body and self._body_bytes - bytes_before >= PROGRESS_BYTES):
            self._watch()
        else:
            self._close()

    def _close(self) -> None:
        """Closes the connection when the client has read what was written, or did not for the timeout."""
        self.transport.close()
        self._start_timer(self.settings.client_timeout_s, self.transport.abort)

    def _watch_idle(self, timeout_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(timeout_s, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Closes the connection if it has been idle for the timeout. While a request arrives or is answered, the next
        response starts the timer again."""
        self.timeout_keep_alive_task = None
        if self.cycle.response_complete and not self._is_in_head and not self._is_in_body:
            left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
            if left_s > 0:
                self._watch_idle(left_s)
            else:
                self._close()

    def _unset_keepalive_if_required(self) -> None:
        """uvicorn stops the timer whenever data arrives. Here it goes on: to stop and start one took 2 % of a call."""

    def _start_timer(self, timeout_s: float, callback: Callable[..., None], *args: Any) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(timeout_s, callback, *args)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_CHANGES_FRAMING = re.compile(rb"\n(?:connection|transfer-encoding):", re.IGNORECASE)


class _Cycle(RequestResponseCycle):
    """Sends a response that is one piece in one system call.

    Two of them were a quarter of the CPU time of a small call, and uvicorn's checks of each header a twentieth.
    """

    client_connection: ClientConnection | None = None
    # The first message of a response and its Content-Length, until the second shows whether there are more.
    head: Any = None
    length = b""

    async def receive(self) -> Any:
        """Counts the memory of the body. `server.app` releases it when the request is answered, because the decoded
        body is kept that long."""
        is_late = self.more_body or self.disconnected or self.response_complete
        if self.body and not (is_late or self.flow.read_paused or self.waiting_for_100_continue):
            # What uvicorn does with a body that is already here, without waiting for it.
            message: Any = {"type": "http.request", "body": bytes(self.body), "more_body": False}
            self.body = bytearray()
            self.message_event.clear()
        else:
            message = await super().receive()
        if self.client_connection is not None and (body := message.get("body")):
            self.client_connection.hold_request(TEXT_BYTES * len(body))
        return message

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start" and not self.response_started and self.keep_alive:
            # A chunked response is a stream: its headers must not wait for the first event.
            length = dict(message["headers"]).get(b"content-length")
            if length is not None and self.scope["method"] != "HEAD":
                self.head, self.length = message, length
                return
        elif (head := self.head) is not None:
            self.head = None
            if self._send_whole(head, message):
                return
            await super().send(head)
        await super().send(message)

    def _send_whole(self, head: Any, message: Any) -> bool:
        """Returns False for what is not a whole response, or not a usual one. uvicorn sends it, or finds the error."""
        headers, body = [*self.default_headers, *head["headers"]], message.get("body", b"")
        is_whole = not message.get("more_body") and self.length == b"%d" % len(body)
        if not is_whole or not self.keep_alive or self.flow.write_paused or self.disconnected:
            return False
        data = STATUS_LINE[head["status"]] + b"\r\n".join(map(b": ".join, headers)) + b"\r\n\r\n"
        # A line break in a header would begin another one.
        lines = len(headers) + 2
        if data.count(b"\n") != lines or data.count(b"\r") != lines or _CHANGES_FRAMING.search(data):
            return False
        self.transport.write(data + body)
        self.waiting_for_100_continue = False
        self.response_started = self.response_complete = True
        self.message_event.set()
        self.on_response()
        return True


class _InputFlow(FlowControl):
    """Reads from the socket only if the application takes the input, none is left to parse, and no request waits.

    uvicorn resumes reading after every response, even if requests wait in the pipeline. Each response to a client that
    pipelines would then let in another slice of requests, about forty, and the pipeline would grow without limit.
    """

    def __init__(self, transport: asyncio.Transport, parse_soon: Callable[[], None], pipeline: Sized) -> None:
        super().__init__(transport)
        self._parse_soon = parse_soon
        self._pipeline = pipeline
        self._has_backlog = False

    def set_backlog(self, has_backlog: bool) -> None:
        if has_backlog == self._has_backlog:
            return
        self._has_backlog = has_backlog
        if self.read_paused:
            return
        if has_backlog:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def pause_reading(self) -> None:
        if not self._has_backlog:
            super().pause_reading()
        self.read_paused = True

    def resume_reading(self) -> None:
        if self._pipeline or not self.read_paused:
            return
        if self._has_backlog:
            self.read_paused = False
            self._parse_soon()
        else:
            super().resume_reading()


def bounded_http(settings: Settings, connections: ClientConnections) -> type[BoundedHttp]:
    """Returns the protocol class for uvicorn."""
    return type("BoundedHttp", (BoundedHttp,), {"settings": settings, "client_connections": connections})
