"""Ranks higher what was created in the times that a query mentions.

A question about August is mostly answered by what was written in August, or shortly after it: "last month we ...". The
preference is mild, because the best answer may have been written at any other time. Factors between 1.1 and 1.3 measure
the same; above, good answers of other times are lost.
"""

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from config.times import format_time
from sources.search.scoring import raise_odds
from sources.times import TimeSpan

_INSIDE = 1.2
# Shortly after the time, and within a whole year or since a date, which says little.
_NEAR = 1.1
_SHORTLY_AFTER = timedelta(days=10)
_WIDE = frozenset(("year", "open"))
# The stored form sorts as text; these sort before and after every time.
_FIRST, _LAST = "", "~"


class BoostedPeriod(Struct, frozen=True):
    """A half-open range of stored times, and the factor for what was created in it."""

    start: str
    end: str
    factor: float


class TimeBoost:
    """The boost of one query. Without times it leaves every score as it is."""

    def __init__(self, times: Sequence[TimeSpan]) -> None:
        periods = [period for span in times for period in _periods(span)]
        # The first period that contains a time decides.
        self.periods = tuple(sorted(periods, key=lambda period: -period.factor))
        self._inside = [period for span in times for period in _periods(span)[:1]]

    def factor(self, created_at: str) -> float:
        return next((period.factor for period in self.periods if period.start <= created_at < period.end), 1.0)

    def contains(self, created_at: str) -> bool:
        """Returns whether a time is in one of the named times. What was created then counts as containing their
        words."""
        return any(period.start <= created_at < period.end for period in self._inside)

    def apply(self, score: float, created_at: str) -> float:
        return raise_odds(score, self.factor(created_at))


def _periods(span: TimeSpan) -> list[BoostedPeriod]:
    start = format_time(span.start) if span.start is not None else _FIRST
    end = format_time(span.end) if span.end is not None else _LAST
    if span.end is None or span.precision in _WIDE:
        return [BoostedPeriod(start, end, _NEAR)]
    try:
        after = format_time(span.end + _SHORTLY_AFTER)
    except OverflowError:
        after = _LAST
    return [BoostedPeriod(start, end, _INSIDE), BoostedPeriod(end, after, _NEAR)]
