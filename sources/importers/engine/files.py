"""A file as the importers of single files see it: its bytes, text or JSON value, its age, and the key of what is in it.

Nothing is read that is larger than a limit, and a pipe or a device is never opened.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import file_digest
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from config.errors import InvalidParams, TooLarge
from config.times import format_timestamp
from sources.importers.engine.importer import ImportLimits
from sources.importers.engine.times import moment_of

# The longest form of a character in UTF-8.
_BYTES_PER_CHAR = 4
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
# A title is what an item is called by; what is longer stands in its text.
_TITLE_CHARS = 300
# An empty object takes two bytes in a file and sixty in memory: what is counted is values, not bytes.
_JSON_VALUES_MAX = 2_000_000
_TAGS_MAX = 100
_TAG_MAX_CHARS = 100
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
_DATE = re.compile(r"(\d{4})(?:-(\d\d)(?:-(?P<day>\d\d)\b|\Z)|\Z)")


def read_bytes(path: Path, max_bytes: int) -> bytes:
    if not path.is_file():
        raise InvalidParams(f"{plain_name(path.name)}: got something else, expected a file")
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise TooLarge(plain_name(path.name), max_bytes)
    return data


def read_text(path: Path, limits: ImportLimits) -> str:
    """The text of one item."""
    return decoded(read_bytes(path, text_max_bytes(limits)))


def text_max_bytes(limits: ImportLimits) -> int:
    return limits.item_max_chars * _BYTES_PER_CHAR


def decoded(data: bytes) -> str:
    """UTF-8, or UTF-16 that says so, or else Windows-1252, as old files are; with line feeds alone."""
    encoding = next((name for mark, name in _BOMS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        text = data.decode("cp1252", "replace")
    if "\0" in text:
        raise InvalidParams("the file: got a NUL character, expected text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_text(head: bytes) -> bool:
    """Whether a file begins like one: with a mark of Unicode, or without a NUL."""
    return head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" not in head


def read_json(path: Path, limits: ImportLimits) -> Any:
    """A JSON file whole, as one value."""
    return json_value(read_bytes(path, limits.line_max_bytes), limits.depth_max)


def json_value(data: bytes, depth_max: int) -> Any:
    if sum(map(data.count, (b",", b"[", b"{"))) > _JSON_VALUES_MAX:
        raise InvalidParams(f"JSON: got more than {_JSON_VALUES_MAX} values, expected fewer")
    try:
        value = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidParams(f"JSON: got {_reason(error)}, expected a whole value") from error
    except RecursionError as error:
        raise _too_deep(depth_max) from error
    require_depth(value, depth_max)
    return value


def require_depth(value: Any, depth_max: int) -> None:
    level = [value]
    for _ in range(depth_max):
        level = [part for one in level for part in _parts(one)]
        if not level:
            return
    raise _too_deep(depth_max)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        return iter(value.values())
    return iter(value) if isinstance(value, list) else iter(())


def _too_deep(depth_max: int) -> InvalidParams:
    return InvalidParams(f"JSON: got more than {depth_max} levels, expected at most {depth_max}")


def _reason(error: Exception) -> str:
    return "bytes that are no UTF-8" if isinstance(error, UnicodeDecodeError) else f"{str(error)[:120]!r}"


def plain_name(name: str) -> str:
    """A name of a file as text. Most systems allow bytes in it that are no UTF-8; they are written as \\xff."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def key_of(path: Path, limits: ImportLimits) -> str:
    """What a file that stands alone is known by the next time: where it lies. A name alone is not enough, because many
    folders have a `readme`. It goes into an id by its digest only, so nobody learns the place. One that has no place is
    known by what is in it: better a second item than one that took the place of another."""
    if limits.has_place:
        return plain_name(path.resolve().as_posix())
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def size_of(path: Path) -> int:
    """In bytes; of a file that is gone meanwhile, none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def changed_at(path: Path, limits: ImportLimits) -> str | UnsetType:
    """When a file was last changed, in the one ISO form: for items that say nothing of their age."""
    if not limits.has_place:
        return UNSET
    return format_timestamp(path.stat().st_mtime)


def date_of(text: Any) -> str | None:
    """A date or time as people write it into a file; none where it is neither. A year or a month alone is its first
    day, and what follows a date that is no time is passed over."""
    if not isinstance(text, str):
        return None
    found = _DATE.match(text.strip())
    if found is None:
        return moment_of(text)
    year, month, day = found.groups(default="01")
    return moment_of(text) if found["day"] and moment_of(text) else moment_of(f"{year}-{month}-{day}")


def own_uuid(value: Any) -> str | None:
    """An id that is unique on its own."""
    return value.lower() if isinstance(value, str) and _UUID.match(value) else None


def short_title(text: str) -> str:
    """One line of a length that a title may have."""
    line = " ".join(text[: 4 * _TITLE_CHARS].split())
    return line if len(line) <= _TITLE_CHARS else f"{line[: _TITLE_CHARS - 1].rstrip()}…"


def few_tags(words: Sequence[str]) -> tuple[str, ...]:
    """As many as an item has; one that is too long is none. All of them still stand where they were found."""
    kept = dict.fromkeys(word.strip() for word in words if 0 < len(word.strip()) <= _TAG_MAX_CHARS)
    return tuple(kept)[:_TAGS_MAX]
