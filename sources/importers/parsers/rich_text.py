"""RTF, with striprtf from the extra `office`."""

import re
from pathlib import Path

from config.errors import InvalidParams
from config.text import replace_unstorable
from sources.importers.engine.files import read_bytes
from sources.importers.engine.limits import ImportLimits
from sources.importers.parsers.parsed_document import LIBRARY_ERRORS, ParsedDocument, TextBuilder

# Pictures are hexadecimal digits, which would be read one by one.
_PICTURE_DATA = re.compile(r"(?<![0-9a-fA-F\r\n])[0-9a-fA-F\r\n]{400,}+")
_PROPERTY = re.compile(r"\{\\(title|author|subject|keywords) ([^{}\\]{1,500})\}")
_HEAD_CHARS = 20_000


def parse_rich_text(path: Path, limits: ImportLimits) -> ParsedDocument:
    try:
        from striprtf.striprtf import rtf_to_text  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise InvalidParams("RTF support is not installed: pip install 'florilegium[office]'") from error
    # Outside pictures, RTF is ASCII; other bytes are errors of the program that wrote it.
    source = _PICTURE_DATA.sub("", read_bytes(path, limits.line_max_bytes).decode("cp1252", "replace"))
    try:
        plain: str = rtf_to_text(source, errors="replace")  # type: ignore[no-untyped-call]
    except LIBRARY_ERRORS as error:
        raise InvalidParams("RTF is damaged") from error
    text = TextBuilder(limits.item_max_chars)
    for paragraph in plain.replace("|", "\t").split("\n") if "\\cell" in source else plain.split("\n"):
        text.write(paragraph.replace("\xa0", " "))
        text.end_paragraph()
    properties = {name: replace_unstorable(value.strip()) for name, value in _PROPERTY.findall(source[:_HEAD_CHARS])}
    return ParsedDocument(
        text=text.build(),
        title=properties.pop("title", ""),
        author=properties.pop("author", ""),
        metadata=properties,
    )
