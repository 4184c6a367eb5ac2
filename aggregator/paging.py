"""Selects the hits of a page: those that the session has not seen, up to the limit.

An offset counts positions of the whole ranking, including hits already seen and duplicates, so that paging and
deduplication do not interfere with each other: a page without seen hits has exactly `limit` positions. The ranking
decides which hits make a page; within the page they are ordered by score, or by date if that was requested.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from aggregator.defaults import Dedupe
from aggregator.page_size import RenderedHit, shorten_snippets
from aggregator.reranking import Ranking
from aggregator.responses import KnowledgeResponse
from sessions.state import SeenItems
from sources.source import RankedHit


class PageSelection(Struct, frozen=True, kw_only=True):
    """The hits that a page should contain, before they are rendered and measured.

    `candidates` are to be delivered as far as they fit, the first ones first. Hits in `required` that do not fit are
    delivered by the next page. `seen` are the hits found that the session has seen. `end` is the first position that
    was not examined, and `is_last` is true if the ranking ends there.
    """

    candidates: tuple[RankedHit, ...]
    required: tuple[RankedHit, ...]
    seen: tuple[RankedHit, ...]
    exhausted: bool
    end: int
    is_last: bool


async def select_page(
    ranking: Ranking, seen: SeenItems, dedupe: Dedupe, *, limit: int, examined_max: int
) -> PageSelection:
    """Reads the ranking until `limit` hits are found that are not in `seen` with their current version. Duplicates
    count, although they are not delivered: otherwise a client that adds `limit` to its offset would get a hit twice.

    If all hits were seen, a search from the start returns the best of them again, and a later page is empty.
    """
    offset = ranking.position
    fresh: list[RankedHit] = []
    repeated: list[RankedHit] = []
    for _ in range(examined_max):
        hit = await ranking.next() if ranking.position - offset - len(repeated) < limit else None
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


def is_seen(hit: RankedHit, seen: SeenItems) -> bool:
    return seen.has(hit.uri, hit.version or 0)


def fill_page(
    envelope: KnowledgeResponse,
    selection: PageSelection,
    rendered: Mapping[int, RenderedHit],
    room_bytes: int,
    sort: Callable[[Sequence[RankedHit]], Sequence[RankedHit]],
) -> KnowledgeResponse:
    """Adds as many results to a response as fit in `room_bytes`, with shorter snippets if necessary.

    `rendered` holds the candidates by position; those that could not be rendered are missing and skipped. At least one
    result is delivered, so that paging always advances.
    """
    rendered = shorten_snippets(rendered, room_bytes)
    positions, examined = _fitting(selection, rendered, room_bytes)
    waiting = selection.required[examined:]
    end = waiting[0].position if waiting else selection.end
    is_end = not waiting and selection.is_last
    delivered = set(positions)
    return replace(
        envelope,
        results=tuple([rendered[hit.position].item for hit in _in_order(selection, delivered, sort)]),
        has_more=not is_end,
        next_offset=None if is_end else end,
        suppressed=sum(hit.position < end and hit.position not in delivered for hit in selection.seen),
        exhausted=selection.exhausted,
        cut=examined < len(selection.candidates),
    )


def _in_order(
    selection: PageSelection, delivered: Collection[int], sort: Callable[[Sequence[RankedHit]], Sequence[RankedHit]]
) -> list[RankedHit]:
    """Sorts the delivered hits; those that the session has seen come after the others."""
    hits = [hit for hit in selection.candidates if hit.position in delivered]
    required = {hit.position for hit in selection.required}
    return [
        *sort([hit for hit in hits if hit.position in required]),
        *sort([hit for hit in hits if hit.position not in required]),
    ]


def _fitting(selection: PageSelection, rendered: Mapping[int, RenderedHit], room_bytes: int) -> tuple[list[int], int]:
    """The positions of the candidates that fit, and how many candidates were examined."""
    positions: list[int] = []
    for index, hit in enumerate(selection.candidates):
        if hit.position not in rendered:
            continue
        room_bytes -= rendered[hit.position].size
        if positions and room_bytes < 0:
            return positions, index
        positions.append(hit.position)
    return positions, len(selection.candidates)
