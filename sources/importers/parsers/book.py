"""EPUB books: the chapters in the order of the spine. A book whose chapters are encrypted is refused."""

from collections.abc import Mapping
from pathlib import Path
from posixpath import dirname, join, normpath
from urllib.parse import unquote

from config.errors import InvalidParams
from sources.importers.engine.archives import Archive, open_archive
from sources.importers.engine.importer import ImportLimits
from sources.importers.parsers.markup import Gathered, attribute, read_markup
from sources.importers.parsers.prose import Parsed, Prose
from sources.importers.parsers.web_page import page_text, read_page

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
_SAID = frozenset(["title", "creator", "date", "language", "publisher", "identifier", "subject", "description"])


def parse_book(path: Path, limits: ImportLimits) -> Parsed:
    with open_archive(path, limits) as archive:
        package = _Package(archive, _package_name(archive))
        chapters = package.chapters()
        if not chapters:
            raise InvalidParams("the book: got no chapters, expected those that its spine names")
        if locked := _encrypted(archive) & set(chapters):
            raise InvalidParams(f"the book: got {len(locked)} encrypted chapters, expected a book without protection")
        prose = Prose(limits.item_max_chars)
        for name in chapters:
            read_page(page_text(archive.read(name, limits.line_max_bytes)), prose)
            prose.end_paragraph()
        return package.parsed(prose, len(chapters))


def _package_name(archive: Archive) -> str:
    found: list[str] = []

    def begin(name: str, attributes: Mapping[str, str]) -> None:
        if name == "rootfile":
            found.append(attribute(attributes, "full-path"))

    with archive.open(_CONTAINER) as file:
        read_markup(file, begin, lambda _: None, lambda _: None)
    if not found:
        raise InvalidParams("the book: got a container without a package, expected one")
    return found[0]


def _encrypted(archive: Archive) -> set[str]:
    """Fonts are often hidden like this, which harms nobody; chapters are by those who sell them."""
    found: set[str] = set()

    def begin(name: str, attributes: Mapping[str, str]) -> None:
        if name == "CipherReference":
            found.add(normpath(unquote(attribute(attributes, "URI"))))

    if _ENCRYPTION in archive:
        with archive.open(_ENCRYPTION) as file:
            read_markup(file, begin, lambda _: None, lambda _: None)
    return found


class _Package:
    """The book's own list of its files, their order, and what it says of itself."""

    def __init__(self, archive: Archive, name: str) -> None:
        self._folder = dirname(name)
        self._archive = archive
        self._said = Gathered(_SAID)
        self._files: dict[str, str] = {}
        self._spine: list[str] = []
        with archive.open(name) as file:
            read_markup(file, self._begin, self._said.end, self._said.text)

    def chapters(self) -> list[str]:
        """Each file once, whatever the spine says: else a small book could be as long as it likes."""
        named = dict.fromkeys(self._files[identity] for identity in self._spine if identity in self._files)
        return [name for name in named if name in self._archive]

    def parsed(self, prose: Prose, chapters: int) -> Parsed:
        said = {name: self._said.first(name) for name in ("language", "publisher", "identifier", "description")}
        subjects = self._said.found.get("subject", [])
        return Parsed(
            text=prose.finished(),
            title=self._said.first("title"),
            author=", ".join(self._said.found.get("creator", [])),
            created=self._said.first("date"),
            metadata={
                "chapters": chapters,
                **{name: value for name, value in said.items() if value},
                **({"subjects": subjects} if subjects else {}),
            },
        )

    def _begin(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "item" and attribute(attributes, "media-type") in _PAGES:
            place = normpath(join(self._folder, unquote(attribute(attributes, "href"))))
            self._files[attribute(attributes, "id")] = place
        elif name == "itemref":
            self._spine.append(attribute(attributes, "idref"))
        else:
            self._said.begin(name, attributes)
