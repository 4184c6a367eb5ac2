"""Zotero's RDF: items, the notes and collections that refer to them, and journals that they refer to."""

from collections.abc import Iterator, Mapping
from typing import IO

from msgspec import Struct

from config.errors import TooLarge
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.values import clean_line
from sources.importers.formats.reading.references import BibliographicReference
from sources.importers.parsers.web_page import html_text
from sources.importers.parsers.xml_events import XmlHandler, attribute, read_xml

_DEPTH_MAX = 20
_NOT_ITEMS = frozenset(["Attachment", "Memo", "Collection", "Journal", "Series"])
_PEOPLE = ("authors", "editors", "contributors", "directors", "interviewers")
_METADATA = {"volume": "volume", "number": "issue", "pages": "page", "language": "language"}


class _RdfResource(Struct, frozen=True):
    """A child of the root: its texts by the path of their element, such as `subject/AutomaticTag/value`. References
    have `@` at the end of the path."""

    name: str
    about: str
    texts: dict[str, list[str]]

    def first(self, path: str) -> str:
        return next(iter(self.texts.get(path, ())), "")


def read_rdf(file: IO[bytes], size_bytes: int, limits: ImportLimits) -> Iterator[BibliographicReference]:
    """Reads the whole file first, because items refer to what comes after them."""
    if size_bytes > limits.line_max_bytes:
        raise TooLarge("the RDF file", limits.line_max_bytes)
    handler = _RdfHandler()
    read_xml(file, handler)
    by_about = {resource.about: resource for resource in handler.resources if resource.about}
    collections = _collections(handler.resources)
    for resource in handler.resources:
        title = clean_line(resource.first("title"))
        if resource.name not in _NOT_ITEMS and title:
            yield _reference(resource, title, by_about, collections, limits)


class _RdfHandler(XmlHandler):
    def __init__(self) -> None:
        self.resources: list[_RdfResource] = []
        self._path: list[str] = []
        self._parts: list[str] = []

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._path.append(name)
        self._parts = []
        if len(self._path) == 2:
            self.resources.append(_RdfResource(name, attribute(attributes, "about"), {}))
        elif 2 < len(self._path) <= _DEPTH_MAX and (target := attribute(attributes, "resource")):
            self._add(f"{'/'.join(self._path[2:])}@", target)

    def end(self, name: str) -> None:
        text = "".join(self._parts).strip()
        if text and 2 < len(self._path) <= _DEPTH_MAX:
            self._add("/".join(self._path[2:]), text)
        self._parts = []
        self._path.pop()

    def data(self, text: str) -> None:
        self._parts.append(text)

    def _add(self, path: str, text: str) -> None:
        self.resources[-1].texts.setdefault(path, []).append(text)


def _collections(resources: list[_RdfResource]) -> dict[str, list[str]]:
    """Returns the names of the collections of each item."""
    names: dict[str, list[str]] = {}
    for resource in resources:
        if resource.name == "Collection":
            for part in resource.texts.get("hasPart@", ()):
                names.setdefault(part, []).append(clean_line(resource.first("title")))
    return names


def _reference(
    resource: _RdfResource,
    title: str,
    by_about: Mapping[str, _RdfResource],
    collections: Mapping[str, list[str]],
    limits: ImportLimits,
) -> BibliographicReference:
    memos = [by_about[target] for target in resource.texts.get("isReferencedBy@", ()) if target in by_about]
    identifiers = resource.texts.get("identifier", [])
    date = clean_line(resource.first("date"))
    return BibliographicReference(
        # An id that starts with # is a number within the file.
        key=resource.about if not resource.about.startswith("#") else f"{resource.name}\0{title}\0{date}",
        type=clean_line(resource.first("itemType")) or resource.name,
        title=title,
        authors=tuple(_people(resource)),
        date=date,
        publication=_publication(resource, by_about),
        abstract=resource.first("abstract"),
        notes=tuple(html_text(memo.first("value"), limits.item_max_chars) for memo in memos if memo.name == "Memo"),
        url=clean_line(resource.first("identifier/URI/value")),
        doi=next((clean_line(value[3:].strip()) for value in identifiers if value.startswith("DOI")), ""),
        tags=(*resource.texts.get("subject", ()), *resource.texts.get("subject/AutomaticTag/value", ())),
        fields={
            **{field: clean_line(resource.first(name)) for name, field in _METADATA.items()},
            "publisher": clean_line(resource.first("publisher/Organization/name")),
            "collections": collections.get(resource.about, []),
        },
    )


def _people(resource: _RdfResource) -> Iterator[str]:
    for role in _PEOPLE:
        person = f"{role}/Seq/li/Person"
        surnames, given_names = (
            resource.texts.get(f"{person}/surname", []),
            resource.texts.get(f"{person}/givenName", []),
        )
        if len(surnames) == len(given_names):
            yield from (clean_line(f"{given} {surname}") for given, surname in zip(given_names, surnames, strict=True))
        else:
            # Somebody has one name only, so the lists do not tell which first name belongs to whom.
            yield from map(clean_line, surnames)


def _publication(resource: _RdfResource, by_about: Mapping[str, _RdfResource]) -> str:
    target = by_about.get(resource.first("isPartOf@"))
    if target is not None:
        return clean_line(target.first("title"))
    parts = (
        texts[0] for path, texts in resource.texts.items() if path.startswith("isPartOf/") and path.endswith("/title")
    )
    return clean_line(next(parts, ""))
