"""Merges the hits of several sources into one list. The functions are pure.

Scores are comparable across sources, so hits are ordered by score. Then hits over the limit per item, or over the limit
per source among ten, move behind the others. Of hits with the same content, the best one lists the others. No hit is
lost: each keeps a position.
"""

from collections.abc import Hashable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sources.source import RankedHit

# Scores are compared in steps of this many per unit; smaller differences are floating-point noise.
_SCORE_STEPS = 10_000
# `limit_per_source` applies to each block of this many hits.
_BLOCK = 10
# URIs listed with a hit that has the same content; a further one becomes a hit of its own.
ALSO_IN_MAX = 10


class DiversityLimits(Struct, frozen=True):
    """How many hits of one item, and of one source among ten, keep their rank; the rest move down."""

    per_item: int
    per_source: int


def order_hits(hits: Sequence[RankedHit], limits: DiversityLimits) -> list[RankedHit]:
    return limit_per_source(limit_per_item(sort_by_score(hits), limits.per_item), limits.per_source)


def sort_by_score(hits: Sequence[RankedHit]) -> list[RankedHit]:
    """Best first; equal scores by date."""
    groups: dict[int, list[RankedHit]] = {}
    for hit in hits:
        groups.setdefault(round(hit.score * _SCORE_STEPS), []).append(hit)
    ordered: list[RankedHit] = []
    for score in sorted(groups, reverse=True):
        ordered += groups[score] if len(groups[score]) == 1 else sort_by_date(groups[score])
    return ordered


def sort_by_date(hits: Sequence[RankedHit]) -> list[RankedHit]:
    """Newest first and hits without a date last; then by URI."""
    ordered = sorted(hits, key=lambda hit: hit.uri)
    return sorted(ordered, key=lambda hit: hit.last_modified or "", reverse=True)


def limit_per_item(hits: Sequence[RankedHit], limit: int) -> list[RankedHit]:
    """Moves the hits of an item beyond the first `limit` behind all others."""
    counts: dict[tuple[str, str | int], int] = {}
    first: list[RankedHit] = []
    rest: list[RankedHit] = []
    for hit in hits:
        item = (hit.source, hit.id)
        counts[item] = count = counts.get(item, 0) + 1
        (first if count <= limit else rest).append(hit)
    return first + rest


def limit_per_source(hits: Sequence[RankedHit], limit: int) -> list[RankedHit]:
    """Allows at most `limit` hits of one source among each ten, as long as other sources have hits left."""
    ordered: list[RankedHit] = []
    remaining = list(hits)
    while remaining:
        counts: dict[str, int] = {}
        block: list[RankedHit] = []
        rest: list[RankedHit] = []
        for index, hit in enumerate(remaining, 1):
            counts[hit.source] = count = counts.get(hit.source, 0) + 1
            (block if count <= limit else rest).append(hit)
            if len(block) == _BLOCK:
                rest += remaining[index:]
                break
        free = _BLOCK - len(block)  # more than 0 if only one source is left
        ordered += block + rest[:free]
        remaining = rest[free:]
    return ordered


def mark_duplicates(hits: Sequence[RankedHit]) -> list[RankedHit]:
    """Of hits with the same content, the first lists the URIs of the others in `also_in`."""
    first: dict[Hashable, int] = {}
    marked: list[RankedHit] = []
    for index, hit in enumerate(hits):
        # Without a content key a hit equals only itself.
        key = hit.uri if hit.content_key is None else hit.content_key
        at = first.setdefault(key, index)
        if at == index:
            marked.append(hit)
        elif len(marked[at].duplicates) < ALSO_IN_MAX:
            marked[at] = _with_duplicate(marked[at], hit)
            marked.append(replace(hit, is_duplicate=True))
        else:
            first[key] = index
            marked.append(hit)
    return marked


def duplicates_last(hits: Sequence[RankedHit]) -> list[RankedHit]:
    """Moves duplicates to the end, where the pages that they shorten are."""
    return sorted(hits, key=lambda hit: hit.is_duplicate)


def _with_duplicate(hit: RankedHit, duplicate: RankedHit) -> RankedHit:
    """A source may return the same URI twice; it is listed once."""
    if duplicate.uri == hit.uri or duplicate.uri in hit.duplicates:
        return hit
    return replace(hit, duplicates={**hit.duplicates, duplicate.uri: duplicate.version or 0})
