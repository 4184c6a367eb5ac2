"""Messages that hold a text as it stands: what counts as holding it, which are left out, and in which order they come.

Each claim holds where messages are looked through one by one, and where they are found through an index.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.contract import Library, MessageSearch
from tests.sources.storage.library_fixture import OpenLibraries

MINUTE = "2026-01-01T10:{:02}:00Z"
# Enough to be more than are looked through one by one in the library with an index.
FILLING = 60


def asked(text: str | None, limit: int = 50, **narrowing: Any) -> MessageSearch:
    return MessageSearch(text=text, limit=limit, deadline_ms=10_000, **narrowing)


async def found(library: Library, text: str | None, **narrowing: Any) -> list[str]:
    answer = await library.chats.find_messages(asked(text, **narrowing))
    assert answer.is_complete
    return [hit.message.content for hit in answer.hits]


async def complete(library: Library) -> None:
    """Until a text that is nowhere is known to be nowhere: then an index, if one is needed, is there."""
    while not (await library.chats.find_messages(asked("nowhere at all"))).is_complete:
        pass


@pytest.fixture(params=["one by one", "through an index"])
async def chats(
    request: pytest.FixtureRequest, open_libraries: OpenLibraries
) -> AsyncIterator[tuple[Library, Library]]:
    """Ada's library and Ben's, both with an old conversation about nothing."""
    rows = 10 if request.param == "through an index" else 10_000
    async with (
        open_libraries(message_scan_max_rows=rows) as libraries,
        libraries.library("ada") as ada,
        libraries.library("ben") as ben,
    ):
        for library in (ada, ben):
            old = [MessageDraft(content=f"~ {n}", created_at="2020-01-01T00:00:00Z") for n in range(FILLING)]
            await library.chats.create(ConversationDraft(title="~", created_at="2020-01-01T00:00:00Z"), old)
            await complete(library)
        yield ada, ben


async def say(library: Library, *texts: str, title: str = "", **more: Any) -> str:
    drafts = [MessageDraft(content=text, created_at=MINUTE.format(at), **more) for at, text in enumerate(texts)]
    return (await library.chats.create(ConversationDraft(title=title), drafts)).id


async def test_a_text_is_found_in_any_case_and_only_where_it_stands(chats: tuple[Library, Library]) -> None:
    ada, ben = chats
    await say(ada, "Green tea", "greentea", "GREEN TEA!", "green", "tea green")
    assert await found(ada, "green tea") == ["GREEN TEA!", "Green tea"]
    assert await found(ada, "een te") == ["GREEN TEA!", "Green tea"]
    assert await found(ben, "green tea") == []


@pytest.mark.parametrize(
    ("text", "said"),
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
async def test_every_character_is_one_like_others(chats: tuple[Library, Library], text: str, said: str) -> None:
    ada, _ = chats
    await say(ada, "other", said, "~", title="~")
    assert said in await found(ada, text, limit=200)
    assert "other" not in await found(ada, text, limit=200)


@pytest.mark.parametrize("many", [1, 4])
async def test_what_only_has_the_same_parts_is_not_found(chats: tuple[Library, Library], many: int) -> None:
    ada, _ = chats
    await say(ada, *["aaa bcd"] * many, title="bcd abc aaa" if many > 1 else "")
    assert await found(ada, "aaaa") == await found(ada, "bcd aaa bcd") == []
    await say(ada, *["Aaaa"] * many)
    assert await found(ada, "aaaa") == ["Aaaa"] * many


@pytest.mark.parametrize(
    ("text", "wanted"), [("50%", ["50% off"]), ("a_b", ["a_b"]), ("%", ["50% off"]), ("_", ["a_b"])]
)
async def test_percent_and_underscore_stand_for_themselves(
    chats: tuple[Library, Library], text: str, wanted: list[str]
) -> None:
    ada, _ = chats
    await say(ada, "50% off", "50 off", "a_b", "axb")
    assert await found(ada, text) == wanted


async def test_a_title_stands_for_every_message_of_its_conversation(chats: tuple[Library, Library]) -> None:
    ada, ben = chats
    await say(ada, "one", "two", title="Der Große Plan")
    await say(ada, "the GROSSE one")
    assert sorted(await found(ada, "große")) == ["one", "the GROSSE one", "two"]
    assert await found(ada, "große", in_titles=False) == ["the GROSSE one"]
    assert await found(ada, "große", limit=1) == ["two"]
    assert await found(ben, "große") == []


async def test_the_newest_come_first_whenever_they_were_written(chats: tuple[Library, Library]) -> None:
    ada, _ = chats
    late = [
        MessageDraft(content="tea 3", created_at="2026-03-01"),
        MessageDraft(content="tea 1", created_at="2026-01-01"),
    ]
    await ada.chats.create(ConversationDraft(), late)
    await ada.chats.create(ConversationDraft(), [MessageDraft(content="tea 2", created_at="2026-02-01")])
    assert await found(ada, "tea") == ["tea 3", "tea 2", "tea 1"]
    assert await found(ada, "tea", limit=2) == ["tea 3", "tea 2"]
    assert await found(ada, None, limit=2) == ["tea 3", "tea 2"]
    assert await found(ada, "", limit=1) == ["tea 3"]
    assert await found(ada, "tea", limit=0) == []


async def test_of_messages_of_one_moment_the_later_written_comes_first(chats: tuple[Library, Library]) -> None:
    ada, _ = chats
    same = [MessageDraft(content=f"tea {n}", created_at="2026-01-01T00:00:00Z") for n in range(3)]
    await ada.chats.create(ConversationDraft(title="tea"), same)
    assert await found(ada, "tea") == ["tea 2", "tea 1", "tea 0"]


async def test_roles_and_days_are_counted_before_the_limit(chats: tuple[Library, Library]) -> None:
    ada, _ = chats
    for month in range(1, 10):
        pair = [
            MessageDraft(role=role, content=f"tea {role} {month}", created_at=f"2026-0{month}-15T12:00:00Z")
            for role in ("user", "assistant")
        ]
        await ada.chats.create(ConversationDraft(), pair)
    spring = {"date_from": "2026-03-15T12:00:00.000Z", "date_to": "2026-04-15T12:00:00.000Z"}
    assert await found(ada, "tea", roles=("user",), limit=2) == ["tea user 9", "tea user 8"]
    assert await found(ada, "tea", roles=("user",), **spring) == ["tea user 4", "tea user 3"]
    assert await found(ada, None, roles=("assistant", "tool"), **spring) == ["tea assistant 4", "tea assistant 3"]
    assert await found(ada, "tea", roles=("tool",)) == []
    assert len(await found(ada, "tea", roles=("user", "assistant"))) == 18
    assert await found(ada, "te", roles=("user",), date_to="2026-01-31T00:00:00.000Z") == ["tea user 1"]


async def test_one_conversation_can_be_looked_into_alone(chats: tuple[Library, Library]) -> None:
    ada, ben = chats
    short = await say(ada, "tea one", "none")
    long = await say(ada, *(f"tea {n}" for n in range(20)), title="tea")
    assert await found(ada, "tea", conversation_id=short) == ["tea one"]
    assert len(await found(ada, "tea", conversation_id=long)) == 20
    assert await found(ada, "tea 7", conversation_id=long, in_titles=False) == ["tea 7"]
    assert await found(ada, None, conversation_id=short) == ["none", "tea one"]
    assert await found(ada, "tea", conversation_id="absent") == []
    assert await found(ben, "tea", conversation_id=short) == []


async def test_a_hit_tells_the_message_whole_and_the_title(chats: tuple[Library, Library]) -> None:
    ada, _ = chats
    conversation = await say(ada, "green tea", title="Drinks", role="assistant", metadata={"n": 1})
    [hit] = (await ada.chats.find_messages(asked("green"))).hits
    [message] = (await ada.chats.messages(conversation, 1, 0)).rows
    assert (hit.title, hit.message) == ("Drinks", message)
    assert (message.number, message.role, message.metadata) == (FILLING + 1, "assistant", {"n": 1})


async def test_changes_are_seen_at_once(chats: tuple[Library, Library]) -> None:
    ada, _ = chats
    conversation = await say(ada, "green tea", "black tea", title="Drinks")
    first, second = (await ada.chats.messages(conversation, 2, 0)).rows
    await ada.chats.update_message(first.id, MessageDraft(content="coffee"))
    await ada.chats.append(conversation, [MessageDraft(content="white tea", created_at=MINUTE.format(9))])
    assert await found(ada, "tea") == ["white tea", "black tea"]
    await ada.chats.delete_message(second.id)
    assert await found(ada, "tea") == ["white tea"]
    await ada.chats.update(conversation, ConversationDraft(title="Teas"))
    assert await found(ada, "teas") == ["white tea", "coffee"]
    assert await found(ada, "drinks") == []
    await ada.chats.delete(conversation)
    assert await found(ada, "tea") == await found(ada, "coffee") == []


async def test_what_no_message_can_hold_is_found_nowhere(chats: tuple[Library, Library]) -> None:
    ada, _ = chats
    await say(ada, "tea")
    assert (
        await found(ada, "\ud800") == await found(ada, "\0") == await found(ada, "tea", conversation_id="\ud800") == []
    )


letters = st.text(st.sampled_from('aAbB ß"%_*東京éÉ🎉'), max_size=7)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.lists(letters, min_size=1, max_size=8), title=letters, text=letters)
async def test_what_is_found_is_what_python_finds(
    chats: tuple[Library, Library], contents: list[str], title: str, text: str
) -> None:
    ada, _ = chats
    drafts = [MessageDraft(content=content, role="tool") for content in contents]
    talk = await ada.chats.create(ConversationDraft(title=title), drafts)
    folded = text.casefold()
    for in_titles in (True, False):
        wanted = [
            content
            for content in reversed(contents)
            if folded in content.casefold() or (in_titles and folded in title.casefold())
        ]
        assert await found(ada, text, roles=("tool",), in_titles=in_titles) == wanted
    await ada.chats.purge(talk.id)
