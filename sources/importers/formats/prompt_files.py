"""Prompts that people keep in files: markdown with front matter, YAML, JSON and CSV, one prompt or a list of them.

Fields are known by the names that such files give them; what has no field of ours stays in the prompt's metadata.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET

from config.errors import InvalidParams
from sources.drafts import PromptDraft
from sources.importers.engine.files import (
    date_of,
    decoded,
    few_tags,
    is_text,
    json_value,
    key_of,
    own_uuid,
    plain_name,
    read_bytes,
    short_title,
)
from sources.importers.engine.front_matter import lower_keys, read_yaml, split_front_matter, text_of, words_of
from sources.importers.engine.imported_items import (
    FailedItem,
    ImportedPrompt,
    ImportEvent,
    ReadPosition,
    SkippedItem,
    stable_uuid,
)
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback
from sources.records import SavedPromptArgument

_NAME = ("name", "title", "act", "prompt_name")
_SYSTEM = ("system", "system_prompt", "system_message", "instructions")
_USER = ("user", "user_prompt", "user_message", "prompt", "template", "content", "text")
_KEYWORDS = ("keywords", "tags", "labels")
_AUTHOR = ("author", "creator", "contributor")
_DETAILS = ("details", "description", "summary", "notes")
_ARGUMENTS = ("arguments", "variables", "inputs")
_CREATED = ("created_at", "created", "date")
# Those of which one is taken; a second that says something as well stays in the metadata.
_TEXTS = (_NAME, _SYSTEM, _USER, _AUTHOR, _DETAILS)
# What only a prompt has; a note has a title and a text as well.
_TELLING = ("system", "system_prompt", "system_message", "user_prompt", "user_message", "prompt", "template")
_LIST_KEYS = ("prompts", "items", "data")
# The text of a card of a character looks much like a prompt's.
_FOREIGN = re.compile(rb'"(?:first_mes|mapping|chat_messages|spec|segments|events)"\s*:')
_PART = re.compile(
    r"^#{1,4}[ \t]+(?P<part>system|user)(?:[ \t]+(?:prompt|message))?[ \t]*+:?[ \t]*+$", re.IGNORECASE | re.MULTILINE
)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_COLUMNS_MAX = 100_000
# How deep front matter is looked into before it is known whose it is.
_DEPTH_SEEN = 20

Row = tuple[str, Any]


def _recognizes(probe: FileProbe) -> float:
    told = _RECOGNISES.get(probe.path.suffix.lower())
    return told(probe.head) if told is not None and not probe.is_folder and is_text(probe.head) else 0.0


def _looks_like_markdown(head: bytes) -> float:
    written, body = split_front_matter(_shown(head), _DEPTH_SEEN)
    own = lower_keys(written)
    parts = {found["part"].lower() for found in _PART.finditer(body)}
    is_told = own.get("type") == "prompt" or any(name in own for name in _TELLING)
    return 0.7 if is_told or (own and parts) or parts == {"system", "user"} else 0.0


def _looks_like_yaml(head: bytes) -> float:
    return (
        0.6
        if _names_of_a_prompt(re.findall(r"^[ \t-]{0,20}+(\w[\w -]{0,40})[ \t]{0,10}:", _shown(head), re.MULTILINE))
        else 0.0
    )


def _looks_like_json(head: bytes) -> float:
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")) or _FOREIGN.search(head):
        return 0.0
    return 0.5 if _names_of_a_prompt(re.findall(r'"([\w -]{1,40})"\s*:', _shown(head))) else 0.0


def _looks_like_csv(head: bytes) -> float:
    first = _shown(head).partition("\n")[0]
    return 0.6 if _names_of_a_prompt(re.split(r'[",;\t]+', first)) else 0.0


def _names_of_a_prompt(names: list[str]) -> bool:
    found = lower_keys(dict.fromkeys(names))
    return any(name in found for name in _NAME) and any(name in found for name in _TELLING)


def _shown(head: bytes) -> str:
    return head.decode("utf-8-sig", "replace").replace("\r\n", "\n")


_RECOGNISES: Mapping[str, Callable[[bytes], float]] = {
    ".md": _looks_like_markdown,
    ".markdown": _looks_like_markdown,
    ".yaml": _looks_like_yaml,
    ".yml": _looks_like_yaml,
    ".json": _looks_like_json,
    ".csv": _looks_like_csv,
    ".tsv": _looks_like_csv,
}


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, _mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    data = read_bytes(path, limits.line_max_bytes)
    keys = _Keys(key_of(path, limits) if limits.has_place else None)
    for where, row in _rows(path, data, limits):
        yield _arrival(where, row, plain_name(path.stem), keys)
    progress(len(data))


def _rows(path: Path, data: bytes, limits: ImportLimits) -> Iterator[Row]:
    match path.suffix.lower():
        case ".json":
            return _listed(json_value(data, limits.depth_max))
        case ".yaml" | ".yml":
            return _listed(read_yaml(decoded(data), limits.depth_max))
        case ".csv" | ".tsv":
            return _table(decoded(data))
        case _:
            return iter([("the file", _markdown(decoded(data), limits.depth_max))])


def _listed(value: Any) -> Iterator[Row]:
    """One prompt, a list of them, or a list under a name; or prompts under their own names."""
    if isinstance(value, Mapping):
        own = lower_keys(value)
        inner = next((own[key] for key in _LIST_KEYS if isinstance(own.get(key), list)), None)
        if inner is not None:
            return _listed(inner)
        if value and all(isinstance(part, Mapping) for part in value.values()):
            return (("the prompt " + repr(str(name)[:60]), {"name": name, **part}) for name, part in value.items())
        return iter([("the file", value)])
    if isinstance(value, list):
        return ((f"prompt {index}", part) for index, part in enumerate(value, 1))
    raise InvalidParams("the file: got a single value, expected a prompt or a list of prompts")


def _table(text: str) -> Iterator[Row]:
    """A table with the names of its columns in the first line; commas, semicolons or tabs between them."""
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(_lines(text, delimiter), delimiter=delimiter)
    try:
        columns = next(reader, [])
    except csv.Error as error:
        raise InvalidParams(f"line 1: got {str(error)!r}, expected the names of columns") from error
    while True:
        where = f"line {reader.line_num + 1}"
        try:
            values = next(reader, None)
        except csv.Error as error:
            yield where, str(error)
            continue
        if values is None:
            return
        if any(value.strip() for value in values):
            yield where, dict(zip(columns, values, strict=False))


def _lines(text: str, delimiter: str) -> Iterator[str]:
    """With their ends, as a reader of tables wants them. A megabyte of commas is no line of a table of prompts."""
    for number, found in enumerate(_LINE.finditer(text), 1):
        if found[0].count(delimiter) > _COLUMNS_MAX:
            raise InvalidParams(f"line {number}: got more than {_COLUMNS_MAX} columns, expected fewer")
        yield found[0]


def _markdown(text: str, depth_max: int) -> Mapping[str, Any]:
    """Front matter, and a text that is the user's prompt, or has parts that say whose they are."""
    written, body = split_front_matter(text, depth_max)
    parts = list(_PART.finditer(body))
    if not parts:
        return {"user": body, **written}
    said = _introduction(body[: parts[0].start()].strip())
    for part, end in zip(parts, [*(part.start() for part in parts[1:]), len(body)], strict=True):
        whose, words = part["part"].lower(), body[part.end() : end].strip()
        said[whose] = f"{said[whose]}\n\n{words}" if whose in said else words
    return {**said, **written}


def _introduction(text: str) -> dict[str, str]:
    """What stands before the parts: a heading that names the prompt, and words about it."""
    heading = re.search(r"^#[ \t]+([^\n]+)$", text, re.MULTILINE)
    if heading is None:
        return {"details": text}
    return {"title": heading[1].strip(), "details": (text[: heading.start()] + text[heading.end() :]).strip()}


def _arrival(where: str, row: Any, fallback: str, keys: "_Keys") -> ImportEvent:
    if not isinstance(row, Mapping):
        return FailedItem(where, f"got {repr(row)[:80]}, expected a prompt with a name and a text")
    own = lower_keys(row)
    system, user = _first(own, _SYSTEM), _first(own, _USER)
    if not system and not user:
        return SkippedItem("a prompt without a text")
    name = short_title(_first(own, _NAME) or (fallback if where == "the file" else ""))
    if not name:
        return FailedItem(where, "name: got nothing, expected what the prompt is called")
    # A prompt that stands alone in its file may get a better name and is still the same.
    known_by = "" if where == "the file" else name
    return ImportedPrompt(_draft(own, name, system, user, keys.of(known_by, (name, system, user))))


def _draft(own: Mapping[str, Any], name: str, system: str, user: str, key: str) -> PromptDraft:
    given = next((field for field in _ARGUMENTS if own.get(field)), "")
    dated = next((field for field in _CREATED if date_of(own.get(field))), "")
    taken = {*_KEYWORDS, "uuid", given, dated, *(_field(own, names) for names in _TEXTS)}
    return PromptDraft(
        name=name,
        author=short_title(_first(own, _AUTHOR)),
        details=_first(own, _DETAILS),
        system_prompt=system,
        user_prompt=user,
        arguments=_arguments(own.get(given)),
        tags=few_tags([word for field in _KEYWORDS for word in _keywords(own.get(field))]),
        metadata={field: value for field, value in own.items() if field not in taken and value not in ("", None)},
        uuid=own_uuid(own.get("uuid")) or stable_uuid("prompt_files", "prompts", key),
        created_at=date_of(own.get(dated)) or UNSET,
    )


def _first(own: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return text_of(own.get(_field(own, names)))


def _field(own: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """The first of these fields that has a text."""
    return next((name for name in names if text_of(own.get(name))), "")


def _keywords(value: Any) -> list[str]:
    """In one text, with commas or semicolons between them if there are any: keywords may be of several words."""
    if isinstance(value, str) and re.search("[,;|]", value):
        return re.split("[,;|]", value)
    return words_of(value)


def _arguments(value: Any) -> tuple[SavedPromptArgument, ...]:
    """Names, or maps with a name; or a map of names to what they mean."""
    if isinstance(value, Mapping):
        value = [{"name": name, "description": meaning} for name, meaning in value.items()]
    parts = value if isinstance(value, list) else words_of(value)
    made = (_argument(part) for part in parts if isinstance(part, str | Mapping))
    return tuple(one for one in made if one.name)


def _argument(value: str | Mapping[str, Any]) -> SavedPromptArgument:
    if isinstance(value, str):
        return SavedPromptArgument(name=value.strip())
    own = lower_keys(value)
    is_required = own.get("required") is True or str(own.get("required")).lower() == "true"
    return SavedPromptArgument(
        name=text_of(own.get("name")), description=text_of(own.get("description")), required=is_required
    )


class _Keys:
    """What prompts are known by: the place of their file and their names, of which the second of a kind has a number.
    Those of a file without a place are known by what they say."""

    def __init__(self, place: str | None) -> None:
        self._place = place
        self._given: dict[str, int] = {}

    def of(self, name: str, said: tuple[str, ...]) -> str:
        known_by = f"{self._place}#{name}" if self._place is not None else "\0".join(said)
        count = self._given[known_by] = self._given.get(known_by, 0) + 1
        return known_by if count == 1 else f"{known_by}#{count}"


IMPORTER = Importer(
    name="prompt_files",
    title="Prompt files (markdown, YAML, JSON, CSV)",
    recognizes=_recognizes,
    read=_read,
    suffixes=tuple(_RECOGNISES),
)
