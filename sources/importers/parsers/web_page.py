"""The text of a web page: headings, paragraphs, lists, tables and code, without scripts, styles and markup.

Whatever is not HTML is read as far as it goes; there is no page that is refused for its markup.
"""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

from sources.importers.files import decoded, read_bytes
from sources.importers.importer import Limits
from sources.importers.parsers.prose import Parsed, Prose, cleaned

_HIDDEN = frozenset(["script", "style", "template", "svg", "noscript", "iframe", "object", "select"])
# Everything else is part of a line, what no list of ours knows too.
_BLOCK = re.compile(
    "address|article|aside|blockquote|body|caption|details|dialog|div|dl|fieldset|figcaption|figure|footer|form|h[1-6]|"
    "header|hr|main|nav|ol|p|section|summary|table|ul"
)
_LINE = frozenset(["br", "tr", "dt", "dd"])
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_AUTHORS = ("author", "article:author", "dc.creator", "citation_author")
_DATES = ("article:published_time", "date", "dc.date", "dcterms.created", "pubdate", "citation_publication_date")
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w-]{2,40})""", re.IGNORECASE)
_HEAD_BYTES = 4096
_META_MAX = 200
_META_MAX_CHARS = 1_000


def parse_page(path: Path, limits: Limits) -> Parsed:
    page = Page(Prose(limits.item_max_chars))
    page.feed(page_text(read_bytes(path, limits.line_max_bytes)))
    page.close()
    return Parsed(
        text=page.prose.finished(),
        title=cleaned(page.title),
        author=page.said(_AUTHORS),
        created=page.said(_DATES),
        url=page.url if page.url.startswith(("https://", "http://")) else "",
        metadata={name: value for name in ("description", "keywords") if (value := page.said([name]))},
    )


def page_text(data: bytes) -> str:
    """By the encoding that the page names, if it is one; else as any text."""
    named = _CHARSET.search(data[:_HEAD_BYTES])
    try:
        return data.decode(named[1].decode()) if named else decoded(data)
    except (LookupError, UnicodeDecodeError, ValueError):
        return decoded(data)


class Page(HTMLParser):
    """Writes what a reader would see of a page into `prose`."""

    def __init__(self, prose: Prose) -> None:
        super().__init__(convert_charrefs=True)
        self.prose = prose
        self.title = ""
        self.url = ""
        self._said: dict[str, str] = {}
        self._hidden: list[str] = []
        self._code: list[str] | None = None
        self._is_title = False

    def said(self, names: Sequence[str]) -> str:
        """The first of these that the page says of itself."""
        return next((cleaned(self._said[name]) for name in names if self._said.get(name)), "")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden.append(tag)
        elif self._hidden:
            return
        elif tag in ("meta", "link"):
            self._describe(tag, {name: value or "" for name, value in attrs})
        elif tag == "title":
            self._is_title = not self.title
        elif tag == "pre":
            self.prose.end_paragraph()
            self._code = []
        else:
            self._begin(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _HIDDEN and tag != "title":
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            if tag == self._hidden[-1]:
                self._hidden.pop()
        elif tag == "title":
            self._is_title = False
        elif tag == "pre":
            self._end_code()
        elif _BLOCK.fullmatch(tag):
            self.prose.end_paragraph()

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if self._is_title:
            self.title = (self.title + data)[:_META_MAX_CHARS]
        elif self._code is not None:
            self._code.append(data)
        else:
            self.prose.write(data.replace("\t", " "))

    def close(self) -> None:
        super().close()
        self._end_code()

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

    def _describe(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "link":
            if attributes.get("rel", "").lower() == "canonical":
                self.url = attributes.get("href", "")[:_META_MAX_CHARS]
            return
        name = (attributes.get("name") or attributes.get("property") or "").lower()
        if name and len(self._said) < _META_MAX:
            self._said.setdefault(name, attributes.get("content", "").strip()[:_META_MAX_CHARS])
