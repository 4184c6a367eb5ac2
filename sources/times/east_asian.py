"""Finds times in Chinese and Japanese, which are written without spaces."""

import re
from collections.abc import Mapping
from unicodedata import normalize

from sources.times.expressions import (
    Bound,
    CalendarDate,
    CalendarUnit,
    RecentPeriod,
    Season,
    TimeExpression,
    TimeMention,
    Unit,
    Weekday,
)
from sources.times.scanner import FoundTime

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


# Every time begins with a digit or one of a few letters, so most positions of a text are rejected at once.
_TIME = re.compile(
    rf"""
    (?=[\d{_DIGITS}十两兩今昨きお前一上先本这這去过過最近ここ周週星礼{_JAPANESE_WEEKDAYS}])
    (?:
      (?<!\d) (?P<count>{_COUNT}) {_MEASURE}? (?P<unit>{_any_of(_UNITS)}) 間? (?:前|以前|之前)
    | (?:过去|過去|最近|近|ここ) (?P<recent>{_COUNT}) {_MEASURE}? (?P<recent_unit>{_any_of(_UNITS)}) 間?
    | (?P<season_year>\d{{4}}年|去年|昨年|今年) の? (?P<season>[{_SEASONS}]) [天季]?
    | (?P<year>\d{{4}}|[{_DIGITS}]{{4}}) 年 (?: (?P<month>{_NUMBER}) 月 (?: (?P<day>{_NUMBER}) [日号號] )? )?
    | (?P<last>上|先週の|先週) (?: (?:周|週|星期|礼拜) (?P<past_day>[{_CHINESE_WEEKDAYS}天]) (?!月)
        | (?P<past_day_ja>[{_JAPANESE_WEEKDAYS}])曜 日? )
    | (?:周|週|星期|礼拜) (?P<weekday>[{_CHINESE_WEEKDAYS}天])
    | (?P<weekday_ja>[{_JAPANESE_WEEKDAYS}])曜 日?
    | (?P<back>{_any_of(_BACK)})
    | (?P<alone_month>{_NUMBER}) 月 (?: (?P<alone_day>{_NUMBER}) [日号號] )?
    )
    (?P<bound>{_any_of(_BOUNDS)})?
    """,
    re.VERBOSE,
)


def find_east_asian_times(text: str) -> list[FoundTime]:
    if text.isascii():
        return []
    # Positions only serve to find overlaps, so it does not matter that some characters become several.
    normal = normalize("NFKC", text)
    found: list[FoundTime] = []
    for match in _TIME.finditer(normal):
        expression = _expression(match)
        if expression is not None:
            bound = _BOUNDS[match["bound"]] if match["bound"] else "in"
            found.append(FoundTime(TimeMention(expression, match[0], bound), *match.span()))
    return found


def _expression(match: re.Match[str]) -> TimeExpression | None:
    if match["count"]:
        unit = _UNITS[match["unit"]]
        count = _number(match["count"])
        return RecentPeriod(unit, count) if unit in {"minute", "hour"} else CalendarUnit(unit, count)
    if match["recent"]:
        return RecentPeriod(_UNITS[match["recent_unit"]], _number(match["recent"]))
    if match["season"]:
        year = match["season_year"][:4]
        return Season(_SEASONS.index(match["season"]), int(year) if year.isdecimal() else None)
    if match["year"]:
        return CalendarDate(_number(match["year"]), _optional(match["month"]), _optional(match["day"]))
    if match["back"]:
        return CalendarUnit(*_BACK[match["back"]])
    if match["alone_month"]:
        return CalendarDate(None, _number(match["alone_month"]), _optional(match["alone_day"]))
    return _weekday(match)


def _weekday(match: re.Match[str]) -> Weekday:
    chinese, japanese = match["past_day"] or match["weekday"], match["past_day_ja"] or match["weekday_ja"]
    number = _JAPANESE_WEEKDAYS.index(japanese) if japanese else _CHINESE_WEEKDAYS.index(chinese.replace("天", "日"))
    return Weekday(number, is_past=match["last"] is not None)


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
