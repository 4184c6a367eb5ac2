"""Title, tags, date and id of a text written in Org mode."""

import re
from collections.abc import Iterator

from msgspec import Struct

from sources.importers.engine.times import stored_date
from sources.importers.engine.values import valid_uuid

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
    return OrgHeader(
        title=keywords.get("title", "") or _first_headline(lines),
        tags=(*_split_tags(keywords.get("filetags", "")), *_headline_tags(text)),
        created=_date(keywords.get("date", "")),
        uuid=valid_uuid(first_id),
        author=keywords.get("author", ""),
    )


def _first_headline(lines: list[str]) -> str:
    line = next((line for line in lines if line.startswith("* ")), "")
    title, _, tags = line.removeprefix("* ").strip().rpartition(" ")
    return title.strip() if _is_tag_list(tags) and title else line.removeprefix("* ").strip()


def _headline_tags(text: str) -> Iterator[str]:
    count = 0
    for line in text.split("\n"):
        if line.startswith("*") and _is_tag_list(last := line.rstrip().rpartition(" ")[2]) and count < _TAGS_MAX:
            count += 1
            yield from _split_tags(last)


def _is_tag_list(word: str) -> bool:
    return len(word) > 2 and word[0] == word[-1] == ":"


def _split_tags(text: str) -> list[str]:
    return [tag for tag in text.replace(":", " ").split() if tag]


def _date(text: str) -> str | None:
    match = _DATE.match(text)
    if match is None:
        return None
    return stored_date(f"{match[1]}T{match[2].zfill(5)}" if match[2] else match[1])
