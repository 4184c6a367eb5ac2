"""Lenient conversions of values found in other programs' files. A value of an unexpected type is ignored: an item that
lacks a field is better than no item.
"""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import msgspec

from config.errors import InvalidParams
from config.numbers import UNSTORABLE, replace_unstorable
from config.times import format_time, format_timestamp, normalize_time
from sources.importers.engine.limits import ImportLimits

_LINE_CHARS = 1_000
_TITLE_CHARS = 300
# An item whose metadata exceeds the storage limit would be rejected, so larger values are dropped.
_METADATA_VALUE_MAX_BYTES = 50_000
_TAGS_MAX = 100
_TAG_MAX_CHARS = 100
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)


# -- text --------------------------------------------------------------------------------------------------------------


def text_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""


def clean_line(value: object) -> str:
    """Returns a title, name or similar short text, stripped. Characters that cannot be stored are replaced, so that a
    conversation is not rejected because of its title."""
    if not isinstance(value, str):
        return ""
    line = value[:_LINE_CHARS].strip()
    return line if _is_storable(line) else replace_unstorable(line)


def short_title(text: str) -> str:
    """Returns the text on one line, shortened to the length of a title."""
    line = " ".join(text[: 4 * _TITLE_CHARS].split())
    return line if len(line) <= _TITLE_CHARS else f"{line[: _TITLE_CHARS - 1].rstrip()}…"


def clean_tags(words: Sequence[str]) -> tuple[str, ...]:
    """Returns the distinct words, without those too long for a tag and at most as many as an item can have."""
    tags = dict.fromkeys(word.strip() for word in words if 0 < len(word.strip()) <= _TAG_MAX_CHARS)
    return tuple(tags)[:_TAGS_MAX]


def valid_uuid(value: object) -> str | None:
    """Returns the value in lower case if it is a UUID."""
    return value.lower() if isinstance(value, str) and _UUID.match(value) else None


def require_storable(text: str, limits: ImportLimits) -> None:
    """Raises InvalidParams for a text that is too long or contains characters that cannot be stored."""
    if len(text) > limits.item_max_chars:
        raise InvalidParams(f"expected at most {limits.item_max_chars} characters, got {len(text)}")
    bad = None if _is_storable(text) else UNSTORABLE.search(text)
    if bad:
        raise InvalidParams(f"NUL or unpaired surrogate at character {bad.start()}")


def _is_storable(text: str) -> bool:
    """Encodes the text, which is faster than searching it for characters that cannot be stored."""
    if "\0" in text:
        return False
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


# -- lists and JSON ----------------------------------------------------------------------------------------------------


class Fields(dict[str, Any]):
    """The fields of a JSON object, or the columns of a row. A value of an unexpected type counts as missing. Of several
    names, the first with a value is used."""

    @classmethod
    def of(cls, value: object) -> "Fields":
        """Returns the fields of a value; none if it is not an object."""
        return cls(value) if isinstance(value, dict) else cls()

    @classmethod
    def require(cls, value: object, message: str = "expected an object") -> "Fields":
        if not isinstance(value, dict):
            raise InvalidParams(message)
        return cls(value)

    @classmethod
    def each(cls, values: object) -> Iterator["Fields"]:
        """Yields the objects of a list."""
        return (cls(value) for value in values if isinstance(value, dict)) if isinstance(values, list) else iter(())

    def line(self, *names: str) -> str:
        return next((line for name in names if (line := clean_line(self.get(name)))), "")

    def text(self, *names: str) -> str:
        return next((text for name in names if (text := text_or_empty(self.get(name)))), "")

    def time(self, *names: str) -> str | None:
        return next((time for name in names if (time := stored_time(self.get(name)))), None)

    def texts(self, name: str) -> Iterator[str]:
        return texts(self.get(name))

    def nested(self, name: str) -> "Fields":
        return Fields.of(self.get(name))

    def objects(self, name: str) -> Iterator["Fields"]:
        return Fields.each(self.get(name))


def texts(values: object) -> Iterator[str]:
    """Yields the non-empty strings of a list."""
    return (value for value in values if isinstance(value, str) and value) if isinstance(values, list) else iter(())


def to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def parse_json(data: bytes, limits: ImportLimits) -> Any:
    """Raises InvalidParams for malformed JSON, or JSON with too many or too deeply nested values."""
    depth_max = limits.depth_max
    if has_too_many_values(data, limits):
        raise InvalidParams(too_many_values(limits))
    try:
        # msgspec limits its own recursion, and raises RecursionError beyond that.
        value = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except UnicodeDecodeError as error:
        raise InvalidParams("JSON is not valid UTF-8") from error
    except msgspec.DecodeError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise InvalidParams(f"JSON is malformed: {reason[:120]}") from error
    except RecursionError as error:
        raise _too_deep(depth_max) from error
    # Fewer brackets cannot be nested too deeply.
    if data.count(b"{") + data.count(b"[") > depth_max:
        level = [value]
        for _ in range(depth_max):
            # Containers of decoded JSON are dicts and lists, which is faster to check than that they are mappings.
            containers = (
                one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)
            )
            level = list(chain.from_iterable(containers))
            if not level:
                break
        else:
            raise _too_deep(depth_max)
    return value


def has_too_many_values(data: bytes, limits: ImportLimits) -> bool:
    """An empty object takes two bytes in a file and sixty in memory, so the number of values is limited, not only their
    size."""
    return len(data) > limits.values_max and sum(map(data.count, (b",", b"[", b"{"))) > limits.values_max


def too_many_values(limits: ImportLimits) -> str:
    return f"JSON has more than {limits.values_max} values"


def json_or_none(value: object, limits: ImportLimits) -> Any:
    """Parses a JSON text; returns None if it is not valid."""
    try:
        return parse_json(value.encode("utf-8", "replace"), limits) if isinstance(value, str) else None
    except InvalidParams:
        return None


def _too_deep(depth_max: int) -> InvalidParams:
    return InvalidParams(f"JSON is nested more than {depth_max} levels deep")


def url_or_empty(value: object) -> str:
    """Returns a URL unchanged, or "" if it is too long or contains characters that cannot be stored."""
    return value if isinstance(value, str) and clean_line(value) == value else ""


def compact_metadata(**values: Any) -> dict[str, Any]:
    """Drops values that are empty or too large for metadata."""
    present = {name: value for name, value in values.items() if value not in (None, "", [], {})}
    return {
        name: value for name, value in present.items() if len(msgspec.json.encode(value)) <= _METADATA_VALUE_MAX_BYTES
    }


def key_label(value: Any) -> str:
    """Returns a row's key as it appears in reports."""
    return clean_line(str(value))[:60]


# -- times -------------------------------------------------------------------------------------------------------------
# Parses times written by other programs into the stored form. A value that is not a time is ignored: an item without
# its time is better than no item.

# The year 5138 in seconds and 1973 in milliseconds: imported items are neither that new nor that old.
_MILLISECONDS_FROM = 1e11
_DATE = re.compile(r"(\d{4})(?:-(\d\d)(?:-(?P<day>\d\d)\b|\Z)|\Z)")


def stored_time(value: object) -> str | None:
    """Parses seconds or milliseconds since 1970, as a number or as text, or an ISO 8601 time. A time without a zone is
    taken as UTC. Zero means unknown in many programs and returns None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _from_number(value)
    if not isinstance(value, str):
        return None
    try:
        # Slack, for example, writes the number as a text.
        return _from_number(float(value))
    except ValueError:
        try:
            return normalize_time(value.strip())
        except (ValueError, OverflowError):
            return None


def _from_number(number: float) -> str | None:
    if not math.isfinite(number) or number <= 0:
        return None
    try:
        return format_timestamp(number / 1000 if number >= _MILLISECONDS_FROM else number)
    except (ValueError, OverflowError, OSError):
        return None


def stored_date(text: object) -> str | None:
    """Parses a date or time as people write it. A year or month alone is taken as its first day, and text after a date
    that is not a time is ignored. Returns None for anything else."""
    if not isinstance(text, str):
        return None
    date = _DATE.match(text.strip())
    if date is None:
        return stored_time(text)
    year, month, day = date.groups(default="01")
    return (stored_time(text) if date["day"] else None) or stored_time(f"{year}-{month}-{day}")


def written_date(text: str, formats: Sequence[str]) -> str | None:
    """Parses a date that is written for people, in one of some formats of `strptime`. It is taken as UTC."""
    for date_format in formats:
        with suppress(ValueError):
            return format_time(datetime.strptime(text, date_format).replace(tzinfo=UTC))
    return None
