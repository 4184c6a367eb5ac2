"""The HTTP+SSE transport of MCP 2024-11-05 at `/mcp/sse` and `/mcp/{profile}/sse`, for clients that have no other.

A GET opens an event stream, whose first event is the address for the client's messages. A message is answered with 202,
and the response to it is sent on the stream. The stream is a session: it belongs to the caller that opened it, and the
id in the address does not replace the credential, which is verified with every message.
"""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.types import Receive, Scope, Send

from auth.context import Principal, SessionId
from config.errors import InvalidRequest, SessionNotFound, Unavailable
from server.admission import AdmittedRequest, IncomingRequest
from server.error_responses import raw_error_headers
from server.protocol.connection import Connection
from server.protocol.messages import error_message
from server.runtime import Runtime
from server.transports import http
from server.transports.client_connections import decode_body
from server.transports.headers import MCP_PATH, profile_in, query_value
from sessions.store import new_session_id

_SUFFIX = "/sse"
_SESSION_PARAMETER = "session_id"
# How long other processes know of a stream after its process was killed.
_HELD_S = 60.0
_MESSAGE = "message for a stream"
_ENDED = "stream ended"


def is_sse_path(path: str) -> bool:
    return path.startswith(MCP_PATH) and path.rstrip("/").endswith(_SUFFIX)


class SseTransport:
    """The ASGI application at `/mcp/sse` and `/mcp/{profile}/sse`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._settings = runtime.settings
        self._base_path = urlsplit(runtime.settings.base_url).path
        self._streams: dict[str, _EventStream] = {}
        self._peers = runtime.stores.peers
        self._peers.handle(_MESSAGE, self._receive_from_peer)
        self._peers.handle(_ENDED, self._end_for_peer)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"].rstrip("/")
        profile = profile_in(path.removesuffix(_SUFFIX))
        try:
            incoming = IncomingRequest.from_scope(scope)
            request = await self._runtime.admission.admit(incoming, profile)
            match scope["method"]:
                case "GET":
                    await self._get(request, path, receive, send)
                case "POST":
                    post_headers, settings = request.headers, self._settings
                    if not post_headers.has_json_body():
                        # Also stops "simple" cross-site posts, which a browser sends without a preflight request.
                        raise http.HttpStatusError("the body must be application/json", 415)
                    session_id = _session_id(incoming.query)
                    stream = self._find(request, session_id)
                    peer = None if stream is not None else await self._find_peer(request, session_id)
                    body = await http.read_body(receive, post_headers, settings.body_max_bytes)
                    value = decode_body(body, request.connection)
                    if isinstance(value, list):
                        # Admission charged for one message. A batch that is too large is rejected, so it costs no more.
                        extra_messages = min(len(value), settings.fixed.connection_in_flight_max) - 1
                        await self._runtime.admission.charge(request.principal, max(0, extra_messages))
                    if stream is not None:
                        await stream.receive(value, request.request_id)
                    elif peer is None or not await self._peers.send(
                        peer, _MESSAGE, (session_id, value, request.request_id)
                    ):
                        raise SessionNotFound
                    await http.send_empty(send, 202)
                case "DELETE":
                    session_id = _session_id(incoming.query)
                    if (stream := self._find(request, session_id)) is not None:
                        stream.end()
                    elif not await self._peers.send(await self._find_peer(request, session_id), _ENDED, session_id):
                        raise SessionNotFound
                    await http.send_empty(send, 204)
                case _:
                    await http.send_method_not_allowed(send)
        except Exception as error:
            response, status = http.error_and_status(f"{scope['method']} {path}", error)
            headers = raw_error_headers(self._settings, response, profile)
            await http.send_json(send, status, error_message(None, response), headers)

    async def _get(self, request: AdmittedRequest, path: str, receive: Receive, send: Send) -> None:
        if not request.headers.accepts("text/event-stream"):
            raise http.HttpStatusError("the Accept header must allow text/event-stream", 406)
        stream = _EventStream(self._runtime, request, path, send)
        # Without scheme and host, because clients resolve it against the URL they used, which a proxy may have changed.
        address = f"{self._base_path}{path}?{_SESSION_PARAMETER}={stream.session_id}"
        # Other processes find the stream by a name that contains its owner: for others, it does not exist.
        name = _stream_name(stream.session_id, request)

        async def keep_holding() -> None:
            while True:
                await asyncio.sleep(_HELD_S / 3)
                await self._peers.hold(name, _HELD_S)

        with self._runtime.open_streams.enter(request.principal):
            try:
                await self._peers.hold(name, _HELD_S)
                self._streams[stream.session_id] = stream
                holding = asyncio.create_task(keep_holding())
                try:
                    await stream.serve(address, receive)
                finally:
                    holding.cancel()
                    del self._streams[stream.session_id]
                    await self._peers.release(name)
            finally:
                await stream.close()

    def _find(self, request: AdmittedRequest, session_id: str) -> "_EventStream | None":
        """Returns the caller's stream, if this process has it."""
        stream = self._streams.get(session_id)
        if stream is None or request.profile != stream.request.profile:
            return None
        return stream if request.principal.owner() == stream.request.principal.owner() else None

    async def _find_peer(self, request: AdmittedRequest, session_id: str) -> str:
        """Returns the process that has the caller's stream; another caller's is not found, like one that does not
        exist."""
        peer = await self._peers.holder(_stream_name(session_id, request))
        if peer is None:
            raise SessionNotFound
        return peer

    def _receive_from_peer(self, content: Any) -> None:
        """Serves a message of the owner of the stream, whom the other process has authenticated."""
        session_id, value, request_id = content
        stream = self._streams.get(session_id)
        if stream is not None:
            task = asyncio.create_task(stream.receive_late(value, request_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _end_for_peer(self, session_id: Any) -> None:
        stream = self._streams.get(session_id)
        if stream is not None:
            stream.end()


def _session_id(query: bytes) -> str:
    session_id = query_value(query, _SESSION_PARAMETER)
    if session_id is None:
        raise InvalidRequest(
            f"{_SESSION_PARAMETER}: expected the value from the endpoint event, got nothing; open the stream with "
            f"GET first, or use {MCP_PATH} for Streamable HTTP"
        )
    return session_id


def _stream_name(session_id: str, request: AdmittedRequest) -> str:
    return repr((*request.principal.owner(), request.profile, session_id))


class _EventStream:
    """One open stream and the connection behind it.

    Messages are queued, because they must not interrupt each other or the keep-alive comments. While the queue is full,
    calls wait and new messages are rejected, so a client that does not read costs a bounded amount of memory.
    """

    def __init__(self, runtime: Runtime, request: AdmittedRequest, path: str, send: Send) -> None:
        self.session_id: SessionId = new_session_id()
        self._runtime = runtime
        self.request = request
        self._send = send
        in_flight_max = runtime.settings.fixed.connection_in_flight_max
        self._queue: asyncio.Queue[Mapping[str, Any] | list[Any] | None] = asyncio.Queue(in_flight_max)
        self._ended = asyncio.Event()
        self._connection = Connection(
            runtime.dispatcher,
            runtime.sessions,
            request.principal,
            lambda caller, request_id, session_id: runtime.admission.context(
                request, session_id, request_id=request_id, principal=caller
            ),
            self._queue.put,
            self._admit,
            in_flight_max,
            request.profile,
            self.session_id,
            f"SSE {path}" if runtime.settings.log_requests else None,
        )

    async def serve(self, address: str, receive: Receive) -> None:
        """Sends events until the client disconnects, the session is deleted, access is revoked or the server stops."""
        await self._send({"type": "http.response.start", "status": 200, "headers": http.STREAM_HEADERS})
        await self._send_part(f"event: endpoint\ndata: {address}\n\n".encode())
        streams, principal = self._runtime.open_streams, self.request.principal
        writing = asyncio.create_task(self._write())
        waits = (http.wait_for_disconnect(receive), streams.wait_while_open(principal), self._ended.wait())
        tasks = [writing, *(asyncio.create_task(wait) for wait in waits)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if streams.is_stopping:
                # Running calls are answered, and None makes the writer stop after their responses.
                await self._connection.finish()
                await self._queue.put(None)
                await writing
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._send({"type": "http.response.body", "body": b""})

    async def receive(self, value: Any, request_id: str) -> None:
        if self._queue.full():
            raise Unavailable("the event stream is full; read it before sending more messages")
        await self._connection.receive_value(value, request_id)

    async def receive_late(self, value: Any, request_id: str) -> None:
        """Receives a message whose POST was answered already, so an error is an event of the stream."""
        try:
            await self.receive(value, request_id)
        except Unavailable as error:
            await self._queue.put(error_message(None, error))

    def end(self) -> None:
        self._ended.set()

    async def close(self) -> None:
        await self._connection.close()

    async def _write(self) -> None:
        """Sends queued messages until None, and comments while there are none."""
        while True:
            try:
                async with asyncio.timeout(self._runtime.settings.sse_keepalive_s):
                    message = await self._queue.get()
            except TimeoutError:
                await self._send_part(http.KEEP_ALIVE)
                continue
            if message is None:
                return
            await self._send_part(http.message_event(message))

    async def _send_part(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _admit(self) -> Principal:
        """The POST was admitted before, so only the server and what the stream's credential may use can have
        changed."""
        self._runtime.admission.require_running()
        return await self._runtime.authenticator.recheck(self.request.principal)
