"""What a time in a text says, before it is known when the text was written. A closed union of frozen values."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

Unit = Literal["minute", "hour", "day", "weekend", "week", "month", "year"]
# "in": during the time; "since": from its beginning on; "after": from its end on; "before": until its beginning.
Bound = Literal["in", "since", "after", "before"]


class RelativeYear(Struct, frozen=True):
    """A year, counted back from the current one: last year is one back."""

    back: int


Year = int | RelativeYear


class CalendarDate(Struct, frozen=True):
    """A year, a month or a day. Without a year, the latest one that has begun."""

    year: Year | None = None
    month: int | None = None
    day: int | None = None


class Season(Struct, frozen=True):
    """0 is spring. `year` is the year in which it begins; without one, the latest season that has begun."""

    number: int
    year: Year | None = None


class Weekday(Struct, frozen=True):
    """0 is Monday. The latest such day, today included unless `is_past`, or the one of a week that is counted back from
    the current one."""

    number: int
    is_past: bool = False
    weeks_back: int | None = None


class CalendarUnit(Struct, frozen=True):
    """A day, week, month or year, counted back from the current one: yesterday is one day back."""

    unit: Unit
    back: int


class RecentPeriod(Struct, frozen=True):
    """The last `count` units until now."""

    unit: Unit
    count: int


class PeriodBefore(Struct, frozen=True):
    """The `count` units before a date: the week before 16 November."""

    unit: Unit
    count: int
    date: CalendarDate


class Instant(Struct, frozen=True):
    """A time with hours. Without an offset it is in the time zone of the reader."""

    time: datetime


SingleTime = CalendarDate | Season | Weekday | CalendarUnit | RecentPeriod | PeriodBefore | Instant


class PeriodBetween(Struct, frozen=True):
    """From the beginning of one time to the end of another: between May and July."""

    first: SingleTime
    last: SingleTime


TimeExpression = SingleTime | PeriodBetween


class TimeMention(Struct, frozen=True):
    """A time in a text, and the words that name it."""

    expression: TimeExpression
    words: str
    bound: Bound = "in"

    @property
    def is_relative(self) -> bool:
        """Whether the words mean another time every day. A weekday alone does not count: it may be a title."""
        match self.expression:
            case Weekday(is_past=is_past):
                return is_past
            case _:
                return isinstance(self.expression, CalendarUnit | RecentPeriod)
