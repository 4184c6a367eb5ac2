"""Finds times in Chinese and Japanese, which are written without spaces."""

import re
from collections.abc import Callable, Mapping
from itertools import islice
from unicodedata import normalize

from sources.times.scanner import MENTIONS_MAX, FoundTime
from sources.times.words import (
    Bound,
    CalendarDate,
    CalendarUnit,
    RecentPeriod,
    RelativeYear,
    Season,
    TimeExpression,
    TimeMention,
    Unit,
    Weekday,
)

_DIGITS = "〇一二三四五六七八九"
_NUMBER = f"(?:\\d{{1,2}}|[{_DIGITS}十]{{1,3}})"
_COUNT = f"(?:\\d{{1,3}}|[{_DIGITS}十两兩]{{1,3}})"
_MEASURE = "(?:个|個|か|ヶ|カ|ケ)"
_UNITS: Mapping[str, Unit] = {
    "分钟": "minute", "分": "minute", "小时": "hour", "時間": "hour", "天": "day", "日": "day", "周": "week",
    "週": "week", "星期": "week", "礼拜": "week", "月": "month", "年": "year",
}  # fmt: skip
_BACK: Mapping[str, tuple[Unit, int]] = {
    "今天": ("day", 0), "今日": ("day", 0), "今朝": ("day", 0), "今晚": ("day", 0), "昨天": ("day", 1),
    "昨日": ("day", 1), "昨晚": ("day", 1), "昨夜": ("day", 1), "きのう": ("day", 1), "前天": ("day", 2),
    "一昨日": ("day", 2), "おととい": ("day", 2), "上周末": ("weekend", 1), "上週末": ("weekend", 1),
    "先週末": ("weekend", 1), "本周": ("week", 0), "这周": ("week", 0), "這週": ("week", 0), "今週": ("week", 0),
    "上周": ("week", 1), "上週": ("week", 1), "上星期": ("week", 1), "上礼拜": ("week", 1), "先週": ("week", 1),
    "先々週": ("week", 2), "上上周": ("week", 2), "本月": ("month", 0), "这个月": ("month", 0),
    "這個月": ("month", 0), "今月": ("month", 0), "上月": ("month", 1), "上个月": ("month", 1),
    "上個月": ("month", 1), "先月": ("month", 1), "先々月": ("month", 2), "今年": ("year", 0), "去年": ("year", 1),
    "昨年": ("year", 1), "前年": ("year", 2), "一昨年": ("year", 2),
}  # fmt: skip
_SEASONS = "春夏秋冬"
_CHINESE_WEEKDAYS = "一二三四五六日"
_JAPANESE_WEEKDAYS = "月火水木金土日"
_BOUNDS: Mapping[str, Bound] = {
    "以来": "since", "以來": "since", "から": "since", "以降": "since", "起": "since", "以后": "after", "以後": "after",
    "之后": "after", "之後": "after", "以前": "before", "之前": "before", "より前": "before", "まで": "before",
    "前": "before",
}  # fmt: skip


def _any_of(texts: Mapping[str, object]) -> str:
    return "|".join(sorted(texts, key=len, reverse=True))


# One small pattern for each form; of forms that overlap, the reader keeps the longest.
_AGO = re.compile(rf"(?<!\d)({_COUNT}){_MEASURE}?({_any_of(_UNITS)})間?(?:前|以前|之前)")
_RECENT = re.compile(rf"(?:过去|過去|最近|近|ここ)({_COUNT}){_MEASURE}?({_any_of(_UNITS)})間?")
_YEARS_BACK = "去年|昨年|今年|前年|一昨年"
_SEASON = re.compile(rf"(\d{{4}}年|{_YEARS_BACK})の?([{_SEASONS}])[天季]?")
_DATE_YEARS_BACK = re.compile(rf"({_YEARS_BACK})の?({_NUMBER})月(?:({_NUMBER})[日号號])?")
_DATE = re.compile(rf"(\d{{4}}|[{_DIGITS}]{{4}})年(?:({_NUMBER})月(?:({_NUMBER})[日号號])?)?")
_DATE_WITHOUT_YEAR = re.compile(rf"({_NUMBER})月(?:({_NUMBER})[日号號])?")
_WEEKS_BACK: Mapping[str, int] = {
    "上上": 2, "上": 1, "本": 0, "这": 0, "這": 0, "先々週": 2, "先週": 1, "今週": 0,
}  # fmt: skip
_CHINESE_WEEKDAY = re.compile(rf"(?:(上上|上|本|这|這)[个個]?)?(?:周|週|星期|礼拜)([{_CHINESE_WEEKDAYS}天])")
_JAPANESE_WEEKDAY = re.compile(rf"(?:(先々週|先週|今週)の?)?([{_JAPANESE_WEEKDAYS}])曜日?")
_BACK_WORD = re.compile(_any_of(_BACK))
_BOUND = re.compile(_any_of(_BOUNDS))


# What asks for whatever there was: 昨日は何をした, 上个月做了什么.
_ASKING_WORDS = """
    我们 我們 我 做 做了 干了 写了 寫了 有 发生了 發生了 什么 什麼 哪些 些 事 事情 过 過 的 呢
    私 は が を に の も 何 なに なん し した しました ました か ですか あった ありました 起きた 起きました 書いた
"""
# Without backtracking: some of these words begin with others.
_ASKING = re.compile(rf"(?>{'|'.join(sorted(_ASKING_WORDS.split(), key=len, reverse=True))})*+")


def asks_for_anything_east_asian(text: str) -> bool:
    return _ASKING.fullmatch(text) is not None


def find_east_asian_times(text: str) -> list[FoundTime]:
    if text.isascii():
        return []
    # Positions only serve to find overlaps, so it does not matter that some characters become several.
    normal = normalize("NFKC", text)
    found: list[FoundTime] = []
    for pattern, read in _FORMS:
        for match in islice(pattern.finditer(normal), MENTIONS_MAX):
            bound = _BOUND.match(normal, match.end())
            start, end = match.start(), bound.end() if bound else match.end()
            mention = TimeMention(read(match), normal[start:end], _BOUNDS[bound[0]] if bound else "in")
            found.append(FoundTime(mention, start, end))
    return found


def _read_ago(match: re.Match[str]) -> TimeExpression:
    unit, count = _UNITS[match[2]], _number(match[1])
    return RecentPeriod(unit, count) if unit in {"minute", "hour"} else CalendarUnit(unit, count)


def _read_recent(match: re.Match[str]) -> TimeExpression:
    return RecentPeriod(_UNITS[match[2]], _number(match[1]))


def _read_season(match: re.Match[str]) -> TimeExpression:
    year = match[1][:4]
    return Season(_SEASONS.index(match[2]), int(year) if year.isdecimal() else RelativeYear(_BACK[match[1]][1]))


def _read_date(match: re.Match[str]) -> TimeExpression:
    return CalendarDate(_number(match[1]), _optional(match[2]), _optional(match[3]))


def _read_date_years_back(match: re.Match[str]) -> TimeExpression:
    return CalendarDate(RelativeYear(_BACK[match[1]][1]), _number(match[2]), _optional(match[3]))


def _read_date_without_year(match: re.Match[str]) -> TimeExpression:
    return CalendarDate(None, _number(match[1]), _optional(match[2]))


def _read_chinese_weekday(match: re.Match[str]) -> TimeExpression:
    return _weekday(_CHINESE_WEEKDAYS.index(match[2].replace("天", "日")), match[1])


def _read_japanese_weekday(match: re.Match[str]) -> TimeExpression:
    return _weekday(_JAPANESE_WEEKDAYS.index(match[2]), match[1])


def _weekday(number: int, week: str | None) -> TimeExpression:
    return Weekday(number, is_past=True, weeks_back=_WEEKS_BACK[week]) if week else Weekday(number)


def _read_back_word(match: re.Match[str]) -> TimeExpression:
    return CalendarUnit(*_BACK[match[0]])


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], TimeExpression]], ...] = (
    (_AGO, _read_ago),
    (_RECENT, _read_recent),
    (_SEASON, _read_season),
    (_DATE, _read_date),
    (_DATE_YEARS_BACK, _read_date_years_back),
    (_DATE_WITHOUT_YEAR, _read_date_without_year),
    (_CHINESE_WEEKDAY, _read_chinese_weekday),
    (_JAPANESE_WEEKDAY, _read_japanese_weekday),
    (_BACK_WORD, _read_back_word),
)


def _optional(text: str | None) -> int | None:
    return _number(text) if text else None


def _number(text: str) -> int:
    """Reads 12, 十二, 二十三 and 二〇二三."""
    if text.isdecimal():
        return int(text)
    text = text.replace("两", "二").replace("兩", "二")
    tens, ten, ones = text.rpartition("十")
    if ten:
        return 10 * (_digits(tens) or 1) + _digits(ones)
    return _digits(text)


def _digits(text: str) -> int:
    value = 0
    for letter in text:
        value = 10 * value + (int(letter) if letter.isdecimal() else _DIGITS.find(letter))
    return max(0, value)
