"""Finds times in Chinese, Japanese, Korean and Thai, which attach words to each other.

A language is one `_Language`: its words, and the forms of its times as patterns. A name in braces stands for any word
of a group, and what it matches says which time it is.
"""

import re
from collections.abc import Mapping
from functools import cache
from itertools import islice
from unicodedata import normalize

from msgspec import Struct

from sources.times.scanner import MENTIONS_MAX, FoundTime
from sources.times.words import (
    Bound,
    CalendarDate,
    CalendarUnit,
    RecentPeriod,
    RelativeYear,
    ThreeMonths,
    TimeExpression,
    TimeMention,
    Unit,
    Weekday,
    Year,
)

_NUMBERS = dict(zip("〇一二三四五六七八九", range(10), strict=True)) | {"两": 2, "兩": 2}
# Buddhist years are 543 ahead. 2566 is 2023; nobody searches for what was written in the year 2400.
_BUDDHIST_YEARS_AHEAD, _BUDDHIST_YEARS_FROM = 543, 2400


class _Language(Struct, frozen=True):
    """Words by their value. `seasons` have their first month, `back` what is counted back from now. `before` and
    `after` are the words before and after a time that bound it. Of the forms that overlap, the longest one is read."""

    script: str
    units: Mapping[str, Unit]
    back: Mapping[str, tuple[Unit, int]]
    seasons: Mapping[str, int]
    weekdays: Mapping[str, int]
    after: Mapping[str, Bound]
    forms: tuple[str, ...]
    weeks: Mapping[str, int] = {}
    before: Mapping[str, Bound] = {}
    months: Mapping[str, int] = {}
    numbers: Mapping[str, int] = {}


_CHINESE_JAPANESE = _Language(
    script="[\u3040-\u30ff\u4e00-\u9fff]",
    units={
        "分钟": "minute", "分": "minute", "小时": "hour", "時間": "hour", "天": "day", "日": "day", "周": "week",
        "週": "week", "星期": "week", "礼拜": "week", "月": "month", "年": "year",
    },
    back={
        "今天": ("day", 0), "今日": ("day", 0), "今朝": ("day", 0), "今晚": ("day", 0), "昨天": ("day", 1),
        "昨日": ("day", 1), "昨晚": ("day", 1), "昨夜": ("day", 1), "きのう": ("day", 1), "前天": ("day", 2),
        "一昨日": ("day", 2), "おととい": ("day", 2), "上周末": ("weekend", 1), "上週末": ("weekend", 1),
        "先週末": ("weekend", 1), "本周": ("week", 0), "这周": ("week", 0), "這週": ("week", 0), "今週": ("week", 0),
        "上周": ("week", 1), "上週": ("week", 1), "上星期": ("week", 1), "上礼拜": ("week", 1), "先週": ("week", 1),
        "先々週": ("week", 2), "上上周": ("week", 2), "本月": ("month", 0), "这个月": ("month", 0),
        "這個月": ("month", 0), "今月": ("month", 0), "上月": ("month", 1), "上个月": ("month", 1),
        "上個月": ("month", 1), "先月": ("month", 1), "先々月": ("month", 2), "上季度": ("quarter", 1),
        "上个季度": ("quarter", 1), "今年": ("year", 0), "去年": ("year", 1), "昨年": ("year", 1), "前年": ("year", 2),
        "一昨年": ("year", 2),
    },
    seasons={"春": 3, "夏": 6, "秋": 9, "冬": 12},
    # The same sign is a weekday of one language only, but for Sunday.
    weekdays={
        "一": 0, "二": 1, "三": 2, "四": 3, "五": 4, "六": 5, "日": 6, "天": 6,
        "月": 0, "火": 1, "水": 2, "木": 3, "金": 4, "土": 5,
    },
    weeks={"上上": 2, "上": 1, "本": 0, "这": 0, "這": 0, "先々週": 2, "先週": 1, "今週": 0},
    after={
        "以来": "since", "以來": "since", "から": "since", "以降": "since", "起": "since", "以后": "after",
        "以後": "after", "之后": "after", "之後": "after", "以前": "before", "之前": "before", "より前": "before",
        "まで": "before", "前": "before",
    },
    numbers=_NUMBERS,
    forms=(
        r"(?<!\d){count}(?:个|個|か|ヶ|カ|ケ)?{unit}間?(?P<ago>前|以前|之前)",
        r"(?:过去|過去|最近|近|ここ){count}(?:个|個|か|ヶ|カ|ケ)?{unit}間?",
        r"(?:{year}年|(?P<years_back>去年|昨年|今年|前年|一昨年))の?{season}[天季]?",
        r"{year}年第?(?P<quarter>[1-4一二三四])(?:季度|四半期)",
        r"(?P<years_back>去年|昨年|今年|前年|一昨年)の?{month}月(?:{day}[日号號])?",
        r"{year}年(?:{month}月(?:{day}[日号號])?)?",
        r"{month}月(?:{day}[日号號])?",
        r"(?:(?P<week>上上|上|本|这|這)[个個]?)?(?:周|週|星期|礼拜)(?P<weekday>[一二三四五六日天])",
        r"(?:(?P<week>先々週|先週|今週)の?)?(?P<weekday>[月火水木金土日])曜日?",
        "{back}",
    ),
)  # fmt: skip
_KOREAN = _Language(
    script="[\uac00-\ud7af]",
    units={
        "분": "minute", "시간": "hour", "일": "day", "주일": "week", "주": "week", "개월": "month", "달": "month",
        "년": "year",
    },
    back={
        "오늘": ("day", 0), "어제": ("day", 1), "어젯밤": ("day", 1), "그저께": ("day", 2),
        "하루 전": ("day", 1), "이틀 전": ("day", 2), "사흘 전": ("day", 3), "나흘 전": ("day", 4),
        "열흘 전": ("day", 10), "보름 전": ("day", 15), "지난 주말": ("weekend", 1), "이번 주": ("week", 0),
        "이번주": ("week", 0), "지난주": ("week", 1), "지난 주": ("week", 1), "저번 주": ("week", 1),
        "지지난주": ("week", 2), "이번 달": ("month", 0), "이번달": ("month", 0), "지난달": ("month", 1),
        "지난 달": ("month", 1), "저번 달": ("month", 1), "지지난달": ("month", 2), "이번 분기": ("quarter", 0),
        "지난 분기": ("quarter", 1), "올해": ("year", 0), "작년": ("year", 1), "지난해": ("year", 1),
        "재작년": ("year", 2),
    },
    seasons={"봄": 3, "여름": 6, "가을": 9, "겨울": 12},
    weekdays={"월": 0, "화": 1, "수": 2, "목": 3, "금": 4, "토": 5, "일": 6},
    weeks={"지지난주": 2, "지난주": 1, "지난 주": 1, "이번 주": 0, "이번주": 0},
    after={
        "부터": "since", "이래": "since", "이후": "after", " 이후": "after", " 이전": "before", "이전": "before",
        " 전": "before", "까지": "before",
    },
    numbers={"한": 1, "두": 2, "세": 3, "네": 4, "다섯": 5, "여섯": 6, "일곱": 7, "여덟": 8, "아홉": 9, "열": 10},
    forms=(
        r"(?<!\d){count} ?{unit} ?(?P<ago>전)",
        r"(?:최근|지난) ?{count} ?{unit}(?: ?동안|간)?",
        r"(?:{year}년|(?P<years_back>작년|지난해|올해|재작년)) ?{season}",
        r"(?:{year}년|(?P<years_back>작년|지난해|올해|재작년)) ?(?P<quarter>[1-4])분기",
        r"(?P<years_back>작년|지난해|올해|재작년) ?{month}월(?: ?{day}일)?",
        r"{year}년(?: ?{month}월(?: ?{day}일)?)?",
        r"{month}월(?: ?{day}일)?",
        r"(?:{week} ?)?{weekday}요일",
        r"(?P<past>지난|저번) ?{weekday}요일",
        "{back}",
    ),
)  # fmt: skip
_THAI = _Language(
    script="[\u0e00-\u0e7f]",
    units={
        "นาที": "minute", "ชั่วโมง": "hour", "วัน": "day", "สัปดาห์": "week", "อาทิตย์": "week", "เดือน": "month",
        "ไตรมาส": "quarter", "ปี": "year",
    },
    back={
        "วันนี้": ("day", 0), "เมื่อวานซืน": ("day", 2), "เมื่อวานนี้": ("day", 1), "เมื่อวาน": ("day", 1),
        "เมื่อคืน": ("day", 1), "สุดสัปดาห์ที่แล้ว": ("weekend", 1), "สัปดาห์นี้": ("week", 0),
        "อาทิตย์นี้": ("week", 0), "สัปดาห์ที่แล้ว": ("week", 1), "สัปดาห์ก่อน": ("week", 1),
        "อาทิตย์ที่แล้ว": ("week", 1), "อาทิตย์ก่อน": ("week", 1), "เดือนนี้": ("month", 0),
        "เดือนที่แล้ว": ("month", 1), "เดือนก่อน": ("month", 1), "ไตรมาสที่แล้ว": ("quarter", 1), "ปีนี้": ("year", 0),
        "ปีที่แล้ว": ("year", 1), "ปีก่อน": ("year", 1),
    },
    # The hot, the rainy and the cold season.
    seasons={"ฤดูร้อน": 3, "หน้าร้อน": 3, "ฤดูฝน": 6, "หน้าฝน": 6, "ฤดูหนาว": 12, "หน้าหนาว": 12},
    weekdays={
        "จันทร์": 0, "อังคาร": 1, "พุธ": 2, "พฤหัสบดี": 3, "พฤหัส": 3, "ศุกร์": 4, "เสาร์": 5, "อาทิตย์": 6,
    },
    before={"ตั้งแต่": "since", "หลังจาก": "after", "หลัง": "after", "ก่อน": "before"},
    after={},
    months={
        "มกราคม": 1, "ม.ค.": 1, "กุมภาพันธ์": 2, "ก.พ.": 2, "มีนาคม": 3, "มี.ค.": 3, "เมษายน": 4, "เม.ย.": 4,
        "พฤษภาคม": 5, "พ.ค.": 5, "มิถุนายน": 6, "มิ.ย.": 6, "กรกฎาคม": 7, "ก.ค.": 7, "สิงหาคม": 8, "ส.ค.": 8,
        "กันยายน": 9, "ก.ย.": 9, "ตุลาคม": 10, "ต.ค.": 10, "พฤศจิกายน": 11, "พ.ย.": 11, "ธันวาคม": 12, "ธ.ค.": 12,
    },
    numbers={
        "หนึ่ง": 1, "สอง": 2, "สาม": 3, "สี่": 4, "ห้า": 5, "หก": 6, "เจ็ด": 7, "แปด": 8, "เก้า": 9, "สิบ": 10,
    },
    forms=(
        r"(?<!\d){count} ?{unit} ?(?P<ago>ที่แล้ว|ที่ผ่านมา|ก่อน)",
        r"(?:(?:วันที่ ?)?{day} ?)?(?:เดือน)?{month_name} ?(?:ของ)?(?:ปี ?)?(?:พ\.ศ\. ?|ค\.ศ\. ?)?{year}",
        r"(?:(?:วันที่ ?)?{day} ?)?(?:เดือน)?{month_name}(?: ?(?P<years_back>ปีที่แล้ว|ปีก่อน|ปีนี้))?",
        r"{season} ?(?:(?:ปี ?)?(?:พ\.ศ\. ?|ค\.ศ\. ?)?{year}|(?P<years_back>ปีที่แล้ว|ปีก่อน|ปีนี้))",
        r"ไตรมาส(?:ที่)? ?(?P<quarter>[1-4]) ?(?:ปี ?|/)?(?:พ\.ศ\. ?|ค\.ศ\. ?)?{year}",
        r"(?:ปี ?(?:พ\.ศ\. ?|ค\.ศ\. ?)?|พ\.ศ\. ?|ค\.ศ\. ?){year}",
        r"วัน{weekday}(?:(?P<past>ที่แล้ว|ก่อน))?",
        "(?<!ทุก){back}",  # ทุกวันนี้ is "nowadays"
    ),
)  # fmt: skip
_LANGUAGES = (_CHINESE_JAPANESE, _KOREAN, _THAI)
_SCRIPTS = tuple(re.compile(language.script) for language in _LANGUAGES)
_ANY_SCRIPT = re.compile("|".join(language.script for language in _LANGUAGES))
_BOUND_CHARS_MAX = 10


class _Patterns(Struct, frozen=True):
    forms: tuple[re.Pattern[str], ...]
    before: re.Pattern[str]
    after: re.Pattern[str]


def _any_of(words: Mapping[str, object]) -> str:
    """Returns a pattern of the longest word, which matches nothing if there are no words."""
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) or "(?!)"


@cache
def _patterns(number: int) -> _Patterns:
    """Most searches are in other languages, so patterns are compiled when the first text of the language comes."""
    language = _LANGUAGES[number]
    # Only in Chinese and Japanese, digits are signs that may follow each other.
    sign = f"[{''.join(_NUMBERS)}十]" if language.numbers is _NUMBERS else r"[^\s\S]"
    groups = {
        "count": rf"\d{{1,3}}|{sign}{{1,3}}|{_any_of(language.numbers)}",
        "year": rf"(?<!\d)(?:\d{{4}}|{sign}{{4}})(?!\d)",
        "month": rf"(?<!\d)\d{{1,2}}|{sign}{{1,3}}",
        "day": rf"(?<!\d)\d{{1,2}}|{sign}{{1,3}}",
        "month_name": _any_of(language.months),
        "unit": _any_of(language.units),
        "season": _any_of(language.seasons),
        "weekday": _any_of(language.weekdays),
        "week": _any_of(language.weeks),
        "back": _any_of(language.back),
    }
    forms = list(language.forms)
    for name, words in groups.items():
        forms = [form.replace(f"{{{name}}}", f"(?P<{name}>{words})") for form in forms]
    return _Patterns(
        tuple(map(re.compile, forms)),
        re.compile(f"({_any_of(language.before)}) ?$"),
        re.compile(_any_of(language.after)),
    )


# What asks for whatever there was: 昨日は何をした, 上个月做了什么.
_ASKING_WORDS = """
    我们 我們 我 做 做了 干了 写了 寫了 有 发生了 發生了 什么 什麼 哪些 些 事 事情 过 過 的 呢
    私 は が を に の も 何 なに なん し した しました ました か ですか あった ありました 起きた 起きました 書いた
    나는 내가 우리는 우리가 뭐 뭘 무엇을 무슨 일이 했어 했지 했나 했나요 했습니까 있었어 있었나 있었나요 썼어 에 는 은
    ฉัน ผม เรา ทำ เขียน เกิด อะไร ขึ้น ไป บ้าง มี
"""
# Without backtracking: some of these words begin with others.
_ASKING = re.compile(rf"(?>{'|'.join(sorted(normalize('NFKC', _ASKING_WORDS).split(), key=len, reverse=True))})*+")


def asks_for_anything_attached(text: str) -> bool:
    return _ASKING.fullmatch(text) is not None


def find_attached_times(text: str) -> list[FoundTime]:
    if text.isascii() or not _ANY_SCRIPT.search(text):
        return []
    # Positions only serve to find overlaps, so it does not matter that some characters become several.
    normal = normalize("NFKC", text)
    found: list[FoundTime] = []
    for number, language in enumerate(_LANGUAGES):
        if not _SCRIPTS[number].search(normal):
            continue
        patterns = _patterns(number)
        for pattern in patterns.forms:
            for match in islice(pattern.finditer(normal), MENTIONS_MAX):
                start, end = match.span()
                bound: Bound = "in"
                if after := patterns.after.match(normal, end):
                    bound, end = language.after[after[0]], after.end()
                elif before := patterns.before.search(normal[max(0, start - _BOUND_CHARS_MAX) : start]):
                    bound, start = language.before[before[1]], start - len(before[0])
                mention = TimeMention(_read(match.groupdict(), language), normal[start:end], bound)
                found.append(FoundTime(mention, start, end))
    return found


def _read(groups: Mapping[str, str | None], language: _Language) -> TimeExpression:
    """Returns the time that the groups of a form name."""
    match groups:
        case {"back": str(back)}:
            return CalendarUnit(*language.back[back])
        case {"count": str(count), "unit": str(word)}:
            unit, number = language.units[word], _number(count, language)
            is_recent = "ago" not in groups or unit in {"minute", "hour"}
            return RecentPeriod(unit, number) if is_recent else CalendarUnit(unit, number)
        case {"weekday": str(weekday), "week": str(week)}:
            return Weekday(language.weekdays[weekday], is_past=True, weeks_back=language.weeks[week])
        case {"weekday": str(weekday)}:
            return Weekday(language.weekdays[weekday], is_past=groups.get("past") is not None)
    year = _year(groups, language)
    match groups:
        case {"season": str(season)}:
            return ThreeMonths(language.seasons[season], year)
        case {"quarter": str(quarter)}:
            return ThreeMonths(3 * _number(quarter, language) - 2, year)
        case {"month_name": str(month)}:
            return CalendarDate(year, language.months[month], _optional(groups.get("day"), language))
    return CalendarDate(year, *(_optional(groups.get(name), language) for name in ("month", "day")))


def _year(groups: Mapping[str, str | None], language: _Language) -> Year | None:
    match groups:
        case {"years_back": str(words)}:
            return RelativeYear(language.back[words][1])
        case {"year": str(year)}:
            number = _number(year, language)
            return number - _BUDDHIST_YEARS_AHEAD if number >= _BUDDHIST_YEARS_FROM else number
        case _:
            return None


def _optional(text: str | None, language: _Language) -> int | None:
    return _number(text, language) if text else None


def _number(text: str, language: _Language) -> int:
    """Reads 12, 十二, 二十三, 二〇二三 and สาม."""
    if text.isdecimal():
        return int(text)
    if text in language.numbers:
        return language.numbers[text]
    tens, ten, ones = text.rpartition("十")
    if ten:
        return 10 * (_digits(tens) or 1) + _digits(ones)
    return _digits(text)


def _digits(text: str) -> int:
    value = 0
    for letter in text:
        value = 10 * value + (int(letter) if letter.isdecimal() else _NUMBERS.get(letter, 0))
    return value
