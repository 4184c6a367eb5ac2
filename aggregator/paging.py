"""Which hits of a ranking make a page: those a session has not seen, as many as were asked for and as fit.

An offset counts positions of the whole ranking, seen ones included, so that paging and a session's memory never get in
each other's way.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from aggregator.defaults import Dedupe
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
    match = place.entry.match
    return seen.get(match.uri) == (match.version or 0)


class Choice(Struct, frozen=True):
    """What a page would hold if there were room. Each of `leading` is delivered, on this page or a later one."""

    leading: tuple[Place, ...]
    wanted: tuple[Place, ...]
    exhausted: bool


def choose(span: Span, dedupe: Dedupe, *, offset: int, limit: int) -> Choice:
    """Where all was seen, a search from the beginning gets the best again; one that pages on is at its end."""
    exhausted = not span.fresh and bool(span.seen) and span.is_last
    leading = span.seen if exhausted and not offset else span.fresh
    following = span.seen if dedupe == "demote" and leading is span.fresh else ()
    return Choice(leading, (*leading, *following)[:limit], exhausted)


def compose_page(span: Span, choice: Choice, *, sizes: Mapping[int, int], room: int) -> Page:
    """`sizes` are the bytes of each wanted hit by position; one that could not be shown has none, and is passed over.
    One hit is always delivered, or paging would stand still."""
    shown, looked_at = _fitting(choice.wanted, sizes, room)
    waiting = choice.leading[looked_at:]
    end = waiting[0].position if waiting else span.end
    delivered = {place.position for place in shown}
    suppressed = sum(place.position < end and place.position not in delivered for place in span.seen)
    is_end = not waiting and span.is_last
    cut = looked_at < len(choice.wanted)
    return Page(tuple(shown), suppressed, choice.exhausted, cut, None if is_end else end)


def _fitting(wanted: Sequence[Place], sizes: Mapping[int, int], room: int) -> tuple[list[Place], int]:
    """Those that fit, and how many were looked at for them."""
    shown: list[Place] = []
    for looked_at, place in enumerate(wanted):
        if place.position not in sizes:
            continue
        room -= sizes[place.position]
        if shown and room < 0:
            return shown, looked_at
        shown.append(place)
    return shown, len(wanted)
