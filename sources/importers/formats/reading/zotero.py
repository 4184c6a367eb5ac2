"""References from Zotero and other programs: CSL JSON, and Zotero's RDF with notes and collections."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from config.errors import InvalidParams
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.export_files import count_reads, is_json
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import file_size
from sources.importers.engine.imported_items import FailedItem, ImportedMedia, ImportEvent, ReadPosition
from sources.importers.engine.importer import Importer
from sources.importers.engine.json_stream import JsonElement, iter_objects
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.progress import ProgressCallback
from sources.importers.engine.values import clean_line, objects, parse_json, text_or_empty
from sources.importers.formats.reading.references import BibliographicReference, reference_draft
from sources.importers.formats.reading.zotero_rdf import read_rdf

_CSL_TYPE = re.compile(
    rb'"type"\s{0,9}:\s{0,9}"(?:article(?:-journal|-magazine|-newspaper)?|book|chapter|paper-conference|thesis|report|'
    rb"webpage|post(?:-weblog)?|manuscript|document|entry(?:-encyclopedia|-dictionary)?|patent|dataset|software|speech|"
    rb'motion_picture|interview|bill|legal_case|legislation|map|graphic|song|broadcast|review|standard)"'
)
_CSL_FIELD = re.compile(rb'"(?:issued|container-title|citation-key|DOI|accessed|publisher-place|event-place)"\s{0,9}:')
_RDF_MARKS = (b"<rdf:RDF", b"http://www.zotero.org/namespaces/export#")
_CSL_METADATA = ("publisher", "volume", "issue", "page", "ISBN", "ISSN", "language", "citation-key")
_HEAD_BYTES = 4096


class ZoteroImporter(Importer):
    name = "zotero"
    title = "References (CSL JSON, Zotero RDF)"
    suffixes = (".json", ".rdf", ".csljson")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 0.0
        if is_json(probe.head):
            return 0.9 if _CSL_TYPE.search(probe.head) and _CSL_FIELD.search(probe.head) else 0.0
        return 1.0 if all(mark in probe.head[:_HEAD_BYTES] for mark in _RDF_MARKS) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        with open_file(path) as file:
            is_csl = is_json(file.read(_HEAD_BYTES))
            file.seek(0)
            counted = count_reads(file, limits, progress)
            if is_csl:
                for element in iter_objects(counted, limits):
                    yield _read_csl(element, limits)
            else:
                for reference in read_rdf(counted, file_size(path), limits):
                    yield ImportedMedia(reference_draft("zotero", reference))


IMPORTER = ZoteroImporter()


def _read_csl(element: JsonElement, limits: ImportLimits) -> ImportEvent:
    try:
        if element.problem:
            raise InvalidParams(element.problem)
        item = parse_json(element.data, limits)
        title = clean_line(item.get("title")) if isinstance(item, dict) else ""
        if not title:
            raise InvalidParams("the reference has no title")
    except InvalidParams as error:
        return FailedItem(f"reference {element.number}", error.message)
    return ImportedMedia(reference_draft("zotero", _csl_reference(item, title)))


def _csl_reference(item: Mapping[str, Any], title: str) -> BibliographicReference:
    identifier = clean_line(str(item.get("id", "")))
    note = text_or_empty(item.get("note")).strip()
    return BibliographicReference(
        # A short id such as smith2020 may mean another work in another file.
        key=identifier if "/" in identifier else f"{identifier}\0{title}",
        type=clean_line(item.get("type")),
        title=title,
        authors=tuple(filter(None, map(_csl_name, objects(item.get("author") or item.get("editor"))))),
        date=_csl_date(item.get("issued")),
        publication=clean_line(item.get("container-title")),
        abstract=text_or_empty(item.get("abstract")),
        notes=(note,) if note else (),
        url=clean_line(item.get("URL")),
        doi=clean_line(item.get("DOI")),
        tags=tuple(re.split("[,;]", text_or_empty(item.get("keyword")))),
        fields={name.lower().replace("-", "_"): clean_line(item.get(name)) for name in _CSL_METADATA},
    )


def _csl_name(name: Mapping[str, Any]) -> str:
    parts = (
        clean_line(name.get("given")),
        clean_line(name.get("non-dropping-particle")),
        clean_line(name.get("family")),
    )
    return " ".join(part for part in parts if part) or clean_line(name.get("literal"))


def _csl_date(issued: Any) -> str:
    """Dates are lists of year, month and day, or a text."""
    if not isinstance(issued, Mapping):
        return ""
    lists = issued.get("date-parts")
    first = lists[0] if isinstance(lists, list) and lists and isinstance(lists[0], list) else []
    numbers = [str(part) for part in first[:3] if isinstance(part, int | str) and str(part).isdigit()]
    if not numbers:
        return clean_line(issued.get("literal") or issued.get("raw"))
    return "-".join([numbers[0].zfill(4), *(number.zfill(2) for number in numbers[1:])])
