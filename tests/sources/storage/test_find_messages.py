"""Substring search over messages: matching, filters and order.

Every test runs with a scan of the messages and with the substring index.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.contract import Library, MessageSearch
from sources.storage.postgres.libraries import PostgresLibrary
from sources.storage.sqlite.collections import SqliteLibrary
from sources.storage.sqlite.search.substring import SUBSTRING_INDEX
from tests.cases import each_case
from tests.sources.storage.library_fixture import OpenLibraries
from tests.tiers import examples

pytestmark = pytest.mark.postgres

MINUTE = "2026-01-01T10:{:02}:00Z"
# More messages than are scanned in the library with an index.
FILLING = 60


def make_message_search(text: str | None, limit: int = 50, **filters: Any) -> MessageSearch:
    return MessageSearch(text=text, limit=limit, deadline_ms=10_000, **filters)


async def find(library: Library, text: str | None, **filters: Any) -> list[str]:
    page = await library.chats.find_messages(make_message_search(text, **filters))
    assert page.is_complete
    return [hit.message.content for hit in page.hits]


async def wait_for_index(library: Library) -> None:
    """Searches for an absent text, and waits for the index if one is needed for that."""
    await library.chats.find_messages(make_message_search("nowhere at all"))
    if isinstance(library, PostgresLibrary):
        await library._database.trigram_index.wait_until_finished()
        return
    assert isinstance(library, SqliteLibrary)
    await library._databases.index_builder.wait_until_finished(SUBSTRING_INDEX)


@pytest.fixture(params=["scan", "index"])
async def chats(
    request: pytest.FixtureRequest, open_libraries: OpenLibraries
) -> AsyncIterator[tuple[Library, Library]]:
    """Ada's and Ben's libraries, both with an old conversation without words."""
    rows = 10 if request.param == "index" else 10_000
    async with (
        open_libraries(message_scan_max_rows=rows) as libraries,
        libraries.library("ada") as ada,
        libraries.library("ben") as ben,
    ):
        for library in (ada, ben):
            old = [MessageDraft(content=f"~ {n}", created_at="2020-01-01T00:00:00Z") for n in range(FILLING)]
            await library.chats.create(ConversationDraft(title="~", created_at="2020-01-01T00:00:00Z"), old)
            await wait_for_index(library)
        yield ada, ben


async def create_conversation(library: Library, *texts: str, title: str = "", **fields: Any) -> str:
    drafts = [MessageDraft(content=text, created_at=MINUTE.format(at), **fields) for at, text in enumerate(texts)]
    return (await library.chats.create(ConversationDraft(title=title), drafts)).id


async def test_text_is_found_ignoring_case(chats: tuple[Library, Library]) -> None:
    ada, ben = chats
    await create_conversation(ada, "Green tea", "greentea", "GREEN TEA!", "green", "tea green")
    assert await find(ada, "green tea") == ["GREEN TEA!", "Green tea"]
    assert await find(ada, "een te") == ["GREEN TEA!", "Green tea"]
    assert await find(ben, "green tea") == []


@each_case(
    ("text", "content"),
    [
        ("école", "ÉCOLE"),
        ("STRASSE", "die Straße"),
        ("straße", "STRASSE"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("день", "ДЕНЬ"),
        ("東京", "in 東京 today"),
        ("京", "東京"),
        ("🎉", "done 🎉"),
        ("ﬁ", "find"),
        ("z", "jaZz"),
        ("zz", "jazZ"),
        (" ", "a b"),
        ('"', 'he said "yes"'),
        ("'; --", "x'; -- y"),
        ("*", "2*3"),
        ("NOT", "not"),
        ("-a:", "-A:b"),
        ("a" * 300, "x" + "A" * 300),
        ("end", "the end"),
        ("d", "the end"),
    ],
)
async def test_no_character_has_a_special_meaning(chats: tuple[Library, Library], text: str, content: str) -> None:
    ada, _ = chats
    await create_conversation(ada, "other", content, "~", title="~")
    assert content in await find(ada, text, limit=200)
    assert "other" not in await find(ada, text, limit=200)


@pytest.mark.parametrize("copies", [1, 4])
async def test_message_with_only_the_same_trigrams_is_not_found(chats: tuple[Library, Library], copies: int) -> None:
    ada, _ = chats
    await create_conversation(ada, *["aaa bcd"] * copies, title="bcd abc aaa" if copies > 1 else "")
    assert await find(ada, "aaaa") == await find(ada, "bcd aaa bcd") == []
    await create_conversation(ada, *["Aaaa"] * copies)
    assert await find(ada, "aaaa") == ["Aaaa"] * copies


async def test_percent_and_underscore_are_literal(chats: tuple[Library, Library]) -> None:
    ada, _ = chats
    await create_conversation(ada, "50% off", "50 off", "a_b", "axb")
    for text, expected in (("50%", "50% off"), ("a_b", "a_b"), ("%", "50% off"), ("_", "a_b")):
        assert await find(ada, text) == [expected]


async def test_matching_title_returns_every_message_of_its_conversation(chats: tuple[Library, Library]) -> None:
    ada, ben = chats
    await create_conversation(ada, "one", "two", title="Der Große Plan")
    await create_conversation(ada, "the GROSSE one")
    assert sorted(await find(ada, "große")) == ["one", "the GROSSE one", "two"]
    assert await find(ada, "große", in_titles=False) == ["the GROSSE one"]
    assert await find(ada, "große", limit=1) == ["two"]
    assert await find(ben, "große") == []


async def test_messages_are_ordered_by_their_time(chats: tuple[Library, Library]) -> None:
    ada, _ = chats
    drafts = [
        MessageDraft(content="tea 3", created_at="2026-03-01"),
        MessageDraft(content="tea 1", created_at="2026-01-01"),
    ]
    await ada.chats.create(ConversationDraft(), drafts)
    await ada.chats.create(ConversationDraft(), [MessageDraft(content="tea 2", created_at="2026-02-01")])
    assert await find(ada, "tea") == ["tea 3", "tea 2", "tea 1"]
    assert await find(ada, "tea", limit=2) == ["tea 3", "tea 2"]
    assert await find(ada, None, limit=2) == ["tea 3", "tea 2"]
    assert await find(ada, "", limit=1) == ["tea 3"]
    assert await find(ada, "tea", limit=0) == []


async def test_messages_of_the_same_time_are_ordered_by_number(chats: tuple[Library, Library]) -> None:
    ada, _ = chats
    drafts = [MessageDraft(content=f"tea {n}", created_at="2026-01-01T00:00:00Z") for n in range(3)]
    await ada.chats.create(ConversationDraft(title="tea"), drafts)
    assert await find(ada, "tea") == ["tea 2", "tea 1", "tea 0"]


async def test_filters_are_applied_before_the_limit(chats: tuple[Library, Library]) -> None:
    ada, _ = chats
    for month in range(1, 10):
        drafts = [
            MessageDraft(role=role, content=f"tea {role} {month}", created_at=f"2026-0{month}-15T12:00:00Z")
            for role in ("user", "assistant")
        ]
        await ada.chats.create(ConversationDraft(), drafts)
    spring = {"date_from": "2026-03-15T12:00:00.000Z", "date_to": "2026-04-15T12:00:00.000Z"}
    assert await find(ada, "tea", roles=("user",), limit=2) == ["tea user 9", "tea user 8"]
    assert await find(ada, "tea", roles=("user",), **spring) == ["tea user 4", "tea user 3"]
    assert await find(ada, None, roles=("assistant", "tool"), **spring) == ["tea assistant 4", "tea assistant 3"]
    assert await find(ada, "tea", roles=("tool",)) == []
    assert len(await find(ada, "tea", roles=("user", "assistant"))) == 18
    assert await find(ada, "te", roles=("user",), date_to="2026-01-31T00:00:00.000Z") == ["tea user 1"]


async def test_search_can_be_restricted_to_a_conversation(chats: tuple[Library, Library]) -> None:
    ada, ben = chats
    short = await create_conversation(ada, "tea one", "none")
    long = await create_conversation(ada, *(f"tea {n}" for n in range(20)), title="tea")
    assert await find(ada, "tea", conversation_id=short) == ["tea one"]
    assert len(await find(ada, "tea", conversation_id=long)) == 20
    assert await find(ada, "tea 7", conversation_id=long, in_titles=False) == ["tea 7"]
    assert await find(ada, None, conversation_id=short) == ["none", "tea one"]
    assert await find(ada, "tea", conversation_id="absent") == []
    assert await find(ben, "tea", conversation_id=short) == []


async def test_hit_contains_the_message_and_the_title(chats: tuple[Library, Library]) -> None:
    ada, _ = chats
    conversation = await create_conversation(ada, "green tea", title="Drinks", role="assistant", metadata={"n": 1})
    [hit] = (await ada.chats.find_messages(make_message_search("green"))).hits
    [message] = (await ada.chats.messages(conversation, 1, 0)).rows
    assert (hit.title, hit.message) == ("Drinks", message)
    assert (message.number, message.role, message.metadata) == (FILLING + 1, "assistant", {"n": 1})


async def test_changes_are_visible_immediately(chats: tuple[Library, Library]) -> None:
    ada, _ = chats
    conversation = await create_conversation(ada, "green tea", "black tea", title="Drinks")
    first, second = (await ada.chats.messages(conversation, 2, 0)).rows
    await ada.chats.update_message(first.id, MessageDraft(content="coffee"))
    await ada.chats.append(conversation, [MessageDraft(content="white tea", created_at=MINUTE.format(9))])
    assert await find(ada, "tea") == ["white tea", "black tea"]
    await ada.chats.delete_message(second.id)
    assert await find(ada, "tea") == ["white tea"]
    await ada.chats.update(conversation, ConversationDraft(title="Teas"))
    assert await find(ada, "teas") == ["white tea", "coffee"]
    assert await find(ada, "drinks") == []
    await ada.chats.delete(conversation)
    assert await find(ada, "tea") == await find(ada, "coffee") == []


async def test_unstorable_text_is_not_found(chats: tuple[Library, Library]) -> None:
    ada, _ = chats
    await create_conversation(ada, "tea")
    assert await find(ada, "\ud800") == await find(ada, "\0") == await find(ada, "tea", conversation_id="\ud800") == []


letters = st.text(st.sampled_from('aAbB ß"%_*東京éÉ🎉'), max_size=7)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.lists(letters, min_size=1, max_size=8), title=letters, text=letters)
async def test_results_equal_those_of_python(
    chats: tuple[Library, Library], contents: list[str], title: str, text: str
) -> None:
    ada, _ = chats
    drafts = [MessageDraft(content=content, role="tool") for content in contents]
    conversation = await ada.chats.create(ConversationDraft(title=title), drafts)
    folded = text.casefold()
    for in_titles in (True, False):
        expected = [
            content
            for content in reversed(contents)
            if folded in content.casefold() or (in_titles and folded in title.casefold())
        ]
        assert await find(ada, text, roles=("tool",), in_titles=in_titles) == expected
    await ada.chats.purge(conversation.id)
