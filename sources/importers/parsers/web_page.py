"""The text of a web page: headings, paragraphs, lists, tables and code, without scripts, styles and markup.

Whatever is not HTML is read as far as it goes. Only a page of elements that are opened without end is refused.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lxml import etree

from config.errors import InvalidParams
from config.text import replace_unstorable
from sources.importers.engine.files import decoded, read_bytes
from sources.importers.engine.importer import ImportLimits
from sources.importers.parsers.prose import Parsed, Prose

_HIDDEN = frozenset(["script", "style", "template", "svg", "noscript", "iframe", "object", "select"])
# Everything else is part of a line, what no list of ours knows too.
_BLOCK = re.compile(
    "address|article|aside|blockquote|caption|details|dialog|div|dl|fieldset|figcaption|figure|footer|form|h[1-6]|"
    "header|hr|main|nav|ol|p|section|summary|table|ul"
)
_LINE = frozenset(["br", "tr", "dt", "dd"])
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_AUTHORS = ("author", "article:author", "dc.creator", "citation_author")
_DATES = ("article:published_time", "date", "dc.date", "dcterms.created", "pubdate", "citation_publication_date")
_CHARSET = re.compile(
    rb"""(?:<meta[^>]{0,200}?charset|<\?xml[^>]{0,200}?encoding)\s*=\s*["']?\s*([\w-]{2,40})""", re.IGNORECASE
)
# Those of the Encoding Standard that Python knows by the same names. Others that Python knows, such as punycode, take
# quadratic time; and a page whose tags can be read is not in UTF-16, whatever it says.
_ENCODING = re.compile(
    "utf-?8|ibm866|iso-8859-(?:[2-8]|1[03456])|koi8-[ru]|windows-(?:874|125[0-8])|gbk|gb2312|gb18030|big5|euc-(?:jp|kr)|"
    "iso-2022-jp|shift[_-]jis|macintosh",
    re.IGNORECASE,
)
# An old page that says Latin-1 means what Windows made of it.
_LATIN = re.compile("iso-?8859-1|latin-?1|(?:us-)?ascii", re.IGNORECASE)
_HEAD_BYTES = 4096
# An end tag without a beginning is compared with all open elements, half a thousand million of them in a second.
_COMPARED_MAX = 500_000_000
_DEPTH_MIN = 256
_BLOCK_BYTES = 1 << 16
_META_MAX = 200
_META_MAX_CHARS = 1_000


def parse_page(path: Path, limits: ImportLimits) -> Parsed:
    page = read_page(page_text(read_bytes(path, limits.line_max_bytes)), Prose(limits.item_max_chars))
    return Parsed(
        text=page.prose.finished(),
        title=replace_unstorable(page.title),
        author=page.said(_AUTHORS),
        created=page.said(_DATES),
        url=page.url if page.url.startswith(("https://", "http://")) else "",
        metadata={name: value for name in ("description", "keywords") if (value := page.said([name]))},
    )


def page_text(data: bytes) -> str:
    """By the encoding that the page names, if it is one and no mark says otherwise; else as any text."""
    named = None if data.startswith(BOM_UTF8) else _CHARSET.search(data[:_HEAD_BYTES])
    encoding = _encoding(named[1].decode()) if named else None
    try:
        return data.decode(encoding) if encoding else decoded(data)
    except UnicodeDecodeError:
        return decoded(data)


def read_page(text: str, prose: Prose) -> "Page":
    """HTML and XHTML alike: an element that is closed where it begins, scripts and titles too, has nothing in it."""
    page = Page(prose, max(_DEPTH_MIN, _COMPARED_MAX // (text.count("</") + 1)))
    # Any: the stubs ask for a target that takes bytes and comments too.
    target: Any = page
    parser = etree.HTMLParser(target=target, encoding="utf-8", huge_tree=True, recover=True)
    data = text.encode("utf-8", "replace")
    # What the page raises is raised at the end of a block: until there, the parser goes on. An empty page is a block.
    for start in range(0, len(data) or 1, _BLOCK_BYTES):
        parser.feed(data[start : start + _BLOCK_BYTES])
    parser.close()
    return page


def _encoding(named: str) -> str | None:
    if _LATIN.fullmatch(named):
        return "cp1252"
    return named if _ENCODING.fullmatch(named) else None


class Page:
    """Writes what a reader would see of a page into `prose`, as the parser tells it element by element."""

    def __init__(self, prose: Prose, depth_max: int) -> None:
        self.prose = prose
        self.title = ""
        self.url = ""
        self._said: dict[str, str] = {}
        self._depth_max = depth_max
        self._depth = 0
        self._hidden: list[str] = []
        self._code: list[str] | None = None
        self._is_title = False

    def said(self, names: Sequence[str]) -> str:
        """The first of these that the page says of itself."""
        return next((replace_unstorable(self._said[name]) for name in names if self._said.get(name)), "")

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > self._depth_max:
            raise InvalidParams(
                f"the page: got elements within one another, {self._depth} levels, expected at most {self._depth_max}"
            )
        if tag in _HIDDEN:
            self._hidden.append(tag)
        elif self._hidden:
            return
        elif tag in ("meta", "link"):
            self._describe(tag, attributes)
        elif tag == "title":
            self._is_title = not self.title
        elif tag == "pre":
            self.prose.end_paragraph()
            self._code = []
        else:
            self._begin(tag)

    def end(self, tag: str) -> None:
        self._depth -= 1
        if self._hidden:
            if tag == self._hidden[-1]:
                self._hidden.pop()
        elif tag == "title":
            self._is_title = False
        elif tag == "pre":
            self._end_code()
        elif _BLOCK.fullmatch(tag):
            self.prose.end_paragraph()

    def data(self, text: str) -> None:
        if self._hidden:
            return
        if self._is_title:
            self.title = (self.title + text)[:_META_MAX_CHARS]
        elif self._code is not None:
            self._code.append(text)
        else:
            self.prose.write(text.replace("\t", " "))

    def close(self) -> None:
        """The parser has closed all elements."""

    def _begin(self, tag: str) -> None:
        if tag in _HEADINGS:
            self.prose.end_paragraph(_HEADINGS[tag])
        elif tag == "li":
            self.prose.end_line()
            self.prose.write("- ")
        elif tag in _LINE:
            self._break()
        elif tag in ("td", "th"):
            self.prose.write("\t")
        elif _BLOCK.fullmatch(tag):
            self.prose.end_paragraph()

    def _break(self) -> None:
        if self._code is None:
            self.prose.end_line()
        else:
            self._code.append("\n")

    def _end_code(self) -> None:
        if self._code is not None:
            self.prose.verbatim("".join(self._code))
            self._code = None
            self.prose.end_paragraph()

    def _describe(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "link":
            if attributes.get("rel", "").lower() == "canonical":
                self.url = attributes.get("href", "")[:_META_MAX_CHARS]
            return
        name = (attributes.get("name") or attributes.get("property") or "").lower()
        if name and len(self._said) < _META_MAX:
            self._said.setdefault(name, attributes.get("content", "").strip()[:_META_MAX_CHARS])
