"""Request headers: unique, stripped of whitespace, and equal to the body."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import HeaderMismatch, InvalidRequest
from server.protocol.messages import Request
from server.protocol.schema import MirroredParameter
from server.transports.headers import Headers, check_headers
from tests.cases import each_case

VERSION = "2026-07-28"
REGION = MirroredParameter(("where", "region"), "Region", "string")
COUNT = MirroredParameter(("count",), "Count", "integer")
URGENT = MirroredParameter(("urgent",), "Urgent", "boolean")


def _headers(**named: str) -> Headers:
    """Builds headers: `mcp_name="x"` is the header `mcp-name: x`."""
    return Headers([(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()])


def _matches(request: Request, mirrored: list[MirroredParameter] | None = None, **named: str) -> bool:
    all_headers = {"mcp_protocol_version": VERSION, "mcp_method": request.method, **named}
    try:
        check_headers(_headers(**all_headers), request, VERSION, mirrored or [])
    except HeaderMismatch:
        return False
    return True


def _encoded(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@each_case(
    "name",
    [
        b"authorization",
        b"mcp-protocol-version",
        b"mcp-method",
        b"mcp-name",
        b"mcp-session-id",
        b"mcp-config",
        b"mcp-param-region",
        b"host",
        b"origin",
        b"content-length",
    ],
)
def test_a_repeated_unique_header_is_rejected(name: bytes) -> None:
    with pytest.raises(InvalidRequest, match="expected one value, got several"):
        Headers([(name, b"a"), (b"other", b"x"), (name, b"a")])


def test_repeated_list_headers_are_joined() -> None:
    headers = Headers([(b"accept", b"application/json"), (b"accept", b" text/event-stream ")])

    assert headers.get(b"accept") == "application/json, text/event-stream"


@given(st.text(alphabet=" \t"), st.text(alphabet=" \t"))
def test_whitespace_around_a_value_is_stripped(before: str, after: str) -> None:
    assert Headers([(b"mcp-name", f"{before}a b{after}".encode())]).get(b"mcp-name") == "a b"


@each_case(
    ("accept", "json", "events"),
    [
        (None, True, True),
        ("*/*", True, True),
        ("application/json", True, False),
        ("application/json;q=0.9, text/event-stream", True, True),
        ("application/*", True, False),
        ("text/*", False, True),
        ("text/html", False, False),
        ("", False, False),
        ("APPLICATION/JSON", True, False),
        ("application/json;q=0, text/event-stream", False, True),
        ("application/json; Q=0.000, */*", False, True),
        ("application/json;q=0.001, */*;q=0", True, False),
        ("application/json-seq", False, False),
    ],
)
def test_accept_matches_types_and_wildcards(accept: str | None, json: bool, events: bool) -> None:
    headers = Headers([(b"accept", accept.encode())] if accept is not None else [])

    assert headers.accepts("application/json") is json
    assert headers.accepts("text/event-stream") is events


@given(st.text())
def test_a_base64_name_matches_only_itself(name: str) -> None:
    request = Request(1, "tools/call", {"name": name})

    assert _matches(request, mcp_name=_encoded(name))
    assert not _matches(request, mcp_name=_encoded(name + "x"))


@given(st.text(alphabet=st.characters(min_codepoint=0x20, max_codepoint=0x7E)).filter(lambda t: t == t.strip()))
def test_a_printable_name_matches_literally(name: str) -> None:
    assert _matches(Request(1, "tools/call", {"name": name}), mcp_name=name) or name.startswith("=?base64?")


@each_case("method", ["tools/list", "server/discover", "completion/complete"])
def test_methods_without_a_name_need_no_name_header(method: str) -> None:
    assert _matches(Request(1, method, {"name": "x"}))


@each_case("name", [5, ["a"], {"a": 1}, True])
def test_a_name_that_is_not_a_string_matches_no_header(name: Any) -> None:
    assert not _matches(Request(1, "tools/call", {"name": name}), mcp_name=str(name))


@each_case(
    ("parameter", "arguments", "header", "expected"),
    [
        (REGION, {"where": {"region": "eu"}}, "eu", True),
        (REGION, {"where": {"region": "eu"}}, _encoded("eu"), True),
        (REGION, {"where": {"region": "eu"}}, "us", False),
        (REGION, {"where": {"region": "eu"}}, None, False),
        (REGION, {"where": {}}, None, True),
        (REGION, {"where": "elsewhere"}, None, True),
        (REGION, {"where": {}}, "eu", False),
        (REGION, None, None, True),
        (REGION, [], "eu", False),
        (REGION, {"where": {"region": ["eu"]}}, "['eu']", False),
        (COUNT, {"count": 42}, "42", True),
        (COUNT, {"count": 42}, "42.0", True),
        (COUNT, {"count": -1}, "-1", True),
        (COUNT, {"count": 42}, "4 2", False),
        (COUNT, {"count": 42}, "0x2a", False),
        (COUNT, {"count": True}, "1", False),
        (URGENT, {"urgent": True}, "true", True),
        (URGENT, {"urgent": False}, "false", True),
        (URGENT, {"urgent": True}, "True", False),
        (URGENT, {"urgent": True}, "1", False),
    ],
)
def test_a_mirrored_argument_and_its_header_are_equal_or_both_absent(
    parameter: MirroredParameter, arguments: Any, header: str | None, expected: bool
) -> None:
    request = Request(1, "tools/call", {"arguments": arguments})
    headers = {} if header is None else {f"mcp_param_{parameter.token.lower()}": header}

    assert _matches(request, [parameter], **headers) is expected


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_arbitrary_header_bytes_match_or_mismatch(name: bytes, param: bytes) -> None:
    headers = Headers(
        [
            (b"mcp-protocol-version", VERSION.encode()),
            (b"mcp-method", b"tools/call"),
            (b"mcp-name", b"=?base64?" + name + b"?="),
            (b"mcp-param-count", param),
        ]
    )
    request = Request(1, "tools/call", {"name": "a", "arguments": {"count": 3}})

    try:
        check_headers(headers, request, VERSION, [COUNT])
    except HeaderMismatch:
        return
    assert (name, param.strip(b" \t").split(b".")[0]) in ((b"YQ==", b"3"), (b"YQ==", b"=?base64?Mw==?="))
