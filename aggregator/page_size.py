"""Fits a page of results into a number of bytes by shortening snippets: all of them to about the same size, so that a
hit is left out only if even results without snippets do not fit."""

from collections.abc import Mapping, Sequence
from typing import Self

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from aggregator.responses import KnowledgeItem, item_without_repetition
from sources.search.snippets import shorten

encode = msgspec.json.Encoder().encode
# A shorter snippet says nothing about a hit.
_SNIPPET_MIN_CHARS = 20
# Two ellipses in UTF-8.
_ELLIPSES_BYTES = 6
# How often a share that turned out to be too large is reduced before snippets are left out.
_ATTEMPTS = 4


class RenderedHit(Struct, frozen=True):
    """A result and its size in bytes, including the comma after it. `highlights` are the matches in its snippet."""

    item: KnowledgeItem
    highlights: Sequence[Sequence[int]]
    size: int

    @classmethod
    def measure(
        cls, item: KnowledgeItem, highlights: Sequence[Sequence[int]], score_type: str | UnsetType = UNSET
    ) -> Self:
        return cls(item, highlights, len(encode(item_without_repetition(item, score_type))) + 1)

    @property
    def snippet_bytes(self) -> int:
        return len(encode(self.item.snippet)) if self.item.snippet is not None else 0

    def shortened(self, snippet_bytes: int) -> Self:
        """Returns this hit with at most about `snippet_bytes` of its snippet."""
        before, snippet = self.snippet_bytes, self.item.snippet
        if snippet is None or before <= snippet_bytes:
            return self
        chars = (snippet_bytes - _ELLIPSES_BYTES) * len(snippet) // before
        text = shorten(snippet, self.highlights, chars) if chars >= _SNIPPET_MIN_CHARS else None
        after = 0 if text is None else len(encode(text))
        return type(self)(replace(self.item, snippet=text), self.highlights, self.size - before + after)


def shorten_snippets(hits: Mapping[int, RenderedHit], room_bytes: int) -> Mapping[int, RenderedHit]:
    """Returns the hits with snippets as long as fit. They may still be too large if their other fields are."""
    excess = sum(hit.size for hit in hits.values()) - room_bytes
    if excess <= 0:
        return hits
    sizes = [hit.snippet_bytes for hit in hits.values()]
    share = _share(sizes, sum(sizes) - excess)
    for _ in range(_ATTEMPTS):
        shortened = {position: hit.shortened(share) for position, hit in hits.items()}
        excess = sum(hit.size for hit in shortened.values()) - room_bytes
        if excess <= 0:
            return shortened
        share -= -(-excess // len(hits))
    return {position: hit.shortened(0) for position, hit in hits.items()}


def _share(sizes: Sequence[int], room: int) -> int:
    """Returns the largest size to which all sizes must be limited so that their sum is at most `room`."""
    left = len(sizes)
    for size in sorted(sizes):
        if size * left > room:
            return max(0, room) // left
        room, left = room - size, left - 1
    return max(sizes, default=0)
