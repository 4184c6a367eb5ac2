"""Resolves the times of a text to ranges, given when it was written and in which time zone."""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Literal, get_args
from unicodedata import normalize

from msgspec import Struct, structs

from sources.text.folding import fold
from sources.text.segmentation import STOPWORDS
from sources.times.attached import asks_for_anything_attached, find_attached_times
from sources.times.scanner import MENTIONS_MAX, FoundTime, scan, tokenize_times
from sources.times.words import (
    ASKING_WORDS,
    BOUND_WORDS,
    COMPANIONS,
    LANGUAGES,
    NAMING_WORDS,
    PERIOD_SIGNS,
    PERIOD_WORDS,
    VOCABULARIES,
    CalendarDate,
    CalendarUnit,
    Instant,
    PeriodBefore,
    PeriodBetween,
    RecentPeriod,
    RelativeYear,
    SingleTime,
    Third,
    ThreeMonths,
    TimeExpression,
    TimeMention,
    Unit,
    Weekday,
    WeekOfMonth,
    WeekOfYear,
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
    "quarter": "season",
    "year": "year",
}
# 29 February is at most eight years back: 1896, 1904. The 53rd week of a year is at most seven.
_YEARS_BACK_MAX = 8
# The first day of each third of a month, and the first month of each third of a year.
_THIRDS_OF_MONTH = (1, 11, 21)
_THIRDS_OF_YEAR = (1, 5, 9)


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
        case ThreeMonths(first_month=month, year=year):
            first = _begun([date(one, month, 1) for one in _years(year, today)], year, today)
            return _days(first, _add_months(first, 3), now, "season") if first else None
        case WeekOfYear(number=number, year=year):
            mondays = [_monday(one, number) for one in _years(year, today)]
            first = _begun([day for day in mondays if day is not None], year, today)
            return _days(first, first + timedelta(weeks=1), now, "week") if first else None
        case WeekOfMonth(date=named, number=number):
            return _week_of_month(_calendar_period(named, now), number, now)
        case Third(date=named, number=number):
            return _third(named, _calendar_period(named, now), number, now)
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


def _years(year: Year | None, today: date) -> list[int]:
    if year is not None:
        return [_year_number(year, today)]
    return list(range(today.year, max(0, today.year - _YEARS_BACK_MAX - 1), -1))


def _begun(days: Sequence[date], year: Year | None, today: date) -> date | None:
    """Returns the latest day that has come, or the one of a year that is named."""
    return next((day for day in days if year is not None or day <= today), None)


def _monday(year: int, week: int) -> date | None:
    try:
        return date.fromisocalendar(year, week, 1)
    except ValueError:
        return None  # most years have 52 weeks


def _week_of_month(month: _Period | None, number: int, now: datetime) -> _Period | None:
    if month is None:
        return None
    first, end = (time.astimezone(now.tzinfo).date() for time in month[:2])
    first = first + timedelta(weeks=number - 1) if number else end - timedelta(weeks=1)
    return _days(first, min(first + timedelta(weeks=1), end), now, "week") if first < end else None


def _third(named: CalendarDate, period: _Period | None, number: int, now: datetime) -> _Period | None:
    if period is None:
        return None
    first, end = (time.astimezone(now.tzinfo).date() for time in period[:2])
    if named.month is not None:
        firsts = [first.replace(day=day) for day in _THIRDS_OF_MONTH]
    else:
        firsts = [first.replace(month=month) for month in _THIRDS_OF_YEAR]
    return _days(firsts[number], (*firsts, end)[number + 1], now, "week" if named.month else "season")


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
        case "quarter":
            first = today.replace(month=(today.month - 1) // 3 * 3 + 1, day=1)
            return _add_months(first, -3 * back), _add_months(first, 3 - 3 * back)
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
        case "month" | "quarter" | "year":
            months = {"month": 1, "quarter": 3, "year": 12}[unit]
            first = _add_months(moment.date().replace(day=1), -count * months)
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


# -- reader ------------------------------------------------------------------------------------------------------------
# Finds times in a text of any language, and reads a text that is a time as a whole, such as the value of a filter.

_UNITS: dict[str, Unit] = {"h": "hour", "d": "day", "w": "week", "m": "month", "y": "year", "min": "minute"}
_SHORT_PERIOD = re.compile(r"(\d{1,4})(min|[hdwmy])", re.IGNORECASE)
_COMPACT_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")
_TIME_OF_DAY = re.compile(r"[T ]\d\d")
# Whether a date exists does not depend on when that is asked.
_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_TEXT_MAX_CHARS = 100
_ARTICLE_CHARS_MAX = 3


def find_times(text: str) -> tuple[TimeMention, ...]:
    """Returns the times that a text mentions, in order."""
    tokens = tokenize_times(text)
    words: set[str] = set()
    has_number = False
    for token in tokens:
        words.add(token.folded)
        has_number = has_number or token.is_year or token.date is not None
    found = find_attached_times(text)
    read: list[frozenset[str]] = []
    for language in LANGUAGES:
        # A number alone is read in any language, so once; with a word such as "since" it is not alone.
        reads_number = has_number and (language == LANGUAGES[0] or not words.isdisjoint(BOUND_WORDS[language]))
        if reads_number or not words.isdisjoint(NAMING_WORDS[language]):
            # A language that knows no other words of the text than one before it finds nothing else: "in August 2023"
            # is English, and would be German and Danish, too.
            known = VOCABULARIES[language] & words
            if any(known <= others for others in read):
                continue
            read.append(known)
            has_companions = not words.isdisjoint(COMPANIONS.get(language, ()))
            found += scan(text, tokens, language, has_companions=has_companions)
    if not found:
        return ()
    return tuple(one.mention for one in _with_periods(text, _with_years(_longest(found)[:MENTIONS_MAX])))


def asks_for_anything(text: str, words: str) -> bool:
    """Whether a text asks for nothing in particular of the time that these words in it name: "qu'ai-je fait hier ?"."""
    rest = fold(text).replace(" ".join(fold(words).split()), " ", 1).split()
    named = [token.folded for token in tokenize_times(words)]
    return asks_for_anything_attached("".join(rest)) or any(
        not NAMING_WORDS[language].isdisjoint(named)
        and all(word in asking or (language == "en" and word in STOPWORDS) for word in rest)
        for language, asking in ASKING_WORDS.items()
    )


def read_time(text: str) -> TimeMention | None:
    """Reads a text that is nothing but a time: `7d`, `2026-11`, `yesterday`, `last week`, `2026-11-15T08:30:00Z`.
    Returns None for any other text, and for a day that does not exist."""
    text = text.strip()
    mention = _read_whole(text) if len(text) <= _TEXT_MAX_CHARS else None
    return mention if mention is not None and resolve(mention, _SOME_TIME) is not None else None


def _read_whole(text: str) -> TimeMention | None:
    if period := _SHORT_PERIOD.fullmatch(text):
        return TimeMention(RecentPeriod(_UNITS[period[2].lower()], int(period[1])), text)
    if day := _COMPACT_DATE.fullmatch(text):
        year, month, number = (int(part) if part else None for part in day.groups())
        return TimeMention(CalendarDate(year, month, number), text)
    with suppress(ValueError):
        # Every form that Python accepts, including 20261115 and 2026-W46-7.
        time = datetime.fromisoformat(text)
        is_day = _TIME_OF_DAY.search(text) is None
        return TimeMention(CalendarDate(time.year, time.month, time.day) if is_day else Instant(time), text)
    # "in" makes a month of "may".
    return _whole_text(text, find_times(text)) or _whole_text(text, find_times(f"in {text}"))


def _whole_text(text: str, mentions: Sequence[TimeMention]) -> TimeMention | None:
    """Returns the time if it is the whole text, but for a short word before it: "on Monday", "la semaine dernière"."""
    if len(mentions) != 1 or not normalize("NFKC", text).endswith(mentions[0].words):
        return None
    before = text[: -len(mentions[0].words)].strip(" '’").split()
    return mentions[0] if len(before) <= 1 and all(len(word) <= _ARTICLE_CHARS_MAX for word in before) else None


def _longest(found: Sequence[FoundTime]) -> list[FoundTime]:
    """Of times that overlap, keeps the one with most characters, the first one if several languages read the same."""
    kept: list[FoundTime] = []
    for one in sorted(found, key=lambda one: (one.start - one.end, one.start)):
        if all(one.end <= other.start or other.end <= one.start for other in kept):
            kept.append(one)
    return sorted(kept, key=lambda one: one.start)


def _with_years(found: Sequence[FoundTime]) -> list[FoundTime]:
    """A date without a year has that of the next date: from August 11 to August 15, 2023."""
    result: list[FoundTime] = []
    year: Year | None = None
    for one in reversed(found):
        expression = one.mention.expression
        match expression:
            case CalendarDate():
                year = expression.year or year
                expression = structs.replace(expression, year=year)
            case Third(date=date) | WeekOfMonth(date=date):
                year = date.year or year
                expression = structs.replace(expression, date=structs.replace(date, year=year))
        result.append(structs.replace(one, mention=structs.replace(one.mention, expression=expression)))
    return result[::-1]


def _with_periods(text: str, found: Sequence[FoundTime]) -> list[FoundTime]:
    """Makes one period of two times that the text connects: between May and July, from 2021 to 2023."""
    result: list[FoundTime] = []
    for last in found:
        if result:
            first, end = result[-1], last.mention
            begin, between = first.mention, text[first.end : last.start].strip()
            if (
                not isinstance(begin.expression, PeriodBetween)
                and not isinstance(end.expression, PeriodBetween)
                and _is_connected(fold(text[: first.start]), begin, between, end)
            ):
                period = TimeMention(PeriodBetween(begin.expression, end.expression), text[first.start : last.end])
                result[-1] = FoundTime(period, first.start, last.end)
                continue
        result.append(last)
    return result


def _is_connected(before: str, begin: TimeMention, between: str, end: TimeMention) -> bool:
    """Whether the words around two times make a period of them. Some belong to the times: "desde mayo", "до июля"."""
    *_, opening = before.split() or [""]
    connection = between if between in PERIOD_SIGNS else fold(between).strip(" ,'’")
    if begin.bound == "since":
        opening = fold(begin.words).split()[0]
        connection = connection or next((sign for sign in PERIOD_SIGNS if begin.words.endswith(sign)), "")
    if end.bound == "before" and not connection:
        connection = fold(end.words).split()[0]
    elif end.bound != "in":
        return False
    if connection in PERIOD_SIGNS:
        return begin.bound in ("in", "since")
    return any(opening in words and connection in connecting for words, connecting in PERIOD_WORDS)
