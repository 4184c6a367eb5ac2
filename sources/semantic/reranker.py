"""A client of a reranker: `POST <url>` with a query and texts, in the format of Cohere, Jina and TEI."""

import asyncio
import math
from collections.abc import Sequence

import msgspec
from msgspec import Struct, field

from config.outgoing_http import OutgoingRequestError, open_response
from config.settings import Settings
from sources.semantic.model import SemanticUnavailable, clean_text


class _TextScore(Struct, frozen=True):
    """Cohere and Jina call the score `relevance_score`, TEI calls it `score`."""

    index: int
    relevance_score: float | None = None
    score: float | None = None


class _RerankerResponse(Struct, frozen=True):
    results: list[_TextScore] = field(default_factory=list)


_decode_results = msgspec.json.Decoder(_RerankerResponse | list[_TextScore]).decode


class Reranker:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def hits_max(self) -> int:
        return self._settings.reranker_hits_max

    async def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Returns the relevance of each text, in order. Scores are comparable within one call only. Raises
        SemanticUnavailable, at the latest when `reranker_timeout_ms` have passed."""
        if not texts:
            return []
        timeout_s = self._settings.reranker_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._request(query, texts, timeout_s)
        except TimeoutError:
            raise SemanticUnavailable(f"the reranker did not answer within {timeout_s:g} s") from None
        return _read_scores(answer, len(texts))

    async def _request(self, query: str, texts: Sequence[str], timeout_s: float) -> bytes:
        settings = self._settings
        headers = {"Content-Type": "application/json"}
        if settings.reranker_key:
            headers["Authorization"] = f"Bearer {settings.reranker_key}"
        documents = [clean_text(text) for text in texts]
        # Cohere and Jina read `documents`, TEI reads `texts`; each ignores the other name.
        body = {"query": clean_text(query), "documents": documents, "texts": documents, "top_n": len(documents)}
        if settings.reranker_model:
            body["model"] = settings.reranker_model
        content = msgspec.json.encode(body)
        try:
            async with open_response(
                "POST", settings.reranker_url, headers=headers, body=content, timeout_s=timeout_s
            ) as response:
                answer = await response.read(settings.semantic_response_max_bytes)
        except OutgoingRequestError as error:
            raise SemanticUnavailable(f"the reranker {error.reason}") from error
        if response.status != 200:
            raise SemanticUnavailable(f"the reranker answered with status {response.status}")
        return answer


def _read_scores(answer: bytes, count: int) -> list[float]:
    try:
        content = _decode_results(answer)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SemanticUnavailable("the reranker sent a response in another format") from error
    results = content.results if isinstance(content, _RerankerResponse) else content
    scores = {result.index: _score(result) for result in results}
    if len(results) != count or sorted(scores) != list(range(count)):
        raise SemanticUnavailable(f"the reranker did not score each of {count} texts once")
    return [scores[index] for index in range(count)]


def _score(result: _TextScore) -> float:
    score = result.relevance_score if result.relevance_score is not None else result.score
    if score is None or not math.isfinite(score):
        raise SemanticUnavailable("the reranker sent a score that is not a number")
    return score
