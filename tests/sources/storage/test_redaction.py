"""Agents see that a human-only message exists, but not its content."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from sources.drafts import ConversationDraft, MessageDraft
from sources.query import parse
from sources.records import Message
from sources.storage.contract import Chats, ExactSearch, Library, MessageSearch, Search
from sources.storage.redaction import HIDDEN, RedactedChats
from tests.sources.storage.library_fixture import LibraryFixture

SECRET = "the password is mango"
PLAIN = "the mango is ripe"
HUMAN_ONLY = MessageDraft(
    content=SECRET,
    attachments=[{"name": "password.txt"}],
    citations=[{"quote": "password"}],
    metadata={"visibility": "human_only"},
)
# Methods whose results contain no message. A new method of the protocol belongs here or in READS.
RETURNS_NO_MESSAGE = {
    *("get", "get_by_session", "list", "ids", "last_message_number", "create", "upsert_many", "update"),
    *("delete", "delete_message", "purge"),
    *("namespaces", "create_namespace", "rename_namespace", "delete_namespace"),
}

Read = Callable[[Chats, str, Message], Awaitable[Any]]


def _mango(**options: Any) -> Search:
    return Search(query=parse("mango"), limit=10, deadline_ms=5_000, **options)


READS: dict[str, Read] = {
    "search": lambda chats, _chat, _message: chats.search(_mango(by="message")),
    "search by title": lambda chats, _chat, _message: chats.search(_mango(by="title")),
    "find_messages": lambda chats, _chat, _message: chats.find_messages(
        MessageSearch(text="mango", limit=10, deadline_ms=5_000)
    ),
    "match_messages": lambda chats, _chat, _message: chats.match_messages(
        ExactSearch(expression="mango", limit=10, deadline_ms=5_000)
    ),
    "get_message": lambda chats, _chat, message: chats.get_message(message.id),
    "messages": lambda chats, chat, _message: chats.messages(chat, 10, 0),
    "messages_around": lambda chats, chat, _message: chats.messages_around(chat, 0, 1, 1),
    "append": lambda chats, chat, _message: chats.append(chat, [HUMAN_ONLY]),
    "update_message": lambda chats, _chat, message: chats.update_message(message.id, MessageDraft(model="m")),
}


@pytest.fixture
async def chat(ada: Library) -> str:
    draft = ConversationDraft(title="Mangoes")
    return (await ada.chats.create(draft, [HUMAN_ONLY, MessageDraft(content=PLAIN)])).id


@pytest.mark.parametrize("name", READS)
async def test_agent_sees_the_placeholder_and_person_sees_the_content(
    libraries: LibraryFixture, ada: Library, chat: str, name: str
) -> None:
    [secret, _] = (await ada.chats.messages(chat, 10, 0)).rows
    async with libraries.engine.library(libraries.context("ada", is_agent=True)) as library:
        by_agent = msgspec.json.encode(await READS[name](library.chats, chat, secret))
    by_person = msgspec.json.encode(await READS[name](ada.chats, chat, secret))

    assert HIDDEN.encode() in by_agent
    assert b"password" not in by_agent
    assert b"password" in by_person
    assert HIDDEN.encode() not in by_person


async def test_other_messages_are_not_redacted(libraries: LibraryFixture, ada: Library, chat: str) -> None:
    async with libraries.engine.library(libraries.context("ada", is_agent=True)) as library:
        page = await library.chats.messages(chat, 10, 0)
        hits = (await library.chats.search(_mango(by="message"))).hits
    assert [message.content for message in page.rows] == [HIDDEN, PLAIN]
    assert page.total == 2
    assert sorted(hit.text for hit in hits) == [HIDDEN, PLAIN]


def test_every_method_of_the_protocol_is_written_out_and_classified() -> None:
    methods = {name for name, _ in inspect.getmembers(Chats, inspect.isfunction) if not name.startswith("_")}
    returns_messages = {name.partition(" ")[0] for name in READS}
    assert methods == {name for name in vars(RedactedChats) if not name.startswith("_")}
    assert methods == returns_messages | RETURNS_NO_MESSAGE
    assert not returns_messages & RETURNS_NO_MESSAGE
    assert "__getattr__" not in vars(RedactedChats)
