"""Spreadsheets, and tables in text such as CSV: a line for each row, with tabs between the cells."""

import csv
import mimetypes
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from config.errors import InvalidParams
from sources.importers.engine.archives import ZIP_ERRORS, open_archive
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.files import decode, read_bytes
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.table_reader import table_lines
from sources.importers.parsers.parsed_document import LIBRARY_ERRORS, ParsedDocument, TextBuilder


def parse_table(path: Path, limits: ImportLimits) -> ParsedDocument:
    decoded = decode(read_bytes(path, limits.line_max_bytes), limits)
    delimiter = max(",;\t", key=decoded.text.partition("\n")[0].count)
    text = TextBuilder(limits.item_max_chars)
    rows = 0
    try:
        for row in csv.reader(table_lines(decoded.text, delimiter), delimiter=delimiter):
            rows += bool(row)
            text.write("".join(f"\t{' '.join(value.split())}" for value in row))
            text.end_line()
    except csv.Error as error:
        raise InvalidParams(f"table is damaged: {error}") from error
    return ParsedDocument(
        text=text.build(), encoding=decoded.encoding, is_encoding_doubtful=decoded.is_doubtful, metadata={"rows": rows}
    )


# -- spreadsheet -------------------------------------------------------------------------------------------------------
# Excel workbooks, sheet by sheet, with openpyxl from the extra `office`. Formulas are read as their last results.

# Empty cells count, because a row is as long as its last cell: a few bytes can declare billions of them.
_CELLS_MAX = 3_000_000
_SHEETS_MAX = 1_000
_CONTENT_TYPES = "[Content_Types].xml"
_PROLOG_BYTES = 1 << 16
_PROPERTIES = ("subject", "keywords", "description", "language")


def parse_workbook(path: Path, limits: ImportLimits) -> ParsedDocument:
    with open_archive(path, limits) as archive:
        archive.require_moderate()
        # Refuses what openpyxl cannot read before it is loaded.
        has_content_types = False
        if _CONTENT_TYPES in archive.names:
            with archive.open(_CONTENT_TYPES) as part:
                has_content_types = bool(part.read(1))
        if not has_content_types:
            raise InvalidParams("spreadsheet is damaged")
        # Office documents declare no entities. defusedxml refuses those that this overlooks.
        for name in archive.names:
            if name.endswith((".xml", ".rels")):
                with archive.open(name) as part:
                    if b"<!DOCTYPE" in part.read(_PROLOG_BYTES).replace(b"\0", b""):
                        raise InvalidParams("XML contains a document type, which is not supported")
    # openpyxl loads the system's lists of MIME types, which the sandbox denies and no spreadsheet needs.
    mimetypes.knownfiles.clear()
    try:
        import openpyxl  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra, and heavy; it has no types
    except ModuleNotFoundError as error:
        raise InvalidParams("spreadsheet support is not installed: it is in the extra office of florilegium") from error
    with open_file(path) as file:
        try:
            workbook = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
            sheets = workbook.worksheets
            if len(sheets) > _SHEETS_MAX:
                raise InvalidParams(f"spreadsheet: expected at most {_SHEETS_MAX} sheets, got {len(sheets)}")
            text = TextBuilder(limits.item_max_chars)
            cells_left = _CELLS_MAX
            for sheet in sheets:
                text.end_paragraph()
                text.write(f"# {sheet.title}")
                text.end_paragraph()
                # The size that a sheet declares may be wrong, and rows would be filled up to it.
                sheet.reset_dimensions()
                for row in sheet.iter_rows(values_only=True):
                    cells_left -= len(row) + 1
                    if cells_left < 0:
                        raise InvalidParams(f"spreadsheet has more than {_CELLS_MAX} cells")
                    values = ["" if value is None else _cell_text(value) for value in row]
                    while values and not values[-1]:
                        values.pop()
                    text.write("".join(f"\t{value}" for value in values))
                    text.end_line()
            properties = workbook.properties
            fields = {name: str(getattr(properties, name) or "") for name in _PROPERTIES}
            return ParsedDocument(
                text=text.build(),
                title=str(properties.title or ""),
                author=str(properties.creator or ""),
                created=properties.created.isoformat() if properties.created else "",
                metadata={"sheets": len(sheets), **{name: value for name, value in fields.items() if value}},
            )
        except (*LIBRARY_ERRORS, *ZIP_ERRORS) as error:
            raise InvalidParams("spreadsheet is damaged") from error


def _cell_text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(" ") if value.time() != time() else value.date().isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return " ".join(str(value).split())
