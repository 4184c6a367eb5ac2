"""Resolves the times that a query mentions, and says how they were read."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from config.times import format_time
from sources.query import AnyOf, ParsedQuery, Term
from sources.text.folding import fold
from sources.text.segmentation import UNSPACED_RUN
from sources.times import TimeMention, TimeSpan, asks_for_anything, resolve

_MILLISECOND = timedelta(milliseconds=1)
# The time that these name is not part of the range.
_OUTSIDE = ("before", "after")


def resolve_times(query: ParsedQuery, now: datetime) -> ParsedQuery:
    """Returns the query with the ranges of the times it mentions, as seen at `now`. What has not begun is ignored:
    nothing was created then.

    A query that consists of a relative time only, such as "yesterday" or "was habe ich gestern gemacht?", lists what
    was created then; the words themselves would find little.
    """
    spans = {mention: span for mention in query.mentions if (span := _past(mention, now)) is not None}
    if not spans:
        return query
    times = tuple(spans.values())
    time_terms = frozenset(index for index, term in enumerate(query.terms) if _names_time(term, times))
    is_listing = (
        len(times) == 1
        and all(mention.is_relative for mention in spans)
        and (len(time_terms) == len(query.terms) or asks_for_anything(query.prose, times[0].words))
    )
    if is_listing and query.expression is not None:
        return replace(
            query,
            expression=None,
            terms=(),
            filters=replace(query.filters, during=times[0]),
            read_as=f"filter only, newest first; created {_describe(times[0], now)}",
        )
    query = _without_limits(query, [span for mention, span in spans.items() if mention.bound in _OUTSIDE])
    time_terms = frozenset(index for index, term in enumerate(query.terms) if _names_time(term, times))
    note = f"ranked higher what was created {' or '.join(_describe(span, now) for span in times)}"
    read_as = f"{query.read_as}; {note}" if query.read_as else note
    return replace(query, times=times, time_terms=time_terms, read_as=read_as)


def _past(mention: TimeMention, now: datetime) -> TimeSpan | None:
    span = resolve(mention, now)
    return span if span is not None and (span.start is None or span.start <= now) else None


def _without_limits(query: ParsedQuery, outside: Sequence[TimeSpan]) -> ParsedQuery:
    """Does not search for the words of "before 2024" and "after May": what contains them is of the wrong time."""
    dropped = [term for term in query.terms if _names_time(term, outside)]
    if not isinstance(query.expression, AnyOf) or not dropped or len(dropped) == len(query.terms):
        return query
    words = {term.word for term in dropped}
    parts = tuple(part for part in query.expression.parts if part not in words)
    terms = tuple(term for term in query.terms if term not in dropped)
    return replace(query, expression=parts[0] if len(parts) == 1 else AnyOf(parts), terms=terms)


def _names_time(term: Term, times: Sequence[TimeSpan]) -> bool:
    """Returns whether a term is part of the words of a time. In a text without spaces it is a part of a word."""
    text = fold(term.word.text).strip()
    if UNSPACED_RUN.search(text):
        return any(text in fold(span.words) for span in times)
    return any(set(text.split()) <= set(fold(span.words).split()) for span in times)


def _describe(span: TimeSpan, now: datetime) -> str:
    """Returns the range in the time zone of `now`, with its last day, and the words that name it."""
    if span.start is None or span.end is None:
        bound = f"before {_local(span.end, now)}" if span.end else f"since {_local(span.start, now)}"
    else:
        first, last = _local(span.start, now), _local(_just_before(span.end), now)
        bound = f"on {first}" if first == last else f"from {first} to {last}"
    return f"{bound} ({span.words})"


def _local(time: datetime | None, now: datetime) -> str:
    try:
        return time.astimezone(now.tzinfo).date().isoformat() if time is not None else ""
    except OverflowError:  # at the ends of Python's calendar
        return time.date().isoformat() if time is not None else ""


def start_of(span: TimeSpan) -> str | None:
    """Returns the first time of a span in the stored form."""
    return format_time(span.start) if span.start is not None else None


def last_of(span: TimeSpan) -> str | None:
    """Returns the last time of a span in the stored form, whose unit is the millisecond."""
    return format_time(_just_before(span.end)) if span.end is not None else None


def _just_before(time: datetime) -> datetime:
    """Python's calendar has no time before its first day, and no item is that old."""
    try:
        return time - _MILLISECOND
    except OverflowError:
        return time
