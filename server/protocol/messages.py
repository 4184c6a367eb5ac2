"""Decoding and encoding of JSON-RPC 2.0 messages. Checks their form, not their meaning."""

import enum
import gc
import operator
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from loguru import logger
from msgspec import Struct

from config.errors import FlorilegiumError, InvalidParams, InvalidRequest, ParseError

RequestId = str | int
MESSAGE_MAX_CHARS = 1000
# RFC 8259 section 9 lets a parser limit nesting. The decoder itself stops only at the end of the stack, but code that
# walks the message later (a repr, an encoder, a handler) runs deeper in the stack than the decoder did.
NESTING_MAX = 100


class Request(Struct, frozen=True):
    """A client's request; it gets exactly one response."""

    id: RequestId
    method: str
    params: dict[str, Any]


class Notification(Struct, frozen=True):
    """A client's notification; it gets no response."""

    method: str
    params: dict[str, Any]


class Response(Struct, frozen=True):
    """The client's response to a request from the server."""

    id: RequestId
    result: dict[str, Any] | None
    error: dict[str, Any] | None


Message = Request | Notification | Response

_decode_json = msgspec.json.Decoder().decode
_encoder = msgspec.json.Encoder()
encode = _encoder.encode


class MalformedMessage(InvalidRequest):
    """A JSON value that is not a JSON-RPC message. Keeps the id, if it could be read, for the error response."""

    def __init__(self, message: str, request_id: RequestId | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id


# The memory that a request takes, which the size of its text says little about: 3.3 MB of nested lists take 158 MB.

# The text, and its strings: one emoji makes all characters of a string take four bytes.
TEXT_BYTES = 4
# An object has one or two blocks of memory, with 45 to 142 bytes on average (CPython 3.11).
_BLOCK_BYTES = 100
# Counting takes about 0.1 ms. A shorter text takes at most 0.1 MB.
_SHORT_TEXT = 2048
_call: Callable[[Any], Any] = operator.call


def decode(body: bytes | str, hold: Callable[[int], None] | None = None) -> Any:
    """Decodes JSON. Raises ParseError for invalid JSON and for JSON nested deeper than NESTING_MAX.

    `hold` gets the memory of the objects, without that of the text, and may refuse it.
    """
    try:
        value = _decode_json(body) if hold is None or len(body) <= _SHORT_TEXT else _decode_and_hold(body, hold)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ParseError("the message is not valid JSON") from error
    # The brackets are an upper bound of the depth, in a fraction of the time that measuring it takes.
    brackets = body.count(b"[") + body.count(b"{") if isinstance(body, bytes) else body.count("[") + body.count("{")
    if brackets <= NESTING_MAX:
        return value
    level = [value]
    for _ in range(NESTING_MAX + 1):
        parents = [
            node.values() if isinstance(node, dict) else node for node in level if isinstance(node, (dict, list))
        ]
        level = [child for children in parents for child in children]
        if not level:
            return value
    raise ParseError(f"the message is nested deeper than {NESTING_MAX} levels")


def _decode_and_hold(text: bytes | str, hold: Callable[[int], None]) -> Any:
    # The three calls are made from C, so that the interpreter lock is kept and no other thread allocates or frees
    # anything meanwhile. The garbage collector is off for the same reason, which also makes decoding faster.
    calls: tuple[Any, ...] = (sys.getallocatedblocks, partial(_decode_json, text), sys.getallocatedblocks)
    gc.disable()
    try:
        before, and_measure_value, after = map(_call, calls)
    finally:
        gc.enable()
    value, size = and_measure_value, (after - before) * _BLOCK_BYTES
    try:
        hold(size)
    except FlorilegiumError:
        value = and_measure_value = None  # the traceback would keep it
        raise
    return value


def read_message(value: Any) -> Message:
    """Converts a decoded JSON value to a message (JSON-RPC 2.0 section 4; in MCP an id is never null)."""
    if not isinstance(value, dict):
        raise MalformedMessage("a message must be a JSON object")
    request_id = value.get("id")
    # Not `str | int`, which would be a new object for every message.
    valid_id = request_id if (isinstance(request_id, (str, int)) and not isinstance(request_id, bool)) else None
    if value.get("jsonrpc") != "2.0":
        raise MalformedMessage('"jsonrpc" must be "2.0"', valid_id)
    if "id" in value and valid_id is None:
        raise MalformedMessage('"id" must be a string or an integer')
    if "method" not in value:
        result, error = value.get("result"), value.get("error")
        if valid_id is None or (result is None) == (error is None):
            raise MalformedMessage('a message needs a "method", or an "id" with a "result" or an "error"', valid_id)
        if not isinstance(result if error is None else error, dict):
            raise MalformedMessage('"result" and "error" must be objects', valid_id)
        return Response(valid_id, result, error)
    method, params = value["method"], value.get("params", {})
    if not isinstance(method, str):
        raise MalformedMessage('"method" must be a string', valid_id)
    if not isinstance(params, dict):
        raise MalformedMessage('"params" must be an object', valid_id)
    return Notification(method, params) if valid_id is None else Request(valid_id, method, params)


class _Envelope(Struct):
    # In the order of the tools: typing caches equal unions, so that the first one imported is in all schemas.
    id: str | int | None = None
    method: str = ""


def read_id(body: bytes | str) -> RequestId | None:
    """Returns the id of a refused request without decoding the rest of it; None if it has no valid one. Half of a
    surrogate pair, for which a message is refused, does not prevent that."""
    from sources.importers.engine.json_stream import decode_object  # noqa: PLC0415 - only for refused messages

    try:
        envelope = decode_object(body.encode() if isinstance(body, str) else body, _Envelope)
    except (InvalidParams, UnicodeError):
        return None
    # `decode_object` puts NUL in place of half a pair, so an id that contains it is not the one that was sent.
    is_known = envelope.method and "\0" not in str(envelope.id)
    return envelope.id if is_known else None


def result_message(request_id: RequestId, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def short_message(error: FlorilegiumError) -> str:
    """Returns the message, without its middle if it is very long: it may quote a value as long as the request."""
    text, half = error.message, MESSAGE_MAX_CHARS // 2
    return text if len(text) <= MESSAGE_MAX_CHARS else f"{text[: half - 3]}...{text[-half:]}"


def error_message(request_id: RequestId | None, error: FlorilegiumError) -> dict[str, Any]:
    """Builds an error response. `id` is null only if the request's id could not be read (JSON-RPC 2.0 section 5)."""
    body: dict[str, Any] = {"code": error.code, "message": short_message(error)}
    if error.data is not None:
        body["data"] = dict(error.data)
    return {"jsonrpc": "2.0", "id": request_id, "error": body}


def notification_message(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def request_message(request_id: RequestId, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


# -- failures ----------------------------------------------------------------------------------------------------------
# Logging of unexpected exceptions by type, location and causes, without their messages.
#
# An exception's message often quotes the data that caused it, such as a user's note, and the log must not hold
# content.


def log_failure(what: str, error: BaseException) -> None:
    logger.opt(exception=_without_message(error)).error("{} failed", what)


def _without_message(error: BaseException) -> BaseException:
    """Returns an exception of the same name and traceback with no arguments, and its causes likewise."""
    original = type(error)
    attributes = {"__module__": original.__module__, "__qualname__": original.__qualname__}
    replacement: BaseException = type(original.__name__, (Exception,), attributes)()
    if error.__cause__ is not None:
        replacement.__cause__ = _without_message(error.__cause__)
    elif error.__context__ is not None and not error.__suppress_context__:
        replacement.__context__ = _without_message(error.__context__)
    return replacement.with_traceback(error.__traceback__)


# -- versions ----------------------------------------------------------------------------------------------------------
# The supported MCP revisions, in two eras: legacy ones begin with an `initialize` handshake, modern ones do not.

MODERN_VERSIONS = ("2026-07-28",)
LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ALL_VERSIONS = (*LEGACY_VERSIONS, *MODERN_VERSIONS)
LATEST_LEGACY = LEGACY_VERSIONS[-1]
# JSON-RPC batches were added in 2025-03-26 and removed in 2025-06-18.
BATCH_VERSION = "2025-03-26"


class Era(enum.StrEnum):
    """LEGACY has sessions and a handshake; in MODERN every request is self-contained. A text, because other members of
    an enumeration are hashed by a Python function."""

    LEGACY = "legacy"
    MODERN = "modern"


def negotiate(requested: str) -> str:
    """Returns the version to answer `initialize` with: the requested one, or the latest legacy version."""
    return requested if requested in LEGACY_VERSIONS else LATEST_LEGACY


# -- params ------------------------------------------------------------------------------------------------------------
# Type checks for JSON-RPC parameters, with one wording for all of their errors.


def require_string(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise wrong_type(name, "a string", value)
    return value


def require_object(params: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = params.get(name)
    if not isinstance(value, dict):
        raise wrong_type(name, "an object", value)
    return value


def wrong_type(name: str, expected: str, value: Any) -> InvalidParams:
    return InvalidParams(f"{name}: expected {expected}, got {json_type(value)}")


def json_type(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"
