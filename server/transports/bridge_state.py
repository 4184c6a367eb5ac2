"""What a bridge between a client and a server must remember: who waits for what, and what a new connection is told.

Pure: lines and frames in, lines and frames out. What it passes on is never rewritten.
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

# It is answered only when its client ends it, so nobody waits for the answer.
_NEVER_AWAITED = "subscriptions/listen"


class LegacyHandshake(Struct, frozen=True):
    """A legacy `initialize` that was answered, and the protocol version of the answer."""

    params: Mapping[str, Any]
    version: Any


class Relay:
    """One client, and one server after another in its place."""

    def __init__(self) -> None:
        self._awaited: dict[RequestId, str] = {}
        self._asked: set[RequestId] = set()
        self._offered: tuple[RequestId, Mapping[str, Any]] | None = None
        self._handshake: LegacyHandshake | None = None
        self._is_initialized = False
        self._repeats = 0
        self._repeated: RequestId | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether the client waits for an answer."""
        return any(method != _NEVER_AWAITED for method in self._awaited.values())

    @property
    def is_resuming(self) -> bool:
        """Whether a repeated handshake is still unanswered."""
        return self._repeated is not None

    def from_client(self, line: bytes) -> str | None:
        """The frame for the server, or None for an answer that nobody waits for any more."""
        value = decode(line)
        if isinstance(value, list):
            for message in _messages(value):
                self._note_from_client(message)
        elif not self._note_from_client(read_message(value)):
            return None
        return line.decode().strip()

    def from_server(self, frame: str) -> bytes | None:
        """The line for the client, or None for what was not meant for it."""
        value = decode(frame)
        for message in _messages(value if isinstance(value, list) else [value]):
            if not self._note_from_server(message):
                return None
        # In JSON a line break is white space between tokens, never inside one.
        return frame.replace("\r", " ").replace("\n", " ").encode() + b"\n"

    def refuse(self, frame: str, reason: FlorilegiumError) -> list[dict[str, Any]]:
        """A frame that came through `from_client` cannot be sent: the answers to what it asked."""
        value = decode(frame)
        messages = _messages(value if isinstance(value, list) else [value])
        refused = [message.id for message in messages if isinstance(message, Request)]
        for request_id in refused:
            self._awaited.pop(request_id, None)
        return [error_message(request_id, reason) for request_id in refused]

    def lose(self, reason: FlorilegiumError) -> list[dict[str, Any]]:
        """The connection is gone: the messages that tell the client so."""
        answers = [error_message(request_id, reason) for request_id in self._awaited]
        # The server's own questions die with its connection; a new one may use their ids again.
        withdrawn = [
            notification_message("notifications/cancelled", {"requestId": request_id, "reason": reason.message})
            for request_id in self._asked
        ]
        self._awaited.clear()
        self._asked.clear()
        self._offered = self._repeated = None
        return answers + withdrawn

    def resume(self) -> dict[str, Any] | None:
        """The handshake to repeat on a new connection; None in the modern era, which has none."""
        if self._handshake is None:
            return None
        self._repeats += 1
        self._repeated = f"florilegium-bridge-{self._repeats}"
        return request_message(self._repeated, "initialize", self._handshake.params)

    def resumed(self) -> dict[str, Any] | None:
        """What follows the repeated handshake, if the client had come that far."""
        if self._handshake is None or not self._is_initialized:
            return None
        return notification_message("notifications/initialized", {})

    def _note_from_client(self, message: Message) -> bool:
        match message:
            case Request():
                self._awaited[message.id] = message.method
                if message.method == "initialize":
                    self._offered, self._is_initialized = (message.id, message.params), False
            case Notification("notifications/initialized"):
                self._is_initialized = True
            case Notification("notifications/cancelled", {"requestId": str() | int() as request_id}):
                self._awaited.pop(request_id, None)  # a cancelled request is owed no answer
            case Response():
                is_asked = message.id in self._asked
                self._asked.discard(message.id)
                return is_asked
        return True

    def _note_from_server(self, message: Message) -> bool:
        match message:
            case Request():
                self._asked.add(message.id)
            case Notification("notifications/cancelled", {"requestId": str() | int() as request_id}):
                self._asked.discard(request_id)
            case Response(id=request_id) if request_id == self._repeated:
                self._repeated = None
                self._require_same(message)
                return False
            case Response():
                self._awaited.pop(message.id, None)
                self._keep_handshake(message)
        return True

    def _keep_handshake(self, answer: Response) -> None:
        if self._offered is None or answer.id != self._offered[0]:
            return
        if answer.result is not None:
            self._handshake = LegacyHandshake(self._offered[1], answer.result.get("protocolVersion"))
        self._offered = None

    def _require_same(self, answer: Response) -> None:
        """The client goes on with what it was told first, so the server must still say the same."""
        assert self._handshake is not None
        if answer.result is None or answer.result.get("protocolVersion") != self._handshake.version:
            self._handshake = None
            raise Unavailable("the server does not take the session up again; start the client anew")


def _messages(values: list[Any]) -> Iterator[Message]:
    """Those that are messages. The rest, such as an error without an id, concerns nobody who waits."""
    for value in values:
        with suppress(MalformedMessage):
            yield read_message(value)
