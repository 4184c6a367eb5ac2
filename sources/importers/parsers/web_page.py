"""The text of a web page: headings, paragraphs, lists, tables and code, without scripts and styles.

Malformed HTML is read as far as possible. Only pages with extremely deep nesting are rejected.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from lxml import etree

from config.errors import InvalidParams
from config.numbers import replace_unstorable
from sources.importers.engine.encodings import DecodedText
from sources.importers.engine.files import decode, doubted_text, read_bytes
from sources.importers.engine.limits import ImportLimits
from sources.importers.parsers.parsed_document import ParsedDocument, TextBuilder

# -- article text ------------------------------------------------------------------------------------------------------
# The text of a web page without its menus: navigation, side bars, footers, and buttons for sharing.
#
# Three rules decide what belongs to the page itself, from the most to the least certain: the only `main` or `article`
# element; everything outside elements that are marked as menus; everything. A rule that leaves too little is not used,
# so that a page with unusual markup loses nothing.

_MENU_ELEMENTS = frozenset(["nav", "aside", "footer", "menu"])
_MENU_ROLES = frozenset(["navigation", "banner", "contentinfo", "complementary", "search", "menu", "menubar"])
# Elements that contain the page are often named after what is next to the text, as in <body class="sidebar">.
_NEVER_A_MENU = frozenset(["html", "body", "main", "article", "h1", "h2", "h3", "p", "pre", "table"])
_MENU_NAME = re.compile(
    "(?:(?:main|site|top|side|page|global|primary|secondary|header|footer|mobile|user|sub)[-_]?)?"
    "(?:nav|navbar|navigation|menu|menubar|sidebar|sidenav|footer|breadcrumbs?|pagination)"
    "(?:[-_](?:bar|list|links?|menu|wrapper|container|items?|left|right|main|primary))?"
    "|(?:cookie|social|share)(?:[-_][a-z]{1,20}){0,3}|skip[-_]?(?:link|to-[a-z]{1,20})",
    re.IGNORECASE,
)
# Elements that change where text goes, apart from menus.
_STRUCTURE = frozenset(["main", "article", "ul", "ol", "a", "p"])
_NAMES_MAX_CHARS = 500
_CONTENT_MIN_CHARS = 200
_CONTENT_MIN_SHARE = 0.5
# A list in front of the text is a menu if it has this many links, and little else.
_LINKS_MIN = 3
_LINK_SHARE_MIN = 0.8


class ArticleText:
    """Collects the text of a page under each of the rules. It has the interface of `TextBuilder`."""

    def __init__(self, max_chars: int) -> None:
        self._all = TextBuilder(max_chars)
        self._without_menus = TextBuilder(max_chars)
        self._inside = {tag: TextBuilder(max_chars) for tag in ("main", "article")}
        self._counts = dict.fromkeys(self._inside, 0)
        self._depths = dict.fromkeys(self._inside, 0)
        self._menus = 0
        self._open: list[tuple[str, bool]] = []
        self._list = _LeadingList(max_chars)
        self._builders: Sequence[TextBuilder] = (self._all, self._without_menus)

    def start_element(self, tag: str, attributes: Mapping[str, str]) -> None:
        part = "main" if attributes.get("role", "").lower() == "main" else tag
        # A quotation or note in the text may have a footer.
        is_menu = tag in _MENU_ELEMENTS and not (tag == "footer" and any(self._depths.values()))
        if attributes and tag not in _NEVER_A_MENU and tag not in _MENU_ELEMENTS:
            names = f"{attributes.get('class', '')} {attributes.get('id', '')}"[:_NAMES_MAX_CHARS].split()
            is_menu = attributes.get("role", "").lower() in _MENU_ROLES or any(map(_MENU_NAME.fullmatch, names))
        self._open.append((part, is_menu))
        if not is_menu and part not in _STRUCTURE:
            return
        self._menus += is_menu
        if part in self._depths:
            self._counts[part] += not self._menus and self._depths[part] == 0
            self._depths[part] += 1
        if not self._menus:
            self._list.start(tag)
        self._select_builders()

    def end_element(self) -> None:
        if not self._open:
            return
        part, is_menu = self._open.pop()
        if not is_menu and part not in _STRUCTURE:
            return
        self._menus -= is_menu
        if part in self._depths:
            self._depths[part] -= 1
        if not self._menus and self._list.is_open and self._list.end(part):
            self._without_menus.append(self._list.text)
        self._select_builders()

    def write(self, text: str) -> None:
        self._list.count(text)
        for builder in self._builders:
            builder.write(text)

    def write_verbatim(self, text: str) -> None:
        for builder in self._builders:
            builder.write_verbatim(text)

    def end_line(self) -> None:
        for builder in self._builders:
            builder.end_line()

    def end_paragraph(self, prefix: str = "") -> None:
        self._list.has_text_before |= prefix.startswith("#") and not self._menus
        for builder in self._builders:
            builder.end_paragraph(prefix)

    def build(self) -> str:
        full, content = self._all.build(), self._without_menus.build()
        part = next((tag for tag in self._inside if self._counts[tag]), None)
        if part is not None and self._counts[part] == 1 and _is_enough(inside := self._inside[part].build(), full):
            return inside
        return content if _is_enough(content, full) else full

    def _select_builders(self) -> None:
        if self._menus:
            self._builders = (self._all,)
            return
        inside = [builder for tag, builder in self._inside.items() if self._depths[tag]]
        self._builders = (self._all, self._list.text if self._list.is_open else self._without_menus, *inside)


class _LeadingList:
    """A list in front of the text of a page, which is held back until it is known to be a menu or not."""

    def __init__(self, max_chars: int) -> None:
        self.text = TextBuilder(max_chars)
        self.has_text_before = False
        self._max_chars = max_chars
        self._depth = 0
        self._link_depth = 0
        self._links = 0
        self._chars = 0
        self._link_chars = 0

    @property
    def is_open(self) -> bool:
        return self._depth > 0

    def start(self, tag: str) -> None:
        if tag == "p":
            self.has_text_before = True
        if tag in ("ul", "ol") and (self._depth or not self.has_text_before):
            if not self._depth:
                self.text = TextBuilder(self._max_chars)
                self._links = self._chars = self._link_chars = self._link_depth = 0
            self._depth += 1
        if tag == "a" and self._depth:
            self._link_depth += 1
            self._links += 1

    def end(self, tag: str) -> bool:
        """Returns whether this element ended the list, and the list is not a menu."""
        if tag == "a":
            self._link_depth = max(0, self._link_depth - 1)
        if tag not in ("ul", "ol"):
            return False
        self._depth -= 1
        is_menu = self._links >= _LINKS_MIN and self._link_chars >= _LINK_SHARE_MIN * self._chars
        return not self._depth and not is_menu

    def count(self, text: str) -> None:
        # The list mark "- " is written by the reader.
        if self._depth and text != "- ":
            chars = len(text.strip())
            self._chars += chars
            self._link_chars += chars if self._link_depth else 0


def _is_enough(content: str, full: str) -> bool:
    return len(content) >= min(_CONTENT_MIN_CHARS, _CONTENT_MIN_SHARE * len(full))


_HIDDEN = frozenset(["script", "style", "template", "svg", "noscript", "iframe", "object", "select"])
# All other elements, known or not, are part of a line.
_BLOCK = re.compile(
    "address|article|aside|blockquote|caption|details|dialog|div|dl|fieldset|figcaption|figure|footer|form|h[1-6]|"
    "header|hr|main|nav|ol|p|section|summary|table|ul"
)
_LINE = frozenset(["br", "tr", "dt", "dd"])
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_DATES = ("article:published_time", "date", "dc.date", "dcterms.created", "pubdate", "citation_publication_date")
_CHARSET = re.compile(
    rb"""(?:<meta[^>]{0,200}?charset|<\?xml[^>]{0,200}?encoding)\s*+=\s*+["']?\s*+([\w-]{2,40})""", re.IGNORECASE
)
# Encodings of the Encoding Standard that Python knows by the same names. Some of Python's others, such as punycode,
# take quadratic time; and a page whose tags can be read is not UTF-16, whatever it declares.
_ENCODING = re.compile(
    "utf-?8|ibm866|iso-8859-(?:[2-8]|1[03456])|koi8-[ru]|windows-(?:874|125[0-8])|gbk|gb2312|gb18030|big5|euc-(?:jp|kr)|"
    "iso-2022-jp|shift[_-]jis|macintosh",
    re.IGNORECASE,
)
# Pages that declare Latin-1 mean Windows-1252 (Encoding Standard).
_LATIN = re.compile("iso-?8859-1|latin-?1|(?:us-)?ascii", re.IGNORECASE)
_HEAD_BYTES = 4096
# The parser compares an end tag without a start tag with all open elements, about 500 million per second.
_COMPARISONS_MAX = 500_000_000
_DEPTH_MIN = 256
_BLOCK_BYTES = 1 << 16
_META_MAX = 200
_META_MAX_CHARS = 1_000


def parse_page(path: Path, limits: ImportLimits) -> ParsedDocument:
    html = detect_page(read_bytes(path, limits.line_max_bytes), limits)
    page = read_page(html.text, ArticleText(limits.item_max_chars))
    return ParsedDocument(
        text=page.text.build(),
        title=replace_unstorable(page.title),
        author=page.meta(("author", "article:author", "dc.creator", "citation_author")),
        created=page.meta(_DATES),
        url=page.url if page.url.startswith(("https://", "http://")) else "",
        encoding=html.encoding,
        is_encoding_doubtful=html.is_doubtful,
        metadata={name: value for name in ("description", "keywords") if (value := page.meta([name]))},
    )


def decode_page(data: bytes, limits: ImportLimits) -> str:
    return doubted_text(detect_page(data, limits))


def detect_page(data: bytes, limits: ImportLimits) -> DecodedText:
    """Decodes with the encoding that the page declares, if it is known and there is no byte order mark."""
    declared = None if data.startswith(BOM_UTF8) else _CHARSET.search(data[:_HEAD_BYTES])
    encoding = python_encoding(declared[1].decode()) if declared else None
    try:
        return DecodedText(data.decode(encoding)) if encoding else decode(data, limits)
    except UnicodeDecodeError:
        return decode(data, limits)


def html_text(html: str, max_chars: int) -> str:
    """Returns the text of a page or fragment."""
    return read_page(html, TextBuilder(max_chars)).text.build()


def read_page(html: str, text: TextBuilder | ArticleText, reader: "type[PageReader] | None" = None) -> "PageReader":
    """Reads HTML or XHTML. In both, a self-closing element is empty, even a script or title."""
    page = (reader or PageReader)(text, max(_DEPTH_MIN, _COMPARISONS_MAX // (html.count("</") + 1)))
    if not html or html.isspace():
        return page
    # Any: the type stubs require a target that also accepts bytes and comments.
    target: Any = page
    parser = etree.HTMLParser(target=target, encoding="utf-8", huge_tree=True, recover=True)
    data = html.encode("utf-8", "replace")
    # An exception in the target is raised at the end of a block, so blocks are small.
    for start in range(0, len(data), _BLOCK_BYTES):
        parser.feed(data[start : start + _BLOCK_BYTES])
    parser.close()
    return page


def python_encoding(name: str) -> str | None:
    """Returns the name of an encoding for Python; None for unknown encodings and for those that are slow to decode."""
    if _LATIN.fullmatch(name):
        return "cp1252"
    return name if _ENCODING.fullmatch(name) else None


class PageReader:
    """A parser target that writes the visible text of a page into `text`."""

    def __init__(self, text: TextBuilder | ArticleText, depth_max: int) -> None:
        self.text = text
        self.title = ""
        self.url = ""
        self._meta: dict[str, str] = {}
        self._depth_max = depth_max
        self._depth = 0
        self._hidden: list[str] = []
        self._code: list[str] | None = None
        self._is_title = False

    def meta(self, names: Sequence[str]) -> str:
        """Returns the first of these meta values that the page has."""
        return next((replace_unstorable(self._meta[name]) for name in names if self._meta.get(name)), "")

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > self._depth_max:
            raise InvalidParams(f"HTML is nested more than {self._depth_max} levels deep")
        if tag in _HIDDEN:
            self._hidden.append(tag)
        elif self._hidden:
            return
        else:
            self.text.start_element(tag, attributes)
            if tag == "link":
                if attributes.get("rel", "").lower() == "canonical":
                    self.url = attributes.get("href", "")[:_META_MAX_CHARS]
            elif tag == "meta":
                name = (attributes.get("name") or attributes.get("property") or "").lower()
                if name and len(self._meta) < _META_MAX:
                    self._meta.setdefault(name, attributes.get("content", "").strip()[:_META_MAX_CHARS])
            elif tag == "title":
                self._is_title = not self.title
            elif tag == "pre":
                self.text.end_paragraph()
                self._code = []
            else:
                self._start_content(tag)

    def end(self, tag: str) -> None:
        self._depth -= 1
        if self._hidden:
            if tag == self._hidden[-1]:
                self._hidden.pop()
        else:
            if tag == "title":
                self._is_title = False
            elif tag == "pre":
                if self._code is not None:
                    self.text.write_verbatim("".join(self._code))
                    self._code = None
                    self.text.end_paragraph()
            elif _BLOCK.fullmatch(tag):
                self.text.end_paragraph()
            self.text.end_element()

    def data(self, text: str) -> None:
        if self._hidden:
            return
        if self._is_title:
            self.title = (self.title + text)[:_META_MAX_CHARS]
        elif self._code is not None:
            self._code.append(text)
        else:
            self.text.write(text.replace("\t", " "))

    def close(self) -> None:
        """Called by the parser after it has closed all elements."""

    def _start_content(self, tag: str) -> None:
        if tag in _HEADINGS:
            self.text.end_paragraph(_HEADINGS[tag])
        elif tag == "li":
            self.text.end_line()
            self.text.write("- ")
        elif tag in _LINE:
            if self._code is None:
                self.text.end_line()
            else:
                self._code.append("\n")
        elif tag in ("td", "th"):
            self.text.write("\t")
        elif _BLOCK.fullmatch(tag):
            self.text.end_paragraph()


# lxml asks for it whenever it creates a parser, which takes a third of the time to parse a short text.
PageReader.start.__signature__ = signature(PageReader.start)  # type: ignore[attr-defined]  # any function may have it
