"""The state of a bridge between a stdio client and a server: pending requests, and the handshake to repeat.

Performs no I/O: lines and frames in, lines and frames out. Messages are passed on unchanged.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from config.errors import FlorilegiumError, Unavailable
from server.protocol.messages import (
    MalformedMessage,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    error_message,
    notification_message,
    read_message,
    request_message,
)

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
            if not self._track_server_message(message):
                return None
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

    def _track_server_message(self, message: Message) -> bool:
        """Records a message of the server. Returns False if it must not be passed on."""
        match message:
            case Request():
                self._server_requests.add(message.id)
            case Notification("notifications/cancelled", {"requestId": str() | int() as request_id}):
                self._server_requests.discard(request_id)
            case Response(id=request_id) if request_id == self._repeat_id:
                self._repeat_id = None
                self._require_same_version(message)
                return False
            case Response():
                self._client_requests.pop(message.id, None)
                self._store_handshake(message)
        return True

    def _store_handshake(self, response: Response) -> None:
        if self._pending_initialize is None or response.id != self._pending_initialize[0]:
            return
        if response.result is not None:
            params = self._pending_initialize[1]
            self._handshake = LegacyHandshake(params, response.result.get("protocolVersion"))
        self._pending_initialize = None

    def _require_same_version(self, response: Response) -> None:
        """The client keeps using the version of its own handshake, so the server must negotiate the same version
        again."""
        assert self._handshake is not None
        if response.result is None or response.result.get("protocolVersion") != self._handshake.version:
            self._handshake = None
            raise Unavailable("the server did not resume the session; restart the client")


def _messages(values: list[Any]) -> Iterator[Message]:
    """Yields the well-formed messages. No request waits for the others, such as an error without an id."""
    for value in values:
        with suppress(MalformedMessage):
            yield read_message(value)
