"""Chats: found message by message or by title, read in pages or around a message."""

from typing import Any

import pytest

from sources.drafts import MessageDraft
from tests.sources.source_fixture import LibraryUser, SourceFixture, open_source_fixture


async def long_chat(reader: LibraryUser, count: int = 120) -> str:
    return await reader.add_chat("Journey", *(f"Turn {n} is about topic{n}." for n in range(count)))


def indexes(answer: dict[str, Any]) -> list[int]:
    return [entry["message_index"] for entry in answer["attachments"] or ()]


# -- search -----------------------------------------------------------------------------------------------------


async def test_a_hit_is_a_message_with_its_conversation_sender_and_place(ada: LibraryUser, ben: LibraryUser) -> None:
    chat = await long_chat(ada)
    await long_chat(ben)

    (hit, *_) = await ada.search("chats_search", "topic41")

    assert (hit["id"], hit["conversation_id"], hit["sender"]) == (chat, chat, "Guide")
    assert hit["loc"] == {"message_id": hit["message_id"], "message_index": 41}
    assert hit["uri"] == f"chats://{chat}/{hit['message_id']}"
    assert hit["snippet"] == "Turn 41 is about topic41."


async def test_a_title_hit_shows_the_title_with_the_first_message(ada: LibraryUser) -> None:
    chat = await ada.add_chat("Galleons of Spain", "Where did they sail?", "Everywhere.")

    (hit,) = await ada.search("chats_search", "galleons", by="title")

    assert hit["snippet"] == "Galleons of Spain: Where did they sail?"
    assert (hit["message_id"], hit["uri"]) == (None, f"chats://{chat}")


@pytest.mark.parametrize(("by", "titles"), [("both", ["A", "galleon"]), ("title", ["galleon"]), ("message", ["A"])])
async def test_by_chooses_between_titles_and_messages(ada: LibraryUser, by: str, titles: list[str]) -> None:
    await ada.add_chat("A", "A galleon.")
    await ada.add_chat("galleon", "Something else.")

    hits = await ada.search("chats_search", "galleon", by=by)

    assert sorted({hit["title"] for hit in hits}) == titles


async def test_the_default_is_both(ada: LibraryUser) -> None:
    await ada.add_chat("A", "A galleon.")
    await ada.add_chat("galleon", "Something else.")

    assert await ada.search("chats_search", "galleon") == await ada.search("chats_search", "galleon", by="both")


async def test_a_word_may_have_been_said_just_before_and_a_phrase_is_said_in_the_hit_itself(ada: LibraryUser) -> None:
    await ada.add_chat("A", "Where is the zeppelin graveyard?", "Nowhere.")

    words = await ada.search("chats_search", "zeppelin graveyard")
    phrase = await ada.search("chats_search", '"zeppelin graveyard"')

    assert [hit["snippet"] for hit in words] == ["Where is the zeppelin graveyard?", "Nowhere."]
    assert [hit["snippet"] for hit in phrase] == ["Where is the zeppelin graveyard?"]


async def test_a_sender_limits_the_hits(ada: LibraryUser) -> None:
    await ada.add_chat("A", "A galleon, says Ana.", "A galleon, says the guide.")

    by_argument = await ada.search("chats_search", "galleon", sender="guide")
    by_query = await ada.search("chats_search", "galleon sender:Guide")

    assert [hit["sender"] for hit in by_argument] == [hit["sender"] for hit in by_query] == ["Guide"]


async def test_a_character_limits_the_hits_to_its_chats(ada: LibraryUser) -> None:
    merlin = await ada.add_character("Merlin")
    chat = await ada.add_chat("With Merlin", "A galleon.", character_id=merlin)
    await ada.add_chat("Alone", "A galleon.")

    hits = await ada.search("chats_search", "galleon", character_id=merlin)

    assert {hit["conversation_id"] for hit in hits} == {chat}


@pytest.mark.parametrize("number", [0, -1, 10**30, 2**63])
async def test_a_character_that_is_not_there_has_no_chats(ada: LibraryUser, number: int) -> None:
    await ada.add_chat("Alone", "A galleon.")

    assert await ada.search("chats_search", "galleon", character_id=number) == []


async def test_an_unknown_value_of_by_is_refused(ada: LibraryUser) -> None:
    sentence = await ada.call_error("chats_search", query="x", by="sender")

    assert sentence == "by: expected one of both, message, title, got 'sender'"


# -- get --------------------------------------------------------------------------------------------------------


async def test_a_conversation_is_read_in_pages_of_50(ada: LibraryUser) -> None:
    chat = await long_chat(ada)

    answer = await ada.read("chats", chat)

    assert indexes(answer) == list(range(50))
    assert answer["pages"] == {"page": 1, "page_size": 50, "total": 120, "has_more": True}
    assert answer["content"].startswith("Ana: Turn 0 is about topic0.\n\nGuide: Turn 1 ")


async def test_pages_hold_every_message_once(ada: LibraryUser) -> None:
    chat = await long_chat(ada)
    read: list[int] = []

    for page in range(1, 5):
        answer = await ada.read("chats", chat, page=page, page_size=33)
        read += indexes(answer)
        assert answer["pages"]["has_more"] == (page < 4)

    assert read == list(range(120))


@pytest.mark.parametrize(("asked", "taken"), [(0, 1), (-4, 1), (10_000, 120)])
async def test_a_page_size_is_moved_into_1_to_200(ada: LibraryUser, asked: int, taken: int) -> None:
    chat = await long_chat(ada)

    answer = await ada.read("chats", chat, page_size=asked)

    assert len(indexes(answer)) == taken
    assert 1 <= answer["pages"]["page_size"] <= 200


async def test_a_page_after_the_last_is_empty(ada: LibraryUser) -> None:
    chat = await long_chat(ada, 3)

    answer = await ada.read("chats", chat, page=9)

    assert (answer["content"], answer["attachments"], answer["next_cursor"]) == ("", None, None)


async def test_the_cursor_of_a_page_reads_on_after_it(ada: LibraryUser) -> None:
    chat = await long_chat(ada)
    answer = await ada.read("chats", chat)
    read = indexes(answer)

    while answer["next_cursor"]:
        answer = await ada.read("chats", chat, cursor=answer["next_cursor"])
        read += indexes(answer)

    assert read == list(range(120))


async def test_a_page_too_large_for_its_budget_ends_early_says_so_and_goes_on(ada: LibraryUser) -> None:
    chat = await long_chat(ada)
    answer = await ada.read("chats", chat, retrieval={"mode": "full", "max_tokens": 700})
    assert answer["truncated"] is True
    read = indexes(answer)

    while answer["next_cursor"]:
        answer = await ada.read("chats", chat, cursor=answer["next_cursor"], retrieval={"max_tokens": 700})
        assert answer["tokens"] <= 700
        read += indexes(answer)

    assert read == list(range(120))


async def test_a_message_in_loc_is_read_with_its_neighbours(ada: LibraryUser) -> None:
    chat = await long_chat(ada)
    hits = await ada.search("chats_search", "topic41", by="message")
    options = {"mode": "chunk_with_siblings", "sibling_window": 2, "max_tokens": 3000}

    answer = await ada.read("chats", chat, loc=hits[0]["loc"], retrieval=options)

    assert answer["anchor"] == "loc"
    assert indexes(answer) == [39, 40, 41, 42, 43]
    places = [(entry["start"], entry["end"]) for entry in answer["attachments"]]
    assert answer["content"][slice(*places[2])] == "Guide: Turn 41 is about topic41."


async def test_turns_are_taken_while_the_budget_lasts(ada: LibraryUser) -> None:
    chat = await long_chat(ada)
    options = {"mode": "chunk_with_siblings", "sibling_window": 50}

    counts = [
        len(
            indexes(
                await ada.read("chats", chat, loc={"message_index": 60}, retrieval={**options, "max_tokens": budget})
            )
        )
        for budget in (300, 900, 4000)
    ]

    assert counts[0] < counts[1] < counts[2]


async def test_a_place_without_retrieval_is_read_with_its_neighbours(ada: LibraryUser) -> None:
    chat = await long_chat(ada)

    assert indexes(await ada.read("chats", chat, loc={"message_index": 60})) == [58, 59, 60, 61, 62]


async def test_a_query_finds_the_message_to_read(ada: LibraryUser) -> None:
    chat = await long_chat(ada)

    answer = await ada.read("chats", chat, query="topic77", retrieval={"mode": "chunk"})

    assert (answer["anchor"], indexes(answer)) == ("query", [77])


async def test_reading_goes_on_after_the_neighbours(ada: LibraryUser) -> None:
    chat = await long_chat(ada)
    around = await ada.read("chats", chat, loc={"message_index": 60})

    answer = await ada.read("chats", chat, cursor=around["next_cursor"], page_size=3)

    assert indexes(answer) == [63, 64, 65]


async def test_the_end_of_a_conversation_has_no_cursor(ada: LibraryUser) -> None:
    chat = await long_chat(ada)

    assert (await ada.read("chats", chat, loc={"message_index": 119}))["next_cursor"] is None
    assert (await ada.read("chats", chat, page=3))["next_cursor"] is None


async def test_an_empty_conversation_is_read_in_every_mode(ada: LibraryUser) -> None:
    chat = await ada.add_chat("Empty")

    for mode in ("snippet", "chunk", "chunk_with_siblings", "full"):
        assert (await ada.read("chats", chat, retrieval={"mode": mode}))["content"] == ""


async def test_a_deleted_message_leaves_its_neighbours_readable(ada: LibraryUser) -> None:
    chat = await long_chat(ada, 10)
    (hit, *_) = await ada.search("chats_search", "topic5", by="message")
    async with ada.libraries.library(ada.context) as library:
        await library.chats.delete_message(hit["message_id"])

    whole = await ada.read("chats", chat)
    around = await ada.read("chats", chat, loc={"message_index": 5})

    assert indexes(whole) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert 6 in indexes(around)


async def test_attachments_tell_what_else_a_message_has(ada: LibraryUser) -> None:
    message = MessageDraft(
        role="assistant", sender="Guide", content="Look.", model="m-1", citations=[{"url": "https://example.org"}]
    )
    chat = await ada.add_chat("Sources", message)

    (entry,) = (await ada.read("chats", chat))["attachments"]

    assert (entry["role"], entry["model"], entry["citations"]) == ("assistant", "m-1", [{"url": "https://example.org"}])


async def test_large_attachments_are_named_and_left_out(ada: LibraryUser) -> None:
    chat = await ada.add_chat("Image", MessageDraft(content="See.", attachments=[{"data": "x" * 5000}]))

    (entry,) = (await ada.read("chats", chat))["attachments"]

    assert entry["attachments"] == "1 omitted: too large"


async def test_a_negative_message_index_is_refused(ada: LibraryUser) -> None:
    chat = await long_chat(ada, 3)

    sentence = await ada.call_error("chats_get", conversation_id=chat, loc={"message_index": -2})

    assert sentence == "loc.message_index: expected 0 or more, got -2"


async def test_the_largest_page_is_a_setting(tmp_path: Any) -> None:
    async with open_source_fixture(tmp_path, message_page_max=7) as fixture:
        chat = await long_chat(fixture.ada, 20)

        answer = await fixture.ada.read("chats", chat, page_size=50)

    assert len(indexes(answer)) == 7


async def test_a_message_is_a_resource(fixture: SourceFixture) -> None:
    await long_chat(fixture.ada, 3)
    (hit, *_) = await fixture.ada.search("chats_search", "topic1", by="message")

    (content,) = (await fixture.ada.request("resources/read", uri=hit["uri"]))["contents"]

    assert content["text"] == "Guide: Turn 1 is about topic1."


# -- branches ---------------------------------------------------------------------------------------------------


async def regenerated(reader: LibraryUser) -> str:
    """A chat whose first answer was thrown away for the second."""
    turns = [
        MessageDraft(role="user", sender="Ana", content="Threads?"),
        MessageDraft(role="assistant", sender="Guide", content="Use gather."),
        MessageDraft(role="assistant", sender="Guide", content="Use a xylophone.", is_canonical=False),
    ]
    return await reader.add_chat("Asyncio", *turns)


async def test_what_is_beside_the_path_says_so_wherever_the_chat_is_read(ada: LibraryUser, ben: LibraryUser) -> None:
    chat = await regenerated(ada)
    bens = await ben.add_chat("Asyncio", "Threads?", "Use a xylophone.")

    whole = await ada.read("chats", chat)
    around = await ada.read("chats", chat, loc={"message_index": 2})
    message = around["meta"]["message_id"]
    [resource] = (await ada.request("resources/read", uri=f"chats://{chat}/{message}"))["contents"]

    marked = "Guide (alternate branch): Use a xylophone."
    assert whole["content"] == f"Ana: Threads?\n\nGuide: Use gather.\n\n{marked}"
    assert around["content"].endswith(marked)
    assert resource["text"] == marked
    assert "alternate branch" not in (await ben.read("chats", bens))["content"]
