"""The modes `vector` and `both`, with the model `fast` and two users."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sources.items import semantic_note
from sources.records import SemanticStatus
from tests.cases import each_case
from tests.server.compat.conversation_memory.memory_user import MemoryUser, open_memory_users

FAST: dict[str, Any] = {"semantic_model": "fast", "semantic_timeout_ms": 60_000}
CAR = "The automobile needs new tyres and an oil change before winter."
BREAD = "Knead the dough, let the yeast rise, and bake the loaf in a hot oven."
RAIN = "Heavy rain and thunderstorms are expected over the mountains tomorrow."
QUERY = "vehicle maintenance"


@pytest.fixture
async def users(tmp_path: Path) -> AsyncIterator[tuple[MemoryUser, MemoryUser]]:
    async with open_memory_users(tmp_path, **FAST) as (ada, ben):
        yield ada, ben


async def embed(*users: MemoryUser) -> None:
    for memory in users:
        await memory.user.libraries.embed(memory.user.context.user_id)


async def add_observations(memory: MemoryUser, *narratives: str) -> None:
    for narrative in narratives:
        await memory.add_observation(narrative.split()[1], narrative=narrative)


@each_case("mode", ["vector", "both"])
async def test_observations_are_found_by_meaning(users: tuple[MemoryUser, MemoryUser], mode: str) -> None:
    ada, ben = users
    await add_observations(ada, BREAD, CAR, RAIN)
    await add_observations(ben, BREAD, RAIN)
    await embed(ada, ben)

    response = await ada.json(query=QUERY, mode=mode)
    others = await ben.json(query=QUERY, mode=mode)

    assert (response["served_by"], response["mode"]) == (mode, mode)
    assert response["semantic"] == {"status": "on", "coverage": 1.0}
    assert response["results"][0]["title"] == "automobile"
    assert "tyres" in response["results"][0]["snippet"]
    assert "automobile" not in {row["title"] for row in others["results"]}
    text = await ada.text("memory_search", query=QUERY, mode=mode)
    assert "automobile" in text
    assert "Searched by text" not in text


async def test_vector_mode_orders_by_meaning_and_both_also_by_words(users: tuple[MemoryUser, MemoryUser]) -> None:
    ada, _ = users
    await add_observations(ada, CAR, "The vehicle registry keeps a list of postal addresses and names of people.")
    await embed(ada)

    vector = await ada.rows(QUERY, mode="vector")
    both = await ada.rows(QUERY, mode="both")

    assert [row["title"] for row in vector] == ["automobile", "vehicle"]
    assert [row["title"] for row in both] == ["vehicle", "automobile"]
    scores = [row["score"] for row in vector]
    assert scores == sorted(scores, reverse=True)
    assert 0 < scores[-1] <= scores[0] <= 1


async def test_text_mode_compares_no_meanings(users: tuple[MemoryUser, MemoryUser]) -> None:
    ada, _ = users
    await add_observations(ada, CAR)
    await embed(ada)

    response = await ada.json(query=QUERY, mode="text")

    assert (response["count"], response["served_by"]) == (0, "text")
    assert "semantic" not in response


async def test_vector_mode_reads_operators_as_text(users: tuple[MemoryUser, MemoryUser]) -> None:
    ada, _ = users
    await add_observations(ada, BREAD, CAR)
    await embed(ada)

    rows = await ada.rows('"vehicle" AND maintenance', mode="vector")
    text = await ada.text("memory_search", query='"vehicle" AND maintenance', mode="both")

    assert rows[0]["title"] == "automobile"
    assert "Searched by text: the query requires its words." in text


@each_case("mode", ["vector", "both"])
async def test_exchanges_are_found_by_meaning(users: tuple[MemoryUser, MemoryUser], mode: str) -> None:
    ada, ben = users
    await ada.add_conversation("What is to be done?", CAR)
    await ada.add_conversation("And for dinner?", BREAD)
    await ben.add_conversation("And for dinner?", BREAD)
    await embed(ada, ben)

    response = await ada.json(query=QUERY, mode=mode)

    assert response["kind"] == "exchanges"
    assert "automobile" in response["results"][0]["snippet"]
    assert all("automobile" not in row["snippet"] for row in await ben.rows(QUERY, mode=mode))


async def test_exchange_with_the_words_precedes_observations_that_are_merely_near(
    users: tuple[MemoryUser, MemoryUser],
) -> None:
    ada, _ = users
    await add_observations(ada, "The sailing ship left the port.")
    await ada.add_conversation("Where is the sailboat?", "In the harbour.")
    await embed(ada)

    both = await ada.json(query="sailboat", mode="both")
    vector = await ada.json(query="sailboat", mode="vector")

    assert both["kind"] == "exchanges"
    assert "sailboat" in both["results"][0]["snippet"]
    assert vector["kind"] == "observations"


async def test_conversations_that_match_all_concepts_are_found_by_meaning(
    users: tuple[MemoryUser, MemoryUser],
) -> None:
    ada, ben = users
    trip = await ada.add_conversation("What about winter?", CAR, "And dinner?", BREAD)
    await ada.add_conversation("Tell me about poems.", "A sonnet has fourteen lines.")
    await ben.add_conversation("Tell me about poems.", "A sonnet has fourteen lines.")
    await embed(ada, ben)

    for mode in ("vector", "both"):
        response = await ada.json(query=[QUERY, "cooking recipe"], mode=mode)
        assert response["results"][0]["path"] == f"chats://{trip.id}"
        assert response["served_by"] == mode
        assert all(row["path"] != f"chats://{trip.id}" for row in await ben.rows([QUERY, "cooking recipe"], mode=mode))
    assert "nearest by meaning" in response["note"]
    words = await ada.json(query=["tyres", "yeast"], mode="both")
    assert [row["path"] for row in words["results"]] == [f"chats://{trip.id}"]


def test_incomplete_vectors_are_reported() -> None:
    assert semantic_note(SemanticStatus("on", 1.0)) is None
    assert semantic_note(SemanticStatus("partial", 0.456)) == (
        "Only 45% of the texts were compared by meaning: the others have no embeddings yet."
    )


@pytest.mark.parametrize("mode", ["vector", "both"])
async def test_unreachable_model_leaves_a_search_by_text_and_says_why(tmp_path: Path, mode: str) -> None:
    endpoint: dict[str, Any] = {
        "semantic_model": "http://127.0.0.1:1/v1",
        "semantic_endpoint_model": "none",
        "semantic_endpoint_dimension": 8,
    }
    async with open_memory_users(tmp_path, **endpoint) as (ada, _):
        await add_observations(ada, CAR)
        response = await ada.json(query="automobile", mode=mode)
        text = await ada.text("memory_search", query="automobile", mode=mode)

    assert [row["title"] for row in response["results"]] == ["automobile"]
    assert (response["served_by"], response["semantic"]["status"]) == ("text", "unavailable")
    assert "*Searched by text: " in text
