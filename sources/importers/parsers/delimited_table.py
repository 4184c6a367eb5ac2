"""Tables in text, such as CSV: a line for each row, with tabs between the cells."""

import csv
from pathlib import Path

from config.errors import InvalidParams
from sources.importers.engine.csv_rows import table_lines
from sources.importers.engine.files import decode, read_bytes
from sources.importers.engine.limits import ImportLimits
from sources.importers.parsers.parsed_document import ParsedDocument, TextBuilder

_DELIMITERS = ",;\t"


def parse_table(path: Path, limits: ImportLimits) -> ParsedDocument:
    decoded = decode(read_bytes(path, limits.line_max_bytes), limits)
    delimiter = max(_DELIMITERS, key=decoded.text.partition("\n")[0].count)
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
        text=text.build(),
        encoding=decoded.encoding,
        is_encoding_doubtful=decoded.is_doubtful,
        metadata={"rows": rows},
    )
