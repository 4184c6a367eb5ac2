"""Conversations that clients record: what is sent is kept whole, once, and for the sender alone."""

from pathlib import Path
from typing import Any

import pytest

from tests.server.compat.agentkit.conversing import HELLO, keep, post
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

LONG = "Tell me everything that is known about the voyages of the galleon"


async def messages(api: RestClient, conversation: str) -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = (await api.get(f"/conversations/{conversation}")).json()["messages"]
    return read


async def test_a_conversation_is_begun_with_all_that_is_said_of_it(api: RestClient) -> None:
    sent = {"session_id": "s-1", "title": "T", "namespace": "work", "metadata": {"a": [1, None]}, "id": "my-conv-id"}

    answer = await post(api, "/conversations", sent)

    told = answer.json()
    assert answer.status == 201
    assert {name: told[name] for name in sent} == sent
    assert (await api.get("/conversations/my-conv-id")).json() == {**told, "messages": []}


async def test_a_message_is_kept_with_all_that_is_said_of_it(api: RestClient) -> None:
    made = await keep(api)
    sent = {
        "role": "assistant",
        "content": "Python is a language",
        "model": "m-1",
        "tool_used": "web",
        "attachments": [{"name": "a.txt"}],
        "citations": [{"url": "https://example.com", "n": 1}],
        "timestamp": "2025-10-09T21:37:47.783+02:00",
        "id": "msg-1",
    }

    answer = await post(api, f"/conversations/{made}/messages", sent)

    on_the_path = {"parent_id": None, "is_canonical": True}
    kept = {**sent, **on_the_path, "conversation_id": made, "timestamp": "2025-10-09T19:37:47.783000+00:00"}
    assert (answer.status, answer.json()) == (201, kept)
    assert await messages(api, made) == [kept]


async def test_many_messages_are_kept_in_their_order(api: RestClient) -> None:
    made = await keep(api, *HELLO)
    sent = [{"role": "user", "content": f"turn {n}"} for n in range(30)]

    answer = await post(api, f"/conversations/{made}/messages/bulk", {"messages": sent})

    assert (answer.status, answer.json()["total"]) == (201, 30)
    assert [m["content"] for m in await messages(api, made)][2:] == [m["content"] for m in sent]
    assert (await api.get("/conversations")).json()["conversations"][0]["message_count"] == 32


async def test_of_many_messages_all_are_kept_or_none(api: RestClient) -> None:
    made = await keep(api)
    sent = [{"role": "user", "content": "good"}, {"role": "user", "content": "bad\x00"}]

    answer = await post(api, f"/conversations/{made}/messages/bulk", {"messages": sent})

    assert answer.status == 400
    assert await messages(api, made) == []


@pytest.mark.parametrize(
    ("said", "title"),
    [(LONG, f"{LONG[:50]}..."), ("Short", "Short"), ("x" * 50, "x" * 50), ("x" * 51, "x" * 50 + "...")],
)
async def test_a_conversation_is_called_by_the_beginning_of_its_first_message(
    api: RestClient, said: str, title: str
) -> None:
    at_once = await keep(api, {"role": "system", "content": "Be kind"}, {"role": "user", "content": said})
    later = await keep(api)
    await post(api, f"/conversations/{later}/messages", {"role": "user", "content": said})
    await post(api, f"/conversations/{later}/messages", {"role": "user", "content": "and more"})

    titles = [(await api.get(f"/conversations/{one}")).json()["title"] for one in (at_once, later)]

    assert titles == [title, title]


async def test_a_title_that_was_given_stays(api: RestClient) -> None:
    made = await keep(api, title="Mine")
    await post(api, f"/conversations/{made}/messages", {"role": "user", "content": LONG})

    assert (await api.get(f"/conversations/{made}")).json()["title"] == "Mine"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/conversations", {"title": "T", "messages": list(HELLO)}),
        ("/conversations/{}/messages", HELLO[0]),
        ("/conversations/{}/messages/bulk", {"messages": list(HELLO)}),
    ],
)
async def test_what_is_sent_twice_under_one_key_is_kept_once(api: RestClient, path: str, body: Any) -> None:
    made = await keep(api, title="first")
    where = path.format(made)

    first, again = [await post(api, where, body, Idempotency_Key="k-1") for _ in range(2)]
    other = await post(api, where, {**body, "metadata": {"x": 1}} if "role" in body else {}, Idempotency_Key="k-1")
    of_ben = await post(api, "/conversations", {"title": "B"}, "ben", Idempotency_Key="k-1")

    assert (first.status, again.status) == (201, 201)
    assert again.body == first.body
    assert other.status in (409, 422)
    assert of_ben.status == 201
    listed = (await api.get("/conversations")).json()
    assert listed["total"] == (2 if path == "/conversations" else 1)
    assert len(await messages(api, made)) == (0 if path == "/conversations" else len(body.get("messages", [0])))


async def test_a_key_that_was_used_for_another_request_is_a_conflict(api: RestClient) -> None:
    made = await keep(api)
    where = f"/conversations/{made}/messages"

    await post(api, where, HELLO[0], Idempotency_Key="k-1")
    answer = await post(api, where, HELLO[1], Idempotency_Key="k-1")

    assert (answer.status, answer.json()["error"]["code"]) == (409, "CONFLICT")
    assert len(await messages(api, made)) == 1


async def test_one_session_has_one_conversation_of_each_user(api: RestClient) -> None:
    first = await keep(api, session_id="s-1")

    again = await post(api, "/conversations", {"session_id": "s-1"})
    of_ben = await post(api, "/conversations", {"session_id": "s-1"}, "ben")

    assert (again.status, of_ben.status) == (409, 201)
    assert first in again.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"content": "x"}, 422, "role: required argument is missing"),
        ({"role": "admin", "content": "x"}, 422, "expected one of assistant, system, tool, user"),
        ({"role": "user"}, 422, "content: required argument is missing"),
        ({"role": "user", "content": "x", "tool": "y"}, 422, "did you mean 'tool_used'?"),
        ({"role": "user", "content": "x", "attachments": ["a.txt"]}, 422, "attachments"),
        ({"role": "user", "content": "x", "timestamp": "tomorrow"}, 400, "timestamp: got 'tomorrow', expected a time"),
        ({"role": "user", "content": "x", "id": "a/b"}, 400, "id: got 'a/b', expected 1 to 128"),
    ],
)
async def test_a_message_that_cannot_be_kept_is_told_field_got_and_expected(
    api: RestClient, body: Any, status: int, told: str
) -> None:
    made = await keep(api)

    answer = await post(api, f"/conversations/{made}/messages", body)

    assert (answer.status, answer.json()["error"]["code"]) == (status, "VALIDATION_ERROR")
    assert told in answer.json()["error"]["message"]
    assert await messages(api, made) == []


@pytest.mark.parametrize("identity", ["search", "export", "import"])
async def test_a_conversation_cannot_be_called_as_an_address_is(api: RestClient, identity: str) -> None:
    assert (await post(api, "/conversations", {"id": identity})).status == 400


async def test_a_body_or_a_batch_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, body_max_bytes=2048, batch_max_items=3) as api:
        made = await keep(api)
        large = await post(api, f"/conversations/{made}/messages", {"role": "user", "content": "x" * 3000})
        many = await post(api, f"/conversations/{made}/messages/bulk", {"messages": list(HELLO) * 2})

    assert (large.status, large.json()["error"]["code"]) == (413, "FILE_TOO_LARGE")
    assert (many.status, many.json()["detail"]) == (400, "items: got 4, expected at most 3 in one call")


@pytest.mark.parametrize(
    ("path", "body"),
    [("/conversations/{}/messages", HELLO[0]), ("/conversations/{}/messages/bulk", {"messages": list(HELLO)})],
)
async def test_nobody_speaks_in_a_conversation_of_another(api: RestClient, path: str, body: Any) -> None:
    made = await keep(api)

    foreign, absent = [await post(api, path.format(one), body, "ben") for one in (made, "0" * len(made))]

    assert (foreign.status, foreign.json()["detail"]) == (absent.status, absent.json()["detail"])
    assert foreign.status == 404
    assert await messages(api, made) == []


async def test_what_is_recorded_is_found_by_the_tools(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    made = await keep(api, {"role": "user", "content": "a galleon under sail"})

    hits = await ada.search("chats_search", "galleon")

    assert {hit["conversation_id"] for hit in hits} == {made}
    assert await ben.search("chats_search", "galleon") == []


async def test_what_is_recorded_is_there_after_a_restart(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path) as api:
        made = await keep(api, *HELLO, session_id="s-1")
        before = (await api.get(f"/conversations/{made}")).json()

    async with open_rest_client(tmp_path) as api:
        assert (await api.get(f"/conversations/{made}")).json() == before
        assert (await api.get(f"/conversations/{made}", "ben")).status == 404
