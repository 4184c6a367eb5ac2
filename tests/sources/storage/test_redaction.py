"""What agents read of messages that are for people only: that they are there, and not what they say."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from sources.drafts import ConversationDraft, MessageDraft
from sources.query import parse
from sources.records import Message
from sources.storage.contract import Chats, ExactSearch, Library, MessageSearch, Search
from sources.storage.redaction import HIDDEN, _ForAgents
from tests.sources.storage.desk import Desk

SECRET = "the password is mango"
PLAIN = "the mango is ripe"
FOR_PEOPLE = MessageDraft(
    content=SECRET,
    attachments=[{"name": "password.txt"}],
    citations=[{"quote": "password"}],
    metadata={"visibility": "human_only"},
)
# What gives no message, and so stands for itself. A new method belongs here or into `_ForAgents`.
GIVES_NO_MESSAGE = {
    *("get", "get_by_session", "list", "ids", "last_number", "create", "upsert_many", "update"),
    *("delete", "delete_message", "purge"),
    *("namespaces", "create_namespace", "rename_namespace", "delete_namespace"),
}

Reading = Callable[[Chats, str, Message], Awaitable[Any]]


def _mango(**more: Any) -> Search:
    return Search(query=parse("mango"), limit=10, deadline_ms=5_000, **more)


READINGS: dict[str, Reading] = {
    "search": lambda chats, _chat, _message: chats.search(_mango(by="message")),
    "search by title": lambda chats, _chat, _message: chats.search(_mango(by="title")),
    "messages_with": lambda chats, _chat, _message: chats.messages_with(
        MessageSearch(text="mango", limit=10, deadline_ms=5_000)
    ),
    "match_messages": lambda chats, _chat, _message: chats.match_messages(
        ExactSearch(expression="mango", limit=10, deadline_ms=5_000)
    ),
    "get_message": lambda chats, _chat, message: chats.get_message(message.id),
    "messages": lambda chats, chat, _message: chats.messages(chat, 10, 0),
    "around": lambda chats, chat, _message: chats.around(chat, 0, 1, 1),
    "append": lambda chats, chat, _message: chats.append(chat, [FOR_PEOPLE]),
    "update_message": lambda chats, _chat, message: chats.update_message(message.id, MessageDraft(model="m")),
}


@pytest.fixture
async def chat(ada: Library) -> str:
    draft = ConversationDraft(title="Mangoes")
    return (await ada.chats.create(draft, [FOR_PEOPLE, MessageDraft(content=PLAIN)])).id


@pytest.mark.parametrize("name", READINGS)
async def test_an_agent_is_told_that_something_is_there_but_not_what(
    desk: Desk, ada: Library, chat: str, name: str
) -> None:
    [secret, _] = (await ada.chats.messages(chat, 10, 0)).rows
    async with desk.libraries.library(desk.context("ada", is_agent=True)) as library:
        read = msgspec.json.encode(await READINGS[name](library.chats, chat, secret))
    by_person = msgspec.json.encode(await READINGS[name](ada.chats, chat, secret))

    assert HIDDEN.encode() in read
    assert b"password" not in read
    assert b"password" in by_person
    assert HIDDEN.encode() not in by_person


async def test_what_is_for_all_is_read_by_all(desk: Desk, ada: Library, chat: str) -> None:
    async with desk.libraries.library(desk.context("ada", is_agent=True)) as library:
        page = await library.chats.messages(chat, 10, 0)
        found = await library.chats.search(_mango(by="message"))
    assert [message.content for message in page.rows] == [HIDDEN, PLAIN]
    assert page.total == 2
    assert sorted(hit.text for hit in found.hits) == [HIDDEN, PLAIN]


def test_every_method_that_gives_messages_is_discreet() -> None:
    methods = {name for name, _ in inspect.getmembers(Chats, inspect.isfunction) if not name.startswith("_")}
    discreet = {name for name in vars(_ForAgents) if not name.startswith("_")}
    assert methods == discreet | GIVES_NO_MESSAGE
    assert not discreet & GIVES_NO_MESSAGE
    assert discreet == {name.partition(" ")[0] for name in READINGS}
