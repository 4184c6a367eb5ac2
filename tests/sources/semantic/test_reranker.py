"""The client of the reranker, with the response formats of Cohere, Jina and TEI."""

import threading
from typing import Any

import msgspec
import pytest

from config.settings import Settings, check
from sources.semantic.endpoint import Reranker
from sources.semantic.model import SemanticUnavailable
from tests.build_settings import build_settings
from tests.cases import each_case
from tests.sources.semantic.api_server import Answer, ApiRequest, ApiServer, serve_api

TEXTS = ["alpha", "beta", "gamma"]
SCORES = [0.1, 0.9, -3.5]


async def rerank(answer: Answer, **changes: Any) -> tuple[list[float], ApiServer]:
    with serve_api(answer) as server:
        values = {"reranker_url": f"{server.url}/rerank", "semantic_timeout_ms": 30_000}
        settings = build_settings(**{**values, **changes})
        check(settings)
        return await Reranker(settings).scores("query", TEXTS), server


def cohere(request: ApiRequest) -> tuple[int, bytes]:
    results = [{"index": index, "relevance_score": SCORES[index]} for index in (1, 0, 2)]
    return 200, msgspec.json.encode({"id": "x", "results": results, "meta": {}})


def tei(request: ApiRequest) -> tuple[int, bytes]:
    if "texts" not in request.body:
        return 422, b"missing field `texts`"
    return 200, msgspec.json.encode([{"index": index, "score": SCORES[index]} for index in (1, 0, 2)])


@each_case("answer", [cohere, tei])
async def test_every_text_is_scored(answer: Answer) -> None:
    scores, server = await rerank(answer, reranker_key="secret", reranker_model="m")

    assert scores == SCORES
    assert {request.path for request in server.requests} == {"/rerank"}
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer secret"}
    assert server.requests[0].body == {"model": "m", "query": "query", "documents": TEXTS, "top_n": 3}


async def test_the_format_that_worked_is_used_again() -> None:
    with serve_api(tei) as server:
        reranker = Reranker(Settings(reranker_url=server.url, semantic_timeout_ms=30_000))
        assert await reranker.scores("query", TEXTS) == SCORES
        assert await reranker.scores("query", TEXTS) == SCORES

    request = {"query": "query", "texts": TEXTS, "truncate": True}
    assert [sent.body for sent in server.requests[1:]] == [request, request]


async def test_nothing_is_sent_without_texts() -> None:
    assert await Reranker(Settings(reranker_url="http://127.0.0.1:1/rerank")).scores("query", []) == []


@each_case(
    ("status", "body", "reason"),
    [
        (500, b"", "status 500"),
        (200, b"{", "in another format"),
        (200, b'{"results": []}', "did not score each of 3 texts once"),
        (200, b'[{"index": 0, "score": 1}, {"index": 0, "score": 1}, {"index": 1, "score": 1}]', "did not score each"),
        (200, b'[{"index": 0, "score": 1}, {"index": 1, "score": 1}, {"index": 9, "score": 1}]', "did not score each"),
        (200, b'[{"index": 0, "score": 1}, {"index": 1, "score": 1}, {"index": 2}]', "not a number"),
        (200, b" " * 2_000_000, "larger than 1000000 bytes"),
    ],
)
async def test_a_bad_answer_is_refused(status: int, body: bytes, reason: str) -> None:
    with pytest.raises(SemanticUnavailable, match=reason):
        await rerank(lambda request: (status, body), semantic_response_max_bytes=1_000_000)


async def test_a_reranker_that_hangs_is_left_at_the_deadline() -> None:
    released = threading.Event()

    def answer(request: ApiRequest) -> tuple[int, bytes]:
        released.wait()
        return tei(request)

    with serve_api(answer) as server:
        try:
            with pytest.raises(SemanticUnavailable, match=r"the reranker .* 0\.05 s"):
                await Reranker(Settings(reranker_url=server.url, semantic_timeout_ms=50)).scores("query", TEXTS)
        finally:
            released.set()
