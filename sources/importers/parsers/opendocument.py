"""OpenDocument texts (odt): paragraphs, headings, lists, tables and footnotes, without deleted text and comments."""

from collections.abc import Mapping
from pathlib import Path

from config.errors import InvalidParams
from sources.importers.engine.archives import open_archive
from sources.importers.engine.limits import ImportLimits
from sources.importers.parsers.parsed_document import ParsedDocument, TextBuilder
from sources.importers.parsers.xml_events import ElementTexts, XmlHandler, attribute, read_part

_CONTENT, _META = "content.xml", "meta.xml"
_MANIFEST = "META-INF/manifest.xml"
_PROPERTIES = frozenset(
    ["title", "creator", "initial-creator", "creation-date", "date", "subject", "keyword", "description", "language"]
)
_HIDDEN = frozenset(["tracked-changes", "annotation", "note-citation", "sequence-decls", "forms"])
_SPACES_MAX = 100


def parse_text_document(path: Path, limits: ImportLimits) -> ParsedDocument:
    with open_archive(path, limits) as archive:
        if _MANIFEST in archive and b"encryption-data" in archive.read(_MANIFEST, limits.line_max_bytes):
            raise InvalidParams("the document is protected by a password")
        text = TextBuilder(limits.item_max_chars)
        read_part(archive, _CONTENT, _OpenDocumentText(text))
        properties = ElementTexts(_PROPERTIES)
        if _META in archive:
            read_part(archive, _META, properties)
    fields = {name: properties.first(name) for name in ("subject", "description", "language")}
    keywords = ", ".join(properties.texts.get("keyword", ()))
    return ParsedDocument(
        text=text.build(),
        title=properties.first("title"),
        author=properties.first("initial-creator") or properties.first("creator"),
        created=properties.first("creation-date") or properties.first("date"),
        metadata={name: value for name, value in {**fields, "keywords": keywords}.items() if value},
    )


class _OpenDocumentText(XmlHandler):
    def __init__(self, text: TextBuilder) -> None:
        self._text = text
        self._is_body = False
        self._hidden_element = ""
        self._hidden_depth = 0
        self._cells = 0
        self._notes = 0
        self._lists = 0
        self._is_item_start = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._hidden_element:
            self._hidden_depth += name == self._hidden_element
        elif name in _HIDDEN:
            self._hidden_element, self._hidden_depth = name, 1
        elif name == "body":
            self._is_body = True
        elif self._is_body:
            self._start_content(name, attributes)

    def end(self, name: str) -> None:
        if self._hidden_element:
            # A hidden element may contain others of its name.
            self._hidden_depth -= name == self._hidden_element
            self._hidden_element = self._hidden_element if self._hidden_depth else ""
        elif name == "table-cell":
            self._cells -= 1
        elif name == "table":
            self._text.end_paragraph()
        elif name == "list":
            self._lists -= 1
            if not self._lists:
                self._text.end_paragraph()
        elif name == "note":
            self._notes -= 1
            self._text.write("]")

    def data(self, text: str) -> None:
        if self._is_body and not self._hidden_element:
            # Tabs separate the cells of tables.
            self._text.write(text.replace("\t", " "))

    def _start_content(self, name: str, attributes: Mapping[str, str]) -> None:
        match name:
            case "h":
                level = attribute(attributes, "outline-level")
                self._text.end_paragraph("#" * int(level) + " " if level in ("1", "2", "3", "4", "5", "6") else "# ")
            case "p":
                self._start_paragraph()
            case "list-item":
                self._is_item_start = True
                self._text.end_line()
                self._text.write("- ")
            case "table-row":
                self._text.end_line()
            case "table-cell":
                self._cells += 1
                self._text.write("\t")
            case "note":
                self._notes += 1
                self._text.write(" [")
            case "table":
                self._text.end_paragraph()
            case "list":
                # A list inside an item of another list continues it.
                if not self._lists:
                    self._text.end_paragraph()
                self._lists += 1
            case "s":
                count = attribute(attributes, "c")
                self._text.write(" " * min(int(count) if count.isdecimal() else 1, _SPACES_MAX))
            case "tab":
                self._text.write(" ")
            case "line-break":
                self._text.end_line()

    def _start_paragraph(self) -> None:
        """Within a table cell or a footnote, paragraphs are on one line. The first one of a list item follows its
        dash."""
        if self._cells or self._notes:
            self._text.write(" " if self._cells else "")
        elif self._is_item_start:
            self._is_item_start = False
        else:
            self._text.end_paragraph()
