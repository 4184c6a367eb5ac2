import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import ParseError, Unavailable
from server.protocol.messages import MalformedMessage
from server.transports.bridge_state import BridgeState

LOST = Unavailable("the connection was lost")
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def frame(**message: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", **message})


def with_session(version: str = "2025-11-25") -> BridgeState:
    """A state whose client has made the legacy handshake."""
    state = BridgeState()
    state.from_client(line(id="hello", method="initialize", params=HANDSHAKE))
    state.from_server(frame(id="hello", result={"protocolVersion": version}))
    state.from_client(line(method="notifications/initialized"))
    return state


def test_messages_pass_as_they_came() -> None:
    state = BridgeState()
    request = b'{ "jsonrpc":"2.0",  "id":1, "method":"x", "params":{}}\n'
    answer = '{"id":1,  "jsonrpc":"2.0","result":{"text":"\\u00e9 é"}}'
    assert state.from_client(request) == request.decode().strip()
    assert state.from_server(answer) == answer.encode() + b"\n"


def test_a_frame_of_several_lines_becomes_one_line() -> None:
    passed = BridgeState().from_server('{"jsonrpc":"2.0",\r\n "method":"x", "params":{"text":"a\\nb"}}')
    assert passed is not None
    assert passed.count(b"\n") == 1
    assert json.loads(passed)["params"] == {"text": "a\nb"}


@pytest.mark.parametrize("garbage", [b"garbage", b"\xff\xfe", b'{"jsonrpc":', b'"\\ud800'])
def test_what_is_not_json_never_reaches_the_server(garbage: bytes) -> None:
    with pytest.raises(ParseError):
        BridgeState().from_client(garbage)


def test_a_malformed_message_keeps_its_id_for_the_answer() -> None:
    with pytest.raises(MalformedMessage) as refused:
        BridgeState().from_client(b'{"id":7,"method":"x"}')
    assert refused.value.request_id == 7


def test_what_is_in_flight_when_the_connection_is_lost_is_answered_once() -> None:
    state = BridgeState()
    for request_id in (1, "1", 2, 3):
        state.from_client(line(id=request_id, method="tools/call"))
    state.from_server(frame(id=2, result={}))
    state.from_client(line(method="notifications/cancelled", params={"requestId": 3}))
    told = state.disconnect(LOST)
    assert [(message["id"], message["error"]["code"]) for message in told] == [(1, 503), ("1", 503)]
    assert state.disconnect(LOST) == []


def test_every_request_of_a_batch_is_in_flight() -> None:
    state = BridgeState()
    batch = [{"jsonrpc": "2.0", "id": n, "method": "x"} for n in (1, 2)] + [{"jsonrpc": "2.0", "method": "note"}, 5]
    assert state.from_client(json.dumps(batch).encode()) == json.dumps(batch)
    state.from_server(json.dumps([{"jsonrpc": "2.0", "id": 1, "result": {}}]))
    assert [message["id"] for message in state.disconnect(LOST)] == [2]


def test_a_message_that_cannot_be_sent_is_answered_and_no_longer_in_flight() -> None:
    state = BridgeState()
    state.from_client(line(id=1, method="x"))
    sent = state.from_client(line(id=2, method="x"))
    assert sent is not None
    assert [message["id"] for message in state.reject(sent, LOST)] == [2]
    assert [message["id"] for message in state.disconnect(LOST)] == [1]


def test_a_listener_is_not_waited_for() -> None:
    state = BridgeState()
    state.from_client(line(id=1, method="subscriptions/listen"))
    assert not state.has_pending_requests
    state.from_client(line(id=2, method="tools/list"))
    assert state.has_pending_requests
    assert len(state.disconnect(LOST)) == 2


def test_the_modern_era_has_nothing_to_repeat() -> None:
    state = BridgeState()
    state.from_client(line(id=1, method="server/discover", params={"_meta": {}}))
    state.from_server(frame(id=1, result={}))
    state.disconnect(LOST)
    assert state.repeat_handshake() is None
    assert state.repeat_initialized() is None


def test_an_answered_handshake_is_repeated_and_the_second_answer_kept_from_the_client() -> None:
    state = with_session()
    state.disconnect(LOST)
    repeated = state.repeat_handshake()
    assert repeated is not None
    assert (repeated["method"], repeated["params"]) == ("initialize", HANDSHAKE)
    assert state.is_resuming
    assert state.from_server(frame(id=repeated["id"], result={"protocolVersion": "2025-11-25"})) is None
    assert not state.is_resuming
    assert state.repeat_initialized() == {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}


def test_two_repetitions_never_share_an_id() -> None:
    state = with_session()
    first, second = state.repeat_handshake(), state.repeat_handshake()
    assert first is not None
    assert second is not None
    assert first["id"] != second["id"]


def test_a_handshake_that_was_never_answered_well_is_not_repeated() -> None:
    for answer in (None, frame(id="hello", error={"code": -32602, "message": "no"})):
        state = BridgeState()
        state.from_client(line(id="hello", method="initialize", params=HANDSHAKE))
        if answer:
            state.from_server(answer)
        state.disconnect(LOST)
        assert state.repeat_handshake() is None


def test_initialized_is_repeated_only_if_the_client_had_said_it() -> None:
    state = BridgeState()
    state.from_client(line(id="hello", method="initialize", params=HANDSHAKE))
    state.from_server(frame(id="hello", result={"protocolVersion": "2025-11-25"}))
    state.disconnect(LOST)
    assert state.repeat_handshake() is not None
    assert state.repeat_initialized() is None


@pytest.mark.parametrize(
    "answer", [{"result": {"protocolVersion": "2025-06-18"}}, {"error": {"code": 503, "message": "full"}}]
)
def test_a_server_that_does_not_take_the_session_up_again_is_told_to_the_client(answer: dict[str, Any]) -> None:
    state = with_session()
    repeated = state.repeat_handshake()
    assert repeated is not None
    with pytest.raises(Unavailable, match="restart the client"):
        state.from_server(frame(id=repeated["id"], **answer))
    assert state.repeat_handshake() is None


def test_a_question_of_the_server_is_withdrawn_with_its_connection() -> None:
    state = with_session()
    asked = frame(id="florilegium-1", method="sampling/createMessage", params={})
    assert state.from_server(asked) is not None
    (told,) = state.disconnect(LOST)
    assert (told["method"], told["params"]["requestId"]) == ("notifications/cancelled", "florilegium-1")
    assert state.from_client(line(id="florilegium-1", result={})) is None


def test_an_answer_to_an_open_question_passes_once() -> None:
    state = with_session()
    state.from_server(frame(id="florilegium-1", method="roots/list", params={}))
    assert state.from_client(line(id="florilegium-1", result={"roots": []})) is not None
    assert state.from_client(line(id="florilegium-1", result={"roots": []})) is None


@given(st.lists(st.tuples(st.integers(0, 5) | st.sampled_from("abc"), st.sampled_from(["ask", "answer", "lose"]))))
def test_in_any_order_of_events_each_request_is_answered_at_most_once(events: list[tuple[int | str, str]]) -> None:
    state, waiting = BridgeState(), set[int | str]()
    for request_id, event in events:
        match event:
            case "ask" if request_id not in waiting:
                state.from_client(line(id=request_id, method="tools/call"))
                waiting.add(request_id)
            case "answer" if request_id in waiting:
                state.from_server(frame(id=request_id, result={}))
                waiting.remove(request_id)
            case "lose":
                assert {message["id"] for message in state.disconnect(LOST)} == waiting
                waiting.clear()
        assert state.has_pending_requests == bool(waiting)
