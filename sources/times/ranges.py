"""Resolves the times of a text to ranges, given when it was written and in which time zone."""

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Literal, get_args

from msgspec import Struct

from sources.times.expressions import (
    CalendarDate,
    CalendarUnit,
    Instant,
    PeriodBefore,
    PeriodBetween,
    RecentPeriod,
    RelativeYear,
    Season,
    SingleTime,
    TimeExpression,
    TimeMention,
    Unit,
    Weekday,
    Year,
)

Precision = Literal["instant", "day", "week", "month", "season", "year", "open"]
_PRECISIONS: tuple[Precision, ...] = get_args(Precision)

_PRECISION: dict[Unit, Precision] = {
    "minute": "day",
    "hour": "day",
    "day": "day",
    "weekend": "day",
    "week": "week",
    "month": "month",
    "year": "year",
}
# 29 February is at most eight years back: 1896, 1904.
_YEARS_BACK_MAX = 8
# The first month of each season in the northern hemisphere, by the meteorological calendar.
_SEASON_MONTHS = (3, 6, 9, 12)


class TimeSpan(Struct, frozen=True):
    """A half-open range in UTC. None means unbounded; never both."""

    start: datetime | None
    end: datetime | None
    precision: Precision
    words: str = ""


def resolve(mention: TimeMention, now: datetime) -> TimeSpan | None:
    """Returns the range of a time as seen at `now`, whose time zone is that of the reader. Returns None for a time that
    does not exist, such as 30 February."""
    try:
        period = _period(mention.expression, now)
    except (ValueError, OverflowError):
        return None
    if period is None:
        return None
    start, end, precision = period
    match mention.bound:
        case "in":
            return TimeSpan(start, end, precision, mention.words)
        case "since":
            return TimeSpan(start, None, "open", mention.words)
        case "after":
            return TimeSpan(start if precision == "instant" else end, None, "open", mention.words)
        case "before":
            return TimeSpan(None, start, "open", mention.words)


_Period = tuple[datetime, datetime, Precision]


def _period(expression: TimeExpression, now: datetime) -> _Period | None:
    today = now.date()
    match expression:
        case CalendarDate():
            return _calendar_period(expression, now)
        case Season(number=number, year=year):
            years = [_year_number(year, today)] if year is not None else [today.year, today.year - 1]
            first = [date(candidate, _SEASON_MONTHS[number], 1) for candidate in years]
            begun = [day for day in first if year is not None or day <= today]
            return _days(begun[0], _add_months(begun[0], 3), now, "season") if begun else None
        case Weekday(number=number, weeks_back=int() as weeks_back):
            day = _calendar_unit("week", weeks_back, today)[0] + timedelta(days=number)
            return _days(day, day + timedelta(days=1), now, "day")
        case Weekday(number=number, is_past=is_past):
            latest = today - timedelta(days=1) if is_past else today
            day = latest - timedelta(days=(latest.weekday() - number) % 7)
            return _days(day, day + timedelta(days=1), now, "day")
        case CalendarUnit(unit=unit, back=back):
            first_day, next_day = _calendar_unit(unit, back, today)
            return _days(first_day, next_day, now, _PRECISION[unit])
        case RecentPeriod(unit=unit, count=count):
            return _go_back(now, unit, count), now.astimezone(UTC), _PRECISION[unit]
        case PeriodBefore(unit=unit, count=count, date=named):
            period = _calendar_period(named, now)
            return period and (_go_back(period[0].astimezone(now.tzinfo), unit, count), period[0], _PRECISION[unit])
        case PeriodBetween(first=named_first, last=named_last):
            return _period_between(named_first, named_last, now)
        case Instant(time=instant):
            moment = (instant if instant.tzinfo else instant.replace(tzinfo=now.tzinfo)).astimezone(UTC)
            return moment, moment, "instant"


def _period_between(named_first: SingleTime, named_last: SingleTime, now: datetime) -> _Period | None:
    """From November to February 2024 begins in the year before."""
    first, last = _period(named_first, now), _period(named_last, now)
    if first is not None and last is not None and first[0] >= last[1] and isinstance(named_first, CalendarDate):
        year = first[0].astimezone(now.tzinfo).year - 1
        first = _dated_period(year, named_first.month, named_first.day, now) if named_first.month else None
    if first is None or last is None or first[0] >= last[1]:
        return None
    return first[0], last[1], _PRECISIONS[max(map(_PRECISIONS.index, (first[2], last[2])))]


def _calendar_period(named: CalendarDate, now: datetime) -> _Period | None:
    if named.year is not None:
        return _dated_period(_year_number(named.year, now.date()), named.month, named.day, now)
    for year in range(now.year, now.year - _YEARS_BACK_MAX - 1, -1):
        try:
            period = _dated_period(year, named.month, named.day, now)
        except ValueError:
            continue
        if period[0] <= now:
            return period
    return None


def _year_number(year: Year, today: date) -> int:
    return today.year - year.back if isinstance(year, RelativeYear) else year


def _dated_period(year: int, month: int | None, day: int | None, now: datetime) -> _Period:
    first = date(year, month or 1, day or 1)
    if month is None:
        return _days(first, _add_months(first, 12), now, "year")
    if day is None:
        return _days(first, _add_months(first, 1), now, "month")
    return _days(first, first + timedelta(days=1), now, "day")


def _calendar_unit(unit: Unit, back: int, today: date) -> tuple[date, date]:
    """Weeks begin on Monday."""
    monday = today - timedelta(days=today.weekday())
    match unit:
        case "week":
            return monday - timedelta(weeks=back), monday - timedelta(weeks=back - 1)
        case "weekend":
            next_monday = monday - timedelta(weeks=back - 1)
            return next_monday - timedelta(days=2), next_monday
        case "month":
            first = today.replace(day=1)
            return _add_months(first, -back), _add_months(first, 1 - back)
        case "year":
            return date(today.year - back, 1, 1), date(today.year - back + 1, 1, 1)
        case _:
            day = today - timedelta(days=back)
            return day, day + timedelta(days=1)


def _go_back(moment: datetime, unit: Unit, count: int) -> datetime:
    """Returns the same time of day some days, months or years earlier; the day is reduced if a month is too short."""
    match unit:
        case "minute" | "hour":
            return moment.astimezone(UTC) - count * timedelta(**{f"{unit}s": 1})
        case "month" | "year":
            first = _add_months(moment.date().replace(day=1), -count * (12 if unit == "year" else 1))
            last_day = (_add_months(first, 1) - timedelta(days=1)).day
            day = first.replace(day=min(moment.day, last_day))
        case _:
            day = moment.date() - count * timedelta(days=7 if unit in {"week", "weekend"} else 1)
    return datetime.combine(day, moment.time(), moment.tzinfo).astimezone(UTC)


def _add_months(first: date, months: int) -> date:
    year, month = divmod(first.year * 12 + first.month - 1 + months, 12)
    return date(year, month + 1, first.day)


def _days(first: date, end: date, now: datetime, precision: Precision) -> _Period:
    """Returns the time between two midnights of the reader, which is not always a multiple of 24 hours."""
    return _midnight(first, now.tzinfo), _midnight(end, now.tzinfo), precision


def _midnight(day: date, zone: tzinfo | None) -> datetime:
    return datetime.combine(day, time.min, zone).astimezone(UTC)
