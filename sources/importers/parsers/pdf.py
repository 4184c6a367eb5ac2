"""PDF, page by page, with pdfium from the extra `pdf`. Scanned pages have no text."""

import re
from pathlib import Path
from typing import Any

from config.errors import InvalidParams
from config.numbers import replace_unstorable
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.limits import ImportLimits
from sources.importers.parsers.parsed_document import ParsedDocument, TextBuilder

_DATE_DIGITS = 14
# The longest works have about ten thousand pages; an empty page takes a few bytes and forty microseconds.
_PAGES_MAX = 20_000
# In points. Includes text outside the page, because no text should be lost to a wrong page box.
_EVERYWHERE = (-1e7, -1e7, 1e7, 1e7)
# How pdfium marks a hyphen at the end of a line before it continues with the next line.
_HYPHEN = re.compile("\x02(.?)", re.DOTALL)
# The codes of FPDF_GetLastError; None means that a page could not be loaded.
_PROBLEMS: dict[int | None, str] = {
    None: "PDF contains a damaged page",
    0: "PDF has no pages",
    4: "PDF is protected by a password",
    5: "PDF uses an unsupported protection scheme",
}
_PROPERTY_MAX_CHARS = 1_000


def parse_pdf(path: Path, limits: ImportLimits) -> ParsedDocument:
    try:
        import pypdfium2  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra, and heavy; it has no types
    except ModuleNotFoundError as error:
        raise InvalidParams("PDF support is not installed: pip install 'florilegium[pdf]'") from error
    try:
        with open_file(path) as file, pypdfium2.PdfDocument(file) as document:
            if len(document) > _PAGES_MAX:
                raise InvalidParams(f"PDF: expected at most {_PAGES_MAX} pages, got {len(document)}")
            text = TextBuilder(limits.item_max_chars)
            for page in document:
                page_text: str = page.get_textpage().get_text_bounded(*_EVERYWHERE)
                # Frees the memory of the page, which is otherwise held until the document is closed.
                page.close()
                # Removes the hyphen of a divided word. One before a capital or digit belongs to a name or number.
                text.write_verbatim(
                    _HYPHEN.sub(
                        lambda end: f"{'' if end[1].islower() else '-'}{end[1]}", page_text.replace("\r\n", "\n")
                    )
                )
                text.end_paragraph()
            fields = {name: _property(document, name.capitalize()) for name in ("subject", "keywords")}
            return ParsedDocument(
                text=text.build(),
                title=_property(document, "Title"),
                author=_property(document, "Author"),
                created=_iso_date(_property(document, "CreationDate")),
                metadata={"pages": len(document), **{name: value for name, value in fields.items() if value}},
            )
    except pypdfium2.PdfiumError as error:
        raise InvalidParams(_PROBLEMS.get(error.err_code, "PDF is damaged")) from error


def _property(document: Any, key: str) -> str:
    try:
        value: str = document.get_metadata_value(key)
    except UnicodeDecodeError:
        return ""
    return replace_unstorable(" ".join(value.split()))[:_PROPERTY_MAX_CHARS]


def _iso_date(date: str) -> str:
    """Converts `D:20240105103000+01'00'` and shorter forms."""
    digits = date.removeprefix("D:")[:_DATE_DIGITS]
    if not digits.isdecimal() or len(digits) < 8:
        return ""
    day = f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}"
    if len(digits) < _DATE_DIGITS:
        return day
    zone = date.removeprefix("D:")[_DATE_DIGITS:].replace("'", "")[:5] or "Z"
    return f"{day}T{digits[8:10]}:{digits[10:12]}:{digits[12:14]}{zone}"
