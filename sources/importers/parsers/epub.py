"""EPUB books: the chapters in the order of the spine. Books with encrypted chapters are rejected."""

from collections.abc import Mapping
from pathlib import Path
from posixpath import dirname, join, normpath
from urllib.parse import unquote

from config.errors import InvalidParams
from sources.importers.engine.archives import Archive, open_archive
from sources.importers.engine.limits import ImportLimits
from sources.importers.parsers.parsed_document import ParsedDocument, TextBuilder
from sources.importers.parsers.web_page import decode_page, read_page
from sources.importers.parsers.xml_events import ElementTexts, XmlHandler, attribute, read_part

_ENCRYPTION = "META-INF/encryption.xml"
_CHAPTER_TYPES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
_PROPERTIES = frozenset(["title", "creator", "date", "language", "publisher", "identifier", "subject", "description"])


def parse_epub(path: Path, limits: ImportLimits) -> ParsedDocument:
    with open_archive(path, limits) as archive:
        root_files = _AttributeCollector("rootfile", "full-path")
        read_part(archive, "META-INF/container.xml", root_files)
        if not root_files.values:
            raise InvalidParams("EPUB container names no package")
        # Other root files are renditions of the same book.
        package = _EpubPackage(archive, root_files.values[0])
        chapters = package.chapters()
        if not chapters:
            raise InvalidParams("EPUB has no chapters")
        # Often only fonts are encrypted, which does not matter.
        references = _AttributeCollector("CipherReference", "URI")
        if _ENCRYPTION in archive:
            read_part(archive, _ENCRYPTION, references)
        if encrypted := {normpath(unquote(value)) for value in references.values} & set(chapters):
            raise InvalidParams(f"EPUB is protected: {len(encrypted)} of {len(chapters)} chapters are encrypted")
        # One text for all chapters, so that the limit on characters applies to the book.
        text = TextBuilder(limits.item_max_chars)
        for name in chapters:
            read_page(decode_page(archive.read(name, limits.line_max_bytes), limits), text)
            text.end_paragraph()
        return package.parsed_document(text, len(chapters))


class _AttributeCollector(XmlHandler):
    """Collects the values of one attribute of all elements with a name."""

    def __init__(self, element: str, attribute_name: str) -> None:
        self.values: list[str] = []
        self._element = element
        self._attribute_name = attribute_name

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == self._element:
            self.values.append(attribute(attributes, self._attribute_name))


class _EpubPackage(ElementTexts):
    """The package document: the book's files, their order, and its properties."""

    def __init__(self, archive: Archive, name: str) -> None:
        super().__init__(_PROPERTIES)
        self._folder = dirname(name)
        self._archive = archive
        self._files: dict[str, str] = {}
        self._spine: list[str] = []
        read_part(archive, name, self)

    def chapters(self) -> list[str]:
        """Returns each chapter once, even if the spine repeats it: a small book could otherwise be arbitrarily long."""
        names = dict.fromkeys(self._files[file_id] for file_id in self._spine if file_id in self._files)
        return [name for name in names if name in self._archive]

    def parsed_document(self, text: TextBuilder, chapter_count: int) -> ParsedDocument:
        fields = {name: self.first(name) for name in ("language", "publisher", "identifier", "description")}
        subjects = self.texts.get("subject", [])
        return ParsedDocument(
            text=text.build(),
            title=self.first("title"),
            author=", ".join(self.texts.get("creator", [])),
            created=self.first("date"),
            metadata={
                "chapters": chapter_count,
                **{name: value for name, value in fields.items() if value},
                **({"subjects": subjects} if subjects else {}),
            },
        )

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        # The manifest lists the files, the spine their order. Images and styles are left out here.
        if name == "item" and attribute(attributes, "media-type") in _CHAPTER_TYPES:
            path = normpath(join(self._folder, unquote(attribute(attributes, "href"))))
            self._files[attribute(attributes, "id")] = path
        elif name == "itemref":
            self._spine.append(attribute(attributes, "idref"))
        else:
            super().start(name, attributes)
