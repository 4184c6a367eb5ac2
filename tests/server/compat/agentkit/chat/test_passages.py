"""The passages from which a chat is answered."""

from pathlib import Path

import pytest

from server.compat.agentkit.chat import passages
from server.compat.agentkit.chat.passages import PassageResults
from tests.server.compat.agentkit.chat.conftest import ChatClient
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser


async def find_passages(
    api: RestClient, user: LibraryUser, question: str, conversation_id: str | None = None
) -> PassageResults:
    return await passages.find_passages(api.server.runtime, user.context, question, conversation_id)


def uris(results: PassageResults) -> list[str]:
    return [passage.uri for passage in results.passages]


@pytest.fixture
async def ada(chat_without_model: ChatClient) -> LibraryUser:
    return await chat_without_model.api.library_user("ada")


async def test_messages_of_the_same_conversation_are_excluded(chat_without_model: ChatClient, ada: LibraryUser) -> None:
    chat = await ada.add_chat("Talk", "The galleon sank in the bay.")
    note = await ada.add_note("Ships", "A galleon has three masts.")

    without_conversation = await find_passages(chat_without_model.api, ada, "where is the galleon?")
    within_conversation = await find_passages(chat_without_model.api, ada, "where is the galleon?", chat)

    assert len(without_conversation.passages) == 2
    assert uris(within_conversation) == [f"notes://{note}"]


async def test_items_matching_only_a_common_word_are_excluded(chat_without_model: ChatClient, ada: LibraryUser) -> None:
    note = await ada.add_note("Galleon", "The galleon anchored at Tobermory in November.")
    for number in range(20):
        await ada.add_note(
            f"Day {number}", f"It rained in November, {number} hours long, and everybody stayed at home."
        )

    results = await find_passages(chat_without_model.api, ada, "galleon at Tobermory in November")

    assert uris(results) == [f"notes://{note}"]


async def test_each_item_gives_at_most_one_passage(chat_without_model: ChatClient, ada: LibraryUser) -> None:
    await ada.add_chat("Ships", "A galleon at sea.", "Another galleon.", "And a third galleon.")

    results = await find_passages(chat_without_model.api, ada, "galleon")

    assert len(results.passages) == 1


async def test_passages_respect_their_token_and_count_limits(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, chat_context_max_tokens=100, chat_passages_max=3) as api:
        ada = await api.library_user("ada")
        for number in range(6):
            await ada.add_note(
                f"Galleon {number}", f"The galleon number {number}. " + f"Its hull is {number} wide. " * 10
            )
        truncated = await find_passages(api, ada, "galleon hull")
    async with open_rest_client(tmp_path, chat_context_max_tokens=10_000, chat_passages_max=3) as api:
        many = await find_passages(api, await api.library_user("ada"), "galleon hull")

    assert 0 < sum(len(passage.text) for passage in truncated.passages) <= 400
    assert truncated.passages[-1].text.endswith("…")
    assert len(many.passages) == 3


async def test_passages_never_come_from_another_user(chat_without_model: ChatClient, ada: LibraryUser) -> None:
    await ada.add_note("Ships", "A galleon has three masts.")
    chat = await ada.add_chat("Talk", "The galleon sank.")

    results = await find_passages(
        chat_without_model.api, await chat_without_model.api.library_user("ben"), "galleon", chat
    )

    assert results == PassageResults(())
