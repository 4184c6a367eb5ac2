"""The client of the embeddings API, against a server that keeps its promises and servers that do not."""

import asyncio
import base64
import math
import struct
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from config.errors import ConfigurationError
from config.settings import check
from sources.semantic.endpoint import embeddings_url
from sources.semantic.model import SemanticUnavailable
from sources.semantic.service import SemanticService
from tests.build_settings import build_settings
from tests.cases import each_case
from tests.sources.semantic.api_server import Answer, ApiRequest, ApiServer, serve_api

DIMENSION = 4
QUERY = "how do I bake bread"


def vector_of(text: str) -> list[float]:
    return [float(len(text)), 1, 0, -2]


def embeddings(vectors: Sequence[Any]) -> bytes:
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return msgspec.json.encode({"object": "list", "data": data, "model": "m", "usage": {"total_tokens": 1}})


def honest(request: ApiRequest) -> tuple[int, bytes]:
    return 200, embeddings([vector_of(text) for text in request.body["input"]])


def encoded(text: str) -> bytes:
    vector = vector_of(text)
    return struct.pack(f"{DIMENSION}b", *(round(127 * number / math.hypot(*vector)) for number in vector))


@asynccontextmanager
async def open_endpoint(answer: Answer, **changes: Any) -> AsyncIterator[tuple[SemanticService, ApiServer]]:
    with serve_api(answer) as server:
        values = {
            "semantic_model": f"{server.url}/v1",
            "semantic_endpoint_model": "m",
            "semantic_endpoint_dimension": DIMENSION,
            "semantic_timeout_ms": 30_000,
        }
        settings = build_settings(**{**values, **changes})
        check(settings)
        service = SemanticService(settings)
        try:
            yield service, server
        finally:
            await service.close()


async def test_a_query_and_passages_are_embedded() -> None:
    async with open_endpoint(honest, semantic_endpoint_key="secret") as (service, server):
        assert await service.embed_query(QUERY) == encoded(QUERY)
        assert await service.embed_passages(["one", "three"]) == [encoded("one"), encoded("three")]
        assert service.model is not None
        assert service.model.id == "endpoint:m:4"

    query, passages = server.requests
    assert query.path == "/v1/embeddings"
    assert query.headers["authorization"] == "Bearer secret"
    assert query.body == {"model": "m", "input": [QUERY]}
    assert passages.body["input"] == ["one", "three"]


async def test_vectors_may_be_base64_and_in_any_order() -> None:
    def answer(request: ApiRequest) -> tuple[int, bytes]:
        packed = [struct.pack(f"<{DIMENSION}f", *vector_of(text)) for text in request.body["input"]]
        data = [{"index": index, "embedding": base64.b64encode(vector).decode()} for index, vector in enumerate(packed)]
        return 200, msgspec.json.encode({"data": data[::-1]})

    async with open_endpoint(answer) as (service, _):
        assert await service.embed_passages(["one", "three"]) == [encoded("one"), encoded("three")]


async def test_passages_are_sent_in_batches_with_their_prefix() -> None:
    texts = [f"text {number}" for number in range(33)]  # one more than a batch
    changes = {"semantic_endpoint_query_prefix": "query: ", "semantic_endpoint_passage_prefix": "passage: "}
    async with open_endpoint(honest, **changes) as (service, server):
        vectors = await service.embed_passages(texts)
        await service.embed_query("d")
        assert service.model is not None
        assert service.model.id != "endpoint:m:4"

    passages = [f"passage: {text}" for text in texts]
    assert [request.body["input"] for request in server.requests] == [passages[:32], passages[32:], ["query: d"]]
    assert vectors == [encoded(passage) for passage in passages]


@each_case(
    ("url", "expected"),
    [
        ("http://localhost:11434", "http://localhost:11434/v1/embeddings"),
        ("http://localhost:11434/v1", "http://localhost:11434/v1/embeddings"),
        ("http://localhost:8080/v1/embeddings", "http://localhost:8080/v1/embeddings"),
    ],
)
def test_urls_are_completed(url: str, expected: str) -> None:
    assert embeddings_url(url) == expected


NAN = base64.b64encode(struct.pack("<4f", 1, math.nan, 0, 0)).decode()
INFINITY = base64.b64encode(struct.pack("<4f", 1, math.inf, 0, 0)).decode()


@each_case(
    ("status", "body", "reason"),
    [
        (200, embeddings([[1.0, 2.0, 3.0]]), "vectors of 3 numbers, expected 4; set semantic_endpoint_dimension"),
        (200, embeddings([[1.0] * 8]), "vectors of 8 numbers, expected 4"),
        (200, embeddings([NAN]), "zero or not finite"),
        (200, embeddings([INFINITY]), "zero or not finite"),
        (200, b'{"data": [{"index": 0, "embedding": [NaN, 0, 0, 1]}]}', "in another format"),
        (200, b'{"data": [{"index": 0, "embedding": [1e999, 0, 0, 1]}]}', "in another format"),
        (200, embeddings([[1.0, None, 0, 1]]), "in another format"),
        (200, embeddings([[0.0] * 4]), "zero or not finite"),
        (200, embeddings([[1e308] * 4]), "zero or not finite"),
        (200, embeddings(["not base64"]), "not base64"),
        (200, embeddings([base64.b64encode(b"12345").decode()]), "truncated"),
        (200, embeddings([]), "sent 0 vectors, expected 1"),
        (200, embeddings([vector_of("a"), vector_of("b")]), "sent 2 vectors, expected 1"),
        (200, b'{"data": [{"index": 7, "embedding": [1, 0, 0, 1]}]}', "did not number its vectors"),
        (200, b'{"error": "no"}', "in another format"),
        (200, b"\xff\xfe", "in another format"),
        (200, b"", "in another format"),
        (200, b"[" * 100_000, "in another format"),
        (200, b" " * 2_000_000, "larger than 1000000 bytes"),
        (500, b"{}", "status 500"),
        (404, b"model not found", "status 404"),
        (302, b"", "status 302"),
    ],
)
async def test_a_bad_answer_is_refused(status: int, body: bytes, reason: str) -> None:
    changes = {"semantic_response_max_bytes": 1_000_000, "semantic_endpoint_attempts_max": 1}
    async with open_endpoint(lambda request: (status, body), **changes) as (service, _):
        with pytest.raises(SemanticUnavailable, match=reason):
            await service.embed_query(QUERY)
        with pytest.raises(SemanticUnavailable, match=reason):
            await service.embed_passages([QUERY])


async def test_a_server_that_hangs_is_left_at_the_deadline() -> None:
    released = threading.Event()

    def answer(request: ApiRequest) -> tuple[int, bytes]:
        released.wait()
        return honest(request)

    changes = {"semantic_timeout_ms": 50, "semantic_endpoint_timeout_s": 0.1, "semantic_endpoint_attempts_max": 2}
    async with open_endpoint(answer, **changes) as (service, server):
        try:
            # Both wait for the same request.
            waiting = [asyncio.create_task(service.embed_query(QUERY)) for _ in range(2)]
            for task in waiting:
                with pytest.raises(SemanticUnavailable, match=r"(within|longer than|nothing for) 0\.05 s"):
                    await task
            with pytest.raises(SemanticUnavailable, match=r"within 0\.1 s|nothing for 0\.1 s"):
                await service.embed_passages([QUERY])
        finally:
            released.set()
    assert len(server.requests) >= 2


async def test_a_closed_connection_and_a_closed_port_are_reported() -> None:
    def close(request: ApiRequest) -> tuple[int, bytes]:
        raise ConnectionError

    async with open_endpoint(close) as (service, _):
        with pytest.raises(SemanticUnavailable, match=r"incomplete or invalid HTTP response|closed the connection"):
            await service.embed_query(QUERY)
    async with open_endpoint(honest, semantic_model="http://127.0.0.1:1/v1") as (service, _):
        with pytest.raises(SemanticUnavailable, match="the embeddings API cannot be reached"):
            await service.embed_query(QUERY)


@pytest.mark.slow("waits between attempts")
async def test_background_requests_are_repeated_after_temporary_failures() -> None:
    statuses = iter([503, 429, 200])

    def answer(request: ApiRequest) -> tuple[int, bytes]:
        status = next(statuses)
        return (200, honest(request)[1]) if status == 200 else (status, b"")

    async with open_endpoint(answer) as (service, server):
        assert await service.embed_passages([QUERY]) == [encoded(QUERY)]
    assert len(server.requests) == 3


async def test_background_requests_are_not_repeated_after_permanent_failures() -> None:
    async with open_endpoint(lambda request: (401, b"")) as (service, server):
        with pytest.raises(SemanticUnavailable, match="status 401"):
            await service.embed_passages([QUERY])
    assert len(server.requests) == 1


async def test_queries_do_not_wait_for_a_server_that_keeps_failing() -> None:
    async with open_endpoint(lambda request: (500, b""), breaker_failures=2, breaker_pause_s=3600) as (service, server):
        for number in range(6):
            with pytest.raises(SemanticUnavailable, match="status 500"):
                await service.embed_query(f"{QUERY} {number}")
    assert len(server.requests) == 2


async def test_equal_queries_share_one_request() -> None:
    async with open_endpoint(honest) as (service, server):
        vectors = await asyncio.gather(*(service.embed_query(QUERY) for _ in range(20)))
        vectors.append(await service.embed_query(QUERY))

    assert set(vectors) == {encoded(QUERY)}
    assert len(server.requests) == 1


async def test_failures_are_not_kept_longer_than_a_search_may_take() -> None:
    statuses = iter([500, 200])

    def answer(request: ApiRequest) -> tuple[int, bytes]:
        return next(statuses), honest(request)[1]

    async with open_endpoint(answer, fanout_deadline_ms=10) as (service, _):
        with pytest.raises(SemanticUnavailable):
            await service.embed_query(QUERY)
        await asyncio.sleep(0.02)
        assert await service.embed_query(QUERY) == encoded(QUERY)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"semantic_model": "large"},
            "semantic_model: expected off, auto, fast, minilm, multilingual, or an http:// or https:// URL",
        ),
        ({"semantic_model": "http://user:pass@host/v1"}, "got 'host/v1'"),
        ({"semantic_model": "http://127.0.0.1:1/v1"}, "semantic_endpoint_model: required if semantic_model is a URL"),
        ({"semantic_model": "http://127.0.0.1:1/v1"}, "semantic_endpoint_dimension: required"),
        (
            {"semantic_model": "http://kb.example.com/v1", "semantic_endpoint_key": "secret"},
            "an https:// URL or a loopback address with semantic_endpoint_key",
        ),
        ({"reranker_url": "ftp://host"}, "reranker_url: expected an http:// or https:// URL"),
        (
            {"reranker_url": "http://kb.example.com/rerank", "reranker_key": "secret"},
            "an https:// URL or a loopback address with reranker_key",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check(build_settings(data_dir=str(tmp_path), **changes))
    assert problem in raised.value.message
