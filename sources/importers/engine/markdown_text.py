"""Title, tags and links in the text of a note written in Markdown. All functions expect the text without its code."""

import re
from collections.abc import Iterator
from itertools import islice

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
