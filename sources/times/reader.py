"""Finds times in a text of any language, and reads a text that is a time as a whole, such as the value of a filter."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from unicodedata import normalize

from msgspec.structs import replace

from sources.text.folding import fold
from sources.text.stemming import STOPWORDS
from sources.times.east_asian import asks_for_anything_east_asian, find_east_asian_times
from sources.times.expressions import CalendarDate, Instant, PeriodBetween, RecentPeriod, TimeMention, Unit, Year
from sources.times.ranges import resolve
from sources.times.scanner import MENTIONS_MAX, FoundTime, scan, tokenize_times
from sources.times.words import (
    ASKING_WORDS,
    BOUND_WORDS,
    COMPANIONS,
    LANGUAGES,
    NAMING_WORDS,
    PERIOD_SIGNS,
    PERIOD_WORDS,
)

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
    found = find_east_asian_times(text)
    for language in LANGUAGES:
        # A number alone is read in any language, so once; with a word such as "since" it is not alone.
        reads_number = has_number and (language == LANGUAGES[0] or not words.isdisjoint(BOUND_WORDS[language]))
        if reads_number or not words.isdisjoint(NAMING_WORDS[language]):
            has_companions = not words.isdisjoint(COMPANIONS.get(language, ()))
            found += scan(text, tokens, language, has_companions=has_companions)
    if not found:
        return ()
    return tuple(one.mention for one in _with_periods(text, _with_years(_longest(found)[:MENTIONS_MAX])))


def asks_for_anything(text: str, words: str) -> bool:
    """Whether a text asks for nothing in particular of the time that these words in it name: "qu'ai-je fait hier ?"."""
    named = fold(words).split()
    rest = fold(text).replace(" ".join(named), " ", 1).split()
    return asks_for_anything_east_asian("".join(rest)) or any(
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
    if time := _iso_time(text):
        return TimeMention(time, text)
    # "in" makes a month of "may".
    return _whole_text(text, find_times(text)) or _whole_text(text, find_times(f"in {text}"))


def _whole_text(text: str, mentions: Sequence[TimeMention]) -> TimeMention | None:
    """Returns the time if it is the whole text, but for a short word before it: "on Monday", "la semaine dernière"."""
    if len(mentions) != 1 or not normalize("NFKC", text).endswith(mentions[0].words):
        return None
    before = text[: -len(mentions[0].words)].strip(" '’").split()
    return mentions[0] if len(before) <= 1 and all(len(word) <= _ARTICLE_CHARS_MAX for word in before) else None


def _iso_time(text: str) -> Instant | CalendarDate | None:
    """Reads every form that Python accepts, including 20261115 and 2026-W46-7."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return Instant(time) if _TIME_OF_DAY.search(text) else CalendarDate(time.year, time.month, time.day)


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
        date = one.mention.expression
        if isinstance(date, CalendarDate):
            year = date.year or year
            date = replace(date, year=year)
        result.append(replace(one, mention=replace(one.mention, expression=date)))
    return result[::-1]


def _with_periods(text: str, found: Sequence[FoundTime]) -> list[FoundTime]:
    """Makes one period of two times that the text connects: between May and July, from 2021 to 2023."""
    result: list[FoundTime] = []
    for one in found:
        period = _period(text, result[-1], one) if result else None
        if period is None:
            result.append(one)
        else:
            result[-1] = period
    return result


def _period(text: str, first: FoundTime, last: FoundTime) -> FoundTime | None:
    begin, end = first.mention, last.mention
    if isinstance(begin.expression, PeriodBetween) or isinstance(end.expression, PeriodBetween):
        return None
    if not _is_connected(fold(text[: first.start]), begin, text[first.end : last.start].strip(), end):
        return None
    words = text[first.start : last.end]
    return FoundTime(TimeMention(PeriodBetween(begin.expression, end.expression), words), first.start, last.end)


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
