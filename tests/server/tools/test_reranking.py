"""`knowledge_search` with a reranker, called over HTTP by two users."""

import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sources.drafts import MessageDraft
from tests.live import NO_RATE_LIMITS
from tests.server.rest.rest_client import open_rest_client
from tests.sources.semantic.api_server import Answer, ApiRequest, ApiServer, serve_api
from tests.sources.source_fixture import LibraryUser

COUNT = 30
QUERY = "galleon"


def highest_number_first(request: ApiRequest) -> tuple[int, bytes]:
    """Scores a text by the first number in it."""
    numbers = [int((re.search(r"\d+", text) or ["0"])[0]) for text in request.body["documents"]]
    results = [{"index": index, "relevance_score": number} for index, number in enumerate(numbers)]
    return 200, msgspec.json.encode({"results": results})


@asynccontextmanager
async def reader(tmp_path: Path, answer: Answer, **changes: Any) -> AsyncIterator[tuple[LibraryUser, ApiServer]]:
    with serve_api(answer) as server:
        values = {"reranker_url": server.url, "semantic_timeout_ms": 30_000, **NO_RATE_LIMITS, **changes}
        async with open_rest_client(tmp_path, **values) as api:
            ada, ben = await api.library_user("ada"), await api.library_user("ben")
            await ben.add_note("Note 999", "Ben's galleon")
            for number in range(COUNT):
                await ada.add_note(f"Note {number}", f"Galleon {number}: {'of the fleet ' * (number % 7)}")
            yield ada, server


async def titles(ada: LibraryUser, **arguments: Any) -> list[str]:
    response = await ada.call("knowledge_search", query=QUERY, dedupe="off", limit=10, **arguments)
    return [hit["title"] for hit in response["results"]]


async def test_the_first_hits_are_in_the_order_of_the_reranker_on_every_page(tmp_path: Path) -> None:
    async with reader(tmp_path, highest_number_first, reranker_hits_max=COUNT) as (ada, server):
        pages = [await titles(ada, offset=offset) for offset in (0, 10, 20)]

    assert [title for page in pages for title in page] == [f"Note {number}" for number in reversed(range(COUNT))]
    assert all("Ben" not in text for request in server.requests for text in request.body["documents"])


async def test_later_hits_follow_in_their_own_order(tmp_path: Path) -> None:
    async with reader(tmp_path, highest_number_first, reranker_hits_max=15) as (ada, server):
        pages = [await titles(ada, offset=offset) for offset in (0, 10, 20)]

    reranked = [int(title.split()[1]) for title in [*pages[0], *pages[1]][:15]]
    assert reranked == sorted(reranked, reverse=True)
    assert sorted(title for page in pages for title in page) == sorted(f"Note {number}" for number in range(COUNT))
    assert [len(request.body["documents"]) for request in server.requests] == [15, 15]


async def test_scores_do_not_change(tmp_path: Path) -> None:
    async with reader(tmp_path, highest_number_first) as (ada, _):
        reranked = await ada.call("knowledge_search", query=QUERY, dedupe="off", limit=COUNT)
        own = await ada.call("notes_search", query=QUERY, limit=COUNT)

    assert "not_reranked" not in reranked
    scores = {hit["uri"]: hit["score"] for hit in reranked["results"]}
    assert scores == {hit["uri"]: pytest.approx(hit["score"], abs=0.001) for hit in own["results"]}


async def test_a_reranker_that_fails_leaves_the_order_and_the_response_says_so(tmp_path: Path) -> None:
    async with reader(tmp_path, lambda request: (500, b"")) as (ada, _):
        response = await ada.call("knowledge_search", query=QUERY, dedupe="off", limit=10, explain=True)
        plain = await ada.call("knowledge_search", query=QUERY, dedupe="off", limit=10)

    scores = [hit["score"] for hit in response["results"]]
    assert scores == sorted(scores, reverse=True)
    assert "hits were not reranked: the reranker answered with status 500" in response["explain"]["fusion"]
    assert plain["not_reranked"] == "the reranker answered with status 500"


async def test_a_reranker_that_hangs_leaves_the_order(tmp_path: Path) -> None:
    released = threading.Event()

    def hang(request: ApiRequest) -> tuple[int, bytes]:
        released.wait()
        return 200, b""

    async with reader(tmp_path, hang, semantic_timeout_ms=50) as (ada, _):
        try:
            assert len(await titles(ada)) == 10
        finally:
            released.set()


@pytest.mark.parametrize("arguments", [{"order_by": "recent"}, {"query": "galleon AND fleet"}])
async def test_other_orders_and_operators_are_not_reranked(tmp_path: Path, arguments: dict[str, Any]) -> None:
    async with reader(tmp_path, highest_number_first) as (ada, server):
        await ada.call("knowledge_search", **{"query": QUERY, "dedupe": "off", **arguments})

    assert server.requests == []


async def test_human_only_messages_are_not_sent(tmp_path: Path) -> None:
    async with reader(tmp_path, highest_number_first) as (ada, server):
        secret = MessageDraft(role="user", sender="Ana", content="the secret galleon", metadata={"human_only": True})
        await ada.add_chat("Harbour", "A galleon arrives.", secret)
        await titles(ada)

    texts = [text for request in server.requests for text in request.body["documents"]]
    assert texts
    assert not any("secret" in text for text in texts)
