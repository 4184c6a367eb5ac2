"""Conversations and messages: order, context and search."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from config.errors import Conflict, InvalidParams, NotFound, SourceTimeout
from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.contract import Library
from tests.sources.storage.library_fixture import OpenLibraries, make_search

pytestmark = pytest.mark.postgres(is_contract=True)


def drafts_of(*texts: str, **fields: Any) -> list[MessageDraft]:
    return [MessageDraft(content=text, **fields) for text in texts]


async def contents(library: Library, conversation_id: str) -> list[str]:
    return [message.content for message in (await library.chats.messages(conversation_id, 100, 0)).rows]


async def search_texts(library: Library, query: str, **filters: Any) -> list[str]:
    return [hit.text for hit in (await library.chats.search(make_search(query, **filters))).hits]


async def test_every_field_of_a_message_is_stored(ada: Library, ben: Library) -> None:
    draft = MessageDraft(
        role="assistant",
        sender="Bo",
        content="Tea?",
        model="m-1",
        tool="kettle",
        attachments=[{"name": "cup.png"}],
        citations=[{"uri": "notes://1"}],
        metadata={"tokens": 3},
        parent_id="earlier",
        is_canonical=False,
        uuid="m-1",
        created_at="2026-01-02T03:04:05Z",
    )
    conversation = await ada.chats.create(ConversationDraft(title="Tea", namespace="n", session_id="s"), [draft])
    message = await ada.chats.get_message("m-1")
    assert (message.conversation_id, message.position, message.version) == (conversation.id, 0, 1)
    assert (message.role, message.sender, message.content) == ("assistant", "Bo", "Tea?")
    assert (message.model, message.tool, message.parent_id) == ("m-1", "kettle", "earlier")
    assert (message.attachments, message.citations) == (({"name": "cup.png"},), ({"uri": "notes://1"},))
    assert (message.metadata, message.is_canonical) == ({"tokens": 3}, False)
    assert (conversation.namespace, conversation.session_id, conversation.message_count) == ("n", "s", 1)
    with pytest.raises(NotFound):
        await ben.chats.get_message("m-1")


async def test_sender_defaults_to_the_role(ada: Library) -> None:
    conversation = await ada.chats.create(ConversationDraft(), [MessageDraft(role="assistant"), MessageDraft()])
    senders = [message.sender for message in (await ada.chats.messages(conversation.id, 10, 0)).rows]
    assert senders == ["assistant", "user"]


async def test_messages_are_paged_in_order(ada: Library, ben: Library) -> None:
    conversation = await ada.chats.create(ConversationDraft(), drafts_of(*"abcde"))
    page = await ada.chats.messages(conversation.id, 2, 1)
    assert ([message.content for message in page.rows], page.total) == (["b", "c"], 5)
    with pytest.raises(NotFound):
        await ben.chats.messages(conversation.id, 2, 1)


async def test_appending_messages_updates_the_conversation(ada: Library, ben: Library) -> None:
    conversation = await ada.chats.create(ConversationDraft(title="Tea"), drafts_of("a"))
    appended = await ada.chats.append(conversation.id, drafts_of("b", "c"))
    assert [(message.content, message.position) for message in appended] == [("b", 1), ("c", 2)]
    updated = await ada.chats.get(conversation.id)
    assert (updated.message_count, updated.version) == (3, 1)
    assert updated.last_modified > conversation.last_modified
    with pytest.raises(NotFound):
        await ben.chats.append(conversation.id, drafts_of("d"))


async def test_append_repeated_with_its_key_is_applied_once(ada: Library) -> None:
    conversation = await ada.chats.create(ConversationDraft())
    first = await ada.chats.append(conversation.id, drafts_of("a", "b"), idempotency_key="k")
    assert await ada.chats.append(conversation.id, drafts_of("a", "b"), idempotency_key="k") == first
    assert await contents(ada, conversation.id) == ["a", "b"]
    with pytest.raises(Conflict):
        await ada.chats.append(conversation.id, drafts_of("c"), idempotency_key="k")


async def test_message_that_exists_is_rejected_with_its_conversation(ada: Library) -> None:
    messages = [MessageDraft(content="a", uuid="m-1"), MessageDraft(content="b"), MessageDraft(content="c", uuid="m-1")]
    with pytest.raises(Conflict, match="message 'm-1' already exists"):
        await ada.chats.create(ConversationDraft(uuid="c-1"), messages)
    with pytest.raises(NotFound):
        await ada.chats.get("c-1")


async def test_neighbours_of_a_position_are_returned_in_order(ada: Library) -> None:
    conversation = await ada.chats.create(ConversationDraft(), drafts_of(*"abcdefg"))
    deleted = (await ada.chats.messages(conversation.id, 1, 3)).rows[0]
    await ada.chats.delete_message(deleted.id)

    async def around(position: int, before: int, after: int) -> str:
        return "".join(
            [message.content for message in await ada.chats.messages_around(conversation.id, position, before, after)]
        )

    assert await around(4, 2, 1) == "bcef"
    assert await around(3, 1, 1) == "ce"
    assert await around(0, 5, 0) == "a"
    assert await around(99, 2, 2) == "fg"


async def test_updated_message_and_its_successors_are_found_by_its_new_words(ada: Library) -> None:
    conversation = await ada.chats.create(ConversationDraft(), drafts_of("tea", "yes", "no", "later"))
    first = (await ada.chats.messages(conversation.id, 1, 0)).rows[0]
    assert sorted(await search_texts(ada, "tea")) == ["no", "tea", "yes"]
    changed = await ada.chats.update_message(first.id, MessageDraft(content="coffee"), expected_version=1)
    assert (changed.content, changed.version, changed.position) == ("coffee", 2, 0)
    assert await search_texts(ada, "tea") == []
    assert sorted(await search_texts(ada, "coffee")) == ["coffee", "no", "yes"]


async def test_deleted_message_is_not_context(ada: Library, ben: Library) -> None:
    conversation = await ada.chats.create(ConversationDraft(), drafts_of("apple", "tea", "yes", "no", "later"))
    second = (await ada.chats.messages(conversation.id, 1, 1)).rows[0]
    with pytest.raises(NotFound):
        await ben.chats.delete_message(second.id)
    await ada.chats.delete_message(second.id)
    assert await search_texts(ada, "tea") == []
    assert sorted(await search_texts(ada, "apple")) == ["apple", "no", "yes"]
    assert await contents(ada, conversation.id) == ["apple", "yes", "no", "later"]
    appended = await ada.chats.append(conversation.id, drafts_of("end"))
    assert appended[0].position == 5


async def test_context_skips_deleted_messages(ada: Library) -> None:
    conversation = await ada.chats.create(ConversationDraft(), drafts_of("tea", "a", "b", "c", "d"))
    messages = (await ada.chats.messages(conversation.id, 10, 0)).rows
    await ada.chats.delete_message(messages[1].id)
    await ada.chats.delete_message(messages[2].id)
    assert sorted(await search_texts(ada, "tea")) == ["c", "d", "tea"]
    await ada.chats.update_message(messages[0].id, MessageDraft(content="coffee"))
    assert await search_texts(ada, "tea") == []
    assert sorted(await search_texts(ada, "coffee")) == ["c", "coffee", "d"]


LONG = "The kettle boils slowly. " * 20


async def test_long_message_is_in_no_context_and_ends_it(ada: Library, ben: Library) -> None:
    await ada.chats.create(ConversationDraft(), drafts_of("tea", f"{LONG} mango", "yes", "no"))
    await ben.chats.create(ConversationDraft(), drafts_of("tea", "mango", "yes", "no"))

    assert [text[-5:] for text in await search_texts(ada, "mango")] == ["mango"]
    # The long message has the one before it as its context, the message after it has none.
    assert sorted(text[-5:] for text in await search_texts(ada, "tea")) == ["mango", "tea"]
    assert sorted(await search_texts(ben, "mango")) == ["mango", "no", "yes"]


async def test_answer_is_found_by_the_beginning_of_a_long_question(ada: Library, ben: Library) -> None:
    question = MessageDraft(role="user", content=f"Which harbour has the oldest crane? {LONG} mango")
    answers = [MessageDraft(role=role, content="Riga.") for role in ("assistant", "user")]
    await ada.chats.create(ConversationDraft(), [question, answers[0]])
    await ada.chats.create(ConversationDraft(), [question, answers[1]])

    assert sorted(hit.role or "" for hit in (await ada.chats.search(make_search("harbour"))).hits) == [
        "assistant",
        "user",
        "user",
    ]
    assert [hit.role for hit in (await ada.chats.search(make_search("mango"))).hits] == ["user", "user"]
    # The last word that fits is whole: a part of it would be a word of its own.
    assert await search_texts(ada, "boi", by="message") == []
    assert await search_texts(ben, "harbour") == []


async def test_context_follows_the_role_of_the_answer(ada: Library) -> None:
    question = MessageDraft(role="user", content=f"Which harbour? {LONG}")
    conversation = await ada.chats.create(ConversationDraft(), [question, MessageDraft(role="user", content="Riga.")])
    answer = (await ada.chats.messages(conversation.id, 1, 1)).rows[0]
    assert len(await search_texts(ada, "harbour")) == 1
    await ada.chats.update_message(answer.id, MessageDraft(role="assistant"))
    assert len(await search_texts(ada, "harbour")) == 2


async def test_message_about_a_person_ranks_above_messages_of_the_person(ada: Library, ben: Library) -> None:
    said = [MessageDraft(sender="Tobias", content=text) for text in ("Of course it is seven.", "Bring a torch.")]
    about = MessageDraft(
        sender="Maren", content=f"Tobias mends what turns: the dome, the mount and the gate. {'He comes often. ' * 20}"
    )
    await ada.chats.create(ConversationDraft(), said)
    await ada.chats.create(ConversationDraft(), [about])
    await ben.chats.create(ConversationDraft(), said)

    hits = (await ada.chats.search(make_search("who is Tobias?"))).hits
    assert [hit.sender for hit in hits] == ["Maren", "Tobias", "Tobias"]
    assert [hit.sender for hit in (await ben.chats.search(make_search("who is Tobias?"))).hits] == ["Tobias", "Tobias"]
    [torch, *_] = (await ada.chats.search(make_search("what did Tobias say about the torch"))).hits
    assert torch.text == "Bring a torch."


async def test_reply_of_a_person_who_was_addressed_is_not_about_the_person(ada: Library) -> None:
    texts = (("Tobias", "It is stuck again."), ("Maren", "Thank you, Tobias."), ("Tobias", "Bring a new torch."))
    await ada.chats.create(ConversationDraft(), [MessageDraft(sender=sender, content=text) for sender, text in texts])
    [mention, *replies] = (await ada.chats.search(make_search("who is Tobias?"))).hits
    assert mention.text == "Thank you, Tobias."
    assert len(replies) == 2
    assert replies[0].score == replies[1].score < mention.score / 2


async def test_repeated_question_ranks_below_messages_that_inform(ada: Library, ben: Library) -> None:
    texts = ("And the grease?", f"All nine bearings are packed with new grease, good to -40. {'It is blue. ' * 20}")
    for text in texts:
        await ada.chats.create(ConversationDraft(), drafts_of(text))
    await ben.chats.create(ConversationDraft(), drafts_of(texts[0]))

    assert await search_texts(ada, "what did we decide about the grease") == [texts[1], texts[0]]
    assert await search_texts(ben, "what did we decide about the grease") == [texts[0]]


async def test_long_message_with_all_words_by_chance_ranks_below_a_precise_one(ada: Library) -> None:
    precise = "The study stayed cold in the heating test."
    scattered = f"Every room needs air. {LONG * 2}Stay away when it is cold. {LONG * 2}Test it once."
    for text in (precise, scattered, *["A room with a view."] * 6):
        await ada.chats.create(ConversationDraft(), drafts_of(text))

    assert (await search_texts(ada, "which room stayed cold in the test"))[:2] == [precise, scattered]


async def test_messages_of_a_deleted_conversation_are_hidden(ada: Library) -> None:
    conversation = await ada.chats.create(ConversationDraft(title="Tea time"), drafts_of("tea", uuid="m-1"))
    await ada.chats.delete(conversation.id)
    assert await search_texts(ada, "tea") == []
    for call in (
        ada.chats.get_message("m-1"),
        ada.chats.messages(conversation.id, 1, 0),
        ada.chats.messages_around(conversation.id, 0, 1, 1),
        ada.chats.append(conversation.id, drafts_of("x")),
        ada.chats.update_message("m-1", MessageDraft(content="x")),
    ):
        with pytest.raises(NotFound):
            await call


async def wait_until_open(library: Library) -> None:
    """Opening the files counts against the deadline of the first call, but continues after it."""
    async with asyncio.timeout(20):
        while True:
            with suppress(SourceTimeout):
                await library.chats.list(0, 0)
                return


@pytest.mark.sqlite  # a search of PostgreSQL can take longer than the 50 ms
async def test_deadline_is_extended_for_removing_a_long_conversation(open_libraries: OpenLibraries) -> None:
    async with open_libraries() as libraries, libraries.library("ada") as ada:
        conversation = await ada.chats.create(
            ConversationDraft(title="Tea"), drafts_of(*["tea and cake " * 20] * 4_000)
        )
    # Removing that many messages takes longer.
    async with open_libraries(library_deadline_ms=50) as libraries, libraries.library("ada") as ada:
        await wait_until_open(ada)
        await ada.chats.delete(conversation.id)
        assert await search_texts(ada, "tea") == []
        await ada.chats.purge(conversation.id)
        with pytest.raises(NotFound):
            await ada.chats.purge(conversation.id)


async def test_hit_of_a_title_contains_the_first_message(ada: Library) -> None:
    conversation = await ada.chats.create(ConversationDraft(title="Tea ceremony"), drafts_of("Hello", "Sit down"))
    [hit] = (await ada.chats.search(make_search("ceremony"))).hits
    assert (hit.id, hit.conversation_id, hit.message_id) == (conversation.id, conversation.id, None)
    assert (hit.title, hit.text, hit.item_chars) == ("Tea ceremony", "Hello", 13)


async def test_hit_of_a_message_contains_sender_and_position(ada: Library) -> None:
    conversation = await ada.chats.create(ConversationDraft(title="T", tags=["x"]), drafts_of("Hello", "Green tea"))
    hit = (await ada.chats.search(make_search("green tea"))).hits[0]
    assert (hit.id, hit.message_index, hit.sender, hit.role) == (conversation.id, 1, "user", "user")
    assert (hit.text, hit.tags, hit.item_chars) == ("Green tea", ("x",), 9)


async def test_messages_are_found_by_sender_and_date(ada: Library) -> None:
    may = MessageDraft(sender="Ana", content="hello", created_at="2023-05-08T10:00:00Z")
    june = MessageDraft(sender="Bo", content="hello", created_at="2023-06-09T10:00:00Z")
    await ada.chats.create(ConversationDraft(), [may])
    await ada.chats.create(ConversationDraft(), [june])
    for query in ("Ana", "8 May 2023"):
        hits = (await ada.chats.search(make_search(query))).hits
        assert hits[0].sender == "Ana"


async def test_filters_are_combined(ada: Library) -> None:
    first = await ada.chats.create(
        ConversationDraft(title="Tea one", character_id=7, tags=["x"]),
        [MessageDraft(sender="Ana", content="tea", created_at="2026-01-01T00:00:00Z"), MessageDraft(content="tea")],
    )
    await ada.chats.create(ConversationDraft(title="Tea two"), [MessageDraft(sender="Bo", content="tea")])

    async def count(**filters: Any) -> int:
        return len((await ada.chats.search(make_search("tea", **filters))).hits)

    assert await count() == 5
    assert await count(by="title") == 2
    assert await count(by="message") == 3
    assert await count(character_id=7) == 3
    assert await count(senders=("ANA",)) == 1
    assert await count(senders=("user",)) == 3
    assert await count(senders=("ana", "bo")) == 2
    assert await count(within=first.id) == 3
    assert await count(tags=("x",), by="message", date_to="2026-01-01T00:00:00.000Z") == 1
    assert await count(date_from="2026-01-01T00:00:00.001Z", by="message") == 2


async def test_renamed_conversation_is_found_only_by_its_new_title(ada: Library) -> None:
    conversation = await ada.chats.create(ConversationDraft(title="Tea"))
    await ada.chats.update(conversation.id, ConversationDraft(title="京都"))
    assert (await ada.chats.search(make_search("tea"))).hits == ()
    assert [hit.id for hit in (await ada.chats.search(make_search("京都"))).hits] == [conversation.id]
    await ada.chats.update(conversation.id, ConversationDraft(title=""))
    assert (await ada.chats.search(make_search("京都"))).hits == ()


async def test_number_of_messages_per_call_is_limited(open_libraries: OpenLibraries) -> None:
    async with open_libraries(batch_max_items=2) as libraries, libraries.library("ada") as ada:
        with pytest.raises(InvalidParams, match="items: expected at most 2 per call, got 3"):
            await ada.chats.create(ConversationDraft(), drafts_of(*"abc"))
        conversation = await ada.chats.create(ConversationDraft(), drafts_of(*"ab"))
        with pytest.raises(InvalidParams, match="items: expected at most 2 per call, got 3"):
            await ada.chats.append(conversation.id, drafts_of(*"abc"))
