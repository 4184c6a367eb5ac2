"""Valid messages with a few random mutations, as a careless or hostile client would send them."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.server.clients import ELICITATION, handshake, message, modern_params

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)

_CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tools/list", {}),
    ("tools/list", {"cursor": "MTow"}),
    ("tools/call", {"name": "echo", "arguments": {"text": "x", "times": 2}}),
    ("tools/call", {"name": "report"}),
    ("tools/call", {"name": "miss", "arguments": {"text": "n"}}),
    ("tools/call", {"name": "write.note", "arguments": {}}),
    ("tools/call", {"name": "locate", "arguments": {"region": "eu", "shelf": 3}}),
    ("tools/call", {"name": "ask_name", "arguments": {"text": "x"}, "inputResponses": {"name": {"content": {}}}}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "test://items/1"}),
    ("resources/read", {"uri": "test://plain"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "Ben"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "tone", "value": "w"}},
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "test://items/{id}"}, "argument": {"name": "id", "value": "1"}},
    ),
)
_LEGACY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ping", {}),
    ("logging/setLevel", {"level": "info"}),
    ("resources/subscribe", {"uri": "test://plain"}),
    ("resources/unsubscribe", {"uri": "test://plain"}),
)

MODERN = [
    message(method, modern_params(params, capabilities=ELICITATION, log_level="info", progress_token="p"), 1)
    for method, params in (*_CALLS, ("server/discover", {}))
]
# A legacy client without the elicitation capability, because an elicitation would never be answered.
LEGACY = [
    handshake(),
    *(message(method, {**params, "_meta": {"progressToken": 1}}, 1) for method, params in (*_CALLS, *_LEGACY)),
    message("notifications/initialized"),
    message("notifications/cancelled", {"requestId": 1, "reason": "none"}),
    {"jsonrpc": "2.0", "id": "elicitation", "result": {"action": "accept"}},
    {"jsonrpc": "2.0", "id": "elicitation", "error": {"code": -1, "message": "no"}},
]


def is_request(body: Any) -> bool:
    """Returns whether a value is a well-formed request, which must get exactly one response."""
    return (
        isinstance(body, dict)
        and body.get("jsonrpc") == "2.0"
        and isinstance(body.get("method"), str)
        and isinstance(body.get("params", {}), dict)
        and isinstance(body.get("id"), str | int)
        and not isinstance(body.get("id"), bool)
    )


@st.composite
def mutated(draw: st.DrawFn, messages: list[dict[str, Any]]) -> Any:
    """Generates one of the messages with up to two entries removed, replaced or renamed."""
    body: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(messages)))
    if "id" in body and "method" in body:
        body["id"] = draw(st.integers() | st.text(max_size=5))
    for _ in range(draw(st.integers(0, 2))):
        entries = list(_entries(body))
        if not entries:
            break
        parent, key = draw(st.sampled_from(entries))
        match draw(st.sampled_from(("replace", "remove", "rename"))):
            case "replace":
                parent[key] = draw(JSON)
            case "remove":
                del parent[key]
            case "rename":
                parent[draw(st.text(max_size=8))] = parent.pop(key)
    return body


def _entries(body: Any) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(body, dict):
        for key, value in body.items():
            yield body, key
            yield from _entries(value)
