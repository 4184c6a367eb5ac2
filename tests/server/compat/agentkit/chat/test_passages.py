"""The passages that a chat is answered from."""

from pathlib import Path

import pytest

from server.compat.agentkit.chat.passages import PassageResults
from tests.server.compat.agentkit.chat.conftest import Chatroom
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser


async def gather(
    api: RestClient, reader: LibraryUser, question: str, conversation_id: str | None = None
) -> PassageResults:
    return await api.server.runtime.agentkit.passages.find(reader.context, question, conversation_id)


def uris(gathered: PassageResults) -> list[str]:
    return [passage.uri for passage in gathered.passages]


@pytest.fixture
async def ada(quiet_room: Chatroom) -> LibraryUser:
    return await quiet_room.api.reader("ada")


async def test_what_was_said_in_the_same_conversation_is_left_out(quiet_room: Chatroom, ada: LibraryUser) -> None:
    chat = await ada.add_chat("Talk", "The galleon sank in the bay.")
    note = await ada.add_note("Ships", "A galleon has three masts.")

    of_all = await gather(quiet_room.api, ada, "where is the galleon?")
    of_others = await gather(quiet_room.api, ada, "where is the galleon?", chat)

    assert len(of_all.passages) == 2
    assert uris(of_others) == [f"notes://{note}"]


async def test_what_holds_only_a_common_word_of_the_question_is_left_out(
    quiet_room: Chatroom, ada: LibraryUser
) -> None:
    note = await ada.add_note("Galleon", "The galleon anchored at Tobermory in November.")
    for number in range(20):
        await ada.add_note(f"Day {number}", f"It rained in November, {number} hours long, and nobody went out at all.")

    found = await gather(quiet_room.api, ada, "galleon at Tobermory in November")

    assert uris(found) == [f"notes://{note}"]


async def test_an_item_gives_one_passage(quiet_room: Chatroom, ada: LibraryUser) -> None:
    await ada.add_chat("Ships", "A galleon at sea.", "Another galleon.", "And a third galleon.")

    found = await gather(quiet_room.api, ada, "galleon")

    assert len(found.passages) == 1


async def test_passages_stay_within_their_budget_and_number(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, chat_context_max_tokens=100, chat_passages_max=3) as api:
        ada = await api.reader("ada")
        for number in range(6):
            await ada.add_note(
                f"Galleon {number}", f"The galleon number {number}. " + f"Its hull is {number} wide. " * 10
            )
        cut = await gather(api, ada, "galleon hull")
    async with open_rest_client(tmp_path, chat_context_max_tokens=10_000, chat_passages_max=3) as api:
        many = await gather(api, await api.reader("ada"), "galleon hull")

    assert 0 < sum(len(passage.text) for passage in cut.passages) <= 400
    assert cut.passages[-1].text.endswith("…")
    assert len(many.passages) == 3


async def test_nobody_gets_a_passage_of_another(quiet_room: Chatroom, ada: LibraryUser) -> None:
    await ada.add_note("Ships", "A galleon has three masts.")
    chat = await ada.add_chat("Talk", "The galleon sank.")

    found = await gather(quiet_room.api, await quiet_room.api.reader("ben"), "galleon", chat)

    assert found == PassageResults(())
