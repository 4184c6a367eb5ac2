"""Pages of the ranking: the results that the session has not seen, as many as the limit and the size allow.

An offset counts positions of the whole ranking, including results already seen, so that paging and deduplication do not
interfere with each other: a page without seen results has exactly `limit` positions. The ranking decides which results
make a page; within the page they are ordered by score, or by date if that was requested. Text is never left out to fit
a page: the page has fewer results instead.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aggregator.filters import Dedupe
from aggregator.ranking import Ranking
from aggregator.responses import KnowledgeItem, KnowledgeResponse
from sessions.state import SeenItems
from sources.source import RankedHit

encode = msgspec.json.Encoder().encode


class PageSelection(Struct, frozen=True, kw_only=True):
    """The results that a page should contain, before they are rendered and measured.

    `candidates` are to be delivered as far as they fit, the first ones first. Results in `required` that do not fit are
    delivered by the next page. `seen` are the results found that the session has seen. `end` is the first position that
    was not examined, and `is_last` is true if the ranking ends there.
    """

    candidates: tuple[RankedHit, ...]
    required: tuple[RankedHit, ...]
    seen: tuple[RankedHit, ...]
    exhausted: bool
    end: int
    is_last: bool


class RenderedResult(Struct, frozen=True):
    """A result, the hits that it shows, and its size in bytes with the comma after it. `longer` is the same result with
    more text, for a page that has room for it."""

    item: KnowledgeItem
    hits: tuple[RankedHit, ...]
    size: int
    longer: "RenderedResult | None" = None


async def select_page(
    ranking: Ranking, seen: SeenItems, dedupe: Dedupe, *, limit: int, examined_max: int
) -> PageSelection:
    """Reads the ranking until `limit` results are found that are not in `seen` with their current version. Of a result
    whose passages were seen in part, the others remain.

    If all results were seen, a search from the start returns the best of them again, and a later page is empty.
    """
    offset = ranking.position
    fresh: list[RankedHit] = []
    repeated: list[RankedHit] = []
    for _ in range(examined_max):
        hit = await ranking.next() if len(fresh) < limit else None
        if hit is None:
            break
        unseen = _without_seen(hit, seen)
        if unseen is None:
            repeated.append(hit)
        else:
            fresh.append(unseen)
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


def _without_seen(result: RankedHit, seen: SeenItems) -> RankedHit | None:
    hits = [hit for hit in (result, *result.parts) if not seen.has(hit.uri, hit.version or 0)]
    if not hits:
        return None
    if hits[0] is result and len(hits) == 1 + len(result.parts):
        return result
    return replace(hits[0], position=result.position, parts=tuple(hits[1:]))


def fill_page(
    envelope: KnowledgeResponse,
    selection: PageSelection,
    rendered: Mapping[int, RenderedResult],
    room_bytes: int,
    sort: Callable[[Sequence[RankedHit]], Sequence[RankedHit]],
) -> tuple[KnowledgeResponse, list[RankedHit]]:
    """Adds as many results to a response as fit in `room_bytes`; what is left goes to longer
    forms of the first ones. Returns the response and the hits that it shows.

    `rendered` holds the candidates by position; those that could not be rendered are missing and skipped. At least one
    result is delivered, so that paging always advances.
    """
    positions: list[int] = []
    examined = len(selection.candidates)
    for index, hit in enumerate(selection.candidates):
        if hit.position not in rendered:
            continue
        size = rendered[hit.position].size
        if positions and size > room_bytes:
            examined = index
            break
        room_bytes -= size
        positions.append(hit.position)
    shown: dict[int, RenderedResult] = {}
    for position in positions:
        result = shown[position] = rendered[position]
        if result.longer is not None and result.longer.size - result.size <= room_bytes:
            shown[position] = result.longer
            room_bytes -= result.longer.size - result.size
    waiting = selection.required[examined:]
    end = waiting[0].position if waiting else selection.end
    is_end = not waiting and selection.is_last
    # Those that the session has seen come after the others.
    required = [hit.position for hit in selection.required]
    delivered = [hit for hit in selection.candidates if hit.position in shown]
    ordered = [
        *sort([hit for hit in delivered if hit.position in required]),
        *sort([hit for hit in delivered if hit.position not in required]),
    ]
    response = replace(
        envelope,
        results=tuple([shown[hit.position].item for hit in ordered]),
        has_more=not is_end,
        next_offset=None if is_end else end,
        suppressed=sum([hit.position < end and hit.position not in shown for hit in selection.seen]),
        exhausted=selection.exhausted,
        cut=examined < len(selection.candidates),
    )
    return response, [hit for result in shown.values() for hit in result.hits]
