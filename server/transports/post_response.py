"""The HTTP answer to one POST: a single JSON object, or an event stream once the call has something to say."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from starlette.types import Send

from config.errors import MissingCapability
from server.protocol.call import required_capability
from server.protocol.in_flight import InFlightRequests
from server.protocol.messages import RequestId, encode

JSON = (b"content-type", b"application/json")
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # Reverse proxies buffer by default, which would hold an event back until the stream ends.
    (b"x-accel-buffering", b"no"),
]
KEEP_ALIVE = b": keep-alive\n\n"


def event(message: Any) -> bytes:
    return b"event: message\ndata: " + encode(message) + b"\n\n"


class PostResponse:
    """The client's end of a POST. Whether it becomes a stream is decided by the first notification, if any comes."""

    def __init__(self, send: Send, in_flight: InFlightRequests, keep_alive_s: float) -> None:
        # Null until the request's own id has been read (JSON-RPC 2.0 section 5).
        self.request_id: RequestId | None = None
        self._send = send
        self._in_flight = in_flight
        self._keep_alive_s = keep_alive_s
        self._session_id: str | None = None
        self._can_stream = False
        self._keeper: asyncio.Task[None] | None = None

    def prepare(self, session_id: str | None, can_stream: bool) -> None:
        """What the request's headers say of its answer."""
        self._session_id = session_id
        self._can_stream = can_stream

    async def notify(self, message: Mapping[str, Any]) -> None:
        """A client that takes no event stream cannot hear notifications; they are optional by their nature."""
        if self._can_stream:
            await self._send_event(message)

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """A client that takes no event stream cannot hear a question, whatever it declared."""
        if not self._can_stream:
            raise MissingCapability(required_capability(method))
        return await self._in_flight.request(self._session_id, self._send_event, method, params)

    async def finish(self, status: int, message: Any, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        """The answer itself. A stream that has begun has sent its status already."""
        if self._keeper is None:
            body = encode(message)
            await self._send(
                {
                    "type": "http.response.start",
                    "status": status,
                    "headers": [JSON, (b"content-length", b"%d" % len(body)), *(headers or ())],
                }
            )
            await self._send({"type": "http.response.body", "body": body})
            return
        await self._stop_keeper()
        await self._send({"type": "http.response.body", "body": event(message)})

    async def accept(self) -> None:
        """202 without a body: a notification, or a call the client no longer wants answered."""
        if self._keeper is not None:
            await self._stop_keeper()
            await self._send({"type": "http.response.body", "body": b""})
            return
        await self._send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
        await self._send({"type": "http.response.body", "body": b""})

    async def abandon(self) -> None:
        """The client has gone; nobody is there to be told."""
        if self._keeper is not None:
            await self._stop_keeper()

    async def _send_event(self, message: Mapping[str, Any]) -> None:
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep_alive())
            await self._send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        await self._send({"type": "http.response.body", "body": event(message), "more_body": True})

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._keep_alive_s)
            await self._send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})

    async def _stop_keeper(self) -> None:
        assert self._keeper is not None
        self._keeper.cancel()
        with suppress(asyncio.CancelledError):
            await self._keeper
