"""Other ways to write a number of a query: with its unit apart, with separators, and in groups.

The index has the tokens of texts as they are written, so a query lists the ways in which a number may be written there.
Only a few are tried, because each is searched for.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

Tokens = tuple[str, ...]

_UNIT_NAMES = """
    mg g kg t mm cm m km ml cl l kb mb gb tb pb kib mib gib tib hz khz mhz ghz v mv w kw mw wh kwh mah a ma h min s ms
    mph kmh px pt dpi bit eur usd chf gbp mio mrd k
"""
_UNITS = _UNIT_NAMES.split()
_DIGIT = re.compile(r"\d")
_AMOUNT = re.compile(r"\d+(?:[.,]\d+)*")
# The number is not given back: each of its digits would be tried with all units.
_UNIT = re.compile(rf"(?:{'|'.join(_UNITS)})(?:/[a-z]+)?", re.IGNORECASE)
_WITH_UNIT = re.compile(rf"((?>{_AMOUNT.pattern}))({_UNIT.pattern})", re.IGNORECASE)
_PLAIN_NUMBER = re.compile(r"(?!(?:19|20)\d\d$)(\d{4,9})(?:[.,](\d{1,2}))?")  # no year
_GROUPED_NUMBER = re.compile(r"(\d{1,3}(?:,\d{3})+|\d{1,3}(?:\.\d{3})+)(?:[.,](\d{1,2}))?")
_DATE = re.compile(r"\d{4}([-./])\d\d?\1\d\d?|\d\d?([-./])\d\d?\2\d{4}")
# Phone numbers, ISBNs and accounts. With spaces, they begin like this.
_DIGITS_MIN, _DIGITS_MAX = 7, 15
_ACCOUNT = re.compile("[a-z]{2}[0-9]{2}[a-z0-9]{11,30}|[0-9]{16}", re.IGNORECASE)
_GROUP = re.compile(r"[-+()/.\d]+|[A-Za-z]{2}\d\d")
_ACCOUNT_START = re.compile(r"[A-Za-z]{2}\d\d")
_ACCOUNT_GROUP = re.compile(r"(?=[A-Za-z]{0,3}\d)[A-Za-z0-9]{1,4}|[A-Z]{4}")
# A serial number or the like: vtx7731k, covid19.
_SERIAL = re.compile(r"([a-z]{2,12})(\d{2,8})([a-z]{0,3})", re.IGNORECASE | re.ASCII)
# As in North America: the only number with spaces whose first group has no mark.
_LOCAL_NUMBER = re.compile(r"\(?\d{3}\)? \d{3}[- ]\d{4}")
_FIRST_GROUP = re.compile(r"\+\d+|\(?0\d+\)?|97[89]|[A-Za-z]{2}\d\d|\d{4}")
_BOOK_DIGITS = (10, 13)
# The groups of a phone number after the country code, and their sizes: the first, and those between it and the last.
_PHONE_GROUPS_MAX = 4
_COUNTRY_CODE_MAX = 3
_TRUNK_CODE_CHARS = 2
_AREA_MAX, _MIDDLE_MAX = 5, 4


def number_spellings(text: str) -> list[Tokens]:
    """Returns the other ways to write a number without spaces: an amount with and without its unit apart, with and
    without thousands separators, and the groups of a long number."""
    if (match := _WITH_UNIT.fullmatch(text)) is not None:
        *before, last = re.split("[.,]", match[1])
        unit, *per = match[2].lower().split("/")
        return [(*before, last, unit, *per), (*before, last + unit, *per)]
    if (match := _PLAIN_NUMBER.fullmatch(text)) is not None:
        digits, decimals = match[1], (match[2],) if match[2] else ()
        first = len(digits) % 3 or 3
        thousands = (digits[:first], *(digits[at : at + 3] for at in range(first, len(digits), 3)))
        return [(*thousands, *decimals), *(() if decimals else _groupings(digits))]
    if (match := _GROUPED_NUMBER.fullmatch(text)) is not None:
        return [(re.sub("[.,]", "", match[1]), *((match[2],) if match[2] else ()))]
    if (match := _SERIAL.fullmatch(text)) is not None:
        return [tuple(part.lower() for part in match.groups() if part)]
    return [*_groupings(text.lower().lstrip("+"), is_international=text.startswith("+"))]


def join_numbers(texts: Sequence[str]) -> Iterator[str]:
    """Yields the texts of a query, with each number that is written with spaces as one text: 12.5 kg, 030 1234567."""
    if not _DIGIT.search(" ".join(texts)):
        yield from texts  # as most queries
        return
    start = 0
    while start < len(texts):
        end = start + 1
        if local := next(
            (size for size in (2, 3) if _LOCAL_NUMBER.fullmatch(" ".join(texts[start : start + size]))), 0
        ):
            end = start + local
        elif _FIRST_GROUP.fullmatch(texts[start]):
            group = _ACCOUNT_GROUP if _ACCOUNT_START.fullmatch(texts[start]) else _GROUP
            while end < len(texts) and group.fullmatch(texts[end]):
                end += 1
            if end - start > 1 and not _is_code(re.sub(r"[^\dA-Za-z]", "", "".join(texts[start:end]))):
                end = start + 1
        elif texts[end : end + 1] and _AMOUNT.fullmatch(texts[start]) and _UNIT.fullmatch(texts[end]):
            yield texts[start] + texts[end]
            start += 2
            continue
        yield " ".join(texts[start:end])
        start = end


def joined_spelling(text: str, tokens: Sequence[str]) -> list[Tokens]:
    """Returns words with a hyphen between them as one (co-operate, X-ray), and a number without its separators, or
    with others."""
    joined = "".join(tokens)
    if len(tokens) == 2 and text.count("-") == 1 and joined.isalpha():
        return [(joined,)]
    if "-" in text and (match := _SERIAL.fullmatch(joined)) is not None:
        return [(joined,), tuple(filter(None, match.groups()))]
    if not _is_code(joined) or _DATE.fullmatch(text):
        return []
    return [(joined,), *_groupings(joined.lower(), is_international=text.startswith("+"))]


def _is_code(number: str) -> bool:
    is_number = number.isascii() and number.isdigit() and _DIGITS_MIN <= len(number) <= _DIGITS_MAX
    return is_number or _ACCOUNT.fullmatch(number) is not None


def _groupings(number: str, *, is_international: bool = False) -> Iterator[Tokens]:
    """Yields the usual groups of an account, a book or a phone number."""
    if _ACCOUNT.fullmatch(number):
        yield tuple(number[at : at + 4] for at in range(0, len(number), 4))
    elif _is_book(number):
        # The language, the publisher and the title have any number of digits; the last is a check digit.
        prefix, rest, check = number[:-10], number[-10:-1], number[-1]
        start = (prefix,) if prefix else ()
        for one, two in combinations(range(1, len(rest)), 2):
            yield *start, rest[:one], rest[one:two], rest[two:], check
        if start:
            yield prefix, rest + check
    elif _is_code(number):
        for code in range(1, _COUNTRY_CODE_MAX + 1) if is_international else (0,):
            start = (number[:code],) if code else ()
            for groups in _phone_groups(number[code:]):
                if len(start) + len(groups) > 1:
                    yield *start, *groups
                if code == _TRUNK_CODE_CHARS:
                    yield *start, "0", *groups  # +49 (0)89


def _phone_groups(digits: str) -> Iterator[Tokens]:
    """Yields the groups in which a number may be written, each of at least two digits."""
    for count in range(_PHONE_GROUPS_MAX):
        for cuts in combinations(range(2, len(digits) - 1), count):
            groups = tuple(digits[start:end] for start, end in pairwise((0, *cuts, len(digits))))
            *first, _ = map(len, groups)
            if (
                min(map(len, groups)) > 1
                and max(first[:1], default=0) <= _AREA_MAX
                and max(first[1:], default=0) <= _MIDDLE_MAX
            ):
                yield groups


def _is_book(number: str) -> bool:
    """Returns whether a number has the check digit of an ISBN."""
    if not number.isdigit() or len(number) not in _BOOK_DIGITS:
        return False
    digits = [int(digit) for digit in number]
    if len(number) == _BOOK_DIGITS[1]:
        return number[:3] in ("978", "979") and (sum(digits[::2]) + 3 * sum(digits[1::2])) % 10 == 0
    return sum(weight * digit for weight, digit in zip(range(10, 0, -1), digits, strict=True)) % 11 == 0
