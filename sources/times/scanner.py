"""Scans the words of a text for times in one language.

The grammar is the same for all languages: "last week" and "la semaine dernière" differ only in their order. A time is
made of words of one language, so that French "mes derniers messages" is not a Spanish month.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from sources.text.folding import fold
from sources.times.languages import EXACT_WORDS
from sources.times.words import (
    LEXICONS,
    PERIOD_CONNECTIONS,
    PHRASE_WORDS_MAX,
    UNITS,
    Bound,
    CalendarDate,
    CalendarUnit,
    Lexicon,
    PeriodBefore,
    RecentPeriod,
    RelativeYear,
    Third,
    ThreeMonths,
    TimeExpression,
    TimeMention,
    TimeWord,
    Unit,
    Weekday,
    WeekOfMonth,
    WeekOfYear,
    WordKind,
    Year,
)

# A date with slashes is read if only one of its first two numbers can be a month.
_MONTH_NUMBER, _OTHER_DAY_NUMBER = "(?:0?[1-9]|1[0-2])", "(?:1[3-9]|2\\d|3[01])"
# Accents that are characters of their own, and the vowel signs of Hindi, which are no letters for Python.
_MARKS = "\u0300-\u036f\u064b-\u065f\u0900-\u0903\u093a-\u094f"
_TOKEN = re.compile(
    rf"""
      (?P<iso> \d{{4}} - \d{{1,2}} (?: - \d{{1,2}} )? (?![\w-]) )
    | (?P<iso_slashed> \d{{4}} / \d{{1,2}} / \d{{1,2}} (?![\w/]) )
    | (?P<dotted> \d{{1,2}} \. \d{{1,2}} \. \d{{4}} (?!\w) )
    | (?P<month_first> {_MONTH_NUMBER} / {_OTHER_DAY_NUMBER} / \d{{4}} (?![\w/]) )
    | (?P<day_first> {_OTHER_DAY_NUMBER} / {_MONTH_NUMBER} / \d{{4}} (?![\w/]) )
    | [Kk]?[Ww] (?= \d{{1,2}} (?!\w) )  # W19 and KW19
    | (?: [^\W_] | [{_MARKS}] )+
    """,
    re.VERBOSE,
)
_NOT_DIGITS = re.compile(r"\D")
_DAY_NUMBER = re.compile(r"(\d{1,2})(?:st|nd|rd|th|er|o|a|e)?")
_YEAR_NUMBER = re.compile(r"(?:19|20)\d\d")
# What may stand between two words of one time.
_GAPS = frozenset(("", ",", ".", "-", "'", "’", "–", "º"))
_GAP_CHARS_MAX = 3
_COUNT_DIGITS_MAX = 4
_DAY_MAX = 31
_WEEK_MAX = 53
_QUARTER_MAX = 4
# The first month of each season in the northern hemisphere, by the meteorological calendar.
_SEASON_MONTHS = (3, 6, 9, 12)
# A query names one or two times; the rest of a longer list is not worth the work.
MENTIONS_MAX = 4
_BOUNDS: tuple[Bound, ...] = ("since", "after", "before")
_NAMES: tuple[WordKind, ...] = ("unit", "weekday", "season", "month")
_CONTEXT: tuple[WordKind, ...] = ("in", "of", "since", "after", "before", "last", "this", "part")


class TimeToken(Struct, frozen=True):
    """A word or a number, and where it is in the text. `date` is that of a token such as 2023-08-05 or 05.08.2023."""

    raw: str
    folded: str
    start: int
    end: int
    date: CalendarDate | None = None

    @property
    def has_number(self) -> bool:
        return self.folded[:1].isdigit()

    @property
    def is_year(self) -> bool:
        return self.has_number and _YEAR_NUMBER.fullmatch(self.folded) is not None


class FoundTime(Struct, frozen=True):
    mention: TimeMention
    start: int
    end: int


# A part of a time, and the index of the token after it.
_Part = tuple[TimeExpression, int]
_WordMatch = tuple[TimeWord, int]


def tokenize_times(text: str) -> list[TimeToken]:
    return [
        TimeToken(match[0], _folded(match[0]), match.start(), match.end(), _token_date(match))
        for match in _TOKEN.finditer(text)
    ]


def _folded(word: str) -> str:
    return lower if (lower := word.lower()) in EXACT_WORDS else fold(word).strip()


def _token_date(match: re.Match[str]) -> CalendarDate | None:
    if match.lastgroup is None:
        return None
    numbers = [int(number) for number in _NOT_DIGITS.split(match[0])]
    match match.lastgroup:
        case "dotted" | "day_first":
            day, month, year = numbers
            return CalendarDate(year, month, day)
        case "month_first":
            month, day, year = numbers
            return CalendarDate(year, month, day)
        case _:
            return CalendarDate(*numbers)


def scan(text: str, tokens: Sequence[TimeToken], language: str, *, has_companions: bool) -> list[FoundTime]:
    """Returns the times in a text. `has_companions` says that other words of it are of this language."""
    return _LanguageScanner(text, tokens, language, has_companions=has_companions).scan()


class _LanguageScanner:
    """Every method that reads a part takes the index of a token and returns None if the part does not begin there."""

    def __init__(self, text: str, tokens: Sequence[TimeToken], language: str, *, has_companions: bool) -> None:
        self._text = text
        self._tokens = tokens
        self._has_companions = has_companions
        gaps = (text[one.end : other.start] for one, other in pairwise(tokens))
        self._joins = [len(gap) <= _GAP_CHARS_MAX and gap.strip() in _GAPS for gap in gaps]
        self._words = [self._meanings(LEXICONS[language], index) for index in range(len(tokens))]

    def scan(self) -> list[FoundTime]:
        found: list[FoundTime] = []
        index = 0
        while index < len(self._tokens) and len(found) < MENTIONS_MAX:
            if not self._words[index] and not self._tokens[index].has_number:
                index += 1  # most words
                continue
            name = self._word(index, "name")
            mention = self._mention(index) if name is None else None
            if mention is None:
                index = name[1] if name else index + 1
                continue
            expression, bound, end = mention
            span = self._tokens[index].start, self._tokens[end - 1].end
            found.append(FoundTime(TimeMention(expression, self._text[slice(*span)], bound), *span))
            index = end
        return found

    def _mention(self, index: int) -> tuple[TimeExpression, Bound, int] | None:
        part = self._time(index, has_context=self._has_context(index))
        if part is not None:
            for word, after in self._words[part[1]] if self._continues(part[1]) else ():
                if word.kind in _BOUNDS and word.value:
                    return part[0], word.kind, after
            return part[0], "in", part[1]
        for bound in _BOUNDS:
            before = self._word(index, bound)
            if before and not before[0].value and (self._has_companions or not before[0].is_weak):
                part = self._time(self._skip_links(before[1]), has_context=True, is_continued=True)
                if part:
                    return part[0], bound, part[1]
        return None

    def _time(self, index: int, *, has_context: bool, is_continued: bool = False) -> _Part | None:
        if is_continued and not self._continues(index):
            return None
        return (
            self._period_before(index)
            or self._part_of_date(index, has_context=has_context)
            or self._within(self._unit_back(index))
            or self._day_word(index)
            or self._date(index, has_context=has_context)
            or self._weekday_or_season(index)
        )

    # -- parts of months and years -------------------------------------------------------------------------------------

    def _part_of_date(self, index: int, *, has_context: bool) -> _Part | None:
        """Reads "mid May", "first week of May", "Q3 2023", "third quarter of 2023" and "KW 19"."""
        if part := self._word(index, "part"):
            match self._date(self._skip_links(part[1]), has_context=True):
                case (CalendarDate(day=None) as date, after):
                    return Third(date, part[0].value), after
        if quarter := self._word(index, "quarter"):
            month = 3 * quarter[0].value - 2
            if year := self._year_of_part(quarter[1]):
                return ThreeMonths(month, year[0]), year[1]
            return (ThreeMonths(month), quarter[1]) if has_context else None
        return self._week_of_year(index) or self._counted_part(index)

    def _counted_part(self, index: int) -> _Part | None:
        """Reads the week of a month or the quarter of a year that an ordinal, or "last", counts."""
        counted = self._ordinal(index) or self._word_value(index, "last")
        unit = self._next_word(counted[1], "unit") if counted else None
        if unit is None and (unit := self._word(index, "unit")):  # "الأسبوع الأول"
            counted = self._ordinal(unit[1]) if self._continues(unit[1]) else None
            unit = (unit[0], counted[1]) if counted else None
        if counted is None or unit is None:
            return None
        number, (word, after) = counted[0], unit
        if UNITS[word.value] == "quarter" and number <= _QUARTER_MAX:
            # Without a year, the fourth quarter may be that of a match.
            year = self._year_of_part(after)
            return (ThreeMonths(3 * (number or 4) - 2, year[0]), year[1]) if year else None
        if UNITS[word.value] == "week":
            link = self._next_word(after, "in") or self._next_word(after, "of")
            match self._date(link[1] if link else after, has_context=True) if self._continues(after) else None:
                case (CalendarDate(month=int(), day=None) as date, end):
                    return WeekOfMonth(date, number), end
        return None

    def _week_of_year(self, index: int) -> _Part | None:
        """Reads "KW 19" and "week 19 of 2025". Without a year, the 19th week may be that of anything."""
        word = self._word(index, "week number") or self._word(index, "unit")
        if word is None or (word[0].kind == "unit" and UNITS[word[0].value] != "week"):
            return None
        number = self._count(word[1]) if self._continues(word[1]) else None
        if number is None or not 1 <= number[0] <= _WEEK_MAX:
            return None
        if year := self._year_of_part(number[1]):
            return WeekOfYear(number[0], year[0]), year[1]
        is_clear = word[0].kind == "week number" and not word[0].is_weak
        return (WeekOfYear(number[0]), number[1]) if is_clear else None

    def _year_of_part(self, index: int) -> tuple[Year, int] | None:
        """Reads the year after a quarter or a week, also that of Q3/2023."""
        if index < len(self._tokens) and self._text[self._tokens[index - 1].end : self._tokens[index].start] == "/":
            return self._year(index)
        return self._year_after(index)

    def _ordinal(self, index: int) -> tuple[int, int] | None:
        """Reads "first", "1st" and the "3." of "3. Quartal"."""
        if index >= len(self._tokens):
            return None
        number = _day_number(self._tokens[index])
        return (number, index + 1) if number else self._word_value(index, "ordinal")

    def _word_value(self, index: int, kind: WordKind) -> tuple[int, int] | None:
        word = self._word(index, kind)
        return (word[0].value, word[1]) if word else None

    # -- relative times ------------------------------------------------------------------------------------------------

    def _unit_back(self, index: int) -> _Part | None:
        if back := self._word(index, "back"):
            return CalendarUnit(UNITS[back[0].value], back[0].count), back[1]
        return self._ago(index) or self._counted_back(index)

    def _counted_unit(self, index: int, unit: Unit) -> tuple[int, int] | None:
        """Reads how many years or weeks back a time is that the words before name a part of."""
        index = self._skip_links(index)
        match self._unit_back(index) if self._continues(index) else None:
            case (CalendarUnit(unit=counted, back=back), after) if counted == unit:
                return back, after
            case _:
                return None

    def _within(self, part: _Part | None) -> _Part | None:
        """Reads the part of a year or week that may follow: "last year in August", "letzte Woche Montag"."""
        if part is None:
            return None
        unit, after = part
        if not isinstance(unit, CalendarUnit):
            return part
        word = self._next_word(after, "in") or self._next_word(after, "of")
        index = word[1] if word else after
        if not self._continues(index):
            return part
        if unit.unit == "week" and (weekday := self._word(index, "weekday")):
            return Weekday(weekday[0].value, is_past=True, weeks_back=unit.back), weekday[1]
        if unit.unit != "year":
            return part
        if season := self._word(index, "season"):
            return ThreeMonths(_SEASON_MONTHS[season[0].value], RelativeYear(unit.back)), season[1]
        match self._date(index, has_context=True):
            case (CalendarDate(year=None, month=month, day=day), end):
                return CalendarDate(RelativeYear(unit.back), month, day), end
            case _:
                return part

    def _ago(self, index: int) -> _Part | None:
        """Reads "three days ago", "vor drei Tagen" and "неделю назад"."""
        before = self._word(index, "ago")
        if before is not None:
            counted = self._count_and_unit(before[1], needs_count=True) if not before[0].value else None
            return counted and (_units_back(*counted[0]), counted[1])
        counted = self._count_and_unit(index, needs_count=False)
        after = counted and self._next_word(counted[1], "ago")
        return (_units_back(*counted[0]), after[1]) if counted and after and after[0].value else None

    def _counted_back(self, index: int) -> _Part | None:
        """Reads "last week", "this month", "last 7 days", "7 derniers jours", "el año pasado", "last August"."""
        first = self._word(index, "last") or self._word(index, "this")
        if first is not None:
            word, after = first
            counted = self._count_and_unit(after, needs_count=True) if word.kind == "last" else None
            return (RecentPeriod(*counted[0]), counted[1]) if counted else self._named_back(after, word)
        count = self._count(index)
        if count is not None and (last := self._next_word(count[1], "last")):
            unit = self._next_word(last[1], "unit")
            return (RecentPeriod(UNITS[unit[0].value], count[0] * unit[0].count), unit[1]) if unit else None
        # Reads "lunes pasado". In "August last year", the year is the last one.
        for kind in _NAMES:
            name = self._word(index, kind)
            last = name and self._next_word(name[1], "last")
            if name and last and self._next_word(last[1], "unit") is None:
                return _counted(name[0], True), last[1]
        return None

    def _named_back(self, index: int, word: TimeWord) -> _Part | None:
        """Reads what follows "last" or "this". The last week of August is not last week."""
        is_past = word.kind == "last"
        for kind in _NAMES:
            name = self._next_word(index, kind)
            if name is not None:
                is_part = self._is_shorter_unit(name[0]) and self._month_or_year(self._skip_links(name[1])) is not None
                return None if is_part and name[1] < len(self._tokens) else (_counted(name[0], is_past), name[1])
        return None

    @staticmethod
    def _is_shorter_unit(word: TimeWord) -> bool:
        return word.kind == "unit" and UNITS[word.value] != "year"

    def _period_before(self, index: int) -> _Part | None:
        """Reads "the week before 16 November 2023" and "two weeks before 2023-08-11"."""
        last = self._word(index, "last")
        counted = self._count_and_unit(last[1] if last else index, needs_count=False)
        before = counted and self._next_word(counted[1], "before")
        date = before and self._date(self._skip_links(before[1]), has_context=True)
        if not counted or not date or not isinstance(date[0], CalendarDate):
            return None
        unit, count = counted[0]
        return PeriodBefore(unit, count, date[0]), date[1]

    def _day_word(self, index: int) -> _Part | None:
        day = self._word(index, "day")
        if day is None or (day[0].is_weak and not self._has_companions):
            return None
        return CalendarUnit("day", day[0].value), day[1]

    def _weekday_or_season(self, index: int) -> _Part | None:
        weekday = self._word(index, "weekday")
        if weekday is not None and (self._has_companions or not weekday[0].is_weak):
            week = self._counted_unit(weekday[1], "week")
            number = weekday[0].value
            return (
                (Weekday(number, is_past=True, weeks_back=week[0]), week[1]) if week else (Weekday(number), weekday[1])
            )
        season = self._word(index, "season")
        year = season and self._year_after(season[1])
        return (ThreeMonths(_SEASON_MONTHS[season[0].value], year[0]), year[1]) if season and year else None

    # -- dates ---------------------------------------------------------------------------------------------------------

    def _date(self, index: int, *, has_context: bool) -> _Part | None:
        """Reads a date, a month or a year, in the order of any language."""
        if index >= len(self._tokens):
            return None
        if (date := self._tokens[index].date) is not None:
            return date, index + 1
        day = _day_number(self._tokens[index])
        if day is not None and (date_part := self._date_of_day(index, day)):
            return date_part
        month = self._word(index, "month")
        if month is not None:
            return self._date_of_month(index, month, has_context=has_context)
        year = self._year(index)
        return (self._date_after_year(*year) or (CalendarDate(year[0]), year[1])) if year else None

    def _date_after_year(self, year: int, index: int) -> _Part | None:
        """Reads what some languages put after the year: "2023 Ağustos", "2022 की गर्मियों", "2023-Q3", "2025-W19"."""
        index = self._skip_links(index)
        if not self._continues(index) or self._year(index):
            return None
        if quarter := self._word(index, "quarter"):
            return ThreeMonths(3 * quarter[0].value - 2, year), quarter[1]
        if (week := self._word(index, "week number")) and (number := self._count(week[1])):
            return (WeekOfYear(number[0], year), number[1]) if 1 <= number[0] <= _WEEK_MAX else None
        if (season := self._word(index, "season")) and not season[0].is_weak and not self._year_after(season[1]):
            return ThreeMonths(_SEASON_MONTHS[season[0].value], year), season[1]
        month = self._word(index, "month")
        if month is None or month[0].is_weak or self._year_after(month[1]):
            return None
        match self._date_of_month(index, month, has_context=True):
            case (CalendarDate(year=None, month=named_month, day=day), after):
                return CalendarDate(year, named_month, day), after
            case _:
                return None

    def _date_of_day(self, index: int, day: int) -> _Part | None:
        """Reads "5 August 2023" and "5 de agosto". A weak month needs a capital, an ordinal or a year: you may be one
        of 5 may."""
        month = self._next_word(self._skip_links(index + 1), "month")
        if month is None:
            return None
        word, after = month
        year = self._year_after(after)
        is_clear = year or not word.is_weak or self._is_capitalized(after - 1) or not self._tokens[index].raw.isdigit()
        if not is_clear and not self._has_companions:
            return None
        return CalendarDate(year[0] if year else None, word.value, day), year[1] if year else after

    def _date_of_month(self, index: int, month: _WordMatch, *, has_context: bool) -> _Part | None:
        word, after = month
        # The day of "August 5". What a number counts is not known, as in "August 5 people".
        day = _day_number(self._tokens[after]) if self._continues(after) else None
        if day is not None:
            year = self._year_after(after + 1)
            if year or has_context or not word.is_weak or self._is_capitalized(index):
                return CalendarDate(year[0] if year else None, word.value, day), year[1] if year else after + 1
        year = self._year_after(after)
        if year:
            return CalendarDate(year[0], word.value), year[1]
        return (CalendarDate(None, word.value), after) if has_context or not word.is_weak else None

    def _month_or_year(self, index: int) -> _Part | None:
        month = self._next_word(index, "month")
        if month is not None:
            return CalendarDate(None, month[0].value), month[1]
        year = self._year(index)
        return (CalendarDate(year[0]), year[1]) if year else None

    def _year_after(self, index: int) -> tuple[Year, int] | None:
        """Reads the year of a day, month or season: "2023", "de 2023", "last year", "del año pasado"."""
        if year := self._year(self._skip_links(index)):
            return year
        years = self._counted_unit(index, "year")
        return (RelativeYear(years[0]), years[1]) if years else None

    def _year(self, index: int) -> tuple[int, int] | None:
        if index >= len(self._tokens) or not self._tokens[index].is_year:
            return None
        return int(self._tokens[index].folded), index + 1

    # -- words ---------------------------------------------------------------------------------------------------------

    def _meanings(self, lexicon: Lexicon, index: int) -> list[_WordMatch]:
        """Returns the meanings of the words from a token on, longest first, each with the index after them."""
        matches: list[_WordMatch] = []
        phrase = ""
        for end in range(index, min(index + PHRASE_WORDS_MAX, len(self._tokens))):
            if end > index and not self._joins[end - 1]:
                break
            phrase = f"{phrase} {self._tokens[end].folded}" if phrase else self._tokens[end].folded
            matches += [(word, end + 1) for word in lexicon.get(phrase, ())]
        return matches[::-1]

    def _word(self, index: int, kind: WordKind) -> _WordMatch | None:
        if index >= len(self._tokens):
            return None
        return next((match for match in self._words[index] if match[0].kind == kind), None)

    def _next_word(self, index: int, kind: WordKind) -> _WordMatch | None:
        """Like `_word`, but the word must belong to the one before it."""
        return self._word(index, kind) if self._continues(index) else None

    def _continues(self, index: int) -> bool:
        return 0 < index < len(self._tokens) and self._joins[index - 1]

    def _skip_links(self, index: int) -> int:
        """Skips a word such as "of" or "de" between the parts of a date."""
        link = self._next_word(index, "of")
        return link[1] if link else index

    def _has_context(self, index: int) -> bool:
        """Returns whether the words before make a month of a weak word: "in May", "March to May", but not "it may"."""
        if not self._continues(index):
            return False
        is_connected = self._continues(index - 1) and self._tokens[index - 1].folded in PERIOD_CONNECTIONS
        return any(word.kind in _CONTEXT for word, _ in self._words[index - 1]) or (
            is_connected and self._word(index - 2, "month") is not None
        )

    def _is_capitalized(self, index: int) -> bool:
        return self._tokens[index].raw[:1].isupper()

    def _count(self, index: int) -> tuple[int, int] | None:
        if index >= len(self._tokens):
            return None
        digits = self._tokens[index].folded
        if digits.isdecimal() and digits.isascii() and len(digits) <= _COUNT_DIGITS_MAX:
            return int(digits), index + 1
        number = self._word(index, "number")
        return (number[0].value, number[1]) if number else None

    def _count_and_unit(self, index: int, *, needs_count: bool) -> tuple[tuple[Unit, int], int] | None:
        """Reads "three days", and "week" as one week unless a count is needed."""
        count = self._count(index)
        unit = self._next_word(count[1], "unit") if count else self._word(index, "unit")
        if count is None and needs_count and unit and unit[0].count == 1:
            return None
        if unit is None:
            return None
        return (UNITS[unit[0].value], unit[0].count * (count[0] if count else 1)), unit[1]


def _day_number(token: TimeToken) -> int | None:
    match = _DAY_NUMBER.fullmatch(token.folded)
    return int(match[1]) if match and 1 <= int(match[1]) <= _DAY_MAX else None


def _units_back(unit: Unit, count: int) -> TimeExpression:
    """Hours and minutes have no calendar: three hours ago is the last three hours."""
    return RecentPeriod(unit, count) if unit in {"minute", "hour"} else CalendarUnit(unit, count)


def _counted(name: TimeWord, is_past: bool) -> TimeExpression:
    match name.kind:
        case "unit":
            unit = UNITS[name.value]
            is_recent = name.count > 1 or unit in {"minute", "hour"}
            return RecentPeriod(unit, name.count) if is_recent else CalendarUnit(unit, int(is_past))
        case "weekday":
            return Weekday(name.value, is_past)
        case "season":
            return ThreeMonths(_SEASON_MONTHS[name.value])
        case _:
            return CalendarDate(None, name.value)
