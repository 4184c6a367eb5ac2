"""A client of a reranker: `POST <url>` with a query and texts, in the format of Cohere, Jina and TEI."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from config.public_http import OutgoingRequestError, open_response
from config.settings import Settings
from sources.semantic.model import SemanticUnavailable, clean_text


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
        scores = {result.index: _score(result) for result in results}
        if len(results) != count or sorted(scores) != list(range(count)):
            raise SemanticUnavailable(f"the reranker did not score each of {count} texts once")
        return [scores[index] for index in range(count)]

    async def _rerank(self, query: str, texts: list[str], timeout_s: float) -> bytes:
        """Sends the request of Cohere, and that of TEI to a server that refuses it. The format that worked is used from
        then on."""
        # Without `truncate`, TEI refuses texts that are longer than the model reads.
        formats = ({"query": query, "texts": texts, "truncate": True}, self._cohere_request(query, texts))
        for is_tei in (self._is_tei, not self._is_tei):
            status, answer = await self._request(formats[0 if is_tei else 1], timeout_s)
            if status == 200:
                self._is_tei = is_tei
                return answer
            if status not in _REFUSALS:
                break
        raise SemanticUnavailable(f"the reranker answered with status {status}")

    def _cohere_request(self, query: str, texts: list[str]) -> dict[str, Any]:
        request = {"query": query, "documents": texts, "top_n": len(texts)}
        return {"model": self._settings.reranker_model, **request} if self._settings.reranker_model else request

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


def _score(result: _TextScore) -> float:
    score = result.relevance_score if result.relevance_score is not None else result.score
    if score is None or not math.isfinite(score):
        raise SemanticUnavailable("the reranker sent a score that is not a number")
    return score
