"""`conversation_search` with the model `fast`: hybrid search for two users."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sources.drafts import MessageDraft
from tests.live import NO_RATE_LIMITS
from tests.server.compat.letta.test_tools import EMPTY, at, json_results, search
from tests.server.rest.rest_client import open_rest_client
from tests.sources.source_fixture import LibraryUser

CAR = "The automobile needs new tyres and an oil change before winter."
BREAD = "Knead the dough, let the yeast rise, and bake the loaf in a hot oven."
VEHICLE = "Which vehicle is yours?"


@pytest.fixture
async def users(tmp_path: Path) -> AsyncIterator[tuple[LibraryUser, LibraryUser]]:
    async with open_rest_client(tmp_path, semantic_model="fast", semantic_timeout_ms=60_000, **NO_RATE_LIMITS) as api:
        ada, ben = await api.library_user("ada"), await api.library_user("ben")
        await ada.add_chat(
            "Talk",
            at("2025-02-10T14:30:00Z", CAR),
            at("2025-02-11T14:31:00Z", BREAD, "assistant"),
        )
        await ada.add_chat("Question", at("2025-02-12T14:31:00Z", VEHICLE))
        await ben.add_chat("Talk", at("2025-02-10T14:30:00Z", BREAD))
        for user in (ada, ben):
            await user.libraries.embed(user.context.user_id)
        yield ada, ben


async def test_json_is_the_result_of_a_hybrid_search(users: tuple[LibraryUser, LibraryUser]) -> None:
    ada, ben = users

    results = await json_results(ada, query="vehicle")

    assert [one["content"] for one in results[:2]] == [VEHICLE, CAR]
    assert results[0]["relevance"] == {
        "rrf_score": pytest.approx(0.5 / 61 + 0.5 / 61),
        "vector_rank": 1,
        "fts_rank": 1,
        "search_mode": "hybrid",
    }
    assert results[1]["relevance"] == {
        "rrf_score": pytest.approx(0.5 / 62),
        "vector_rank": 2,
        "search_mode": "hybrid",
    }
    assert len(await json_results(ada, query="vehicle", limit=1)) == 1
    assert all(one["content"] != CAR for one in await json_results(ben, query="vehicle"))


async def test_roles_and_dates_filter_by_meaning_too(users: tuple[LibraryUser, LibraryUser]) -> None:
    ada, _ = users

    bread = await json_results(ada, query="cooking recipe", roles=["assistant"])
    old = await json_results(ada, query="vehicle", end_date="2025-02-10")

    assert [one["content"] for one in bread] == [BREAD]
    assert [one["content"] for one in old] == [CAR]


async def test_text_that_no_message_contains_returns_the_nearest_and_says_so(
    users: tuple[LibraryUser, LibraryUser],
) -> None:
    ada, ben = users

    literal = await search(ada, query="automobile")
    nearest = await search(ada, query="car maintenance")
    others = await search(ben, query="car maintenance")

    assert literal == f"[2025-02-10 14:30] user (conv: Talk)\n{CAR}"
    assert nearest.split("\n\n---\n\n")[0] == literal
    assert nearest.endswith("(no message contains this text; these are the nearest by meaning)")
    assert CAR not in others
    assert await search(ada, query="->") == EMPTY


async def test_text_of_no_matches_is_one_sentence_also_if_no_meanings_were_compared(
    users: tuple[LibraryUser, LibraryUser],
) -> None:
    ada, _ = users

    # The model knows none of these words.
    greek = "Πόσα κιλά μέλι έδωσαν φέτος οι μέλισσες"
    text = await search(ada, query=greek)
    response = msgspec.json.decode(await search(ada, query=greek, format="json"))

    assert text == EMPTY
    assert response["results"] == []
    assert response["note"].startswith("Searched by text: ")


async def test_text_hidden_from_agents_is_not_near(users: tuple[LibraryUser, LibraryUser]) -> None:
    ada, _ = users
    secret = MessageDraft(role="user", content="The vehicle key is under the mat.", metadata={"human_only": True})
    await ada.add_chat("Hidden", secret)
    await ada.libraries.embed(ada.context.user_id)

    for query in ("vehicle", "where is the car key"):
        assert "under the mat" not in await search(ada, query=query, format="json")


async def test_unreachable_model_leaves_the_search_by_text_with_a_note(tmp_path: Path) -> None:
    endpoint: dict[str, Any] = {
        "semantic_model": "http://127.0.0.1:1/v1",
        "semantic_endpoint_model": "none",
        "semantic_endpoint_dimension": 8,
    }
    async with open_rest_client(tmp_path, **endpoint, **NO_RATE_LIMITS) as api:
        ada = await api.library_user("ada")
        await ada.add_chat("Talk", at("2025-02-10T14:30:00Z", CAR))
        response = msgspec.json.decode(await search(ada, query="automobile", format="json"))
    assert [one["relevance"]["search_mode"] for one in response["results"]] == ["fts"]
    assert response["note"].startswith("Searched by text: ")
