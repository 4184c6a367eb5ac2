"""The result of parsing a document, and a builder for its text."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from signal import SIGKILL, SIGXCPU, Signals
from typing import IO, Any, Literal

import msgspec
from msgspec import Struct

from config.errors import InvalidParams, TooLarge
from config.numbers import replace_unstorable
from sources.importers.engine.confined_files import DESCRIPTOR_FOLDER, open_file
from sources.importers.engine.limits import ImportLimits
from sources.importers.sandbox import NO_SANDBOX, NO_SANDBOX_PROBLEM, child_environment

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


class PdfPage(Struct, frozen=True, kw_only=True, tag=True):
    """A page as an image, which is empty if the page was only looked for."""

    number: int
    png: bytes = b""


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


# -- parser process ----------------------------------------------------------------------------------------------------
# Parses a document in a subprocess with limits on time and memory.
#
# Whatever happens there, including crashes and endless loops, results in a value or in one error with a message.

DocumentKind = Literal["html", "pdf", "epub", "docx", "pptx", "xlsx", "odt", "rtf", "csv"]
# A document is a file, or the bytes of one inside another file.
DocumentParser = Callable[[Path | bytes, DocumentKind, ImportLimits], ParsedDocument]
# The exit code of the subprocess after a MemoryError.
OUT_OF_MEMORY = 3
_MODULE = "sources.importers.parsers"


def parse_in_subprocess(
    document: Path | bytes, kind: DocumentKind, limits: ImportLimits, process_group: int | None = None
) -> ParsedDocument:
    """Parses one document. With a process group, killing that group also ends the parser."""
    result = _run(document, kind, limits, b"", process_group)
    assert isinstance(result, ParsedDocument)
    return result


def pdf_page(document: Path, page: int | str, limits: ImportLimits) -> PdfPage:
    """Returns the image of a page, or the number of the one that contains a text."""
    result = _run(document, "pdf-page", limits, msgspec.json.encode(page))
    assert isinstance(result, PdfPage)
    return result


def _run(
    document: Path | bytes, kind: str, limits: ImportLimits, request: bytes, process_group: int | None = None
) -> ParsedDocument | PdfPage:
    """Runs the parser of a kind. The file is opened here, so that the parser need not open any. What is requested of
    it goes through a pipe, because other users of the machine can see arguments."""
    with open_file(document) if isinstance(document, Path) else _memory_file(document) as file:
        descriptor = file.fileno()
        path = f"{DESCRIPTOR_FOLDER}{descriptor}"
        command = [sys.executable, "-P", "-m", _MODULE, kind, path, msgspec.json.encode(limits).decode()]
        try:
            process = subprocess.run(  # noqa: S603 - our own module, and arguments that no shell reads
                command,
                pass_fds=(descriptor,),
                input=request,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=limits.parser_deadline_s,
                env=child_environment(),
                process_group=process_group,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise InvalidParams(f"parsing took longer than {limits.parser_deadline_s:g} s") from error
        if process.returncode:
            raise InvalidParams(_exit_problem(process.returncode, limits))
        result = msgspec.json.decode(process.stdout, type=ParsedDocument | PdfPage | ParseFailure)
        if isinstance(result, ParseFailure):
            raise InvalidParams(result.problem)
        return result


def _memory_file(content: bytes) -> IO[bytes]:
    """Returns a file without a name. Its content stays in memory where the system supports that."""
    file: IO[bytes]
    if sys.platform == "linux":
        file = os.fdopen(os.memfd_create("document"), "wb")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(content)
    file.flush()
    return file


def _exit_problem(code: int, limits: ImportLimits) -> str:
    if code == NO_SANDBOX:
        return NO_SANDBOX_PROBLEM
    memory = f"{limits.parser_memory_max_bytes >> 20} MiB of memory"
    if code in (-SIGXCPU, -SIGKILL):
        return f"parsing took more than {limits.parser_cpu_s} s of CPU time"
    if code == OUT_OF_MEMORY:
        return f"parsing took more than {memory}"
    if code < 0:
        # pdfium crashes on some malformed input, and also when it cannot allocate memory.
        name = Signals(-code).name if -code in list(Signals) else f"signal {-code}"
        return f"the parser crashed ({name}): the document is damaged, or needs more than {memory}"
    return "the document is damaged"
