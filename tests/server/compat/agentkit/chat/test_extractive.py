"""Chat completions without an upstream: responses from the caller's own library."""

from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from auth.context import READ, WRITE
from server.compat.agentkit.chat.passages import NO_MODEL, NO_MODEL_NO_PASSAGE
from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.server.compat.agentkit.chat.conftest import ChatClient

QUESTION = "What is said about sodium cells?"
ASK = [{"role": "user", "content": QUESTION}]
FACT = "Sodium cells keep their charge in the cold and need no cobalt."


@pytest.fixture
async def note_uri(chat_without_model: ChatClient) -> str:
    """Adds Ada's only note and returns its URI."""
    note = await (await chat_without_model.api.library_user("ada")).add_note("Why sodium", FACT)
    return f"notes://{note}"


def content(response: Any) -> str:
    return str(response.json()["choices"][0]["message"]["content"])


async def test_answer_consists_of_the_best_passages_and_says_so(chat_without_model: ChatClient, note_uri: str) -> None:
    response = await chat_without_model.complete(ASK)

    completion = response.json()
    assert (completion["object"], completion["model"]) == ("chat.completion", "extractive")
    assert content(response).startswith(NO_MODEL)
    assert FACT in content(response)
    assert [citation["uri"] for citation in completion["citations"]] == [note_uri]
    assert completion["choices"][0]["finish_reason"] == "stop"


async def test_answer_can_be_streamed(chat_without_model: ChatClient, note_uri: str) -> None:
    response = await chat_without_model.complete(ASK, stream=True)

    assert (response.header("content-type") or "").startswith("text/event-stream")
    *events, done = [line for line in response.body.decode().split("\n\n") if line]
    chunks = [msgspec.json.decode(event.removeprefix("data: ")) for event in events]
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert done == "data: [DONE]"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert FACT in text
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


async def test_both_turns_are_stored_with_tool_and_citations(chat_without_model: ChatClient, note_uri: str) -> None:
    response = await chat_without_model.complete(ASK)

    [conversation] = await chat_without_model.conversations()
    question, reply = conversation["messages"]
    assert response.header("x-conversation-id") == conversation["id"]
    assert question["content"] == QUESTION
    assert (reply["model"], reply["tool_used"]) == ("extractive", "knowledge_search")
    assert [citation["uri"] for citation in reply["citations"]] == [note_uri]
    assert reply["content"] == content(response)


async def test_earlier_question_and_its_answer_are_not_passages(chat_without_model: ChatClient, note_uri: str) -> None:
    await chat_without_model.complete(ASK, metadata={"session_id": "first"})

    again = await chat_without_model.complete(ASK, metadata={"session_id": "second"})

    assert [citation["uri"] for citation in again.json()["citations"]] == [note_uri]


SECRET = MessageDraft(content="Sodium cells have the password mango.", metadata={"human_only": True})


@each_case("neighbours", [(), ("What is said about sodium cells?",)])
async def test_answer_that_quotes_a_human_only_message_is_human_only(
    chat_without_model: ChatClient, neighbours: tuple[str, ...]
) -> None:
    ada = await chat_without_model.api.library_user("ada")
    await ada.add_chat("Talk", *(f"{text} Nothing." for text in neighbours), SECRET)
    answers = [content(await chat_without_model.complete(ASK)), await send_chat(chat_without_model)]

    assert all("password mango" in answer for answer in answers)
    for query in ("mango", "passages from your own library"):
        assert await ada.search("msg_search", f'"{query}"') == []
        assert "mango" not in str(await ada.request("tools/call", name="conversation_search", arguments={}))
    stored = [one for chat in await chat_without_model.conversations() for one in chat["messages"]]
    marked = [one["content"] for one in stored if one["metadata"].get("human_only")]
    assert {*answers} <= {*marked}


async def test_answer_without_human_only_passages_is_found_by_agents(
    chat_without_model: ChatClient, note_uri: str
) -> None:
    ada = await chat_without_model.api.library_user("ada")
    await ada.add_chat("Talk", SECRET, "and now", "for something", "completely", "different: sodium cells")
    await chat_without_model.complete([{"role": "user", "content": "cobalt"}])

    assert len(await ada.search("msg_search", "cobalt AND passages")) == 1


async def test_human_only_answer_that_a_client_sends_back_stays_human_only(chat_without_model: ChatClient) -> None:
    ada = await chat_without_model.api.library_user("ada")
    await ada.add_chat("Talk", SECRET)
    answer = content(await chat_without_model.complete(ASK))

    history = [*ASK, {"role": "assistant", "content": answer}, {"role": "user", "content": "Thanks"}]
    await chat_without_model.complete(history, metadata={"session_id": "another"})

    assert len(await chat_without_model.conversations()) == 3
    assert await ada.search("msg_search", "mango") == []


async def send_chat(chat: ChatClient) -> str:
    body = urlencode({"message": QUESTION, "model": "any", "session_id": "form"}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return str((await chat.api.request("POST", "/chat", "ada", headers, body)).json()["answer"])


async def test_answer_never_uses_another_users_library(chat_without_model: ChatClient, note_uri: str) -> None:
    response = await chat_without_model.complete(ASK, "ben")

    assert content(response) == NO_MODEL_NO_PASSAGE
    assert response.json()["citations"] == []
    assert await chat_without_model.conversations("ada") == []


async def test_another_users_conversation_id_names_an_own_conversation(
    chat_without_model: ChatClient, note_uri: str
) -> None:
    of_ada = (await chat_without_model.complete(ASK)).header("x-conversation-id") or ""

    of_ben = (await chat_without_model.complete(ASK, "ben", headers={"X-Conversation-Id": of_ada})).header(
        "x-conversation-id"
    )

    assert of_ben != of_ada
    assert [len(turns) for turns in await chat_without_model.turns("ada")] == [2]
    assert [len(turns) for turns in await chat_without_model.turns("ben")] == [2]


@pytest.mark.parametrize(
    "naming",
    [
        {"headers": {"X-Conversation-Id": "mine"}},
        {"headers": {"X-Session-Id": "mine"}},
        {"metadata": {"conversation_id": "mine"}},
        {"metadata": {"session_id": "mine"}},
    ],
)
async def test_client_can_name_its_conversation(chat_without_model: ChatClient, naming: Any) -> None:
    for question in ("one", "two"):
        await chat_without_model.complete([{"role": "user", "content": question}], **naming)

    [conversation] = await chat_without_model.conversations()
    assert conversation["session_id"] == "mine"
    assert len(conversation["messages"]) == 4


@each_case("messages", [None, [], [{"role": "system", "content": "x"}], [{"role": "user"}]])
async def test_request_without_a_user_message_is_rejected(chat_without_model: ChatClient, messages: Any) -> None:
    response = await chat_without_model.complete(messages)

    assert response.status == 400
    assert response.json()["error"]["message"].startswith("messages: expected a message with role user")


@each_case("scope", [READ, WRITE])
async def test_completion_requires_read_and_write_scopes(chat_without_model: ChatClient, scope: str) -> None:
    bearer = await chat_without_model.api.server.bearer("ada", (scope,))

    response = await chat_without_model.complete(ASK, None, headers=bearer)

    assert response.status == 403
    assert response.json()["error"]["type"] == "permission_error"
    assert await chat_without_model.conversations() == []


async def test_missing_credential_is_rejected_in_openais_format(chat_without_model: ChatClient) -> None:
    response = await chat_without_model.complete(ASK, None)

    assert (response.status, response.json()["error"]["type"]) == (401, "authentication_error")


async def test_only_model_is_extractive(chat_without_model: ChatClient) -> None:
    [model] = (await chat_without_model.api.get("/v1/models")).json()["data"]

    assert model["id"] == "extractive"
    models = (await chat_without_model.api.get("/models")).json()
    assert models == {"available_models": ["extractive"], "default_model": "extractive"}


async def test_profile_key_cannot_chat(chat_without_model: ChatClient) -> None:
    user = await chat_without_model.api.server.user("ada")
    _, key = await chat_without_model.api.server.runtime.registry.create_key(
        user.id, "k", (READ, WRITE), profile="compact"
    )

    response = await chat_without_model.complete(ASK, None, headers={"Authorization": f"Bearer {key}"})

    assert response.status == 403


async def test_non_ascii_idempotency_key_is_rejected(chat_without_model: ChatClient) -> None:
    response = await chat_without_model.complete(ASK, headers={"Idempotency-Key": "é"})

    assert response.status == 400
    assert "Idempotency-Key" in response.json()["error"]["message"]
