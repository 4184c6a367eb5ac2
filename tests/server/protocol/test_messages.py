"""JSON-RPC messages: valid and malformed ones, and the form of responses."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import ParseError, RateLimited
from server.protocol.messages import (
    NESTING_MAX,
    MalformedMessage,
    Notification,
    Request,
    Response,
    decode,
    encode,
    error_message,
    notification_message,
    read_message,
    request_message,
    result_message,
)
from tests.cases import each_case
from tests.server.mutated_messages import JSON

IDS = st.text() | st.integers()
FIELDS = st.sampled_from(("jsonrpc", "id", "method", "params", "result", "error"))


@each_case(
    ("value", "reason", "expected_id"),
    [
        (None, "must be a JSON object", None),
        ([], "must be a JSON object", None),
        ("text", "must be a JSON object", None),
        (7, "must be a JSON object", None),
        ({}, '"jsonrpc"', None),
        ({"jsonrpc": "1.0", "id": 4, "method": "m"}, '"jsonrpc"', 4),
        ({"jsonrpc": 2.0, "id": 4, "method": "m"}, '"jsonrpc"', 4),
        ({"jsonrpc": ["2.0"], "id": 4, "method": "m"}, '"jsonrpc"', 4),
        ({"jsonrpc": "2.0", "id": None, "method": "m"}, '"id"', None),
        ({"jsonrpc": "2.0", "id": True, "method": "m"}, '"id"', None),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "m"}, '"id"', None),
        ({"jsonrpc": "2.0", "id": [1], "method": "m"}, '"id"', None),
        ({"jsonrpc": "2.0", "id": {}, "method": "m"}, '"id"', None),
        ({"jsonrpc": "2.0", "id": 4, "method": 7}, '"method"', 4),
        ({"jsonrpc": "2.0", "id": 4, "method": None}, '"method"', 4),
        ({"jsonrpc": "2.0", "id": 4, "method": ["m"]}, '"method"', 4),
        ({"jsonrpc": "2.0", "id": "x", "method": "m", "params": []}, '"params"', "x"),
        ({"jsonrpc": "2.0", "id": "x", "method": "m", "params": None}, '"params"', "x"),
        ({"jsonrpc": "2.0", "id": "x", "method": "m", "params": "p"}, '"params"', "x"),
        ({"jsonrpc": "2.0", "id": "x"}, '"result" or an "error"', "x"),
        ({"jsonrpc": "2.0", "result": {}}, '"id" with', None),
        ({"jsonrpc": "2.0", "id": "x", "result": {}, "error": {}}, '"result" or an "error"', "x"),
        ({"jsonrpc": "2.0", "id": "x", "result": 5}, "must be objects", "x"),
        ({"jsonrpc": "2.0", "id": "x", "error": "no"}, "must be objects", "x"),
    ],
)
def test_a_malformed_message_is_rejected_with_reason_and_id(value: Any, reason: str, expected_id: Any) -> None:
    with pytest.raises(MalformedMessage) as error:
        read_message(value)

    assert reason in error.value.message
    assert error.value.request_id == expected_id


@given(JSON | st.dictionaries(FIELDS, JSON | st.just("2.0")))
def test_any_json_value_is_a_message_or_malformed(value: Any) -> None:
    try:
        message = read_message(value)
    except MalformedMessage:
        return
    assert isinstance(message, Request | Notification | Response)


@given(IDS, st.text(), st.dictionaries(st.text(), JSON, max_size=3))
def test_a_request_survives_encoding_and_decoding(request_id: Any, method: str, params: dict[str, Any]) -> None:
    body = encode(request_message(request_id, method, params))

    assert read_message(decode(body)) == Request(request_id, method, params)


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_json_or_a_parse_error(body: bytes) -> None:
    try:
        value = decode(body)
    except ParseError:
        return
    assert decode(encode(value)) == value


@each_case(
    "body",
    [
        b"",
        b" ",
        b"{",
        b'{"a":}',
        b"\x00",
        b'"\xff"',
        b'"\\ud800"',
        b'"\\udc00 x"',
        b"NaN",
        b"1e999",
        b"1" * 5_000,
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        "a lone \ud800 surrogate",
    ],
)
def test_invalid_json_is_a_parse_error(body: bytes | str) -> None:
    with pytest.raises(ParseError):
        decode(body)


@given(st.integers(1, 300), st.booleans(), st.booleans())
def test_nesting_is_limited_to_nesting_max(depth: int, as_object: bool, as_text: bool) -> None:
    """Brackets inside a string do not count as nesting."""
    opening, closing = ('{"a":', "}") if as_object else ("[", "]")
    body = opening * depth + '"[{[{[{"' + closing * depth + " "

    try:
        decode(body if as_text else body.encode())
    except ParseError:
        assert depth > NESTING_MAX
    else:
        assert depth <= NESTING_MAX
    assert decode(f'"{"[" * 500}"') == "[" * 500


def test_a_notification_is_a_message_without_an_id() -> None:
    assert read_message(notification_message("n", {"a": 1})) == Notification("n", {"a": 1})


def test_params_are_optional() -> None:
    assert read_message({"jsonrpc": "2.0", "id": 1, "method": "ping"}) == Request(1, "ping", {})


def test_a_response_of_the_client_has_a_result_or_an_error() -> None:
    good = read_message(result_message("q", {"action": "accept"}))
    bad = read_message({"jsonrpc": "2.0", "id": "q", "error": {"code": -1, "message": "no"}})

    assert good == Response("q", {"action": "accept"}, None)
    assert bad == Response("q", None, {"code": -1, "message": "no"})


def test_an_error_response_has_code_message_and_data() -> None:
    response = error_message(9, RateLimited("calls", 2.0))

    assert msgspec.json.decode(encode(response)) == {
        "jsonrpc": "2.0",
        "id": 9,
        "error": {
            "code": 429,
            "message": "rate limit for calls reached; retry after 2 s",
            "data": {"retry_after_s": 2.0},
        },
    }
