"""The state of a bridge: pending requests, and the handshake that is repeated on a new connection."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import ParseError, Unavailable
from server.protocol.messages import MalformedMessage
from server.transports.bridge import BridgeState
from tests.cases import each_case

LOST = Unavailable("the connection was lost")
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def frame(**message: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", **message})


def with_session(version: str = "2025-11-25") -> BridgeState:
    """Returns the state of a client that has completed the legacy handshake."""
    state = BridgeState()
    state.from_client(line(id="hello", method="initialize", params=HANDSHAKE))
    state.from_server(frame(id="hello", result={"protocolVersion": version}))
    state.from_client(line(method="notifications/initialized"))
    return state


def test_messages_are_passed_on_unchanged() -> None:
    state = BridgeState()
    request = b'{ "jsonrpc":"2.0",  "id":1, "method":"x", "params":{}}\n'
    response = '{"id":1,  "jsonrpc":"2.0","result":{"text":"\\u00e9 é"}}'
    assert state.from_client(request) == request.decode().strip()
    assert state.from_server(response) == response.encode() + b"\n"


def test_a_frame_of_several_lines_becomes_one_line() -> None:
    output = BridgeState().from_server('{"jsonrpc":"2.0",\r\n "method":"x", "params":{"text":"a\\nb"}}')
    assert output is not None
    assert output.count(b"\n") == 1
    assert json.loads(output)["params"] == {"text": "a\nb"}


@each_case("garbage", [b"garbage", b"\xff\xfe", b'{"jsonrpc":', b'"\\ud800'])
def test_invalid_json_is_not_passed_to_the_server(garbage: bytes) -> None:
    with pytest.raises(ParseError):
        BridgeState().from_client(garbage)


def test_a_malformed_message_keeps_its_id_for_the_error() -> None:
    with pytest.raises(MalformedMessage) as rejected:
        BridgeState().from_client(b'{"id":7,"method":"x"}')
    assert rejected.value.request_id == 7


def test_pending_requests_get_one_error_when_the_connection_is_lost() -> None:
    state = BridgeState()
    for request_id in (1, "1", 2, 3):
        state.from_client(line(id=request_id, method="tools/call"))
    state.from_server(frame(id=2, result={}))
    state.from_client(line(method="notifications/cancelled", params={"requestId": 3}))
    errors = state.disconnect(LOST)
    assert [(message["id"], message["error"]["code"]) for message in errors] == [(1, 503), ("1", 503)]
    assert state.disconnect(LOST) == []


def test_every_request_of_a_batch_is_pending() -> None:
    state = BridgeState()
    batch = [{"jsonrpc": "2.0", "id": n, "method": "x"} for n in (1, 2)] + [{"jsonrpc": "2.0", "method": "note"}, 5]
    assert state.from_client(json.dumps(batch).encode()) == json.dumps(batch)
    state.from_server(json.dumps([{"jsonrpc": "2.0", "id": 1, "result": {}}]))
    assert [message["id"] for message in state.disconnect(LOST)] == [2]


def test_a_request_that_cannot_be_sent_gets_an_error_and_is_no_longer_pending() -> None:
    state = BridgeState()
    state.from_client(line(id=1, method="x"))
    unsent = state.from_client(line(id=2, method="x"))
    assert unsent is not None
    assert [message["id"] for message in state.reject(unsent, LOST)] == [2]
    assert [message["id"] for message in state.disconnect(LOST)] == [1]


def test_a_subscription_is_not_a_pending_request() -> None:
    state = BridgeState()
    state.from_client(line(id=1, method="subscriptions/listen"))
    assert not state.has_pending_requests
    state.from_client(line(id=2, method="tools/list"))
    assert state.has_pending_requests
    assert len(state.disconnect(LOST)) == 2


def test_the_modern_era_has_no_handshake_to_repeat() -> None:
    state = BridgeState()
    state.from_client(line(id=1, method="server/discover", params={"_meta": {}}))
    state.from_server(frame(id=1, result={}))
    state.disconnect(LOST)
    assert state.repeat_handshake() is None
    assert state.repeat_initialized() is None


def test_a_handshake_is_repeated_and_its_second_response_hidden_from_the_client() -> None:
    state = with_session()
    state.disconnect(LOST)
    repeated = state.repeat_handshake()
    assert repeated is not None
    assert (repeated["method"], repeated["params"]) == ("initialize", HANDSHAKE)
    assert state.is_resuming
    assert state.from_server(frame(id=repeated["id"], result={"protocolVersion": "2025-11-25"})) is None
    assert not state.is_resuming
    assert state.repeat_initialized() == {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}


def test_repeated_handshakes_have_different_ids() -> None:
    state = with_session()
    first, second = state.repeat_handshake(), state.repeat_handshake()
    assert first is not None
    assert second is not None
    assert first["id"] != second["id"]


def test_an_unsuccessful_handshake_is_not_repeated() -> None:
    for response in (None, frame(id="hello", error={"code": -32602, "message": "no"})):
        state = BridgeState()
        state.from_client(line(id="hello", method="initialize", params=HANDSHAKE))
        if response:
            state.from_server(response)
        state.disconnect(LOST)
        assert state.repeat_handshake() is None


def test_initialized_is_repeated_only_if_the_client_had_sent_it() -> None:
    state = BridgeState()
    state.from_client(line(id="hello", method="initialize", params=HANDSHAKE))
    state.from_server(frame(id="hello", result={"protocolVersion": "2025-11-25"}))
    state.disconnect(LOST)
    assert state.repeat_handshake() is not None
    assert state.repeat_initialized() is None


@each_case("response", [{"result": {"protocolVersion": "2025-06-18"}}, {"error": {"code": 503, "message": "full"}}])
def test_a_session_that_cannot_be_resumed_is_reported(response: dict[str, Any]) -> None:
    state = with_session()
    repeated = state.repeat_handshake()
    assert repeated is not None
    with pytest.raises(Unavailable, match="restart the client"):
        state.from_server(frame(id=repeated["id"], **response))
    assert state.repeat_handshake() is None


def test_a_server_request_is_cancelled_when_the_connection_is_lost() -> None:
    state = with_session()
    request = frame(id="florilegium-1", method="sampling/createMessage", params={})
    assert state.from_server(request) is not None
    (cancellation,) = state.disconnect(LOST)
    assert (cancellation["method"], cancellation["params"]["requestId"]) == ("notifications/cancelled", "florilegium-1")
    assert state.from_client(line(id="florilegium-1", result={})) is None


def test_the_response_to_a_server_request_is_passed_on_once() -> None:
    state = with_session()
    state.from_server(frame(id="florilegium-1", method="roots/list", params={}))
    assert state.from_client(line(id="florilegium-1", result={"roots": []})) is not None
    assert state.from_client(line(id="florilegium-1", result={"roots": []})) is None


@given(
    st.lists(
        st.tuples(st.integers(0, 5) | st.sampled_from("abc"), st.sampled_from(["request", "response", "disconnect"]))
    )
)
def test_each_request_gets_at_most_one_response_in_any_order_of_events(events: list[tuple[int | str, str]]) -> None:
    state, pending = BridgeState(), set[int | str]()
    for request_id, event in events:
        match event:
            case "request" if request_id not in pending:
                state.from_client(line(id=request_id, method="tools/call"))
                pending.add(request_id)
            case "response" if request_id in pending:
                state.from_server(frame(id=request_id, result={}))
                pending.remove(request_id)
            case "disconnect":
                assert {message["id"] for message in state.disconnect(LOST)} == pending
                pending.clear()
        assert state.has_pending_requests == bool(pending)
