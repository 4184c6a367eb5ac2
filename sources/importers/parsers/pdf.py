"""PDF, page by page, with pdfium, which comes with the extra `pdf`. Pages that are pictures have no text here."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from config.errors import InvalidParams
from config.text import replace_unstorable
from sources.importers.engine.importer import ImportLimits
from sources.importers.parsers.prose import Parsed, Prose

_DATE_DIGITS = 14
# The longest works have some ten thousand; an empty page takes a few bytes and forty microseconds.
_PAGES_MAX = 20_000
# What stands beside the page too: a box that is drawn wrongly should not cost the text. In points.
_EVERYWHERE = (-1e7, -1e7, 1e7, 1e7)
# How pdfium marks a hyphen at the end of a line, and goes on with the next line.
_HYPHEN = re.compile("\x02(.?)", re.DOTALL)


def parse_pdf(path: Path, limits: ImportLimits) -> Parsed:
    try:
        import pypdfium2  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra, and heavy; it has no types
    except ModuleNotFoundError as error:
        raise InvalidParams("PDF: got no reader for it, expected the extra: pip install 'florilegium[pdf]'") from error
    try:
        with pypdfium2.PdfDocument(path) as document:
            return _read(document, limits)
    except pypdfium2.PdfiumError as error:
        raise InvalidParams(f"the PDF: got {_problem(error.err_code)}, expected one that can be read") from error


def _problem(code: int | None) -> str:
    """By the codes of FPDF_GetLastError; a page that cannot be loaded has none."""
    match code:
        case None:
            return "a damaged page"
        case 0:
            return "one without pages"
        case 4:
            return "one that needs a password"
        case 5:
            return "one with a protection that no reader knows"
        case _:
            return "a damaged one"


def _read(document: Any, limits: ImportLimits) -> Parsed:
    if len(document) > _PAGES_MAX:
        raise InvalidParams(f"the PDF: got {len(document)} pages, expected at most {_PAGES_MAX}")
    prose = Prose(limits.item_max_chars)
    for text in _page_texts(document):
        prose.verbatim(text)
        prose.end_paragraph()
    others = {name: _said(document, name.capitalize()) for name in ("subject", "keywords")}
    return Parsed(
        text=prose.finished(),
        title=_said(document, "Title"),
        author=_said(document, "Author"),
        created=_iso(_said(document, "CreationDate")),
        metadata={"pages": len(document), **{name: value for name, value in others.items() if value}},
    )


def _page_texts(document: Any) -> Iterator[str]:
    for page in document:
        text: str = page.get_textpage().get_text_bounded(*_EVERYWHERE)
        # With what was read of it, which else stays until the end.
        page.close()
        yield _HYPHEN.sub(_joined, text.replace("\r\n", "\n"))


def _joined(hyphen: "re.Match[str]") -> str:
    """The word goes on; but names and numbers have hyphens of their own."""
    following = hyphen[1]
    return following if following.islower() else f"-{following}"


def _said(document: Any, key: str) -> str:
    try:
        value: str = document.get_metadata_value(key)
    except UnicodeDecodeError:
        return ""
    return replace_unstorable(" ".join(value.split()))[:1_000]


def _iso(written: str) -> str:
    """`D:20240105103000+01'00'` and shorter forms; a day is enough to be found by."""
    digits = written.removeprefix("D:")[:_DATE_DIGITS]
    if not digits.isdecimal() or len(digits) < 8:
        return ""
    day = f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}"
    if len(digits) < _DATE_DIGITS:
        return day
    zone = written.removeprefix("D:")[_DATE_DIGITS:].replace("'", "")[:5] or "Z"
    return f"{day}T{digits[8:10]}:{digits[10:12]}:{digits[12:14]}{zone}"
