"""Agents see that a human-only message exists, but not its content, and no search finds it for them."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft, ThreadDraft
from sources.query import parse
from sources.records import Message
from sources.storage.collections.chats import HIDDEN, Chats
from sources.storage.contract import ExactSearch, Library, MessageSearch, MetadataFilter, Search
from sources.storage.postgres.libraries import PostgresChats
from sources.storage.sqlite.collections import SqliteChats
from tests.cases import each_case
from tests.sources.storage.library_fixture import LibraryFixture

pytestmark = pytest.mark.postgres

SECRET = "the password is mango"
PLAIN = "the mango is ripe"
HUMAN_ONLY = MessageDraft(
    sender="Ana",
    content=SECRET,
    attachments=[{"name": "password.txt"}],
    citations=[{"quote": "password"}],
    metadata={"visibility": "human_only"},
)
# Methods whose results contain no message. A new method of the protocol belongs here, in READS or in SEARCHES.
RETURNS_NO_MESSAGE = {
    *("get", "get_by_session", "list", "list_created", "ids", "last_message_number"),
    *("change_token", "count_before", "withdraw_many", "withdraw_messages"),
    *("create", "get_or_create", "upsert_many", "update"),
    *("browse", "tags", "words", "matching_ids", "change_many", "undo", "namespace_counts", "created_counts"),
    *("delete", "delete_message", "restore", "purge"),
    *("namespaces", "create_namespace", "rename_namespace", "delete_namespace"),
}

Read = Callable[[Chats, str, Message], Awaitable[Any]]


def _search(query: str, limit: int = 10, **options: Any) -> Search:
    return Search(query=parse(query), limit=limit, deadline_ms=5_000, **options)


READS: dict[str, Read] = {
    "get_message": lambda chats, _chat, message: chats.get_message(message.id),
    "messages": lambda chats, chat, _message: chats.messages(chat, 10, 0),
    "messages_after": lambda chats, chat, _message: chats.messages_after(chat, 0, 10),
    "messages_around": lambda chats, chat, _message: chats.messages_around(chat, 0, 1, 1),
    "append": lambda chats, chat, _message: chats.append(chat, [HUMAN_ONLY]),
    "update_message": lambda chats, _chat, message: chats.update_message(
        message.id, MessageDraft(metadata={"human_only": True})
    ),
}
SEARCHES: dict[str, Read] = {
    "search": lambda chats, _chat, _message: chats.search(_search("password", by="message")),
    "search by sender": lambda chats, _chat, _message: chats.search(_search("", senders=("Ana",))),
    "search by title": lambda chats, _chat, _message: chats.search(_search("mangoes", by="title")),
    "find_messages": lambda chats, _chat, _message: chats.find_messages(
        MessageSearch(text="pass", limit=10, deadline_ms=5_000)
    ),
    "find_messages of a chat": lambda chats, chat, _message: chats.find_messages(
        MessageSearch(conversation_id=chat, limit=10, deadline_ms=5_000)
    ),
    "match_messages": lambda chats, _chat, _message: chats.match_messages(
        ExactSearch(expression="pass*", limit=10, deadline_ms=5_000)
    ),
    "match_messages of a chat": lambda chats, chat, _message: chats.match_messages(
        ExactSearch(expression="pass*", conversation_id=chat, limit=10, deadline_ms=5_000)
    ),
}


@pytest.fixture
async def chat(ada: Library) -> str:
    draft = ConversationDraft(title="Mangoes")
    return (await ada.chats.create(draft, [HUMAN_ONLY, MessageDraft(content=PLAIN)])).id


async def _responses(libraries: LibraryFixture, ada: Library, chat: str, read: Read) -> tuple[bytes, bytes]:
    """Returns what an agent and a person get. Only `update_message` needs the message of the agent's own kind."""
    secret, plain = (await ada.chats.messages(chat, 10, 0)).rows
    async with libraries.engine.library(libraries.context("ada", is_agent=True)) as library:
        message = plain if read is READS["update_message"] else secret
        by_agent = msgspec.json.encode(await read(library.chats, chat, message))
    return by_agent, msgspec.json.encode(await read(ada.chats, chat, secret))


@pytest.mark.parametrize("name", READS)
async def test_agent_sees_the_placeholder_and_person_sees_the_content(
    libraries: LibraryFixture, ada: Library, chat: str, name: str
) -> None:
    by_agent, by_person = await _responses(libraries, ada, chat, READS[name])

    assert HIDDEN.encode() in by_agent
    assert b"password" not in by_agent
    assert b"password" in by_person
    assert HIDDEN.encode() not in by_person


@each_case("name", [name for name in SEARCHES if name != "search by title"])
async def test_search_finds_a_human_only_message_for_people_only(
    libraries: LibraryFixture, ada: Library, ben: Library, chat: str, name: str
) -> None:
    by_agent, by_person = await _responses(libraries, ada, chat, SEARCHES[name])

    assert b"password" not in by_agent
    assert HIDDEN.encode() not in by_agent
    assert b"password is mango" in by_person
    assert b"password" not in msgspec.json.encode(await SEARCHES[name](ben.chats, chat, await _any_message(ada, chat)))


async def _any_message(ada: Library, chat: str) -> Message:
    return (await ada.chats.messages(chat, 1, 0)).rows[0]


async def test_hit_by_title_shows_the_first_message_that_agents_may_read(
    libraries: LibraryFixture, ada: Library, chat: str
) -> None:
    async with libraries.engine.library(libraries.context("ada", is_agent=True)) as library:
        [hit] = (await library.chats.search(_search("mangoes", by="title"))).hits

    assert (hit.text, hit.item_chars) == (PLAIN, len(PLAIN))


async def test_other_messages_are_not_redacted(libraries: LibraryFixture, ada: Library, chat: str) -> None:
    async with libraries.engine.library(libraries.context("ada", is_agent=True)) as library:
        page = await library.chats.messages(chat, 10, 0)
        hits = await library.chats.search(_search("mango", by="message"))
    assert [message.content for message in page.rows] == [HIDDEN, PLAIN]
    assert page.total == 2
    assert ([hit.text for hit in hits.hits], hits.total) == ([PLAIN], 1)


async def test_redacted_message_keeps_only_its_mark_and_lines(libraries: LibraryFixture, ada: Library) -> None:
    metadata = {"audience": "human", "images": [SECRET], "line_start": 3, "line_end": SECRET}
    draft = MessageDraft(content=SECRET, metadata=metadata)
    chat = (await ada.chats.create(ConversationDraft(), [draft])).id

    async with libraries.engine.library(libraries.context("ada", is_agent=True)) as library:
        [message] = (await library.chats.messages(chat, 1, 0)).rows

    assert (message.metadata, message.content_hash) == ({"human_only": True, "line_start": 3}, "")
    assert message.is_human_only


async def test_agent_cannot_select_a_human_only_message_by_its_metadata(
    libraries: LibraryFixture, ada: Library
) -> None:
    draft = MessageDraft(content=SECRET, metadata={"audience": "human", "_bus": {"priority": "urgent"}})
    chat = (await ada.chats.create(ConversationDraft(), [draft])).id
    urgent, normal = (MetadataFilter("$._bus.priority", (value,)) for value in ("urgent", None))

    async with libraries.engine.library(libraries.context("ada", is_agent=True)) as library:
        by_agent = [len(await library.chats.messages_after(chat, 0, 10, one)) for one in (urgent, normal)]
    by_person = [len(await ada.chats.messages_after(chat, 0, 10, one)) for one in (urgent, normal)]

    assert (by_agent, by_person) == ([0, 1], [1, 0])


async def test_agent_cannot_change_a_human_only_message(libraries: LibraryFixture, ada: Library, chat: str) -> None:
    secret = await _any_message(ada, chat)
    unmarked = MessageDraft(uuid=secret.id, metadata={})
    thread = ThreadDraft(ConversationDraft(uuid=chat), [unmarked])
    async with libraries.engine.library(libraries.context("ada", is_agent=True)) as library:
        with pytest.raises(InvalidParams, match="is human-only: agents cannot change it"):
            await library.chats.update_message(secret.id, MessageDraft(metadata={}))
        [result] = await library.chats.upsert_many([thread])

    assert [one.outcome for one in result.messages] == ["refused"]
    assert (await ada.chats.get_message(secret.id)).is_human_only


async def test_mark_that_is_set_or_removed_takes_effect_in_every_search(
    libraries: LibraryFixture, ada: Library, chat: str
) -> None:
    plain = (await ada.chats.messages(chat, 10, 0)).rows[1]
    async with libraries.engine.library(libraries.context("ada", is_agent=True)) as agent:
        for metadata, expected in (({"human_only": True}, 0), ({}, 1), ({"audience": "human"}, 0)):
            await ada.chats.update_message(plain.id, MessageDraft(metadata=metadata))
            found = await agent.chats.search(_search("ripe"))
            matched = await agent.chats.match_messages(ExactSearch(expression="ripe", limit=5, deadline_ms=5_000))
            contained = await agent.chats.find_messages(MessageSearch(text="ripe", limit=5, deadline_ms=5_000))
            assert (len(found.hits), found.total) == (expected, expected)
            assert (len(matched.hits), len(contained.hits)) == (expected, expected)
            assert len((await ada.chats.search(_search("ripe"))).hits) == 1


async def test_title_made_from_a_message_is_removed_when_the_message_becomes_human_only(ada: Library) -> None:
    texts = (SECRET, f"{SECRET} {'x' * 50}")
    for text in texts:
        title = text if len(text) <= 50 else f"{text[:50]}..."
        chat = (await ada.chats.create(ConversationDraft(title=title), [MessageDraft(content=text)])).id
        message = await _any_message(ada, chat)
        await ada.chats.update_message(message.id, MessageDraft(metadata={"human_only": True}))
        assert (await ada.chats.get(chat)).title == ""

    chat = (await ada.chats.create(ConversationDraft(title="Plans"), [HUMAN_ONLY])).id
    await ada.chats.update_message((await _any_message(ada, chat)).id, MessageDraft(model="m"))
    assert (await ada.chats.get(chat)).title == "Plans"


async def test_pages_of_people_contain_every_hit_once(ada: Library, ben: Library) -> None:
    messages = [
        MessageDraft(content=f"tea {'green ' * (n % 5)}{n}", metadata={"human_only": n % 3 == 0}) for n in range(70)
    ]
    await ada.chats.create(ConversationDraft(title="Talk"), messages)
    for order in ("relevance", "recent"):
        whole = await ada.chats.search(_search("tea green", limit=100, order=order))
        pages = [
            await ada.chats.search(_search("tea green", limit=7, offset=at, order=order)) for at in range(0, 77, 7)
        ]
        assert [hit.message_id for page in pages for hit in page.hits] == [hit.message_id for hit in whole.hits]
        assert (len(whole.hits), whole.total, whole.has_more) == (70, 70, False)
        assert [page.has_more for page in pages] == [True] * 9 + [False] * 2
    assert (await ben.chats.search(_search("tea"))).total == 0


def test_every_method_of_the_protocol_is_classified() -> None:
    returns_messages = {name.partition(" ")[0] for name in (*READS, *SEARCHES)}
    assert not returns_messages & RETURNS_NO_MESSAGE
    # The jobs of a search, which an engine runs.
    jobs = {"run_search", "text_search", "read_ahead"}
    for stored in (Chats, SqliteChats, PostgresChats):
        methods = {name for name, _ in inspect.getmembers(stored, inspect.isfunction) if not name.startswith("_")}
        assert methods - jobs == returns_messages | RETURNS_NO_MESSAGE
