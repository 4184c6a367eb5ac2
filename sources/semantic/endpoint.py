"""A client of the OpenAI-compatible embeddings API: `POST …/v1/embeddings`.

Nothing that the other side sends is trusted: the number of vectors, their length and their numbers are checked.
"""

import asyncio
import base64
import binascii
import math
import sys
import time
from array import array
from collections.abc import Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from config.public_http import OutgoingRequestError, open_response
from config.settings import Settings
from sources.semantic.model import SCALE, ModelInfo, SemanticUnavailable, clean_text

_WEIGHT = 0.3
_BACKOFF_S = 0.25
_BACKOFF_MAX_S = 30.0
_FLOAT_BYTES = 4
# Timeouts, overload and faults of the other side. Other errors are the same the next time.
_RETRIED_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)})


class _Embedding(Struct, frozen=True):
    embedding: list[float] | str
    index: int | None = None


class _Embeddings(Struct, frozen=True):
    data: list[_Embedding]


_decode_embeddings = msgspec.json.Decoder(_Embeddings).decode


class _EndpointFailure(SemanticUnavailable):
    """A failed request. `is_temporary` if another attempt may succeed."""

    def __init__(self, reason: str, *, is_temporary: bool) -> None:
        super().__init__(reason)
        self.is_temporary = is_temporary


# Texts in one request, the default limit of TEI.
_BATCH_TEXTS = 32


class EmbeddingEndpoint:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._failures = 0
        self._paused_until = 0.0
        self._last_reason = ""

    async def embed_query(self, text: str, timeout_s: float) -> bytes:
        """Embeds a query. After repeated failures, queries fail at once for a while, so that searches do not wait for
        an API that is down."""
        if time.monotonic() < self._paused_until:
            raise SemanticUnavailable(self._last_reason)
        try:
            async with asyncio.timeout(timeout_s):
                vectors = await self._request(
                    [self._settings.semantic_endpoint_query_prefix + clean_text(text)], timeout_s
                )
        except TimeoutError:
            self._count_failure(reason := f"the embeddings API did not answer within {timeout_s:g} s")
            raise SemanticUnavailable(reason) from None
        except SemanticUnavailable as error:
            self._count_failure(error.reason)
            raise
        self._failures = 0
        return vectors[0]

    async def embed_passages(self, texts: Sequence[str]) -> list[bytes]:
        prefix, size = self._settings.semantic_endpoint_passage_prefix, _BATCH_TEXTS
        inputs = [prefix + clean_text(text) for text in texts]
        vectors: list[bytes] = []
        for start in range(0, len(inputs), size):
            vectors += await self._request_repeatedly(inputs[start : start + size])
        return vectors

    async def close(self) -> None:
        """Every request has its own connection, so nothing is open."""

    def _count_failure(self, reason: str) -> None:
        self._failures += 1
        self._last_reason = reason
        if self._failures >= self._settings.breaker_failures:
            self._paused_until = time.monotonic() + self._settings.breaker_pause_s

    async def _request_repeatedly(self, inputs: list[str]) -> list[bytes]:
        fixed = self._settings.fixed
        timeout_s, attempts = fixed.semantic_endpoint_timeout_s, fixed.semantic_endpoint_attempts_max
        for attempt in range(1, attempts + 1):
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._request(inputs, timeout_s)
            except TimeoutError:
                failure = _EndpointFailure(
                    f"the embeddings API did not answer within {timeout_s:g} s", is_temporary=True
                )
            except _EndpointFailure as error:
                failure = error
            if attempt == attempts or not failure.is_temporary:
                raise failure
            await asyncio.sleep(min(_BACKOFF_MAX_S, _BACKOFF_S * 2**attempt))
        raise AssertionError("unreachable")

    async def _request(self, inputs: list[str], timeout_s: float) -> list[bytes]:
        settings = self._settings
        headers = {"Content-Type": "application/json"}
        if settings.semantic_endpoint_key:
            headers["Authorization"] = f"Bearer {settings.semantic_endpoint_key}"
        body = msgspec.json.encode({"model": settings.semantic_endpoint_model, "input": inputs})
        url = embeddings_url(settings.semantic_model)
        try:
            async with open_response("POST", url, headers=headers, body=body, timeout_s=timeout_s) as response:
                answer = await response.read(settings.fixed.semantic_response_max_bytes)
        except OutgoingRequestError as error:
            raise _EndpointFailure(f"the embeddings API {error.reason}", is_temporary=True) from error
        if response.status != 200:
            is_temporary = response.status in _RETRIED_STATUSES
            raise _EndpointFailure(
                f"the embeddings API answered with status {response.status}", is_temporary=is_temporary
            )
        return await asyncio.to_thread(_read_vectors, answer, len(inputs), settings.semantic_endpoint_dimension)


def embeddings_url(url: str) -> str:
    """Completes the URL of a host or of its API to that of the endpoint."""
    if url.endswith("/embeddings"):
        return url
    return f"{url}/embeddings" if urlsplit(url).path else f"{url}/v1/embeddings"


def endpoint_info(settings: Settings) -> ModelInfo:
    """The id does not contain the URL, so that a model can move to another host and keep its vectors."""
    model, dimension = settings.semantic_endpoint_model, settings.semantic_endpoint_dimension
    prefix = settings.semantic_endpoint_passage_prefix
    suffix = f":{sha256(prefix.encode()).hexdigest()[:8]}" if prefix else ""
    return ModelInfo("endpoint", f"endpoint:{model}:{dimension}{suffix}", dimension, has_context=False, weight=_WEIGHT)


def _read_vectors(answer: bytes, count: int, dimension: int) -> list[bytes]:
    try:
        data = _decode_embeddings(answer).data
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _EndpointFailure("the embeddings API sent a response in another format", is_temporary=False) from error
    if len(data) != count:
        raise _EndpointFailure(f"the embeddings API sent {len(data)} vectors, expected {count}", is_temporary=False)
    positions = [item.index if item.index is not None else place for place, item in enumerate(data)]
    if sorted(positions) != list(range(count)):
        raise _EndpointFailure("the embeddings API did not number its vectors", is_temporary=False)
    vectors = [b""] * count
    for position, item in zip(positions, data, strict=True):
        numbers = _numbers(item.embedding)
        if len(numbers) != dimension:
            raise _EndpointFailure(
                f"the embeddings API sent vectors of {len(numbers)} numbers, expected {dimension}; set "
                "semantic_endpoint_dimension to the dimension of the model",
                is_temporary=False,
            )
        length = math.hypot(*numbers)
        if not math.isfinite(length) or length == 0:
            raise _EndpointFailure("the embeddings API sent a vector that is zero or not finite", is_temporary=False)
        vectors[position] = array("b", [round(SCALE * (number / length)) for number in numbers]).tobytes()
    return vectors


def _numbers(embedding: list[float] | str) -> Sequence[float]:
    """Reads a list of numbers, or 32-bit floats in base64."""
    if not isinstance(embedding, str):
        return embedding
    try:
        content = base64.b64decode(embedding, validate=True)
    except binascii.Error as error:
        raise _EndpointFailure("the embeddings API sent a vector that is not base64", is_temporary=False) from error
    if len(content) % _FLOAT_BYTES:
        raise _EndpointFailure("the embeddings API sent a vector that is truncated", is_temporary=False)
    numbers = array("f", content)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


# -- reranker ----------------------------------------------------------------------------------------------------------
# A client of a reranker: `POST <url>` with a query and texts, in the format of Cohere, Jina and TEI.


class _TextScore(Struct, frozen=True):
    """Cohere and Jina call the score `relevance_score`, TEI calls it `score`."""

    index: int
    relevance_score: float | None = None
    score: float | None = None


class _RerankerResponse(Struct, frozen=True):
    results: list[_TextScore] = field(default_factory=list)


# The statuses with which servers refuse a request that lacks a field.
_REFUSALS = (400, 422)
_decode_results = msgspec.json.Decoder(_RerankerResponse | list[_TextScore]).decode


class Reranker:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._is_tei = False

    @property
    def hits_max(self) -> int:
        return self._settings.fixed.reranker_hits_max

    async def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Returns the relevance of each text, in order. Scores are comparable within one call only. Raises
        SemanticUnavailable, at the latest when `semantic_timeout_ms` have passed."""
        if not texts:
            return []
        query, texts = clean_text(query), [clean_text(text) for text in texts]
        timeout_s = self._settings.semantic_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._rerank(query, texts, timeout_s)
        except TimeoutError:
            raise SemanticUnavailable(f"the reranker did not answer within {timeout_s:g} s") from None
        count = len(texts)
        try:
            content = _decode_results(answer)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SemanticUnavailable("the reranker sent a response in another format") from error
        results = content.results if isinstance(content, _RerankerResponse) else content
        scores: dict[int, float] = {}
        for result in results:
            score = result.relevance_score if result.relevance_score is not None else result.score
            if score is None or not math.isfinite(score):
                raise SemanticUnavailable("the reranker sent a score that is not a number")
            scores[result.index] = score
        if len(results) != count or sorted(scores) != list(range(count)):
            raise SemanticUnavailable(f"the reranker did not score each of {count} texts once")
        return [scores[index] for index in range(count)]

    async def _rerank(self, query: str, texts: list[str], timeout_s: float) -> bytes:
        """Sends the request of Cohere, and that of TEI to a server that refuses it. The format that worked is used from
        then on."""
        # Without `truncate`, TEI refuses texts that are longer than the model reads.
        model = {"model": self._settings.reranker_model} if self._settings.reranker_model else {}
        formats: tuple[dict[str, Any], ...] = (
            {"query": query, "texts": texts, "truncate": True},
            {**model, "query": query, "documents": texts, "top_n": len(texts)},
        )
        for is_tei in (self._is_tei, not self._is_tei):
            status, answer = await self._request(formats[0 if is_tei else 1], timeout_s)
            if status == 200:
                self._is_tei = is_tei
                return answer
            if status not in _REFUSALS:
                break
        raise SemanticUnavailable(f"the reranker answered with status {status}")

    async def _request(self, body: dict[str, Any], timeout_s: float) -> tuple[int, bytes]:
        settings = self._settings
        headers = {"Content-Type": "application/json"}
        if settings.reranker_key:
            headers["Authorization"] = f"Bearer {settings.reranker_key}"
        content = msgspec.json.encode(body)
        try:
            async with open_response(
                "POST", settings.reranker_url, headers=headers, body=content, timeout_s=timeout_s
            ) as response:
                return response.status, await response.read(settings.fixed.semantic_response_max_bytes)
        except OutgoingRequestError as error:
            raise SemanticUnavailable(f"the reranker {error.reason}") from error
