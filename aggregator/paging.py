"""Selects the hits of a page: those that the session has not seen, up to the limit and the size of the response.

An offset counts positions of the whole ranking, including hits already seen, so that paging and deduplication do not
interfere with each other.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from aggregator.defaults import Dedupe
from aggregator.ranking import MergedRanking
from aggregator.responses import KnowledgeItem, KnowledgeResponse
from sources.source import RankedHit


class PageSelection(Struct, frozen=True, kw_only=True):
    """The hits that a page should contain, before they are rendered and measured.

    `candidates` are to be delivered in this order as far as they fit. Hits in `required` that do not fit are delivered
    by the next page. `seen` are the hits found that the session has seen. `end` is the first position that was not
    examined, and `is_last` is true if the ranking ends there.
    """

    candidates: tuple[RankedHit, ...]
    required: tuple[RankedHit, ...]
    seen: tuple[RankedHit, ...]
    exhausted: bool
    end: int
    is_last: bool


async def select_page(
    ranking: MergedRanking, seen: Mapping[str, int], dedupe: Dedupe, *, limit: int, examined_max: int
) -> PageSelection:
    """Reads the ranking until `limit` hits are found that are not in `seen` with their current version.

    If all hits were seen, a search from the start returns the best of them again, and a later page is empty.
    """
    offset = ranking.position
    fresh: list[RankedHit] = []
    repeated: list[RankedHit] = []
    for _ in range(examined_max):
        hit = await ranking.next() if len(fresh) < limit else None
        if hit is None:
            break
        if not hit.is_duplicate:
            (repeated if is_seen(hit, seen) else fresh).append(hit)
    exhausted = not fresh and bool(repeated) and ranking.is_finished
    required = repeated if exhausted and not offset else fresh
    demoted = repeated if dedupe == "demote" and required is fresh else []
    return PageSelection(
        candidates=tuple([*required, *demoted][:limit]),
        required=tuple(required),
        seen=tuple(repeated),
        exhausted=exhausted,
        end=ranking.position,
        is_last=ranking.is_finished,
    )


def is_seen(hit: RankedHit, seen: Mapping[str, int]) -> bool:
    return seen.get(hit.uri) == (hit.version or 0)


def fill_page(
    envelope: KnowledgeResponse,
    selection: PageSelection,
    rendered: Mapping[int, tuple[KnowledgeItem, int]],
    room_bytes: int,
) -> KnowledgeResponse:
    """Adds as many results to a response as fit in `room_bytes`.

    `rendered` holds each candidate's item and its size in bytes by position; candidates that could not be rendered are
    missing and skipped. At least one result is delivered, so that paging always advances.
    """
    positions, examined = _fitting(selection, rendered, room_bytes)
    waiting = selection.required[examined:]
    end = waiting[0].position if waiting else selection.end
    is_end = not waiting and selection.is_last
    delivered = set(positions)
    return replace(
        envelope,
        results=tuple([rendered[position][0] for position in positions]),
        has_more=not is_end,
        next_offset=None if is_end else end,
        suppressed=sum(hit.position < end and hit.position not in delivered for hit in selection.seen),
        exhausted=selection.exhausted,
        cut=examined < len(selection.candidates),
    )


def _fitting(
    selection: PageSelection, rendered: Mapping[int, tuple[KnowledgeItem, int]], room_bytes: int
) -> tuple[list[int], int]:
    """The positions of the candidates that fit, and how many candidates were examined."""
    positions: list[int] = []
    for index, hit in enumerate(selection.candidates):
        if hit.position not in rendered:
            continue
        room_bytes -= rendered[hit.position][1]
        if positions and room_bytes < 0:
            return positions, index
        positions.append(hit.position)
    return positions, len(selection.candidates)
