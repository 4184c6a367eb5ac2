"""Values of drafts as a row keeps them. What cannot be kept is refused with the field, what came and what may come.

Texts are kept as they were given; only what no database, JSON text or terminal can carry is refused: NUL characters
and halves of surrogate pairs.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any
from unicodedata import normalize

import msgspec
from msgspec import Struct

from config.errors import InvalidParams
from config.numbers import clamp
from config.settings import Settings
from config.text import UNSTORABLE
from config.times import format_time, format_timestamp, parse_time

SqlValue = str | int | float | None
Cleaner = Callable[["Limits", str, Any], SqlValue]

_INTEGER_END = 1 << 63
COUNT_MAX = 1 << 62
_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")


class Limits(Struct, frozen=True):
    """How large the parts of an item may be; each is a setting of the same name."""

    item_max_chars: int
    title_max_chars: int
    tags_max: int
    tag_max_chars: int
    metadata_max_bytes: int
    batch_max_items: int
    chunk_size_chars: int
    chunk_overlap_chars: int


def limits_of(settings: Settings) -> Limits:
    return Limits(*(getattr(settings, name) for name in Limits.__struct_fields__))


def refusal(field: str, got: str, expected: str) -> InvalidParams:
    return InvalidParams(f"{field}: got {got}, expected {expected}")


def text(limits: Limits, field: str, value: Any) -> str:
    """A long text: content, a prompt, a field of a card."""
    return _text(field, value, limits.item_max_chars)


def line(limits: Limits, field: str, value: Any) -> str:
    """A short text: a title, a name, an address."""
    return _text(field, value, limits.title_max_chars)


def line_or_none(limits: Limits, field: str, value: Any) -> str | None:
    return None if value is None else line(limits, field, value)


def name(limits: Limits, field: str, value: Any) -> str:
    """A short text that must say something, because items are called by it."""
    cleaned = line(limits, field, value).strip()
    if not cleaned:
        raise refusal(field, "an empty text", "a text")
    return cleaned


def number_or_none(_limits: Limits, _field: str, value: Any) -> int | None:
    return None if value is None else int(value)


def flag(_limits: Limits, _field: str, value: Any) -> int:
    return int(bool(value))


def uuid(_limits: Limits, field: str, value: Any) -> str:
    """An id that is part of addresses, so only of characters that stand in one as they are."""
    if not isinstance(value, str) or not _UUID.match(value):
        raise refusal(field, _shown(value), "1 to 128 of the characters A-Z a-z 0-9 . _ : -, a letter or digit first")
    return value


def time(_limits: Limits, field: str, value: Any) -> str:
    """Any ISO 8601 time, in the one form that sorts as text; without a zone it is UTC."""
    try:
        return format_time(parse_time(value))
    except (TypeError, ValueError, OverflowError):
        raise refusal(field, _shown(value), "a time such as 2026-11-15T08:30:00Z") from None


def time_of(clock_s: float) -> str:
    return format_timestamp(clock_s)


def json(limits: Limits, field: str, value: Any) -> str:
    """A JSON value as text: an object, or a list of objects or texts."""
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        raise refusal(field, "a value that JSON has no form for", "objects, lists, texts and numbers") from None
    if len(encoded) > limits.metadata_max_bytes:
        raise refusal(field, f"{len(encoded)} bytes of JSON", f"at most {limits.metadata_max_bytes}")
    return _keepable(field, encoded.decode())


def texts(limits: Limits, field: str, value: Any) -> str:
    """A list of long texts, such as greetings."""
    return json(limits, field, [text(limits, field, part) for part in value])


def tags(limits: Limits, field: str, value: Sequence[str]) -> tuple[str, ...]:
    """Trimmed, without empty ones and without those that differ only in case from an earlier one."""
    if isinstance(value, str):
        raise refusal(field, "a text", "a list of texts")
    kept: dict[str, str] = {}
    for tag in value:
        cleaned = _text(field, tag, limits.tag_max_chars).strip()
        if cleaned:
            kept.setdefault(fold_tag(cleaned), cleaned)
    if len(kept) > limits.tags_max:
        raise refusal(field, f"{len(kept)} tags", f"at most {limits.tags_max}")
    return tuple(kept.values())


def is_storable(value: str | int) -> bool:
    """Whether a row could hold this value; what no row can hold, none has, and SQLite need not be asked."""
    if isinstance(value, int):
        return abs(value) < _INTEGER_END
    return not UNSTORABLE.search(value)


def count(value: int) -> int:
    """A number of rows or characters to take or to skip, within what SQLite can count."""
    return clamp(value, 0, COUNT_MAX)


def fold_tag(tag: str) -> str:
    """The form in which two tags are the same tag."""
    return normalize("NFKC", tag.strip()).casefold()


def _text(field: str, value: Any, limit: int) -> str:
    if not isinstance(value, str):
        raise refusal(field, _shown(value), "a text")
    if len(value) > limit:
        raise refusal(field, f"{len(value)} characters", f"at most {limit}")
    return _keepable(field, value)


def _keepable(field: str, value: str) -> str:
    # Most texts are ASCII, which Python knows without looking at them.
    if value.isascii() and "\0" not in value:
        return value
    found = UNSTORABLE.search(value)
    if found:
        raise refusal(field, f"U+{ord(found[0]):04X} at character {found.start()}", "text without NUL and surrogates")
    return value


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
