"""JSON-RPC 2.0 messages in and out: bytes to frozen values, values to bytes. It judges form, never meaning."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from config.errors import FlorilegiumError, InvalidRequest, ParseError

RequestId = str | int
MESSAGE_MAX_CHARS = 1000
# RFC 8259 section 9 lets a parser limit nesting. The decoder stops where the stack ends, but whoever walks the message
# afterwards (a repr, an encoder, a handler) stands deeper in the stack than the decoder did, and needs room.
NESTING_MAX = 100


class Request(Struct, frozen=True):
    """A call that is owed exactly one answer."""

    id: RequestId
    method: str
    params: dict[str, Any]


class Notification(Struct, frozen=True):
    """A message that is owed none."""

    method: str
    params: dict[str, Any]


class Response(Struct, frozen=True):
    """The client's answer to a question of ours."""

    id: RequestId
    result: dict[str, Any] | None
    error: dict[str, Any] | None


Message = Request | Notification | Response

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()
encode = _encoder.encode


class MalformedMessage(InvalidRequest):
    """A JSON value that is no JSON-RPC message; keeps the id when one could be read, so the answer can carry it."""

    def __init__(self, message: str, request_id: RequestId | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id


def decode(body: bytes | str) -> Any:
    """JSON to Python, or a parse error: also for nesting that the decoder's recursion guard or our own limit stops."""
    try:
        value = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ParseError("the message is not valid JSON") from error
    if _bracket_count(body) > NESTING_MAX and _is_nested_too_deeply(value):
        raise ParseError(f"the message is nested deeper than {NESTING_MAX} levels")
    return value


def _bracket_count(body: bytes | str) -> int:
    """An upper bound of the nesting, in a fraction of the time that measuring it takes."""
    if isinstance(body, bytes):
        return body.count(b"[") + body.count(b"{")
    return body.count("[") + body.count("{")


def _is_nested_too_deeply(value: Any) -> bool:
    level = [value]
    for _ in range(NESTING_MAX + 1):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return True


def _children(node: Any) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


def read_message(value: Any) -> Message:
    """One decoded JSON value to the message it is; JSON-RPC 2.0 section 4, and MCP's rule that an id is never null."""
    if not isinstance(value, dict):
        raise MalformedMessage("a message must be a JSON object")
    request_id = value.get("id")
    known = request_id if _is_id(request_id) else None
    if value.get("jsonrpc") != "2.0":
        raise MalformedMessage('"jsonrpc" must be "2.0"', known)
    if "id" in value and known is None:
        raise MalformedMessage('"id" must be a string or an integer')
    if "method" not in value:
        return _read_response(value, known)
    method, params = value["method"], value.get("params", {})
    if not isinstance(method, str):
        raise MalformedMessage('"method" must be a string', known)
    if not isinstance(params, dict):
        raise MalformedMessage('"params" must be an object', known)
    return Notification(method, params) if known is None else Request(known, method, params)


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _read_response(value: dict[str, Any], known: RequestId | None) -> Response:
    result, error = value.get("result"), value.get("error")
    if known is None or (result is None) == (error is None):
        raise MalformedMessage('a message needs a "method", or an "id" with a "result" or an "error"', known)
    if not isinstance(result if error is None else error, dict):
        raise MalformedMessage('"result" and "error" must be objects', known)
    return Response(known, result, error)


def result_message(request_id: RequestId, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def error_message(request_id: RequestId | None, error: FlorilegiumError) -> dict[str, Any]:
    """`id` is null only where the request's own could not be read (JSON-RPC 2.0 section 5)."""
    body: dict[str, Any] = {"code": error.code, "message": _shortened(error.message)}
    if error.data is not None:
        body["data"] = dict(error.data)
    return {"jsonrpc": "2.0", "id": request_id, "error": body}


def _shortened(text: str) -> str:
    """Sentences quote what the caller sent, which may be as long as a body."""
    return text if len(text) <= MESSAGE_MAX_CHARS else f"{text[: MESSAGE_MAX_CHARS - 3]}..."


def notification_message(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def request_message(request_id: RequestId, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
