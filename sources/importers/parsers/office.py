"""Word documents and presentations: their text in reading order, with headings, lists, tables and notes.

What was deleted under review, and what a newer program wrote twice for an older one, stays out.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from posixpath import dirname, join, normpath

from sources.importers.engine.archives import Archive, open_archive
from sources.importers.engine.importer import ImportLimits
from sources.importers.parsers.markup import Gathered, attribute, read_markup
from sources.importers.parsers.prose import Parsed, Prose

_CORE = "docProps/core.xml"
_SAID = frozenset(["title", "creator", "created", "subject", "keywords", "description", "language"])
_HEADING = re.compile(r"heading ?([1-6])", re.IGNORECASE)
_SLIDE = re.compile(r"ppt/slides/slide(\d{1,6})\.xml")
_NOTES_OF_WORD = ("word/footnotes.xml", "word/endnotes.xml")


def parse_word(path: Path, limits: ImportLimits) -> Parsed:
    with open_archive(path, limits) as archive:
        prose = Prose(limits.item_max_chars)
        for name in ("word/document.xml", *(name for name in _NOTES_OF_WORD if name in archive)):
            _write(archive, name, prose)
        return _parsed(archive, prose, {})


def parse_slides(path: Path, limits: ImportLimits) -> Parsed:
    with open_archive(path, limits) as archive:
        prose = Prose(limits.item_max_chars)
        slides = _slides(archive)
        for number, name in enumerate(slides, 1):
            prose.end_paragraph()
            prose.write(f"# Slide {number}")
            _write(archive, name, prose)
            for notes in dict.fromkeys(_related(archive, name, "notesSlide").values()):
                prose.end_paragraph()
                prose.write("Notes:")
                _write(archive, notes, prose)
        return _parsed(archive, prose, {"slides": len(slides)})


def _parsed(archive: Archive, prose: Prose, counted: Mapping[str, int]) -> Parsed:
    said = Gathered(_SAID)
    if _CORE in archive:
        with archive.open(_CORE) as file:
            read_markup(file, said.begin, said.end, said.text)
    others = {name: said.first(name) for name in ("subject", "keywords", "description", "language")}
    return Parsed(
        text=prose.finished(),
        title=said.first("title"),
        author=said.first("creator"),
        created=said.first("created"),
        metadata={**counted, **{name: value for name, value in others.items() if value}},
    )


def _slides(archive: Archive) -> list[str]:
    """In the order of the presentation; in that of their numbers where it tells none."""
    targets = _related(archive, "ppt/presentation.xml", "slide")
    order: list[str] = []

    def begin(name: str, attributes: Mapping[str, str]) -> None:
        if name == "sldId":
            order.extend(targets[value] for value in attributes.values() if value in targets)

    with archive.open("ppt/presentation.xml") as file:
        read_markup(file, begin, lambda _: None, lambda _: None)
    numbered = [(int(found[1]), name) for name in archive.names if (found := _SLIDE.fullmatch(name))]
    # One that is named again is not read again: a list of a few bytes could ask for it without end.
    return list(dict.fromkeys(order)) or [name for _, name in sorted(numbered)]


def _related(archive: Archive, name: str, kind: str) -> dict[str, str]:
    """The parts of one kind that a part leads to, by the ids of the relations."""
    place = f"{dirname(name)}/_rels/{name.rpartition('/')[2]}.rels"
    found: dict[str, str] = {}

    def begin(element: str, attributes: Mapping[str, str]) -> None:
        if element == "Relationship" and attribute(attributes, "Type").endswith("/" + kind):
            target = normpath(join("/", dirname(name), attribute(attributes, "Target"))).lstrip("/")
            if target in archive:
                found[attribute(attributes, "Id")] = target

    if place in archive:
        with archive.open(place) as file:
            read_markup(file, begin, lambda _: None, lambda _: None)
    return found


def _write(archive: Archive, name: str, prose: Prose) -> None:
    text = _Text(prose)
    with archive.open(name) as file:
        read_markup(file, text.begin, text.end, text.data)
    prose.end_paragraph()


class _Text:
    """Paragraphs (`p`) of runs of text (`t`), in Word's and in the drawings' namespace alike."""

    def __init__(self, prose: Prose) -> None:
        self._prose = prose
        self._is_text = False
        self._tables = 0
        self._hidden = ""
        self._hidden_depth = 0
        self._properties = 0
        self._is_heading = False

    def begin(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._hidden:
            self._hidden_depth += name == self._hidden
        elif name == "Fallback" or (name == "fld" and attributes.get("type") == "slidenum"):
            self._hidden, self._hidden_depth = name, 1
        elif name in ("pPr", "rPr"):
            self._properties += 1
        elif self._properties:
            self._style(name, attributes)
        else:
            self._begin_text(name)

    def end(self, name: str) -> None:
        if self._hidden:
            self._hidden_depth -= name == self._hidden
            self._hidden = self._hidden if self._hidden_depth else ""
        elif name in ("pPr", "rPr"):
            self._properties -= 1
        elif name == "t":
            self._is_text = False
        elif name == "tbl":
            self._tables -= 1
            self._prose.end_paragraph()

    def data(self, text: str) -> None:
        if self._is_text and not self._hidden:
            self._prose.write(text.replace("\t", " "))

    def _begin_text(self, name: str) -> None:
        match name:
            case "t":
                self._is_text = True
            case "p":
                self._begin_paragraph()
            case "tbl":
                self._tables += 1
                self._prose.end_paragraph()
            case "tr":
                self._prose.end_line()
            case "tc" | "tab":
                self._prose.write("\t")
            case "br" | "cr":
                self._prose.end_line()

    def _begin_paragraph(self) -> None:
        """In a cell of a table, it follows the one before on the same line."""
        self._is_heading = False
        if self._tables:
            self._prose.write(" ")
        else:
            self._prose.end_paragraph()

    def _style(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._tables:
            return
        if name == "numPr" and not self._is_heading:
            self._prose.end_paragraph("- ")
        elif name == "pStyle":
            style = attribute(attributes, "val")
            heading = _HEADING.fullmatch(style)
            self._is_heading = heading is not None or style == "Title"
            if self._is_heading:
                self._prose.end_paragraph("#" * int(heading[1] if heading else 1) + " ")
