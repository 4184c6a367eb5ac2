"""The result of parsing a document, and a builder for its text."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from config.errors import TooLarge
from config.text import replace_unstorable

_BYTES_PER_CHAR = 4
# What libraries that parse documents raise for malformed ones, besides the errors of zip files. XML parsers raise
# subclasses of SyntaxError.
LIBRARY_ERRORS = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, SyntaxError, AssertionError),
    *(RuntimeError, OSError),
)


class ParsedDocument(Struct, frozen=True, kw_only=True, tag=True):
    """`created` is the date as the document writes it; `metadata` holds its other properties."""

    text: str
    title: str = ""
    author: str = ""
    created: str = ""
    url: str = ""
    # The encoding that was detected, for text without a declared one; "" for Unicode.
    encoding: str = ""
    is_encoding_doubtful: bool = False
    metadata: Mapping[str, Any] = {}


class ParseFailure(Struct, frozen=True, tag=True):
    problem: str


class TextBuilder:
    """Builds a text of paragraphs, separated by empty lines. White space within a line is collapsed."""

    def __init__(self, max_chars: int) -> None:
        self._chars_left = self._max_chars = max_chars
        self.paragraphs: list[str] = []
        self._lines: list[str] = []
        self._words: list[str] = []
        self._prefix = ""

    def write(self, text: str) -> None:
        self._count(len(text))
        self._words.append(text)

    def write_verbatim(self, text: str) -> None:
        """Adds lines without collapsing white space, for code."""
        self._count(len(text))
        self.end_line()
        self._lines.extend(line.rstrip() for line in text.split("\n"))

    def end_line(self) -> None:
        if not self._words:
            return
        # White space is collapsed, except for the tabs that separate table cells. Every cell starts with a tab; the
        # first one of a row needs none.
        cells = "".join(self._words).split("\t")
        line = "\t".join(" ".join(cell.split()) for cell in cells).removeprefix("\t")
        self._words = []
        if line.strip():
            self._lines.append(self._prefix + line)
            self._prefix = ""

    def end_paragraph(self, prefix: str = "") -> None:
        """Ends the paragraph. `prefix` is put before the next line, if there is one."""
        self.end_line()
        if self._lines:
            text = "\n".join(self._lines).strip("\n")
            if text.strip():
                self.paragraphs.append(text)
            self._lines = []
        self._prefix = prefix

    def append(self, other: "TextBuilder") -> None:
        """Adds the paragraphs of another text."""
        self.end_paragraph()
        other.end_paragraph()
        self._count(sum(map(len, other.paragraphs)))
        self.paragraphs += other.paragraphs

    def start_element(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Called for every visible element of a page; see `ArticleText`."""

    def end_element(self) -> None:
        """Called when the element ends."""

    def build(self) -> str:
        self.end_paragraph()
        return replace_unstorable("\n\n".join(self.paragraphs))

    def _count(self, chars: int) -> None:
        self._chars_left -= chars
        if self._chars_left < 0:
            raise TooLarge("the document's text", self._max_chars * _BYTES_PER_CHAR)
