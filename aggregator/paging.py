"""Which hits of a ranking make a page: those a session has not seen, as many as were asked for and as fit.

An offset counts positions of the whole ranking, seen ones included, so that paging and a session's memory never get in
each other's way.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from aggregator.habits import Dedupe
from aggregator.ranking import Place, Ranking


class Span(Struct, frozen=True):
    """The part of a ranking that was looked at. `end` is the first position that was not."""

    fresh: tuple[Place, ...]
    seen: tuple[Place, ...]
    end: int
    is_last: bool


class Page(Struct, frozen=True):
    """What is delivered. `next_offset` is None where the ranking ends."""

    places: tuple[Place, ...]
    suppressed: int
    exhausted: bool
    cut: bool
    next_offset: int | None


async def examine(ranking: Ranking, seen: Mapping[str, int], limit: int, examined_max: int) -> Span:
    """Reads the ranking on until `limit` hits are there that `seen` does not hold in their present version."""
    fresh: list[Place] = []
    known: list[Place] = []
    for _ in range(examined_max):
        place = await ranking.next() if len(fresh) < limit else None
        if place is None:
            break
        if not place.entry.is_told:
            (known if is_seen(place, seen) else fresh).append(place)
    return Span(tuple(fresh), tuple(known), ranking.position, ranking.is_finished)


def is_seen(place: Place, seen: Mapping[str, int]) -> bool:
    item = place.entry.item
    return seen.get(item.uri) == (item.version or 0)


def compose_page(span: Span, dedupe: Dedupe, *, offset: int, limit: int, sizes: Mapping[int, int], room: int) -> Page:
    """`sizes` are the bytes of each hit by position. One hit is always delivered, or paging would stand still.

    Where all was seen, a search from the beginning gets the best again; one that pages on is at its end.
    """
    exhausted = not span.fresh and bool(span.seen) and span.is_last
    # Each of these is delivered, on this page or a later one.
    leading = span.seen if exhausted and not offset else span.fresh
    following = span.seen if dedupe == "demote" and leading is span.fresh else ()
    wanted = (*leading, *following)[:limit]
    shown = _fitting(wanted, sizes, room)
    waiting = leading[len(shown) :]
    end = waiting[0].position if waiting else span.end
    delivered = {place.position for place in shown}
    suppressed = sum(place.position < end and place.position not in delivered for place in span.seen)
    is_end = not waiting and span.is_last
    return Page(tuple(shown), suppressed, exhausted, len(shown) < len(wanted), None if is_end else end)


def _fitting(wanted: Sequence[Place], sizes: Mapping[int, int], room: int) -> list[Place]:
    shown: list[Place] = []
    for place in wanted:
        room -= sizes[place.position]
        if shown and room < 0:
            break
        shown.append(place)
    return shown
