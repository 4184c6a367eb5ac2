"""Recording of conversations: stored completely, once, and for the sender only."""

from pathlib import Path
from typing import Any

import pytest

from tests.cases import each_case
from tests.server.compat.agentkit.conversations_api import HELLO, create_conversation, post
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

LONG = "Tell me everything that is known about the voyages of the galleon"


async def messages(api: RestClient, conversation: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await api.get(f"/conversations/{conversation}")).json()["messages"]
    return rows


async def test_created_conversation_stores_all_fields(api: RestClient) -> None:
    sent = {"session_id": "s-1", "title": "T", "namespace": "work", "metadata": {"a": [1, None]}, "id": "my-conv-id"}

    response = await post(api, "/conversations", sent)

    created = response.json()
    assert response.status == 201
    assert {name: created[name] for name in sent} == sent
    assert (await api.get("/conversations/my-conv-id")).json() == {**created, "messages": []}


async def test_added_message_stores_all_fields(api: RestClient) -> None:
    conversation = await create_conversation(api)
    sent = {
        "role": "assistant",
        "content": "Python is a language",
        "model": "m-1",
        "tool_used": "web",
        "attachments": [{"name": "a.txt"}],
        "citations": [{"url": "https://example.com", "n": 1}],
        "metadata": {"mood": "good"},
        "sender": "Grace",
        "timestamp": "2025-10-09T21:37:47.783+02:00",
        "id": "msg-1",
    }

    response = await post(api, f"/conversations/{conversation}/messages", sent)

    branch = {"parent_id": None, "is_canonical": True, "seq": 1}
    stored = {**sent, **branch, "conversation_id": conversation, "timestamp": "2025-10-09T19:37:47.783000+00:00"}
    assert (response.status, response.json()) == (201, stored)
    assert await messages(api, conversation) == [stored]


async def test_sender_is_stored_and_defaults_to_the_role(api: RestClient) -> None:
    named = {"role": "user", "content": "Hello", "sender": "Grace", "metadata": {"mood": "good"}}
    conversation = await create_conversation(api, named, HELLO[1])

    stored = await messages(api, conversation)

    assert [(one["sender"], one["metadata"]) for one in stored] == [("Grace", {"mood": "good"}), ("assistant", {})]


async def test_many_messages_are_stored_in_order(api: RestClient) -> None:
    conversation = await create_conversation(api, *HELLO)
    sent = [{"role": "user", "content": f"turn {n}"} for n in range(30)]

    response = await post(api, f"/conversations/{conversation}/messages/bulk", {"messages": sent})

    assert (response.status, response.json()["total"]) == (201, 30)
    assert [m["content"] for m in await messages(api, conversation)][2:] == [m["content"] for m in sent]
    assert (await api.get("/conversations")).json()["conversations"][0]["message_count"] == 32


async def test_bulk_messages_are_stored_all_or_none(api: RestClient) -> None:
    conversation = await create_conversation(api)
    sent = [{"role": "user", "content": "good"}, {"role": "user", "content": "bad\x00"}]

    response = await post(api, f"/conversations/{conversation}/messages/bulk", {"messages": sent})

    assert response.status == 400
    assert await messages(api, conversation) == []


@each_case(
    ("content", "title"),
    [(LONG, f"{LONG[:50]}..."), ("Short", "Short"), ("x" * 50, "x" * 50), ("x" * 51, "x" * 50 + "...")],
)
async def test_title_defaults_to_the_beginning_of_the_first_user_message(
    api: RestClient, content: str, title: str
) -> None:
    at_creation = await create_conversation(
        api, {"role": "system", "content": "Be kind"}, {"role": "user", "content": content}
    )
    later = await create_conversation(api)
    await post(api, f"/conversations/{later}/messages", {"role": "user", "content": content})
    await post(api, f"/conversations/{later}/messages", {"role": "user", "content": "and more"})

    titles = [(await api.get(f"/conversations/{one}")).json()["title"] for one in (at_creation, later)]

    assert titles == [title, title]


async def test_human_only_message_does_not_become_the_title(api: RestClient, ada: LibraryUser) -> None:
    secret = {"role": "user", "content": "the password is mango", "metadata": {"human_only": True}}
    created = await create_conversation(api, secret)
    appended = await create_conversation(api)
    for conversation in (created, appended):
        await post(api, f"/conversations/{conversation}/messages", {**secret, "metadata": {"audience": "human"}})
        assert (await api.get(f"/conversations/{conversation}")).json()["title"] == ""

        await post(api, f"/conversations/{conversation}/messages/bulk", {"messages": [secret, *HELLO]})
        assert (await api.get(f"/conversations/{conversation}")).json()["title"] == "Hello"

    assert [hit["thread_topic"] for hit in await ada.search("msg_search", "there")] == ["Hello", "Hello"]
    assert (await api.get("/conversations", "ben")).json()["total"] == 0


async def test_explicit_title_is_not_replaced(api: RestClient) -> None:
    conversation = await create_conversation(api, title="Mine")
    await post(api, f"/conversations/{conversation}/messages", {"role": "user", "content": LONG})

    assert (await api.get(f"/conversations/{conversation}")).json()["title"] == "Mine"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/conversations", {"title": "T", "messages": list(HELLO)}),
        ("/conversations/{}/messages", HELLO[0]),
        ("/conversations/{}/messages/bulk", {"messages": list(HELLO)}),
    ],
)
async def test_repeated_write_with_the_same_key_is_stored_once(api: RestClient, path: str, body: Any) -> None:
    conversation = await create_conversation(api, title="first")
    url = path.format(conversation)

    first, again = [await post(api, url, body, Idempotency_Key="k-1") for _ in range(2)]
    conflicting = await post(api, url, {**body, "metadata": {"x": 1}} if "role" in body else {}, Idempotency_Key="k-1")
    of_ben = await post(api, "/conversations", {"title": "B"}, "ben", Idempotency_Key="k-1")

    assert (first.status, again.status) == (201, 201)
    assert again.body == first.body
    assert conflicting.status in (409, 422)
    assert of_ben.status == 201
    listed = (await api.get("/conversations")).json()
    assert listed["total"] == (2 if path == "/conversations" else 1)
    assert len(await messages(api, conversation)) == (0 if path == "/conversations" else len(body.get("messages", [0])))


async def test_key_reused_for_another_request_is_a_conflict(api: RestClient) -> None:
    conversation = await create_conversation(api)
    url = f"/conversations/{conversation}/messages"

    await post(api, url, HELLO[0], Idempotency_Key="k-1")
    response = await post(api, url, HELLO[1], Idempotency_Key="k-1")

    assert (response.status, response.json()["error"]["code"]) == (409, "CONFLICT")
    assert len(await messages(api, conversation)) == 1


async def test_session_has_one_conversation_per_user(api: RestClient) -> None:
    first = await create_conversation(api, session_id="s-1")

    again = await post(api, "/conversations", {"session_id": "s-1"})
    of_ben = await post(api, "/conversations", {"session_id": "s-1"}, "ben")

    assert (again.status, of_ben.status) == (409, 201)
    assert first in again.json()["detail"]


@each_case(
    ("body", "status", "message"),
    [
        ({"content": "x"}, 422, "role: required argument is missing"),
        ({"role": "admin", "content": "x"}, 422, "expected one of assistant, system, tool, user"),
        ({"role": "user"}, 422, "content: required argument is missing"),
        ({"role": "user", "content": "x", "tool": "y"}, 422, "did you mean 'tool_used'?"),
        ({"role": "user", "content": "x", "attachments": ["a.txt"]}, 422, "attachments"),
        ({"role": "user", "content": "x", "timestamp": "tomorrow"}, 400, "timestamp: expected a time"),
        ({"role": "user", "content": "x", "id": "a/b"}, 400, "id: expected 1 to 128"),
    ],
)
async def test_invalid_message_is_rejected_with_field_expected_and_got(
    api: RestClient, body: Any, status: int, message: str
) -> None:
    conversation = await create_conversation(api)

    response = await post(api, f"/conversations/{conversation}/messages", body)

    assert (response.status, response.json()["error"]["code"]) == (status, "VALIDATION_ERROR")
    assert message in response.json()["error"]["message"]
    assert await messages(api, conversation) == []


@each_case("conversation_id", ["search", "export", "import"])
async def test_conversation_id_cannot_be_a_route_segment(api: RestClient, conversation_id: str) -> None:
    assert (await post(api, "/conversations", {"id": conversation_id})).status == 400


async def test_too_large_body_or_batch_is_rejected(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, body_max_bytes=2048, batch_max_items=3) as api:
        conversation = await create_conversation(api)
        large = await post(api, f"/conversations/{conversation}/messages", {"role": "user", "content": "x" * 3000})
        many = await post(api, f"/conversations/{conversation}/messages/bulk", {"messages": list(HELLO) * 2})

    assert (large.status, large.json()["error"]["code"]) == (413, "FILE_TOO_LARGE")
    assert (many.status, many.json()["detail"]) == (400, "items: expected at most 3 per call, got 4")


@each_case(
    ("path", "body"),
    [("/conversations/{}/messages", HELLO[0]), ("/conversations/{}/messages/bulk", {"messages": list(HELLO)})],
)
async def test_message_cannot_be_added_to_another_users_conversation(api: RestClient, path: str, body: Any) -> None:
    conversation = await create_conversation(api)

    foreign, absent = [
        await post(api, path.format(one), body, "ben") for one in (conversation, "0" * len(conversation))
    ]

    assert (foreign.status, foreign.json()["detail"]) == (absent.status, absent.json()["detail"])
    assert foreign.status == 404
    assert await messages(api, conversation) == []


async def test_recorded_conversation_is_found_by_the_tools(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    conversation = await create_conversation(api, {"role": "user", "content": "a galleon under sail"})

    hits = await ada.search("chats_search", "galleon")

    assert {hit["loc"]["conversation_id"] for hit in hits} == {conversation}
    assert await ben.search("chats_search", "galleon") == []


async def test_recorded_conversation_survives_a_restart(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path) as api:
        conversation = await create_conversation(api, *HELLO, session_id="s-1")
        before = (await api.get(f"/conversations/{conversation}")).json()

    async with open_rest_client(tmp_path) as api:
        assert (await api.get(f"/conversations/{conversation}")).json() == before
        assert (await api.get(f"/conversations/{conversation}", "ben")).status == 404
