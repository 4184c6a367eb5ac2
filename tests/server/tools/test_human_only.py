"""What is for people only stays hidden from agents, whichever tool or resource they read by, and REST shows it."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sources.drafts import MessageDraft
from sources.storage.redaction import HIDDEN
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

Asking = Callable[[str, str], dict[str, Any]]


def _tool(name: str, **arguments: Any) -> dict[str, Any]:
    return {"method": "tools/call", "name": name, "arguments": arguments}


ASKINGS: dict[str, Asking] = {
    "chats_search": lambda _chat, _message: _tool("chats_search", query="mango"),
    "chats_search by title": lambda _chat, _message: _tool("chats_search", query="talk", by="title"),
    "knowledge_search": lambda _chat, _message: _tool("knowledge_search", query="mango"),
    "search": lambda _chat, _message: _tool("search", query="mango"),
    "msg_search": lambda _chat, _message: _tool("msg_search", query="mango"),
    "conversation_search": lambda _chat, _message: _tool("conversation_search", query="mango"),
    "memory_search": lambda _chat, _message: _tool("memory_search", query="mango"),
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
async def api(tmp_path: Path) -> AsyncIterator[RestClient]:
    async with open_rest_client(tmp_path) as opened:
        yield opened


@pytest.fixture
async def ada(api: RestClient) -> LibraryUser:
    return await api.reader("ada")


@pytest.fixture
async def talk(ada: LibraryUser) -> tuple[str, str]:
    """A conversation that begins with what only people may read, and that message."""
    secret = MessageDraft(role="user", content="the password is mango", metadata={"audience": "human"})
    chat = await ada.add_chat("Talk", secret, "understood")
    async with ada.libraries.library(ada.context) as library:
        [message, _] = (await library.chats.messages(chat, 2, 0)).rows
    return chat, message.id


@pytest.mark.parametrize("name", ASKINGS)
async def test_an_agent_reads_that_it_is_there_and_not_what_it_says(
    ada: LibraryUser, talk: tuple[str, str], name: str
) -> None:
    answer = msgspec.json.encode(await ada.request(**ASKINGS[name](*talk)))

    assert HIDDEN.encode() in answer
    assert b"password" not in answer


async def test_a_person_reads_it_by_rest(api: RestClient, talk: tuple[str, str]) -> None:
    chat, _ = talk
    for path in (f"/api/v1/items/chats/{chat}", f"/conversations/{chat}", f"/items/chats/{chat}"):
        assert b"the password is mango" in (await api.get(path)).body, path
