"""References from Zotero and other programs: CSL JSON, and Zotero's RDF with notes and collections."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from msgspec import UNSET, Struct

from config.errors import InvalidParams, TooLarge
from config.numbers import replace_unstorable
from sources.drafts import MediaDraft
from sources.importers.engine import values
from sources.importers.engine.events import FailedItem, ImportedMedia, ImportEvent, stable_uuid
from sources.importers.engine.file_probe import is_json
from sources.importers.engine.files import file_size
from sources.importers.engine.importer import Events, FileImporter, FileProbe, ImportLimits, InputFile
from sources.importers.engine.json_stream import JsonElement, element_object
from sources.importers.engine.values import Fields
from sources.importers.parsers.web_page import html_text
from sources.importers.parsers.xml_events import XmlHandler, attribute, read_xml

# -- references --------------------------------------------------------------------------------------------------------
# Bibliographic references, as media items.


def _reference(
    key: str,
    title: str,
    *,
    kind: str,
    authors: Sequence[str],
    date: str,
    publication: str,
    abstract: str,
    notes: Iterable[str],
    url: str,
    doi: str,
    tags: Iterable[str],
    **fields: Any,
) -> ImportedMedia:
    """`date` is the date of publication as ISO 8601, or as written."""
    doi = doi.removeprefix("https://doi.org/")
    year = f" ({date[:4]})" if date else ""
    people = f"{'; '.join(authors)}{year}. " if authors else ""
    citation = f"{people}{title.rstrip('.')}.{f' {publication}.' if publication else ''}"
    url = values.url_or_empty(url) or (f"https://doi.org/{doi}" if doi else "")
    draft = MediaDraft(
        title=values.short_title(title),
        media_type="reference",
        author=values.short_title("; ".join(authors)),
        url=url or UNSET,
        content=replace_unstorable("\n\n".join(filter(None, (citation, abstract.strip(), *notes)))),
        tags=values.clean_tags([values.clean_line(tag) for tag in tags]),
        metadata=values.compact_metadata(type=kind, date=date, publication=publication, doi=doi, **fields),
        uuid=stable_uuid("zotero", "media", key),
        created_at=values.stored_date(date) or UNSET,
    )
    return ImportedMedia(draft)


# -- zotero rdf --------------------------------------------------------------------------------------------------------
# Zotero's RDF: items, the notes and collections that refer to them, and journals that they refer to.

_DEPTH_MAX = 20
_NOT_ITEMS = frozenset(["Attachment", "Memo", "Collection", "Journal", "Series"])
_METADATA = {"volume": "volume", "number": "issue", "pages": "page", "language": "language"}


class _RdfResource(Struct, frozen=True):
    """A child of the root: its texts by the path of their element, such as `subject/AutomaticTag/value`. References
    have `@` at the end of the path."""

    name: str
    about: str
    texts: dict[str, list[str]]

    def first(self, path: str) -> str:
        return next(iter(self.texts.get(path, ())), "")

    def line(self, path: str) -> str:
        return values.clean_line(self.first(path))


def _read_rdf(file: IO[bytes], size_bytes: int, limits: ImportLimits) -> Events:
    """Reads the whole file first, because items refer to what comes after them."""
    if size_bytes > limits.line_max_bytes:
        raise TooLarge("the RDF file", limits.line_max_bytes)
    handler = _RdfHandler()
    read_xml(file, handler)
    by_about = {resource.about: resource for resource in handler.resources if resource.about}
    # The names of the collections of each item.
    collections: dict[str, list[str]] = {}
    for collections_resource in handler.resources:
        if collections_resource.name == "Collection":
            for part in collections_resource.texts.get("hasPart@", ()):
                collections.setdefault(part, []).append(collections_resource.line("title"))
    for resource in handler.resources:
        title = resource.line("title")
        if resource.name not in _NOT_ITEMS and title:
            memos = [by_about[target] for target in resource.texts.get("isReferencedBy@", ()) if target in by_about]
            identifiers, date = resource.texts.get("identifier", []), resource.line("date")
            journal = by_about.get(resource.first("isPartOf@"))
            publications = (
                texts[0]
                for path, texts in resource.texts.items()
                if path.startswith("isPartOf/") and path.endswith("/title")
            )
            authors: list[str] = []
            for role in ("authors", "editors", "contributors", "directors", "interviewers"):
                names = [resource.texts.get(f"{role}/Seq/li/Person/{name}", []) for name in ("givenName", "surname")]
                # If somebody has one name only, the lists do not tell which first name belongs to whom.
                people = zip(*names, strict=True) if len(names[0]) == len(names[1]) else zip(names[1])
                authors += (values.clean_line(" ".join(person)) for person in people)
            notes = (html_text(memo.first("value"), limits.item_max_chars) for memo in memos if memo.name == "Memo")
            yield _reference(
                # An id that starts with # is a number within the file.
                resource.about if not resource.about.startswith("#") else f"{resource.name}\0{title}\0{date}",
                title,
                kind=resource.line("itemType") or resource.name,
                authors=authors,
                date=date,
                publication=journal.line("title") if journal is not None else values.clean_line(next(publications, "")),
                abstract=resource.first("abstract"),
                notes=notes,
                url=resource.line("identifier/URI/value"),
                doi=next(
                    (values.clean_line(value[3:].strip()) for value in identifiers if value.startswith("DOI")), ""
                ),
                tags=(*resource.texts.get("subject", ()), *resource.texts.get("subject/AutomaticTag/value", ())),
                **{field: resource.line(name) for name, field in _METADATA.items()},
                publisher=resource.line("publisher/Organization/name"),
                collections=collections.get(resource.about, []),
            )


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


_CSL_TYPE = re.compile(
    rb'"type"\s{0,9}:\s{0,9}"(?:article(?:-journal|-magazine|-newspaper)?|book|chapter|paper-conference|thesis|report|'
    rb"webpage|post(?:-weblog)?|manuscript|document|entry(?:-encyclopedia|-dictionary)?|patent|dataset|software|speech|"
    rb'motion_picture|interview|bill|legal_case|legislation|map|graphic|song|broadcast|review|standard)"'
)
_CSL_FIELD = re.compile(rb'"(?:issued|container-title|citation-key|DOI|accessed|publisher-place|event-place)"\s{0,9}:')
_RDF_MARKS = (b"<rdf:RDF", b"http://www.zotero.org/namespaces/export#")
_CSL_METADATA = ("publisher", "volume", "issue", "page", "ISBN", "ISSN", "language", "citation-key")
_HEAD_BYTES = 4096


class ZoteroImporter(FileImporter):
    name = "zotero"
    title = "References (CSL JSON, Zotero RDF)"
    suffixes = (".json", ".rdf", ".csljson")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_json():
            return 0.9 if probe.is_json(_CSL_TYPE, _CSL_FIELD) else 0.0
        return 1.0 if probe.is_text and all(mark in probe.head[:_HEAD_BYTES] for mark in _RDF_MARKS) else 0.0

    def read_file(self, file: InputFile) -> Events:
        if is_json(file.head(_HEAD_BYTES)):
            for element in file.elements():
                yield _read_csl(element, file.limits)
            return
        with file.open() as opened:
            yield from _read_rdf(opened, file_size(file.path), file.limits)


def _read_csl(element: JsonElement, limits: ImportLimits) -> ImportEvent:
    try:
        item = element_object(element, limits)
        title = item.line("title")
        if not title:
            raise InvalidParams("the reference has no title")
    except InvalidParams as error:
        return FailedItem(f"reference {element.number}", error.message)
    authors = []
    for person in Fields.each(item.get("author") or item.get("editor")):
        names = (person.line(name) for name in ("given", "non-dropping-particle", "family"))
        authors.append(" ".join(filter(None, names)) or person.line("literal"))
    identifier = values.clean_line(str(item.get("id", "")))
    note = item.text("note").strip()
    return _reference(
        # A short id such as smith2020 may mean another work in another file.
        identifier if "/" in identifier else f"{identifier}\0{title}",
        title,
        kind=item.line("type"),
        authors=[author for author in authors if author],
        date=_csl_date(item.get("issued")),
        publication=item.line("container-title"),
        abstract=item.text("abstract"),
        notes=(note,) if note else (),
        url=item.line("URL"),
        doi=item.line("DOI"),
        tags=re.split("[,;]", item.text("keyword")),
        **{name.lower().replace("-", "_"): item.line(name) for name in _CSL_METADATA},
    )


def _csl_date(issued: Any) -> str:
    """Dates are lists of year, month and day, or a text."""
    if not isinstance(issued, Mapping):
        return ""
    lists = issued.get("date-parts")
    first = lists[0] if isinstance(lists, list) and lists and isinstance(lists[0], list) else []
    numbers = [str(part) for part in first[:3] if isinstance(part, int | str) and str(part).isdigit()]
    if not numbers:
        return values.clean_line(issued.get("literal") or issued.get("raw"))
    return "-".join([numbers[0].zfill(4), *(number.zfill(2) for number in numbers[1:])])
