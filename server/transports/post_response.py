"""The HTTP response to one POST: a single JSON object, or an event stream once the call sends a message."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from starlette.types import Send

from config.errors import MissingCapability
from server.protocol.call import required_capability
from server.protocol.in_flight import InFlightRequests
from server.protocol.messages import RequestId
from server.transports.http_messages import KEEP_ALIVE, STREAM_HEADERS, RawHeaders, message_event, send_empty, send_json


class PostResponse:
    """The client's end of a POST. It becomes an event stream with the first notification or request to the client."""

    def __init__(self, send: Send, in_flight: InFlightRequests, keep_alive_s: float) -> None:
        # None until the request's id has been read (JSON-RPC 2.0 section 5).
        self.request_id: RequestId | None = None
        self._send = send
        self._in_flight = in_flight
        self._keep_alive_s = keep_alive_s
        self._session_id: str | None = None
        self._can_stream = False
        # Exists from the first event on: then the status has been sent, and only events can follow.
        self._keep_alive_task: asyncio.Task[None] | None = None

    def prepare(self, session_id: str | None, can_stream: bool) -> None:
        """Sets what the request's headers determine about the response."""
        self._session_id = session_id
        self._can_stream = can_stream

    async def notify(self, message: Mapping[str, Any]) -> None:
        """Sends a notification. It is dropped if the client accepts no event stream, because it is optional."""
        if self._can_stream:
            await self._send_event(message)

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Sends a request to the client. Without an event stream it cannot arrive, whatever the client declared."""
        if not self._can_stream:
            raise MissingCapability(required_capability(method))
        return await self._in_flight.request(self._session_id, self._send_event, method, params)

    async def finish(self, status: int, message: Any, headers: RawHeaders = ()) -> None:
        """Sends the response itself. The status is ignored if a stream has begun."""
        if self._keep_alive_task is None:
            await send_json(self._send, status, message, headers)
            return
        await self._stop_keep_alive()
        await self._send({"type": "http.response.body", "body": message_event(message)})

    async def accept(self) -> None:
        """Sends 202 without a body, for a notification or a cancelled call."""
        if self._keep_alive_task is not None:
            await self._stop_keep_alive()
            await self._send({"type": "http.response.body", "body": b""})
            return
        await send_empty(self._send, 202)

    async def abandon(self) -> None:
        """Ends the response without sending anything, because the client has disconnected."""
        if self._keep_alive_task is not None:
            await self._stop_keep_alive()

    async def _send_event(self, message: Mapping[str, Any]) -> None:
        if self._keep_alive_task is None:
            self._keep_alive_task = asyncio.create_task(self._keep_alive())
            await self._send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        await self._send({"type": "http.response.body", "body": message_event(message), "more_body": True})

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._keep_alive_s)
            await self._send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})

    async def _stop_keep_alive(self) -> None:
        assert self._keep_alive_task is not None
        self._keep_alive_task.cancel()
        with suppress(asyncio.CancelledError):
            await self._keep_alive_task
