"""Similar items through the tool, REST and the dispatcher, with the model `fast` and two users."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sources.drafts import MessageDraft
from tests.live import NO_RATE_LIMITS
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import SOURCES, LibraryUser

CAR = "My automobile needs new tyres and an oil change before winter."
VAN = "The van has worn brakes; the mechanic will replace its engine oil and tyres."
OTHERS = (
    "Knead the dough, let the yeast rise, and bake the loaf in a hot oven.",
    "Heavy rain and thunderstorms are expected over the mountains tomorrow.",
)
FAST: dict[str, Any] = {"semantic_model": "fast", "semantic_timeout_ms": 60_000}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RestClient]:
    async with open_rest_client(tmp_path, **FAST, **NO_RATE_LIMITS) as client:
        yield client


async def embed(user: LibraryUser) -> None:
    await user.libraries.embed(user.context.user_id)


async def fill(user: LibraryUser) -> str:
    """Adds an item about a car to each source, and others. Returns the URI of a note about another car."""
    for source in SOURCES:
        await user.add_item(source, "Garage", f"{CAR} ({source})")
        for text in OTHERS:
            await user.add_item(source, "Other", f"{text} ({source})")
    note = await user.add_item("notes", "Repairs", VAN)
    await embed(user)
    return f"notes://{note}"


async def test_items_of_all_sources_are_found_nearest_first_without_the_item_itself(api: RestClient) -> None:
    ada, ben = await api.library_user("ada"), await api.library_user("ben")
    uri = await fill(ada)
    await ben.add_item("notes", "Ben's", CAR)
    await embed(ben)

    response = await ada.call("items_similar", uri=uri, limit=100)

    hits = response["results"]
    assert {hit["source"] for hit in hits if hit["title"] == "Garage"} == set(SOURCES)
    assert [hit["title"] for hit in hits[: len(SOURCES)]] == ["Garage"] * len(SOURCES)
    assert uri not in {hit["uri"] for hit in hits}
    assert "Ben's" not in {hit["title"] for hit in hits}
    scores = [hit["score"] for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert {hit["score_type"] for hit in hits} == {"cosine"}
    assert response["semantic"] == {"status": "on", "coverage": 1.0}
    assert "tyres" in hits[0]["snippet"]


async def test_pages_follow_each_other(api: RestClient) -> None:
    ada = await api.library_user("ada")
    uri = await fill(ada)

    whole = await ada.call("items_similar", uri=uri, limit=100)
    paged: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await ada.call("items_similar", uri=uri, limit=4, offset=offset)
        paged += [hit["uri"] for hit in page["results"]]
        offset = page["next_offset"]

    assert paged == [hit["uri"] for hit in whole["results"]]
    assert whole["total_estimated"] == len(paged)


async def test_rest_returns_the_same(api: RestClient) -> None:
    ada, ben = await api.library_user("ada"), await api.library_user("ben")
    uri = await fill(ada)

    response = await api.request("GET", f"/api/v1/items/similar?uri={uri}&limit=3", user="ada")
    foreign = await api.request("GET", f"/api/v1/items/similar?uri={uri}", user="ben")

    assert response.json() == await ada.call("items_similar", uri=uri, limit=3)
    assert foreign.status == 404
    assert "not found" in (await ben.call_error("items_similar", uri=uri)).lower()


async def test_message_finds_other_conversations(api: RestClient) -> None:
    ada = await api.library_user("ada")
    chat = await ada.add_chat("First", MessageDraft(role="user", content=VAN), MessageDraft(role="user", content=CAR))
    other = await ada.add_chat("Second", MessageDraft(role="user", content=CAR))
    await embed(ada)

    response = await ada.call("items_similar", uri=f"chats://{chat}")

    assert {hit["conversation_id"] for hit in response["results"]} == {other}


async def test_text_hidden_from_agents_is_neither_found_nor_compared(api: RestClient) -> None:
    ada = await api.library_user("ada")
    note = await ada.add_item("notes", "Garage", CAR)
    await ada.add_chat("Talk", MessageDraft(role="user", content=VAN, metadata={"human_only": True}))
    await embed(ada)

    response = await ada.call("items_similar", uri=f"notes://{note}")

    assert all("brakes" not in hit["snippet"] for hit in response["results"])


async def test_without_a_model_the_response_says_what_to_do(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, **NO_RATE_LIMITS) as api:
        ada = await api.library_user("ada")
        note = await ada.add_item("notes", "Garage", CAR)
        response = await ada.call("items_similar", uri=f"notes://{note}")
    assert response["results"] == []
    assert response["semantic"] == {
        "status": "off",
        "reason": "no embedding model is configured; set semantic_model",
    }


async def test_calls_take_turns_with_searches(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, search_running_max=1, **FAST, **NO_RATE_LIMITS) as api:
        ada = await api.library_user("ada")
        uri = await fill(ada)
        aggregator = api.server.runtime.knowledge.aggregator
        calls = [asyncio.create_task(ada.call("items_similar", uri=uri)) for _ in range(3)]
        waiting = []
        while not all(call.done() for call in calls):
            waiting.append(aggregator.queue.waiting)
            await asyncio.sleep(0)
        responses = [call.result() for call in calls]

    assert max(waiting) == 2
    assert responses[0]["results"]
    assert responses[0]["results"] == responses[1]["results"] == responses[2]["results"]
