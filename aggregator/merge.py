"""Merges the hits of several sources into one list of results, one for each item. The functions are pure.

Scores are comparable across sources, so hits are ordered by score. Hits of the same item become one result: a page
would otherwise show the same conversation several times. Of results with the same content, the best one lists the
others. Then results over the limit per source among ten move behind the others. No item is lost.
"""

from collections.abc import Hashable, Sequence

from msgspec.structs import replace

from sources.source import RankedHit

# Scores are compared in steps of this many per unit; smaller differences are floating-point noise.
_SCORE_STEPS = 10_000
# `limit_per_source` applies to each block of this many hits.
_BLOCK = 10
# URIs listed with a hit that has the same content; a further one becomes a hit of its own.
ALSO_IN_MAX = 10


def merge_hits(hits: Sequence[RankedHit], source_max: int) -> list[RankedHit]:
    """Returns the results in their order. At most `source_max` of any ten are of one source, while others are left."""
    return limit_per_source(merge_duplicates(group_by_item(sort_by_score(hits))), source_max)


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


def group_by_item(hits: Sequence[RankedHit]) -> list[RankedHit]:
    """The first hit of an item becomes its result, with the others as its `parts`."""
    results: dict[tuple[str, str | int], RankedHit] = {}
    for hit in hits:
        result = results.get(hit.item)
        results[hit.item] = hit if result is None else replace(result, parts=(*result.parts, hit))
    return list(results.values())


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


def merge_duplicates(results: Sequence[RankedHit]) -> list[RankedHit]:
    """Of results with the same content, only the first remains, and lists the URIs of the others in `also_in`."""
    first: dict[Hashable, int] = {}
    merged: list[RankedHit] = []
    for result in results:
        key = (content_of(result), frozenset(map(content_of, result.parts)))
        at = first.setdefault(key, len(merged))
        if at < len(merged) and len(merged[at].duplicates) < ALSO_IN_MAX:
            merged[at] = _with_duplicate(merged[at], result)
        else:
            first[key] = len(merged)
            merged.append(result)
    return merged


def content_of(hit: RankedHit) -> Hashable:
    """Without a content key a hit equals only itself."""
    return hit.uri if hit.content_key is None else hit.content_key


def _with_duplicate(hit: RankedHit, duplicate: RankedHit) -> RankedHit:
    """A source may return the same URI twice; it is listed once."""
    if duplicate.uri == hit.uri or duplicate.uri in hit.duplicates:
        return hit
    return replace(hit, duplicates={**hit.duplicates, duplicate.uri: duplicate.version or 0})
