import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import ParseError, Unavailable
from server.protocol.messages import MalformedMessage
from server.transports.bridge_state import Relay

LOST = Unavailable("the connection was lost")
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def frame(**message: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", **message})


def with_session(version: str = "2025-11-25") -> Relay:
    """A relay whose client has made the legacy handshake."""
    relay = Relay()
    relay.from_client(line(id="hello", method="initialize", params=HANDSHAKE))
    relay.from_server(frame(id="hello", result={"protocolVersion": version}))
    relay.from_client(line(method="notifications/initialized"))
    return relay


def test_messages_pass_as_they_came() -> None:
    relay = Relay()
    request = b'{ "jsonrpc":"2.0",  "id":1, "method":"x", "params":{}}\n'
    answer = '{"id":1,  "jsonrpc":"2.0","result":{"text":"\\u00e9 é"}}'
    assert relay.from_client(request) == request.decode().strip()
    assert relay.from_server(answer) == answer.encode() + b"\n"


def test_a_frame_of_several_lines_becomes_one_line() -> None:
    passed = Relay().from_server('{"jsonrpc":"2.0",\r\n "method":"x", "params":{"text":"a\\nb"}}')
    assert passed is not None
    assert passed.count(b"\n") == 1
    assert json.loads(passed)["params"] == {"text": "a\nb"}


@pytest.mark.parametrize("garbage", [b"garbage", b"\xff\xfe", b'{"jsonrpc":', b'"\\ud800'])
def test_what_is_not_json_never_reaches_the_server(garbage: bytes) -> None:
    with pytest.raises(ParseError):
        Relay().from_client(garbage)


def test_a_malformed_message_keeps_its_id_for_the_answer() -> None:
    with pytest.raises(MalformedMessage) as refused:
        Relay().from_client(b'{"id":7,"method":"x"}')
    assert refused.value.request_id == 7


def test_what_is_in_flight_when_the_connection_is_lost_is_answered_once() -> None:
    relay = Relay()
    for request_id in (1, "1", 2, 3):
        relay.from_client(line(id=request_id, method="tools/call"))
    relay.from_server(frame(id=2, result={}))
    relay.from_client(line(method="notifications/cancelled", params={"requestId": 3}))
    told = relay.lose(LOST)
    assert [(message["id"], message["error"]["code"]) for message in told] == [(1, 503), ("1", 503)]
    assert relay.lose(LOST) == []


def test_every_request_of_a_batch_is_in_flight() -> None:
    relay = Relay()
    batch = [{"jsonrpc": "2.0", "id": n, "method": "x"} for n in (1, 2)] + [{"jsonrpc": "2.0", "method": "note"}, 5]
    assert relay.from_client(json.dumps(batch).encode()) == json.dumps(batch)
    relay.from_server(json.dumps([{"jsonrpc": "2.0", "id": 1, "result": {}}]))
    assert [message["id"] for message in relay.lose(LOST)] == [2]


def test_a_message_that_cannot_be_sent_is_answered_and_no_longer_in_flight() -> None:
    relay = Relay()
    relay.from_client(line(id=1, method="x"))
    sent = relay.from_client(line(id=2, method="x"))
    assert sent is not None
    assert [message["id"] for message in relay.refuse(sent, LOST)] == [2]
    assert [message["id"] for message in relay.lose(LOST)] == [1]


def test_a_listener_is_not_waited_for() -> None:
    relay = Relay()
    relay.from_client(line(id=1, method="subscriptions/listen"))
    assert not relay.is_awaited
    relay.from_client(line(id=2, method="tools/list"))
    assert relay.is_awaited
    assert len(relay.lose(LOST)) == 2


def test_the_modern_era_has_nothing_to_repeat() -> None:
    relay = Relay()
    relay.from_client(line(id=1, method="server/discover", params={"_meta": {}}))
    relay.from_server(frame(id=1, result={}))
    relay.lose(LOST)
    assert relay.resume() is None
    assert relay.resumed() is None


def test_an_answered_handshake_is_repeated_and_the_second_answer_kept_from_the_client() -> None:
    relay = with_session()
    relay.lose(LOST)
    repeated = relay.resume()
    assert repeated is not None
    assert (repeated["method"], repeated["params"]) == ("initialize", HANDSHAKE)
    assert relay.is_resuming
    assert relay.from_server(frame(id=repeated["id"], result={"protocolVersion": "2025-11-25"})) is None
    assert not relay.is_resuming
    assert relay.resumed() == {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}


def test_two_repetitions_never_share_an_id() -> None:
    relay = with_session()
    first, second = relay.resume(), relay.resume()
    assert first is not None
    assert second is not None
    assert first["id"] != second["id"]


def test_a_handshake_that_was_never_answered_well_is_not_repeated() -> None:
    for answer in (None, frame(id="hello", error={"code": -32602, "message": "no"})):
        relay = Relay()
        relay.from_client(line(id="hello", method="initialize", params=HANDSHAKE))
        if answer:
            relay.from_server(answer)
        relay.lose(LOST)
        assert relay.resume() is None


def test_initialized_is_repeated_only_if_the_client_had_said_it() -> None:
    relay = Relay()
    relay.from_client(line(id="hello", method="initialize", params=HANDSHAKE))
    relay.from_server(frame(id="hello", result={"protocolVersion": "2025-11-25"}))
    relay.lose(LOST)
    assert relay.resume() is not None
    assert relay.resumed() is None


@pytest.mark.parametrize(
    "answer", [{"result": {"protocolVersion": "2025-06-18"}}, {"error": {"code": 503, "message": "full"}}]
)
def test_a_server_that_does_not_take_the_session_up_again_is_told_to_the_client(answer: dict[str, Any]) -> None:
    relay = with_session()
    repeated = relay.resume()
    assert repeated is not None
    with pytest.raises(Unavailable, match="start the client anew"):
        relay.from_server(frame(id=repeated["id"], **answer))
    assert relay.resume() is None


def test_a_question_of_the_server_is_withdrawn_with_its_connection() -> None:
    relay = with_session()
    asked = frame(id="florilegium-1", method="sampling/createMessage", params={})
    assert relay.from_server(asked) is not None
    (told,) = relay.lose(LOST)
    assert (told["method"], told["params"]["requestId"]) == ("notifications/cancelled", "florilegium-1")
    assert relay.from_client(line(id="florilegium-1", result={})) is None


def test_an_answer_to_an_open_question_passes_once() -> None:
    relay = with_session()
    relay.from_server(frame(id="florilegium-1", method="roots/list", params={}))
    assert relay.from_client(line(id="florilegium-1", result={"roots": []})) is not None
    assert relay.from_client(line(id="florilegium-1", result={"roots": []})) is None


@given(st.lists(st.tuples(st.integers(0, 5) | st.sampled_from("abc"), st.sampled_from(["ask", "answer", "lose"]))))
def test_in_any_order_of_events_each_request_is_answered_at_most_once(events: list[tuple[int | str, str]]) -> None:
    relay, waiting = Relay(), set[int | str]()
    for request_id, event in events:
        match event:
            case "ask" if request_id not in waiting:
                relay.from_client(line(id=request_id, method="tools/call"))
                waiting.add(request_id)
            case "answer" if request_id in waiting:
                relay.from_server(frame(id=request_id, result={}))
                waiting.remove(request_id)
            case "lose":
                assert {message["id"] for message in relay.lose(LOST)} == waiting
                waiting.clear()
        assert relay.is_awaited == bool(waiting)
