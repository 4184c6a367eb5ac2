"""Chat completions where no upstream is configured: the caller's own library answers."""

from typing import Any

import msgspec
import pytest

from auth.principal import READ, WRITE
from server.compat.agentkit.chat.wording import NO_MODEL, NO_MODEL_NO_PASSAGE
from tests.server.compat.agentkit.chat.conftest import Chatroom

QUESTION = "What is said about sodium cells?"
ASK = [{"role": "user", "content": QUESTION}]
FACT = "Sodium cells keep their charge in the cold and need no cobalt."


@pytest.fixture
async def shelf(quiet_room: Chatroom) -> str:
    """Ada's one note; its URI."""
    note = await (await quiet_room.api.reader("ada")).add_note("Why sodium", FACT)
    return f"notes://{note}"


def content(answer: Any) -> str:
    return str(answer.json()["choices"][0]["message"]["content"])


async def test_the_best_passages_are_the_answer_and_it_says_so(quiet_room: Chatroom, shelf: str) -> None:
    answer = await quiet_room.complete(ASK)

    told = answer.json()
    assert (told["object"], told["model"]) == ("chat.completion", "extractive")
    assert content(answer).startswith(NO_MODEL)
    assert FACT in content(answer)
    assert [citation["uri"] for citation in told["citations"]] == [shelf]
    assert told["choices"][0]["finish_reason"] == "stop"


async def test_the_same_is_told_as_a_stream(quiet_room: Chatroom, shelf: str) -> None:
    answer = await quiet_room.complete(ASK, stream=True)

    assert (answer.header("content-type") or "").startswith("text/event-stream")
    *events, done = [line for line in answer.body.decode().split("\n\n") if line]
    chunks = [msgspec.json.decode(event.removeprefix("data: ")) for event in events]
    said = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert done == "data: [DONE]"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert FACT in said
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


async def test_both_turns_are_kept_with_tool_and_citations(quiet_room: Chatroom, shelf: str) -> None:
    answer = await quiet_room.complete(ASK)

    [conversation] = await quiet_room.conversations()
    asked, answered = conversation["messages"]
    assert answer.header("x-conversation-id") == conversation["id"]
    assert asked["content"] == QUESTION
    assert (answered["model"], answered["tool_used"]) == ("extractive", "knowledge_search")
    assert [citation["uri"] for citation in answered["citations"]] == [shelf]
    assert answered["content"] == content(answer)


async def test_an_earlier_question_and_its_answer_are_no_passages(quiet_room: Chatroom, shelf: str) -> None:
    await quiet_room.complete(ASK, metadata={"session_id": "first"})

    again = await quiet_room.complete(ASK, metadata={"session_id": "second"})

    assert [citation["uri"] for citation in again.json()["citations"]] == [shelf]


async def test_nobody_is_answered_from_anothers_library(quiet_room: Chatroom, shelf: str) -> None:
    answer = await quiet_room.complete(ASK, "ben")

    assert content(answer) == NO_MODEL_NO_PASSAGE
    assert answer.json()["citations"] == []
    assert await quiet_room.conversations("ada") == []


async def test_a_conversation_named_by_anothers_id_is_ones_own(quiet_room: Chatroom, shelf: str) -> None:
    hers = (await quiet_room.complete(ASK)).header("x-conversation-id") or ""

    his = (await quiet_room.complete(ASK, "ben", headers={"X-Conversation-Id": hers})).header("x-conversation-id")

    assert his != hers
    assert [len(turns) for turns in await quiet_room.turns("ada")] == [2]
    assert [len(turns) for turns in await quiet_room.turns("ben")] == [2]


@pytest.mark.parametrize(
    "naming",
    [
        {"headers": {"X-Conversation-Id": "mine"}},
        {"headers": {"X-Session-Id": "mine"}},
        {"metadata": {"conversation_id": "mine"}},
        {"metadata": {"session_id": "mine"}},
    ],
)
async def test_a_client_names_its_conversation(quiet_room: Chatroom, naming: Any) -> None:
    for question in ("one", "two"):
        await quiet_room.complete([{"role": "user", "content": question}], **naming)

    [conversation] = await quiet_room.conversations()
    assert conversation["session_id"] == "mine"
    assert len(conversation["messages"]) == 4


@pytest.mark.parametrize("messages", [None, [], [{"role": "system", "content": "x"}], [{"role": "user"}]])
async def test_without_a_question_there_is_no_answer(quiet_room: Chatroom, messages: Any) -> None:
    answer = await quiet_room.complete(messages)

    assert answer.status == 400
    assert answer.json()["error"]["message"].startswith("messages: expected a message with role user")


@pytest.mark.parametrize("scope", [READ, WRITE])
async def test_who_may_not_read_and_write_is_refused_and_nothing_is_kept(quiet_room: Chatroom, scope: str) -> None:
    bearer = await quiet_room.api.server.bearer("ada", (scope,))

    answer = await quiet_room.complete(ASK, None, headers=bearer)

    assert answer.status == 403
    assert answer.json()["error"]["type"] == "permission_error"
    assert await quiet_room.conversations() == []


async def test_without_a_credential_nothing_is_answered(quiet_room: Chatroom) -> None:
    answer = await quiet_room.complete(ASK, None)

    assert (answer.status, answer.json()["error"]["type"]) == (401, "authentication_error")


async def test_the_one_model_is_extractive(quiet_room: Chatroom) -> None:
    [model] = (await quiet_room.api.get("/v1/models")).json()["data"]

    assert model["id"] == "extractive"


async def test_a_key_that_is_bound_to_a_few_tools_may_not_chat(quiet_room: Chatroom) -> None:
    user = await quiet_room.api.server.user("ada")
    _, key = await quiet_room.api.server.runtime.registry.create_key(user.id, "k", (READ, WRITE), profile="compact")

    answer = await quiet_room.complete(ASK, None, headers={"Authorization": f"Bearer {key}"})

    assert answer.status == 403


async def test_a_key_that_no_header_can_hold_is_refused(quiet_room: Chatroom) -> None:
    answer = await quiet_room.complete(ASK, headers={"Idempotency-Key": "é"})

    assert answer.status == 400
    assert "Idempotency-Key" in answer.json()["error"]["message"]
