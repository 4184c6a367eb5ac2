"""Ranks the messages of a result for Letta's `relevance`: by how well their text matches, and by their meaning."""

from collections.abc import Sequence

from server.compat.letta.schemas import LettaRelevance
from sources.records import Message, MessageHit

# The usual parameters of BM25.
_K1 = 1.2
_B = 0.75
# Letta's reciprocal rank fusion: both rankings count the same.
_FUSION_CONSTANT = 60
_FUSION_WEIGHT = 0.5


def relevance_of(messages: Sequence[Message], text: str | None) -> list[LettaRelevance]:
    """Without a text, messages are ranked in their order, which is by time."""
    if not text:
        return [LettaRelevance(rrf_score=1 / rank, search_mode="timestamp") for rank in range(1, len(messages) + 1)]
    scores = _bm25(messages, text.casefold())
    best_first = sorted(range(len(messages)), key=scores.__getitem__, reverse=True)
    ranks = {index: rank for rank, index in enumerate(best_first, start=1)}
    return [
        LettaRelevance(rrf_score=1 / ranks[index], fts_rank=ranks[index], search_mode="fts")
        for index in range(len(messages))
    ]


def fuse(
    hits: Sequence[MessageHit], near: Sequence[MessageHit], text: str, limit: int
) -> list[tuple[MessageHit, LettaRelevance]]:
    """Returns the best of the messages that contain a text and of those that are near to it, best first."""
    by_text = relevance_of([hit.message for hit in hits], text)
    text_ranks = {hit.message.id: one.fts_rank for hit, one in zip(hits, by_text, strict=True)}
    vector_ranks = {hit.message.id: rank for rank, hit in enumerate(near, start=1)}
    messages = {hit.message.id: hit for hit in (*hits, *near)}
    fused = [
        (hit, _hybrid_relevance(text_ranks.get(message_id), vector_ranks.get(message_id)))
        for message_id, hit in messages.items()
    ]
    fused.sort(key=lambda pair: pair[1].rrf_score, reverse=True)
    return fused[:limit]


def _hybrid_relevance(fts_rank: int | None, vector_rank: int | None) -> LettaRelevance:
    ranks = [rank for rank in (fts_rank, vector_rank) if rank is not None]
    score = sum(_FUSION_WEIGHT / (_FUSION_CONSTANT + rank) for rank in ranks)
    return LettaRelevance(rrf_score=score, vector_rank=vector_rank, fts_rank=fts_rank, search_mode="hybrid")


def _bm25(messages: Sequence[Message], text: str) -> list[float]:
    """Returns the BM25 scores of a single term, without its rarity, which is the same for all messages. A message that
    was found by its conversation's title scores 0."""
    mean_chars = sum(len(message.content) for message in messages) / max(1, len(messages)) or 1
    counts = [message.content.casefold().count(text) for message in messages]
    return [
        count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * len(message.content) / mean_chars))
        for count, message in zip(counts, messages, strict=True)
    ]
