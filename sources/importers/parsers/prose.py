"""The text of a document as it is put together, paragraph by paragraph, and what the document says of itself."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from config.errors import TooLarge
from config.text import replace_unstorable

_BYTES_PER_CHAR = 4


class Parsed(Struct, frozen=True, kw_only=True, tag=True):
    """A document that was read. `created` is as it was written there; `metadata` what else it says of itself."""

    text: str
    title: str = ""
    author: str = ""
    created: str = ""
    url: str = ""
    metadata: Mapping[str, Any] = {}


class Refused(Struct, frozen=True, tag=True):
    """A document that was not read, and why, in a sentence."""

    problem: str


class Prose:
    """Paragraphs with an empty line between them; white space in a line counts once."""

    def __init__(self, max_chars: int) -> None:
        self._left_chars = self._max_chars = max_chars
        self._paragraphs: list[str] = []
        self._lines: list[str] = []
        self._words: list[str] = []
        self._prefix = ""

    def write(self, text: str) -> None:
        self._take(len(text))
        self._words.append(text)

    def verbatim(self, text: str) -> None:
        """Lines as they are, as code has them."""
        self._take(len(text))
        self.end_line()
        self._lines.extend(line.rstrip() for line in text.split("\n"))

    def end_line(self) -> None:
        if not self._words:
            return
        # The first cell of a row has nothing before it.
        line = _squeezed("".join(self._words)).removeprefix("\t")
        self._words = []
        if line.strip():
            self._lines.append(self._prefix + line)
            self._prefix = ""

    def end_paragraph(self, prefix: str = "") -> None:
        """The next one begins with `prefix`, if there is a next one."""
        self.end_line()
        if self._lines:
            text = "\n".join(self._lines).strip("\n")
            if text.strip():
                self._paragraphs.append(text)
            self._lines = []
        self._prefix = prefix

    def finished(self) -> str:
        self.end_paragraph()
        return replace_unstorable("\n\n".join(self._paragraphs))

    def _take(self, chars: int) -> None:
        self._left_chars -= chars
        if self._left_chars < 0:
            raise TooLarge("the text of the document", self._max_chars * _BYTES_PER_CHAR)


def _squeezed(text: str) -> str:
    """Tabs stay, because they are between the cells of a table."""
    return "\t".join(" ".join(cell.split()) for cell in text.split("\t"))
