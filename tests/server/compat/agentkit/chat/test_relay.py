"""The recording pass-through: what goes to the upstream and comes back, and what is kept of it."""

from typing import Any

import msgspec
import pytest

from tests.server.compat.agentkit.chat.conftest import UPSTREAM_KEY, Chatroom, UpstreamProgram
from tests.server.compat.agentkit.chat.upstream_program import ODD, WORDS

ASK = [{"role": "user", "content": "Which cells are cheaper?"}]


async def test_the_upstreams_bytes_reach_the_client_untouched(room: Chatroom) -> None:
    answer = await room.complete(ASK, model="odd")

    assert (answer.status, answer.body) == (200, ODD)
    assert answer.header("content-type") == "application/json; charset=utf-8"
    assert answer.header("x-ratelimit-left") == "9"


async def test_the_clients_bytes_reach_the_upstream_untouched(room: Chatroom, upstream: UpstreamProgram) -> None:
    messages = b'[ {"role":"user","content":"caf\\u00e9"} ]'
    body = b'{ "vendor_option": {"deep": [1, 2.0]}, "model":"odd", "messages": ' + messages + b"}\n"

    await room.post(body)

    assert (await upstream.seen())[-1]["body"].encode() == body


async def test_the_callers_credential_ends_here(room: Chatroom, upstream: UpstreamProgram) -> None:
    await room.complete(ASK, headers={"Cookie": "a=b", "X-Forwarded-For": "10.0.0.1"})
    await room.api.get("/v1/models")

    for seen in (await upstream.seen())[-2:]:
        assert seen["headers"]["authorization"] == f"Bearer {UPSTREAM_KEY}"
        assert {"cookie", "x-forwarded-for"}.isdisjoint(seen["headers"])


async def test_a_turn_is_kept_with_model_and_both_sides(room: Chatroom) -> None:
    await room.complete(ASK, model="odd")

    [conversation] = await room.conversations()
    assert conversation["title"] == "Which cells are cheaper?"
    asked, answered = conversation["messages"]
    assert (asked["role"], asked["content"], asked["model"]) == ("user", "Which cells are cheaper?", None)
    assert (answered["role"], answered["content"]) == ("assistant", "Sodium is cheaper.")
    assert answered["model"] == "odd-1"
    assert asked["timestamp"] <= answered["timestamp"]


async def test_a_streamed_answer_is_relayed_and_kept_whole(room: Chatroom) -> None:
    answer = await room.complete(ASK, stream=True)

    assert (answer.header("content-type") or "").startswith("text/event-stream")
    assert answer.body.startswith(b": a comment\r\n\r\n")
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert b'"system_fingerprint":"fp"' in answer.body
    assert await room.turns() == [[("user", "Which cells are cheaper?"), ("assistant", "".join(WORDS))]]
    [conversation] = await room.conversations()
    assert conversation["messages"][1]["model"] == "streaming-1"


async def test_models_are_those_of_the_upstream(room: Chatroom) -> None:
    answer = await room.api.get("/v1/models")

    assert answer.json() == {"object": "list", "data": [{"id": "plain-1", "object": "model", "vendor": 7}]}


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
async def test_errors_of_the_upstream_are_relayed_and_no_turn_is_kept(room: Chatroom, status: int) -> None:
    answer = await room.complete(ASK, model=str(status))

    assert answer.status == status
    assert answer.json()["error"] == {"message": f"no: {status}", "type": "t", "param": None, "code": "c"}
    assert answer.header("retry-after") == "17"
    assert await room.conversations() == []


@pytest.mark.parametrize("status", [401, 403])
async def test_an_upstream_that_refuses_the_operators_key_does_not_blame_the_caller(
    room: Chatroom, status: int
) -> None:
    answer = await room.complete(ASK, model=str(status))

    assert answer.status == 502
    assert "chat_upstream_key" in answer.json()["error"]["message"]


async def test_a_redirect_is_not_followed(room: Chatroom) -> None:
    answer = await room.complete(ASK, model="redirect")

    assert (answer.status, answer.json()["error"]["code"]) == (502, "bad_gateway")


async def test_an_answer_that_is_none_is_relayed_and_not_kept(room: Chatroom) -> None:
    answer = await room.complete(ASK, model="malformed")

    assert (answer.status, answer.body) == (200, b"<html>")
    assert await room.conversations() == []


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"{", b"", b'{"messages": ' + b"[" * 5000])
async def test_a_body_that_is_no_object_is_refused_in_openais_form(room: Chatroom, body: bytes) -> None:
    answer = await room.post(body)

    assert answer.status == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("messages", [None, "x", [], [7], [{"role": "user"}], [{"content": "x"}]])
async def test_messages_that_cannot_be_read_are_passed_on_and_not_kept(
    room: Chatroom, upstream: UpstreamProgram, messages: Any
) -> None:
    answer = await room.complete(messages, model="odd")

    assert answer.body == ODD
    assert msgspec.json.decode((await upstream.seen())[-1]["body"])["messages"] == messages
    assert await room.conversations() == []
