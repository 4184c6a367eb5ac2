"""Relayed completions: what is sent upstream, what is returned, and what is stored."""

from pathlib import Path
from typing import Any

import msgspec

from tests.cases import each_case
from tests.server.compat.agentkit.chat.conftest import UPSTREAM_KEY, ChatClient, UpstreamProgram
from tests.server.compat.agentkit.chat.upstream_program import ODD, WORDS
from tests.server.rest.rest_client import open_rest_client

ASK = [{"role": "user", "content": "Which cells are cheaper?"}]


async def test_response_bytes_are_relayed_unchanged(chat: ChatClient) -> None:
    response = await chat.complete(ASK, model="odd")

    assert (response.status, response.body) == (200, ODD)
    assert response.header("content-type") == "application/json; charset=utf-8"
    assert response.header("x-ratelimit-remaining-requests") == "9"


async def test_headers_about_the_operators_account_are_not_relayed(chat: ChatClient) -> None:
    response = await chat.complete(ASK, model="odd")

    assert "the-operator" not in str(response.headers)


async def test_idempotency_key_of_one_user_is_another_key_upstream_than_that_of_another(
    chat: ChatClient, upstream: UpstreamProgram
) -> None:
    """The upstream sees one account. It must not take Ben's request for a retry of Ada's."""
    for who in ("ada", "ben", "ada"):
        await chat.complete(ASK, who, headers={"Idempotency-Key": "k-1"})
    await chat.complete(ASK, "ada", headers={"Idempotency-Key": "k-2"})

    adas, bens, again, other = [request["headers"]["idempotency-key"] for request in (await upstream.requests())[-4:]]
    assert adas == again
    assert len({adas, bens, other}) == 3
    assert not any("k-" in key for key in (adas, bens, other))


async def test_request_bytes_are_relayed_unchanged(chat: ChatClient, upstream: UpstreamProgram) -> None:
    messages = b'[ {"role":"user","content":"caf\\u00e9"} ]'
    body = b'{ "vendor_option": {"deep": [1, 2.0]}, "model":"odd", "messages": ' + messages + b"}\n"

    await chat.post(body)

    assert (await upstream.requests())[-1]["body"].encode() == body


async def test_callers_credential_is_not_sent_upstream(chat: ChatClient, upstream: UpstreamProgram) -> None:
    await chat.complete(ASK, headers={"Cookie": "a=b", "X-Forwarded-For": "10.0.0.1"})
    await chat.api.get("/v1/models")

    for request in (await upstream.requests())[-2:]:
        assert request["headers"]["authorization"] == f"Bearer {UPSTREAM_KEY}"
        assert {"cookie", "x-forwarded-for"}.isdisjoint(request["headers"])


async def test_turn_is_stored_with_model_and_both_messages(chat: ChatClient) -> None:
    await chat.complete(ASK, model="odd")

    [conversation] = await chat.conversations()
    assert conversation["title"] == "Which cells are cheaper?"
    question, reply = conversation["messages"]
    assert (question["role"], question["content"], question["model"]) == ("user", "Which cells are cheaper?", None)
    assert (reply["role"], reply["content"]) == ("assistant", "Sodium is cheaper.")
    assert reply["model"] == "odd-1"
    assert question["timestamp"] <= reply["timestamp"]


async def test_streamed_response_is_relayed_and_stored(chat: ChatClient) -> None:
    response = await chat.complete(ASK, stream=True)

    assert (response.header("content-type") or "").startswith("text/event-stream")
    assert response.body.startswith(b": a comment\r\n\r\n")
    assert response.body.endswith(b"data: [DONE]\n\n")
    assert b'"system_fingerprint":"fp"' in response.body
    assert await chat.turns() == [[("user", "Which cells are cheaper?"), ("assistant", "".join(WORDS))]]
    [conversation] = await chat.conversations()
    assert conversation["messages"][1]["model"] == "streaming-1"


async def test_models_are_those_of_the_upstream_api(chat: ChatClient) -> None:
    response = await chat.api.get("/v1/models")

    assert response.json() == {"object": "list", "data": [{"id": "plain-1", "object": "model", "vendor": 7}]}


async def test_models_have_agentkits_shape_at_its_path(
    chat: ChatClient, tmp_path: Path, upstream: UpstreamProgram
) -> None:
    response = await chat.api.get("/models")
    async with open_rest_client(
        tmp_path / "other", chat_upstream_url=upstream.api, chat_upstream_model="chosen"
    ) as api:
        chosen = await api.get("/models")

    assert (response.status, response.json()) == (200, {"available_models": ["plain-1"], "default_model": "plain-1"})
    assert chosen.json() == {"available_models": ["plain-1"], "default_model": "chosen"}
    assert (await chat.api.get("/models", None)).status == 401


@each_case("status", [400, 404, 429, 500, 503])
async def test_upstream_errors_are_relayed_and_not_stored(chat: ChatClient, status: int) -> None:
    response = await chat.complete(ASK, model=str(status))

    assert response.status == status
    assert response.json()["error"] == {"message": f"no: {status}", "type": "t", "param": None, "code": "c"}
    assert response.header("retry-after") == "17"
    assert await chat.conversations() == []


@each_case("status", [401, 403])
async def test_rejected_upstream_key_is_reported_as_502(chat: ChatClient, status: int) -> None:
    response = await chat.complete(ASK, model=str(status))

    assert response.status == 502
    assert "chat_upstream_key" in response.json()["error"]["message"]


async def test_redirect_is_not_followed(chat: ChatClient) -> None:
    response = await chat.complete(ASK, model="redirect")

    assert (response.status, response.json()["error"]["code"]) == (502, "bad_gateway")


async def test_malformed_response_is_relayed_and_not_stored(chat: ChatClient) -> None:
    response = await chat.complete(ASK, model="malformed")

    assert (response.status, response.body) == (200, b"<html>")
    assert await chat.conversations() == []


@each_case("body", [b"[]", b'"x"', b"{", b"", b'{"messages": ' + b"[" * 5000])
async def test_body_that_is_not_an_object_is_rejected_in_openais_format(chat: ChatClient, body: bytes) -> None:
    response = await chat.post(body)

    assert response.status == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@each_case("messages", [None, "x", [], [7], [{"role": "user"}], [{"content": "x"}]])
async def test_invalid_messages_are_relayed_and_not_stored(
    chat: ChatClient, upstream: UpstreamProgram, messages: Any
) -> None:
    response = await chat.complete(messages, model="odd")

    assert response.body == ODD
    assert msgspec.json.decode((await upstream.requests())[-1]["body"])["messages"] == messages
    assert await chat.conversations() == []
