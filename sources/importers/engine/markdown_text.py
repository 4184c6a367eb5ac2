"""Title, tags and links in the text of a note written in Markdown. All functions expect the text without its code."""

import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

from msgspec import Struct

from config.errors import InvalidParams
from sources.importers.engine.values import Fields, stored_date, valid_uuid

_LINKS_MAX = 1_000
_MATCHES_MAX = 10_000
# Code contains # and [[ of its own. Inline code is limited in length, so that a megabyte of backticks is not scanned
# once for each of them.
_CODE = re.compile(
    r"^[ ]{0,3}(```+|~~~+).*?(?:^[ ]{0,3}\1|\Z)|(?<!`)(`++)[^\n]{0,1000}?(?<!`)\2(?!`)", re.DOTALL | re.MULTILINE
)
_HEADING = re.compile(r"^#[ \t]+([^\n]+)$", re.MULTILINE)
_TAG = re.compile(r"(?<![^\s(,;>])#([\w/-]*[^\W\d_][\w/-]*|[\w/-]*[_/-][\w/-]*)")
_LINK = re.compile(r"!?\[\[([^\[\]\n]{1,500})\]\]")


def remove_code(text: str) -> str:
    return _CODE.sub(" ", text)


def first_heading(text: str) -> str:
    heading = _HEADING.search(text)
    return heading[1].strip().rstrip("#").strip() if heading else ""


def inline_tags(text: str) -> list[str]:
    return [tag.strip("/") for tag in _matches(_TAG, text)]


def link_targets(text: str) -> list[str]:
    """Returns the distinct targets of `[[…]]` and `![[…]]`, without display texts."""
    targets = (link.partition("|")[0].strip() for link in _matches(_LINK, text))
    return list(dict.fromkeys(targets))[:_LINKS_MAX]


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """Limits the number of matches, each of which takes fifty bytes, however short it is."""
    return (match[1] for match in islice(pattern.finditer(text), _MATCHES_MAX))


# -- org text ----------------------------------------------------------------------------------------------------------
# Title, tags, date and id of a text written in Org mode.

# Keywords and the first drawer are at the top of a file.
_HEAD_LINES = 200
_KEYWORD = re.compile(r"#\+(\w{1,40}):([^\n]*)")
_ID = re.compile(r"[ \t]*:ID:[ \t]+([^\s]{1,100})[ \t]*")
_DATE = re.compile(r"[<\[]?(\d{4}-\d\d-\d\d)[^\d\n]{0,20}(\d{1,2}:\d\d)?")
_TAGS_MAX = 1_000


class OrgHeader(Struct, frozen=True):
    """What a file says about itself; empty if it does not."""

    title: str = ""
    tags: tuple[str, ...] = ()
    created: str | None = None
    uuid: str | None = None
    author: str = ""


def read_org_header(text: str) -> OrgHeader:
    lines = text.split("\n", _HEAD_LINES)[:_HEAD_LINES]
    keywords: dict[str, str] = {}
    for line in lines:
        if match := _KEYWORD.fullmatch(line.strip()):
            keywords.setdefault(match[1].lower(), match[2].strip())
    first_id = next((match[1] for line in lines if (match := _ID.fullmatch(line))), None)
    title = keywords.get("title", "")
    if not title:
        # The first headline, without the tags at its end.
        headline = next((line for line in lines if line.startswith("* ")), "").removeprefix("* ").strip()
        words, _, last = headline.rpartition(" ")
        title = words.strip() if _is_tag_list(last) and words else headline
    date = _DATE.match(keywords.get("date", ""))
    ends = (line.rstrip().rpartition(" ")[2] for line in text.split("\n") if line.startswith("*"))
    headline_tags = islice(filter(_is_tag_list, ends), _TAGS_MAX)
    return OrgHeader(
        title=title,
        tags=(*_split_tags(keywords.get("filetags", "")), *chain.from_iterable(map(_split_tags, headline_tags))),
        created=stored_date(f"{date[1]}T{date[2].zfill(5)}" if date[2] else date[1]) if date else None,
        uuid=valid_uuid(first_id),
        author=keywords.get("author", ""),
    )


def _is_tag_list(word: str) -> bool:
    return len(word) > 2 and word[0] == word[-1] == ":"


def _split_tags(text: str) -> list[str]:
    return [tag for tag in text.replace(":", " ").split() if tag]


# -- front matter ------------------------------------------------------------------------------------------------------
# The YAML that people write above notes and into prompt files: strings, lists and maps.
#
# A scalar stays a string (`no` is not a boolean, `1.10` not a number). Aliases are rejected, because they can expand a
# kilobyte into a gigabyte.

# Longer blocks are not front matter but a text that starts with a horizontal rule.
FRONT_MATTER_MAX_CHARS = 1 << 16
_FENCED = re.compile(r"---[ \t]*\n(.*?)(?<=\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
# A field of the outermost map with a value that is neither quoted nor a list, a map or a block.
_PLAIN_FIELD = re.compile(r"^(\w[\w .-]{0,100}:[ \t]+)([^\s\"'\[\]{}|>&*!%@`#,?-][^\n]*)$", re.MULTILINE)
# A value takes two bytes in a file and five hundred in memory.
_EVENTS_MAX = 200_000
_WORD_SEPARATOR = re.compile(r"[,\s]+")


def split_front_matter(text: str, depth_max: int) -> tuple[Mapping[str, Any], str]:
    """Returns the front matter and the remaining text. A block that is not a map stays part of the text."""
    block = _FENCED.match(text[:FRONT_MATTER_MAX_CHARS])
    if block is None:
        return {}, text
    try:
        value = parse_yaml(block[1], depth_max)
    except InvalidParams:
        quoted = _PLAIN_FIELD.sub(_quote_colon, block[1])
        if quoted == block[1]:
            return {}, text
        try:
            value = parse_yaml(quoted, depth_max)
        except InvalidParams:
            return {}, text
    if not isinstance(value, Mapping):
        return ({}, text) if value is not None else ({}, text[block.end() :])
    return value, text[block.end() :]


def _quote_colon(field: re.Match[str]) -> str:
    """Quotes a value such as that of `title: Kyoto: day two`. YAML takes it for a nested map and rejects the block, but
    programs that write notes from templates do not quote titles."""
    name, value = field[1], field[2].rstrip()
    if " #" in value or not (": " in value or value.endswith(":")):
        return field[0]
    escaped = value.replace("'", "''")
    return f"{name}'{escaped}'"


def parse_yaml(text: str, depth_max: int) -> Any:
    """Parses a text with one YAML document; returns None if it is empty."""
    import yaml  # noqa: PLC0415 - 1 MB, which a server needs only for what it follows itself

    # Produces only strings, lists and maps; the C implementation is used if available.
    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        depth = 0
        for number, event in enumerate(yaml.parse(text, Loader=loader)):
            if number > _EVENTS_MAX:
                raise InvalidParams(f"YAML has more than {_EVENTS_MAX} values")
            if isinstance(event, yaml.AliasEvent):
                raise InvalidParams("YAML aliases are not supported")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            # Events are counted and their depth checked before values are built, which happens recursively.
            if depth > depth_max:
                raise InvalidParams(f"YAML is nested more than {depth_max} levels deep")
        return yaml.load(text, Loader=loader)  # noqa: S506 - as above
    except yaml.YAMLError as error:
        problem = str(getattr(error, "problem", None) or "unexpected content")[:80]
        mark = getattr(error, "problem_mark", None)
        reason = f"{problem} in line {mark.line + 1}" if mark is not None else problem
        raise InvalidParams(f"YAML is invalid: {reason}") from error
    except UnicodeEncodeError as error:
        raise InvalidParams("YAML contains an unpaired surrogate") from error


def stripped_text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def split_words(value: object) -> list[str]:
    """Returns tags or keywords from a list, or from a text that separates them with commas or spaces. A leading # is
    removed."""
    if isinstance(value, str):
        parts = value.split(",") if "," in value else _WORD_SEPARATOR.split(value)
    else:
        parts = [part for part in value if isinstance(part, str)] if isinstance(value, list) else []
    return [part.strip().removeprefix("#") for part in parts if part.strip().strip("#")]


def normalize_keys(fields: Mapping[Any, Any]) -> Fields:
    """Normalizes field names for comparison: `System Prompt` becomes `system_prompt`."""
    return Fields({re.sub(r"[\s-]+", "_", str(key).strip().lower()): value for key, value in fields.items()})
