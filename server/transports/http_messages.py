"""HTTP requests and responses as ASGI messages, for the transports that do without Starlette's classes."""

from collections.abc import Sequence
from typing import Any

from starlette.types import Receive, Send

from config.errors import FlorilegiumError, InvalidRequest, TooLarge
from config.logging import current_request_id
from server.protocol.messages import encode, log_failure

RawHeaders = Sequence[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
STREAM_HEADERS: RawHeaders = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # Reverse proxies buffer by default, which would delay events until the stream ends.
    (b"x-accel-buffering", b"no"),
)
KEEP_ALIVE = b": keep-alive\n\n"


class HttpStatusError(InvalidRequest):
    """An invalid request that HTTP has its own status for: 406 or 415."""

    def __init__(self, message: str, http_status: int) -> None:
        super().__init__(message)
        self.http_status = http_status


def error_and_status(what: str, error: Exception) -> tuple[FlorilegiumError, int]:
    """Returns the error to send. An unexpected exception is logged; the client learns only the id of the request."""
    match error:
        case HttpStatusError():
            return error, error.http_status
        case FlorilegiumError():
            return error, error.status
    log_failure(what, error)
    return FlorilegiumError(f"internal error (request {current_request_id()})"), 500


def message_event(message: Any) -> bytes:
    return b"event: message\ndata: " + encode(message) + b"\n\n"


async def send_json(send: Send, status: int, message: Any, headers: RawHeaders = ()) -> None:
    body = encode(message)
    all_headers = [JSON, (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


async def send_empty(send: Send, status: int, headers: RawHeaders = ()) -> None:
    # RFC 9110 section 8.6: a 204 has no Content-Length.
    length = () if status == 204 else ((b"content-length", b"0"),)
    await send({"type": "http.response.start", "status": status, "headers": [*length, *headers]})
    await send({"type": "http.response.body", "body": b""})


async def send_method_not_allowed(send: Send) -> None:
    await send_empty(send, 405, [(b"allow", b"POST, GET, DELETE")])


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(receive: Receive, content_length: str | None, limit_bytes: int) -> bytes:
    """Reads the whole body. Raises TooLarge as soon as the limit is known to be exceeded."""
    if content_length is not None and content_length.isdigit() and int(content_length) > limit_bytes:
        raise TooLarge("the body", limit_bytes)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if parts and message["type"] == "http.disconnect":
            raise InvalidRequest("the body is incomplete")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit_bytes:
            raise TooLarge("the body", limit_bytes)
        if not message.get("more_body"):
            return b"".join(parts)
