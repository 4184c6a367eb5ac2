"""Word, RTF and OpenDocument texts and PowerPoint presentations: their text in reading order, with headings, lists,
tables and notes.

Tracked deletions, and the fallback copies that newer programs add for older ones, are left out.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from posixpath import dirname, join, normpath

from config.errors import InvalidParams
from config.numbers import replace_unstorable
from sources.importers.engine.archives import Archive, open_archive
from sources.importers.engine.files import read_bytes
from sources.importers.engine.limits import ImportLimits
from sources.importers.parsers.parsed_document import LIBRARY_ERRORS, ParsedDocument, TextBuilder
from sources.importers.parsers.xml_events import ElementTexts, XmlHandler, attribute, read_part

_CORE_PROPERTIES = "docProps/core.xml"
_WORD, _PRESENTATION = "word/document.xml", "ppt/presentation.xml"
_PROPERTIES = frozenset(["title", "creator", "created", "subject", "keywords", "description", "language"])
_HEADING = re.compile(r"heading ?([1-6])", re.IGNORECASE)
_SLIDE = re.compile(r"ppt/slides/slide(\d{1,6})\.xml")


def parse_word(path: Path, limits: ImportLimits) -> ParsedDocument:
    with open_archive(path, limits) as archive:
        text = TextBuilder(limits.item_max_chars)
        main = _main_part(archive, _WORD)
        notes: list[str] = []
        for kind in ("footnotes", "endnotes"):
            usual = join(dirname(main), f"{kind}.xml")
            notes += _related_parts(archive, main, kind).values() or ([usual] if usual in archive else ())
        for name in dict.fromkeys((main, *notes)):
            _write_part(archive, name, text)
        return _parsed_document(archive, text, {})


def parse_slides(path: Path, limits: ImportLimits) -> ParsedDocument:
    with open_archive(path, limits) as archive:
        text = TextBuilder(limits.item_max_chars)
        # The slides in the order of the presentation, or by number if it defines no order.
        main = _main_part(archive, _PRESENTATION)
        order = _SlideOrder(_related_parts(archive, main, "slide"))
        read_part(archive, main, order)
        numbered = [(int(slide[1]), name) for name in archive.names if (slide := _SLIDE.fullmatch(name))]
        # A slide listed twice is read once: a few bytes could otherwise request it without end.
        slides = list(dict.fromkeys(order.slides)) or [name for _, name in sorted(numbered)]
        for number, name in enumerate(slides, 1):
            text.end_paragraph()
            text.write(f"# Slide {number}")
            _write_part(archive, name, text)
            for notes in dict.fromkeys(_related_parts(archive, name, "notesSlide").values()):
                text.end_paragraph()
                text.write("Notes:")
                _write_part(archive, notes, text)
        return _parsed_document(archive, text, {"slides": len(slides)})


def _parsed_document(archive: Archive, text: TextBuilder, counts: Mapping[str, int]) -> ParsedDocument:
    properties = ElementTexts(_PROPERTIES)
    if _CORE_PROPERTIES in archive:
        read_part(archive, _CORE_PROPERTIES, properties)
    fields = {name: properties.first(name) for name in ("subject", "keywords", "description", "language")}
    return ParsedDocument(
        text=text.build(),
        title=properties.first("title"),
        author=properties.first("creator"),
        created=properties.first("created"),
        metadata={**counts, **{name: value for name, value in fields.items() if value}},
    )


def _main_part(archive: Archive, usual: str) -> str:
    """Returns the part that the package names as its main one (ECMA-376, part 2, 9.3); programs call it differently."""
    targets = _related_parts(archive, "", "officeDocument")
    return next(iter(targets.values()), usual)


class _SlideOrder(XmlHandler):
    """Collects the slides of a presentation; `targets` has their names by relation id."""

    def __init__(self, targets: Mapping[str, str]) -> None:
        self.slides: list[str] = []
        self._targets = targets

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "sldId":
            self.slides.extend(self._targets[value] for value in attributes.values() if value in self._targets)


def _related_parts(archive: Archive, name: str, kind: str) -> dict[str, str]:
    """Returns the parts of one kind that a part refers to, by relation id."""
    relations_name = join(dirname(name), "_rels", f"{name.rpartition('/')[2]}.rels")
    relations = _Relations(archive, dirname(name), kind)
    if relations_name in archive:
        read_part(archive, relations_name, relations)
    return relations.targets


class _Relations(XmlHandler):
    def __init__(self, archive: Archive, folder: str, kind: str) -> None:
        self.targets: dict[str, str] = {}
        self._archive = archive
        self._folder = folder
        self._kind = kind

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "Relationship" and attribute(attributes, "Type").endswith("/" + self._kind):
            target = normpath(join("/", self._folder, attribute(attributes, "Target"))).lstrip("/")
            if target in self._archive:
                self.targets[attribute(attributes, "Id")] = target


def _write_part(archive: Archive, name: str, text: TextBuilder) -> None:
    read_part(archive, name, _OfficeText(text))
    text.end_paragraph()


class _OfficeText(XmlHandler):
    """Writes paragraphs (`p`) of text runs (`t`), whose names are the same in Word and in drawings."""

    def __init__(self, text: TextBuilder) -> None:
        self._text = text
        self._is_text = False
        self._tables = 0
        self._hidden_element = ""
        self._hidden_depth = 0
        self._properties = 0
        self._is_heading = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._hidden_element:
            self._hidden_depth += name == self._hidden_element
        elif name == "Fallback" or (name == "fld" and attributes.get("type") == "slidenum"):
            self._hidden_element, self._hidden_depth = name, 1
        elif name in ("pPr", "rPr"):
            self._properties += 1
        elif self._properties:
            self._apply_style(name, attributes)
        else:
            match name:
                case "t":
                    self._is_text = True
                case "p":
                    self._start_paragraph()
                case "tbl":
                    self._tables += 1
                    self._text.end_paragraph()
                case "tr":
                    self._text.end_line()
                case "tc" | "tab":
                    self._text.write("\t")
                case "br" | "cr":
                    self._text.end_line()

    def end(self, name: str) -> None:
        if self._hidden_element:
            self._hidden_depth -= name == self._hidden_element
            self._hidden_element = self._hidden_element if self._hidden_depth else ""
        elif name in ("pPr", "rPr"):
            self._properties -= 1
        elif name == "t":
            self._is_text = False
        elif name == "tbl":
            self._tables -= 1
            self._text.end_paragraph()

    def data(self, text: str) -> None:
        if self._is_text and not self._hidden_element:
            self._text.write(text.replace("\t", " "))

    def _start_paragraph(self) -> None:
        """Within a table cell, paragraphs are on one line."""
        self._is_heading = False
        if self._tables:
            self._text.write(" ")
        else:
            self._text.end_paragraph()

    def _apply_style(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._tables:
            return
        if name == "numPr" and not self._is_heading:
            self._text.end_paragraph("- ")
        elif name == "pStyle":
            style = attribute(attributes, "val")
            heading = _HEADING.fullmatch(style)
            self._is_heading = heading is not None or style == "Title"
            if self._is_heading:
                self._text.end_paragraph("#" * int(heading[1] if heading else 1) + " ")


# -- rich text ---------------------------------------------------------------------------------------------------------
# RTF, with striprtf from the extra `office`.

# Pictures are hexadecimal digits, which would be read one by one.
_PICTURE_DATA = re.compile(r"(?<![0-9a-fA-F\r\n])[0-9a-fA-F\r\n]{400,}+")
_PROPERTY = re.compile(r"\{\\(title|author|subject|keywords) ([^{}\\]{1,500})\}")
_HEAD_CHARS = 20_000


def parse_rich_text(path: Path, limits: ImportLimits) -> ParsedDocument:
    try:
        from striprtf.striprtf import rtf_to_text  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise InvalidParams("RTF support is not installed: it is in the extra office of florilegium") from error
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
        text=text.build(), title=properties.pop("title", ""), author=properties.pop("author", ""), metadata=properties
    )


# -- OpenDocument ------------------------------------------------------------------------------------------------------
# OpenDocument texts (odt): paragraphs, headings, lists, tables and footnotes, without deleted text and comments.

_CONTENT, _META = "content.xml", "meta.xml"
_MANIFEST = "META-INF/manifest.xml"
_OPENDOCUMENT_PROPERTIES = frozenset(
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
        properties = ElementTexts(_OPENDOCUMENT_PROPERTIES)
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
