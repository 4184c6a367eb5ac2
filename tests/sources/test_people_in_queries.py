"""Queries that name a person whose messages are in the library."""

from typing import Any

from sources.drafts import MessageDraft
from tests.sources.source_fixture import LibraryUser

QUESTION = "Ana, what did you paint, and where did you paint it?"
ANSWER = "I painted the old bridge by the mill, while the others were sailing around the island all day."
OTHER = "I painted the old bridge by the mill, while everyone else was sailing around the island."


async def add_chat(user: LibraryUser) -> None:
    senders = {QUESTION: "Carl", ANSWER: "Ana Souza", OTHER: "Carl"}
    messages = [MessageDraft(sender=sender, content=text) for text, sender in senders.items()]
    await user.add_chat("", *messages)


async def texts(user: LibraryUser, tool: str, query: str, **arguments: Any) -> list[str]:
    return [hit["snippet"] for hit in await user.search(tool, query, **arguments)]


async def test_a_message_of_the_person_comes_before_one_that_asks_her(ada: LibraryUser, ben: LibraryUser) -> None:
    await add_chat(ada)
    for tool in ("chats_search", "knowledge_search"):
        for query in ("What did Ana paint?", "Ana's paintings", "What did ana souza paint"):
            assert (await texts(ada, tool, query))[0] == ANSWER
        assert await texts(ben, tool, "What did Ana paint?") == []


async def test_a_query_without_a_person_is_ranked_by_its_words(ada: LibraryUser) -> None:
    await add_chat(ada)
    assert (await texts(ada, "knowledge_search", "Where did you paint it?"))[0] == QUESTION
    # The name alone asks for the word, which is in the question too.
    assert QUESTION in await texts(ada, "chats_search", "Ana")


async def test_explain_tells_whose_messages_rank_higher(ada: LibraryUser) -> None:
    await add_chat(ada)
    response = await ada.call("knowledge_search", query="What did Ana paint?", explain=True)
    (hit,) = response["results"]
    assert (hit["snippet"], hit["explain"]["sender_boost"]) == (ANSWER, 1.3)
    plain = await ada.call("knowledge_search", query="What was painted?", explain=True, dedupe="off")
    assert all("sender_boost" not in hit["explain"] for hit in plain["results"])


async def test_the_name_of_a_role_is_not_a_person(ada: LibraryUser) -> None:
    await ada.add_chat("", MessageDraft(sender="assistant", content="The prompt is short."))
    response = await ada.call("knowledge_search", query="prompt of the assistant", explain=True)
    assert "sender_boost" not in response["results"][0]["explain"]
