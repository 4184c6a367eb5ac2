"""Ranks the messages of a result by how well their text matches, for Letta's `relevance`. Their order stays by time."""

from collections.abc import Sequence

from server.compat.letta.schemas import LettaRelevance
from sources.records import Message

# The usual parameters of BM25.
_K1 = 1.2
_B = 0.75


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


def _bm25(messages: Sequence[Message], text: str) -> list[float]:
    """Returns the BM25 scores of a single term, without its rarity, which is the same for all messages. A message that
    was found by its conversation's title scores 0."""
    mean_chars = sum(len(message.content) for message in messages) / max(1, len(messages)) or 1
    counts = [message.content.casefold().count(text) for message in messages]
    return [
        count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * len(message.content) / mean_chars))
        for count, message in zip(counts, messages, strict=True)
    ]
