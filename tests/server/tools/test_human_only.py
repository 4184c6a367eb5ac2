"""Human-only messages are redacted in every tool and resource, found by no search, and shown to people over REST."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sources.drafts import MessageDraft
from sources.storage.collections.chats import HIDDEN
from tests.cases import each_case
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser

RequestFactory = Callable[[str, str], dict[str, Any]]


def _tool(name: str, **arguments: Any) -> dict[str, Any]:
    return {"method": "tools/call", "name": name, "arguments": arguments}


SEARCHES: dict[str, RequestFactory] = {
    "chats_search": lambda _chat, _message: _tool("chats_search", query="mango"),
    "chats_search by title": lambda _chat, _message: _tool("chats_search", query="talk", by="title"),
    "knowledge_search": lambda _chat, _message: _tool("knowledge_search", query="mango"),
    "search": lambda _chat, _message: _tool("search", query="mango"),
    "msg_search": lambda _chat, _message: _tool("msg_search", query="mango"),
    "conversation_search": lambda _chat, _message: _tool("conversation_search", query="mango"),
    "memory_search": lambda _chat, _message: _tool("memory_search", query="mango"),
}
READS: dict[str, RequestFactory] = {
    "memory_read": lambda chat, _message: _tool("memory_read", path=f"chats://{chat}"),
    "chats_get": lambda chat, _message: _tool("chats_get", conversation_id=chat),
    "chats_get around a query": lambda chat, _message: _tool("chats_get", conversation_id=chat, query="mango"),
    "chats_get around a message": lambda chat, message: _tool(
        "chats_get", conversation_id=chat, loc={"message_id": message}, retrieval={"mode": "snippet"}
    ),
    "knowledge_get": lambda chat, _message: _tool("knowledge_get", source="chats", id=chat),
    "fetch": lambda chat, _message: _tool("fetch", id=f"chats://{chat}"),
    "the resource of a chat": lambda chat, _message: {"method": "resources/read", "uri": f"chats://{chat}"},
    "the resource of a message": lambda chat, message: {
        "method": "resources/read",
        "uri": f"chats://{chat}/{message}",
    },
}


@pytest.fixture
async def conversation(ada: LibraryUser) -> tuple[str, str]:
    """Creates a conversation that starts with a human-only message; returns the ids of both."""
    secret = MessageDraft(role="user", content="the password is mango", metadata={"audience": "human"})
    chat = await ada.add_chat("Talk", secret, "understood")
    async with ada.libraries.library(ada.context) as library:
        [message, _] = (await library.chats.messages(chat, 2, 0)).rows
    return chat, message.id


@each_case("name", READS)
async def test_human_only_message_is_redacted_for_agents(
    ada: LibraryUser, conversation: tuple[str, str], name: str
) -> None:
    response = msgspec.json.encode(await ada.request(**READS[name](*conversation)))

    assert HIDDEN.encode() in response
    assert b"password" not in response


@each_case("name", SEARCHES)
async def test_no_search_finds_a_human_only_message_for_agents(
    ada: LibraryUser, conversation: tuple[str, str], name: str
) -> None:
    response = msgspec.json.encode(await ada.request(**SEARCHES[name](*conversation)))

    assert HIDDEN.encode() not in response
    assert conversation[1].encode() not in response
    assert b"password" not in response


async def test_agents_cannot_change_a_human_only_message(ada: LibraryUser, conversation: tuple[str, str]) -> None:
    chat, message = conversation

    error = await ada.call_error("items_update", uri=f"chats://{chat}/{message}", content="the password is guava")

    assert error == f"message {message!r} is human-only: agents cannot change it"


async def test_human_only_message_is_shown_to_people_over_rest(api: RestClient, conversation: tuple[str, str]) -> None:
    chat, _ = conversation
    paths = (f"/api/v1/items/chats/{chat}", f"/conversations/{chat}", f"/items/chats/{chat}")
    searches = ("/conversations/search/messages?query=mang", "/api/search?q=mango")
    for path in (*paths, *searches):
        assert b"the password is mango" in (await api.get(path)).body, path
    assert b"the password is " in (await api.search({"query": "mango"})).body
