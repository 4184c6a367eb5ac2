"""Validates the values of drafts and converts them to the form in which a row stores them.

Text is stored unchanged. The only text that is rejected is text that no database, JSON document or terminal can carry:
NUL characters and lone surrogates.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any
from unicodedata import normalize

import msgspec
from msgspec import Struct

from config.errors import InvalidParams
from config.numbers import UNSTORABLE, clamp
from config.settings import Settings
from config.times import normalize_time
from sources.storage.tables.sql import SqlValue

# Takes the limits, the name of the field and its value; returns the value to store or raises InvalidParams.
Validator = Callable[["FieldLimits", str, Any], SqlValue]

# Both engines store integers of 64 bits. The sum of two counts, such as limit and offset, must be one of them, too.
_INTEGER_END = 1 << 63
COUNT_MAX = 1 << 62
_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")
_MESSAGE_VALUE_CHARS = 80


# A title, name, URL or other short text of an item. Browsers accept URLs of about this length.
TITLE_MAX_CHARS = 2_000


class FieldLimits(Struct, frozen=True):
    """Size limits of the parts of an item."""

    item_max_chars: int
    metadata_max_bytes: int
    batch_max_items: int
    chunk_size_chars: int
    chunk_overlap_chars: int
    # Lists show all of these, and they are part of every hit.
    title_max_chars: int = TITLE_MAX_CHARS
    tags_max: int = 100
    tag_max_chars: int = 100


def field_limits(settings: Settings) -> FieldLimits:
    fixed = settings.fixed
    return FieldLimits(
        item_max_chars=settings.item_max_chars,
        metadata_max_bytes=settings.metadata_max_bytes,
        batch_max_items=settings.batch_max_items,
        chunk_size_chars=fixed.chunk_size_chars,
        chunk_overlap_chars=fixed.chunk_overlap_chars,
    )


def invalid_field(field: str, *, expected: str, got: str) -> InvalidParams:
    return InvalidParams(f"{field}: expected {expected}, got {got}")


def long_text(limits: FieldLimits, field: str, value: Any) -> str:
    """Validates a long text, such as content, a prompt or a field of a character card."""
    return _text(field, value, limits.item_max_chars)


def short_text(limits: FieldLimits, field: str, value: Any) -> str:
    """Validates a short text, such as a title, a name or a URL."""
    return _text(field, value, limits.title_max_chars)


def optional_short_text(limits: FieldLimits, field: str, value: Any) -> str | None:
    return None if value is None else short_text(limits, field, value)


def required_short_text(limits: FieldLimits, field: str, value: Any) -> str:
    """A short text that identifies an item, so it must not be blank."""
    stripped = short_text(limits, field, value).strip()
    if not stripped:
        raise invalid_field(field, expected="a non-empty string", got=_abbreviated(value))
    return stripped


def choice(choices: Sequence[str], _limits: FieldLimits, field: str, value: Any) -> str:
    if value not in choices:
        raise invalid_field(field, expected=f"one of {', '.join(choices)}", got=_abbreviated(value))
    return str(value)


def number(kind: Any, _limits: FieldLimits, field: str, value: Any) -> int | None:
    """A whole number; `kind` is its type, which may have bounds."""
    try:
        number: int | None = msgspec.convert(value, kind | None)
    except msgspec.ValidationError as error:
        expected = str(error).removeprefix("Expected ").partition(",")[0]
        raise invalid_field(field, expected=expected, got=_abbreviated(value)) from None
    if number is not None and not is_storable(number):
        raise invalid_field(field, expected="a number of 64 bits", got=_abbreviated(value))
    return number


def optional_integer(limits: FieldLimits, field: str, value: Any) -> int | None:
    return None if value is None else number(int, limits, field, int(value))


def boolean(_limits: FieldLimits, _field: str, value: Any) -> int:
    return int(bool(value))


def uuid(_limits: FieldLimits, field: str, value: Any) -> str:
    """An id is part of URIs, so it may contain only characters that need no escaping there."""
    if not isinstance(value, str) or not _UUID.match(value):
        expected = "1 to 128 of the characters A-Z a-z 0-9 . _ : - starting with a letter or digit"
        raise invalid_field(field, expected=expected, got=_abbreviated(value))
    return value


def time(_limits: FieldLimits, field: str, value: Any) -> str:
    """Converts any ISO 8601 time to the stored form; a time without an offset is taken as UTC."""
    try:
        return normalize_time(value)
    except (TypeError, ValueError, OverflowError):
        expected = "a time such as 2026-11-15T08:30:00Z"
        raise invalid_field(field, expected=expected, got=_abbreviated(value)) from None


def json_text(limits: FieldLimits, field: str, value: Any) -> str:
    """Encodes an object, or a list of objects or strings, as JSON."""
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        expected = "objects, lists, strings and numbers"
        raise invalid_field(field, expected=expected, got="a value that JSON cannot represent") from None
    if len(encoded) > limits.metadata_max_bytes:
        raise invalid_field(field, expected=f"at most {limits.metadata_max_bytes} bytes of JSON", got=f"{len(encoded)}")
    return _require_storable(field, encoded.decode())


def text_list(limits: FieldLimits, field: str, value: Any) -> str:
    """Encodes a list of long texts, such as greetings, as JSON."""
    if not isinstance(value, list | tuple):
        raise invalid_field(field, expected="a list of strings", got=_abbreviated(value))
    return json_text(limits, field, [long_text(limits, field, part) for part in value])


def tag_list(limits: FieldLimits, field: str, value: Sequence[str]) -> str:
    """Encodes trimmed tags as JSON, without blank ones and without those that differ from an earlier one only in
    case."""
    if isinstance(value, str):
        raise invalid_field(field, expected="a list of strings", got="a string")
    unique: dict[str, str] = {}
    for tag in value:
        stripped = _text(field, tag, limits.tag_max_chars).strip()
        if stripped:
            unique.setdefault(fold_tag(stripped), stripped)
    if len(unique) > limits.tags_max:
        raise invalid_field(field, expected=f"at most {limits.tags_max} tags", got=f"{len(unique)}")
    return msgspec.json.encode(tuple(unique.values())).decode()


def is_storable(value: str | int) -> bool:
    """Whether a row can contain this value. If not, no row has it, and binding it as a parameter would raise."""
    if isinstance(value, int):
        return abs(value) < _INTEGER_END
    return not UNSTORABLE.search(value)


def storable_beginning(text: str) -> str:
    """Returns the part of a text before the first character that no row contains. The same rows sort after it."""
    match = UNSTORABLE.search(text)
    return text[: match.start()] if match else text


def clamp_count(value: int) -> int:
    """Limits a number of rows or characters to what SQLite accepts for LIMIT and OFFSET."""
    return clamp(value, 0, COUNT_MAX)


def fold_tag(tag: str) -> str:
    """Returns the form in which tags are compared."""
    return tag.strip().lower() if tag.isascii() else normalize("NFKC", tag.strip()).casefold()


def _text(field: str, value: Any, max_chars: int) -> str:
    # Most texts are ASCII, which Python knows without scanning them.
    if isinstance(value, str) and len(value) <= max_chars and value.isascii() and "\0" not in value:
        return value
    if not isinstance(value, str):
        raise invalid_field(field, expected="a string", got=_abbreviated(value))
    if len(value) > max_chars:
        raise invalid_field(field, expected=f"at most {max_chars} characters", got=f"{len(value)}")
    return _require_storable(field, value)


def _require_storable(field: str, value: str) -> str:
    match = UNSTORABLE.search(value)
    if match:
        got = f"U+{ord(match[0]):04X} at character {match.start()}"
        raise invalid_field(field, expected="text without NUL and surrogate characters", got=got)
    return value


def _abbreviated(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MESSAGE_VALUE_CHARS else f"{text[: _MESSAGE_VALUE_CHARS - 3]}..."
