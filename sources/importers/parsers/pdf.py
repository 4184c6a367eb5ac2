"""PDF, page by page, with pypdf, which comes with the extra `pdf`. Pages that are pictures have no text here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config.errors import InvalidParams
from sources.importers.importer import Limits
from sources.importers.parsers.prose import Parsed, Prose, cleaned

_DATE_DIGITS = 14


def parse_pdf(path: Path, limits: Limits) -> Parsed:
    try:
        from pypdf import PdfReader  # noqa: PLC0415 - an extra, and heavy
        from pypdf.errors import PyPdfError  # noqa: PLC0415 - the same
    except ModuleNotFoundError as error:
        raise InvalidParams("PDF: got no reader for it, expected the extra: pip install 'florilegium[pdf]'") from error
    try:
        reader = PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            raise InvalidParams("the PDF: got one that needs a password, expected one that can be read")
        prose = Prose(limits.item_max_chars)
        for page in reader.pages:
            prose.verbatim(page.extract_text())
            prose.end_paragraph()
        return _parsed(prose, len(reader.pages), reader.metadata or {})
    except PyPdfError as error:
        raise InvalidParams(f"the PDF: got {str(error)[:120]!r}, expected one that is whole") from error


def _parsed(prose: Prose, pages: int, said: Mapping[str, Any]) -> Parsed:
    others = {name: _text(said, f"/{name.capitalize()}") for name in ("subject", "keywords")}
    return Parsed(
        text=prose.finished(),
        title=_text(said, "/Title"),
        author=_text(said, "/Author"),
        created=_iso(_text(said, "/CreationDate")),
        metadata={"pages": pages, **{name: value for name, value in others.items() if value}},
    )


def _text(said: Mapping[str, Any], key: str) -> str:
    value = said.get(key)
    return cleaned(" ".join(value.split()))[:1_000] if isinstance(value, str) else ""


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
