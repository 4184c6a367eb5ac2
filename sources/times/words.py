"""What a time in a text says, and the words that say it in languages that write words with spaces."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct

from sources.text.folding import fold
from sources.times.languages import EXACT_WORDS, WORDS

# -- expressions -------------------------------------------------------------------------------------------------------
# What a time in a text says, before it is known when the text was written. A closed union of frozen values.

Unit = Literal["minute", "hour", "day", "weekend", "week", "month", "quarter", "year"]
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


class ThreeMonths(Struct, frozen=True):
    """A season or a quarter. `year` is the year in which it begins; without one, the latest one that has begun."""

    first_month: int
    year: Year | None = None


class WeekOfYear(Struct, frozen=True):
    """A week as ISO 8601 counts them. Without a year, the latest one that has begun."""

    number: int
    year: Year | None = None


class WeekOfMonth(Struct, frozen=True):
    """The first week of a month is its first seven days; week 0 is its last seven."""

    date: CalendarDate
    number: int


class Third(Struct, frozen=True):
    """The beginning (0), the middle or the end of a month or year."""

    date: CalendarDate
    number: int


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


SingleTime = (
    CalendarDate
    | ThreeMonths
    | WeekOfYear
    | WeekOfMonth
    | Third
    | Weekday
    | CalendarUnit
    | RecentPeriod
    | PeriodBefore
    | Instant
)


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

    @property
    def counts_back(self) -> bool:
        """Whether the time depends on when it was said, as that of "on Friday" does, too."""
        return self.is_relative or isinstance(self.expression, Weekday)


WordKind = Literal[
    "name",
    "month",
    "weekday",
    "season",
    "quarter",
    "unit",
    "week number",
    "day",
    "back",
    "last",
    "this",
    "part",
    "ago",
    "number",
    "ordinal",
    "in",
    "since",
    "after",
    "before",
    "of",
]


class TimeWord(Struct, frozen=True):
    """A word with a meaning; see `sources.times.languages` for its value. A weak word, such as "may", is a time only in
    a context that makes it one. `count` is how many units a word such as "fortnight" means."""

    kind: WordKind
    value: int = 0
    is_weak: bool = False
    count: int = 1


UNITS: tuple[Unit, ...] = get_args(Unit)
LANGUAGES = tuple(WORDS)
# Not words with a meaning of their own, but said of the language.
_ABOUT_LANGUAGE = frozenset(("periods", "asks", "companions"))
COMPANIONS, ASKING_WORDS = (
    {language: frozenset(groups.get(name, "").split()) for language, groups in WORDS.items()}
    for name in ("companions", "asks")
)
# The words before and between two times that make a period of them.
PERIOD_WORDS: tuple[tuple[frozenset[str], frozenset[str]], ...] = tuple(
    (frozenset(before.split(",")), frozenset(between.replace("_", " ").split(",")))
    for groups in WORDS.values()
    for before, _, between in (period.partition("|") for period in groups.get("periods", "").split())
)
# The words between two times, in any language.
PERIOD_CONNECTIONS = frozenset(word for _, between in PERIOD_WORDS for word in between)
# What makes a period of two times without a word before them.
PERIOD_SIGNS = frozenset(("-", "–", "—", "~", "〜", "～", "から", "到", "至", "부터", "ถึง", "से"))


def _read_group(kind: str, group: str) -> Iterator[tuple[str, TimeWord]]:
    is_weak = kind.startswith("weak ")
    word_kind: WordKind = kind.removeprefix("weak ")  # type: ignore[assignment]  # a key of the table
    word = TimeWord(word_kind, is_weak=is_weak)
    texts: list[str] = []
    for part in f"{group} 0:".split(" "):
        value, separator, text = part.partition(":")
        if separator:
            yield from ((text, word) for text in filter(None, " ".join(texts).split(",")))
            number, _, count = value.partition("*")
            word, texts = TimeWord(word_kind, int(number), is_weak, int(count or 1)), [text]
        else:
            texts.append(part)


Lexicon = Mapping[str, tuple[TimeWord, ...]]


def _lexicon(groups: Mapping[str, str]) -> Lexicon:
    """Some words have several meanings: "vor" is "ago" before a number and "before" before a date."""
    lexicon: dict[str, tuple[TimeWord, ...]] = {}
    for kind, group in groups.items():
        if kind not in _ABOUT_LANGUAGE:
            for text, word in _read_group(kind, group):
                lexicon[text] = (*lexicon.get(text, ()), word)
    return lexicon


LEXICONS: Mapping[str, Lexicon] = {language: _lexicon(groups) for language, groups in WORDS.items()}


def _rarest_words(kinds: frozenset[str], *, includes_weak: bool) -> Mapping[str, frozenset[str]]:
    """Returns a word of each text that has one of the meanings, by language: the longest one, which is the rarest."""
    return {
        language: frozenset(
            max(text.split(), key=len)
            for text, words in lexicon.items()
            if any(word.kind in kinds and (includes_weak or not word.is_weak) for word in words)
        )
        for language, lexicon in LEXICONS.items()
    }


# Words that name a time by themselves or together with a number. A text without any of them, and without a number,
# mentions no time.
NAMING_WORDS = _rarest_words(
    frozenset(("month", "weekday", "season", "quarter", "unit", "week number", "day", "back")), includes_weak=True
)
TIME_WORDS = frozenset[str]().union(*NAMING_WORDS.values())
BOUND_WORDS = _rarest_words(frozenset(("since", "after", "before")), includes_weak=False)
# A text without any of these has no relative time, but for languages that attach words to each other.
RELATIVE_WORDS = frozenset[str]().union(
    *_rarest_words(frozenset(("weekday", "day", "back", "last", "ago")), includes_weak=True).values(),
    map(fold, EXACT_WORDS),
)
# Every single word of a language.
VOCABULARIES: Mapping[str, frozenset[str]] = {
    language: frozenset(" ".join(lexicon).split()) for language, lexicon in LEXICONS.items()
}
PHRASE_WORDS_MAX = max(len(text.split()) for lexicon in LEXICONS.values() for text in lexicon)
