"""Chats: search by message or title, reading in pages or around a message."""

import re
from typing import Any

from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.server.rest.rest_client import open_rest_client
from tests.sources.source_fixture import LibraryUser


async def add_long_chat(user: LibraryUser, count: int = 120) -> str:
    return await user.add_chat("Journey", *(f"Turn {n} is about topic{n}." for n in range(count)))


def indexes(response: dict[str, Any]) -> list[int]:
    """The messages of `add_long_chat` in a response."""
    return [int(number) for number in re.findall(r"Turn (\d+) is", response["content"])]


# -- search -----------------------------------------------------------------------------------------------------


async def test_hit_is_a_message_with_conversation_sender_and_loc(ada: LibraryUser, ben: LibraryUser) -> None:
    chat = await add_long_chat(ada)
    await add_long_chat(ben)

    (hit, *_) = await ada.search("chats_search", "topic41")

    assert (hit["id"], hit["conversation_id"], hit["sender"]) == (chat, chat, "Guide")
    assert hit["loc"] == {"conversation_id": chat, "message_id": hit["message_id"], "message_index": 41}
    assert hit["uri"] == f"chats://{chat}/{hit['message_id']}"
    assert hit["snippet"] == "Turn 41 is about topic41."


async def test_title_hit_shows_the_title_and_the_first_message(ada: LibraryUser) -> None:
    chat = await ada.add_chat("Galleons of Spain", "Where did they sail?", "Everywhere.")

    (hit,) = await ada.search("chats_search", "galleons", by="title")

    assert hit["snippet"] == "Galleons of Spain: Where did they sail?"
    assert ("message_id" in hit, hit["uri"]) == (False, f"chats://{chat}")
    assert hit["loc"] == {"conversation_id": chat}


async def test_loc_of_a_title_hit_reads_the_conversation_from_its_beginning(ada: LibraryUser) -> None:
    chat = await add_long_chat(ada)
    (hit,) = await ada.search("chats_search", "journey", by="title")

    assert await ada.read("chats", chat, loc=hit["loc"]) == await ada.read("chats", chat)


async def test_loc_of_another_conversation_is_rejected(ada: LibraryUser) -> None:
    first, second = await ada.add_chat("One", "A galleon."), await ada.add_chat("Two", "A sloop.")
    (hit,) = await ada.search("chats_search", "galleon")

    error = await ada.call_error("chats_get", conversation_id=second, loc={"message_index": 0, **hit["loc"]})

    assert error == f"loc.conversation_id: expected '{second}', got '{first}'"


@each_case(("by", "titles"), [("both", ["A", "galleon"]), ("title", ["galleon"]), ("message", ["A"])])
async def test_by_selects_titles_or_messages(ada: LibraryUser, by: str, titles: list[str]) -> None:
    await ada.add_chat("A", "A galleon.")
    await ada.add_chat("galleon", "Something else.")

    hits = await ada.search("chats_search", "galleon", by=by)

    assert sorted({hit["title"] for hit in hits}) == titles


async def test_by_defaults_to_both(ada: LibraryUser) -> None:
    await ada.add_chat("A", "A galleon.")
    await ada.add_chat("galleon", "Something else.")

    assert await ada.search("chats_search", "galleon") == await ada.search("chats_search", "galleon", by="both")


async def test_words_also_match_the_previous_message_but_phrases_do_not(ada: LibraryUser) -> None:
    await ada.add_chat("A", "Where is the zeppelin graveyard?", "Nowhere.")

    words = await ada.search("chats_search", "zeppelin graveyard")
    phrase = await ada.search("chats_search", '"zeppelin graveyard"')

    assert [hit["snippet"] for hit in words] == [
        "Where is the zeppelin graveyard?",
        "Ana: Where is the zeppelin graveyard? → Nowhere.",
    ]
    assert [hit["snippet"] for hit in phrase] == ["Where is the zeppelin graveyard?"]


async def test_sender_filters_the_hits(ada: LibraryUser) -> None:
    await ada.add_chat("A", "A galleon, says Ana.", "A galleon, says the guide.")

    by_argument = await ada.search("chats_search", "galleon", sender="guide")
    by_query = await ada.search("chats_search", "galleon sender:Guide")

    assert [hit["sender"] for hit in by_argument] == [hit["sender"] for hit in by_query] == ["Guide"]


async def test_character_filters_the_hits_to_its_chats(ada: LibraryUser) -> None:
    merlin = await ada.add_character("Merlin")
    chat = await ada.add_chat("With Merlin", "A galleon.", character_id=merlin)
    await ada.add_chat("Alone", "A galleon.")

    hits = await ada.search("chats_search", "galleon", character_id=merlin)

    assert {hit["conversation_id"] for hit in hits} == {chat}


@each_case("number", [0, -1, 10**30, 2**63])
async def test_unknown_character_has_no_chats(ada: LibraryUser, number: int) -> None:
    await ada.add_chat("Alone", "A galleon.")

    assert await ada.search("chats_search", "galleon", character_id=number) == []


async def test_unknown_value_of_by_is_rejected(ada: LibraryUser) -> None:
    message = await ada.call_error("chats_search", query="x", by="sender")

    assert message == "by: expected one of both, message, no_context, title, got 'sender'"


# -- get --------------------------------------------------------------------------------------------------------


async def test_conversation_is_read_in_pages_of_50_messages(ada: LibraryUser) -> None:
    chat = await add_long_chat(ada)

    response = await ada.read("chats", chat)

    assert indexes(response) == list(range(50))
    assert response["pages"] == {"page": 1, "page_size": 50, "total": 120, "has_more": True}
    assert response["content"].startswith("Ana: Turn 0 is about topic0.\n\nGuide: Turn 1 ")


async def test_pages_contain_every_message_once(ada: LibraryUser) -> None:
    chat = await add_long_chat(ada)
    seen: list[int] = []

    for page in range(1, 5):
        response = await ada.read("chats", chat, page=page, page_size=33)
        seen += indexes(response)
        assert response["pages"]["has_more"] == (page < 4)

    assert seen == list(range(120))


@each_case(("page_size", "expected"), [(0, 1), (-4, 1), (10_000, 120)])
async def test_page_size_is_clamped_to_1_to_200(ada: LibraryUser, page_size: int, expected: int) -> None:
    chat = await add_long_chat(ada)

    response = await ada.read("chats", chat, page_size=page_size)

    assert len(indexes(response)) == expected
    assert 1 <= response["pages"]["page_size"] <= 200


async def test_page_after_the_last_is_empty(ada: LibraryUser) -> None:
    chat = await add_long_chat(ada, 3)

    response = await ada.read("chats", chat, page=9)

    assert (response["content"], response["attachments"], response["next_cursor"]) == ("", None, None)


async def test_cursor_of_a_page_continues_after_it(ada: LibraryUser) -> None:
    chat = await add_long_chat(ada)
    response = await ada.read("chats", chat)
    seen = indexes(response)

    while response["next_cursor"]:
        response = await ada.read("chats", chat, cursor=response["next_cursor"])
        seen += indexes(response)

    assert seen == list(range(120))


async def test_page_larger_than_its_budget_is_truncated_and_can_be_continued(ada: LibraryUser) -> None:
    chat = await add_long_chat(ada)
    response = await ada.read("chats", chat, retrieval={"mode": "full", "max_tokens": 700})
    assert response["truncated"] is True
    content = response["content"]

    while response["next_cursor"]:
        response = await ada.read("chats", chat, cursor=response["next_cursor"], retrieval={"max_tokens": 700})
        assert response["tokens"] <= 700
        content += response["content"]

    assert indexes({"content": content}) == list(range(120))


async def test_budget_without_a_page_is_filled_with_as_many_messages_as_fit(ada: LibraryUser, ben: LibraryUser) -> None:
    chat = await ada.add_chat("Journey", *(f"Turn {n} is about the {n}th harbour of the journey." for n in range(900)))
    await ben.add_chat("Journey", "Turn 1 is Ben's.")
    options = {"mode": "full", "max_tokens": 5000}

    first = await ada.read("chats", chat, retrieval=options)
    second = await ada.read("chats", chat, retrieval=options, cursor=first["next_cursor"])
    page = await ada.read("chats", chat, retrieval=options, page=2)

    assert min(first["tokens"], second["tokens"]) >= 4000
    read = indexes({"content": first["content"] + second["content"]})
    assert read == list(range(len(read)))
    assert len(read) > 400
    assert (first["attachments"], "pages" in first) == (None, False)
    assert indexes(page) == list(range(50, 100))
    assert page["pages"]["page_size"] == 50


async def test_budget_without_a_mode_is_filled_too(ada: LibraryUser) -> None:
    chat = await ada.add_chat("Journey", *(f"Turn {n} is about the {n}th harbour of the journey." for n in range(600)))

    response = await ada.read("chats", chat, retrieval={"max_tokens": 5000})

    assert response["tokens"] >= 4000
    assert indexes(response)[0] == 0


async def test_long_message_is_cut_to_fill_a_budget_and_continued(ada: LibraryUser) -> None:
    texts = [" ".join(f"word{n}x{m}" for m in range(150)) for n in range(12)]
    chat = await ada.add_chat("Journey", *texts)
    options = {"mode": "full", "max_tokens": 1500}
    response = await ada.read("chats", chat, retrieval=options)
    content = response["content"]

    while response["next_cursor"]:
        assert response["tokens"] >= 1200
        response = await ada.read("chats", chat, retrieval=options, cursor=response["next_cursor"])
        content += " " + response["content"]

    assert [word for word in content.split() if word.startswith("word")] == " ".join(texts).split()


async def test_conversation_found_by_its_title_has_no_cost(ada: LibraryUser) -> None:
    await ada.add_chat("Galleons of Spain", "Where did they sail?")

    (hit,) = await ada.search("chats_search", "galleons", by="title")

    assert "cost_tokens" not in hit


async def test_message_in_loc_is_read_with_its_neighbours(ada: LibraryUser) -> None:
    chat = await add_long_chat(ada)
    hits = await ada.search("chats_search", "topic41", by="message")
    options = {"mode": "chunk_with_siblings", "sibling_window": 2, "max_tokens": 3000, "attachments": True}

    response = await ada.read("chats", chat, loc=hits[0]["loc"], retrieval=options)

    assert response["anchor"] == "loc"
    assert indexes(response) == [39, 40, 41, 42, 43]
    ranges = [(attachment["start"], attachment["end"]) for attachment in response["attachments"]]
    assert response["content"][slice(*ranges[2])] == "Guide: Turn 41 is about topic41."


async def test_larger_budgets_return_more_messages(ada: LibraryUser) -> None:
    chat = await add_long_chat(ada)
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


async def test_loc_without_retrieval_is_read_with_its_neighbours(ada: LibraryUser) -> None:
    chat = await add_long_chat(ada)

    assert indexes(await ada.read("chats", chat, loc={"message_index": 60})) == [58, 59, 60, 61, 62]


async def test_query_selects_the_message_to_read(ada: LibraryUser) -> None:
    chat = await add_long_chat(ada)

    response = await ada.read("chats", chat, query="topic77", retrieval={"mode": "chunk"})

    assert (response["anchor"], indexes(response)) == ("query", [77])


async def test_cursor_continues_after_the_neighbours(ada: LibraryUser) -> None:
    chat = await add_long_chat(ada)
    around = await ada.read("chats", chat, loc={"message_index": 60})

    response = await ada.read("chats", chat, cursor=around["next_cursor"], page_size=3)

    assert indexes(response) == [63, 64, 65]


async def test_end_of_a_conversation_has_no_cursor(ada: LibraryUser) -> None:
    chat = await add_long_chat(ada)

    assert (await ada.read("chats", chat, loc={"message_index": 119}))["next_cursor"] is None
    assert (await ada.read("chats", chat, page=3))["next_cursor"] is None


async def test_empty_conversation_can_be_read_in_every_mode(ada: LibraryUser) -> None:
    chat = await ada.add_chat("Empty")

    for mode in ("snippet", "chunk", "chunk_with_siblings", "full"):
        assert (await ada.read("chats", chat, retrieval={"mode": mode}))["content"] == ""


async def test_neighbours_of_a_deleted_message_can_be_read(ada: LibraryUser) -> None:
    chat = await add_long_chat(ada, 10)
    (hit, *_) = await ada.search("chats_search", "topic5", by="message")
    async with ada.libraries.library(ada.context) as library:
        await library.chats.delete_message(hit["message_id"])

    whole = await ada.read("chats", chat)
    around = await ada.read("chats", chat, loc={"message_index": 5})

    assert indexes(whole) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert 6 in indexes(around)


async def test_attachments_contain_the_other_fields_of_a_message(ada: LibraryUser) -> None:
    message = MessageDraft(
        role="assistant", sender="Guide", content="Look.", model="m-1", citations=[{"url": "https://example.org"}]
    )
    chat = await ada.add_chat("Sources", message)

    (attachment,) = (await ada.read("chats", chat, retrieval={"mode": "full", "attachments": True}))["attachments"]

    assert (attachment["role"], attachment["model"], attachment["citations"]) == (
        "assistant",
        "m-1",
        [{"url": "https://example.org"}],
    )


async def test_large_attachments_are_only_counted(ada: LibraryUser) -> None:
    chat = await ada.add_chat("Image", MessageDraft(content="See.", attachments=[{"data": "x" * 5000}]))

    (attachment,) = (await ada.read("chats", chat, retrieval={"mode": "full", "attachments": True}))["attachments"]

    assert attachment["attachments"] == "1 omitted: too large"


async def test_negative_message_index_is_rejected(ada: LibraryUser) -> None:
    chat = await add_long_chat(ada, 3)

    message = await ada.call_error("chats_get", conversation_id=chat, loc={"message_index": -2})

    assert message == "loc.message_index: expected 0 or more, got -2"


async def test_maximum_page_size_is_a_setting(tmp_path: Any) -> None:
    async with open_rest_client(tmp_path, message_page_max=7) as api:
        ada = await api.library_user("ada")
        chat = await add_long_chat(ada, 20)

        response = await ada.read("chats", chat, page_size=50)

    assert len(indexes(response)) == 7


async def test_message_can_be_read_as_a_resource(ada: LibraryUser) -> None:
    await add_long_chat(ada, 3)
    (hit, *_) = await ada.search("chats_search", "topic1", by="message")

    (content,) = (await ada.request("resources/read", uri=hit["uri"]))["contents"]

    assert content["text"] == "Guide: Turn 1 is about topic1."


# -- branches ---------------------------------------------------------------------------------------------------


async def add_regenerated_chat(user: LibraryUser) -> str:
    """Adds a chat with two replies to one message; the second reply is not canonical."""
    turns = [
        MessageDraft(role="user", sender="Ana", content="Threads?"),
        MessageDraft(role="assistant", sender="Guide", content="Use gather."),
        MessageDraft(role="assistant", sender="Guide", content="Use a xylophone.", is_canonical=False),
    ]
    return await user.add_chat("Asyncio", *turns)


async def test_messages_of_an_alternate_branch_are_labelled_wherever_they_are_read(
    ada: LibraryUser, ben: LibraryUser
) -> None:
    chat = await add_regenerated_chat(ada)
    bens = await ben.add_chat("Asyncio", "Threads?", "Use a xylophone.")

    whole = await ada.read("chats", chat)
    around = await ada.read("chats", chat, loc={"message_index": 2})
    message = around["meta"]["message_id"]
    [resource] = (await ada.request("resources/read", uri=f"chats://{chat}/{message}"))["contents"]

    labelled = "Guide (alternate branch): Use a xylophone."
    assert whole["content"] == f"Ana: Threads?\n\nGuide: Use gather.\n\n{labelled}"
    assert around["content"].endswith(labelled)
    assert resource["text"] == labelled
    assert "alternate branch" not in (await ben.read("chats", bens))["content"]
