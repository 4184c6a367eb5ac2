"""PDF, page by page, with pdfium from the extra `pdf`. Scanned pages have no text."""

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from config.errors import InvalidParams
from config.numbers import replace_unstorable
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.limits import ImportLimits
from sources.importers.parsers.parsed_document import ParsedDocument, PdfPage, TextBuilder

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
# An image of a page has at most this width and height, in pixels: text of a usual page is easy to read, and 1.5 million
# pixels take 6 MB.
_IMAGE_WIDTH, _IMAGE_HEIGHT = 1_000, 1_500


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        import pypdfium2  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra, and heavy; it has no types
    except ModuleNotFoundError as error:
        raise InvalidParams("PDF support is not installed: it is in the extra pdf of florilegium") from error
    try:
        with open_file(path) as file, pypdfium2.PdfDocument(file) as document:
            if len(document) > _PAGES_MAX:
                raise InvalidParams(f"PDF: expected at most {_PAGES_MAX} pages, got {len(document)}")
            yield document
    except pypdfium2.PdfiumError as error:
        raise InvalidParams(_PROBLEMS.get(error.err_code, "PDF is damaged")) from error


def parse_pdf(path: Path, limits: ImportLimits) -> ParsedDocument:
    with _open(path) as document:
        text = TextBuilder(limits.item_max_chars)
        for page_text in _texts(document):
            text.write_verbatim(page_text)
            text.end_paragraph()
        fields = {name: _property(document, name.capitalize()) for name in ("subject", "keywords")}
        return ParsedDocument(
            text=text.build(),
            title=_property(document, "Title"),
            author=_property(document, "Author"),
            created=_iso_date(_property(document, "CreationDate")),
            metadata={"pages": len(document), **{name: value for name, value in fields.items() if value}},
        )


def read_page(path: Path, _limits: ImportLimits, page: int | str) -> PdfPage:
    """Returns the image of a page, or the number of the first one with a text. A text that is on none is said to be on
    the first page: it may have been edited since."""
    with _open(path) as document:
        if isinstance(page, int):
            if not 1 <= page <= len(document):
                raise InvalidParams(f"page: expected 1 to {len(document)}, got {page}")
            return PdfPage(number=page, png=_image(document[page - 1]))
        wanted, end_of_last = " ".join(page.split()), ""
        for number, page_text in enumerate(_texts(document), 1):
            text = " ".join(page_text.split())
            # A passage may begin on one page and end on the next.
            start = f"{end_of_last} {text}".find(wanted)
            if start >= 0:
                return PdfPage(number=number - 1 if start < len(end_of_last) else number)
            end_of_last = text[-len(wanted) :]
    return PdfPage(number=1)


def _texts(document: Any) -> Iterator[str]:
    for page in document:
        text: str = page.get_textpage().get_text_bounded(*_EVERYWHERE)
        # Frees the memory of the page, which is otherwise held until the document is closed.
        page.close()
        # Removes the hyphen of a divided word. One before a capital or digit belongs to a name or number.
        yield _HYPHEN.sub(lambda end: f"{'' if end[1].islower() else '-'}{end[1]}", text.replace("\r\n", "\n"))


def _image(page: Any) -> bytes:
    """Returns a page as PNG. The sandbox hides the fonts of the machine, so that text in a font that is not embedded is
    drawn in one of pdfium's own."""
    width, height = page.get_size()
    scale = min(_IMAGE_WIDTH / max(width, 1), _IMAGE_HEIGHT / max(height, 1))
    bitmap = page.render(scale=scale, rev_byteorder=True)
    pixels = bytes(bitmap.buffer)
    # Each row begins with the number of its filter (PNG, section 9): 0, none.
    row_bytes = bitmap.width * bitmap.n_channels
    starts = range(0, bitmap.height * bitmap.stride, bitmap.stride)
    rows = b"".join(b"\0" + pixels[start : start + row_bytes] for start in starts)
    colour = {1: 0, 3: 2, 4: 6}[bitmap.n_channels]
    header = bitmap.width.to_bytes(4) + bitmap.height.to_bytes(4) + bytes((8, colour, 0, 0, 0))
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4) for kind, data in chunks
    )


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
