"""Documents, imported as media: plain text, web pages, PDF, EPUB, office documents and tables.

Plain text is read here. All other types are parsed in a subprocess with limits.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import UNSET

from config.errors import InvalidParams
from sources.drafts import MediaDraft
from sources.importers.engine.archives import is_zip
from sources.importers.engine.file_probe import FileProbe, probe_file
from sources.importers.engine.files import (
    ImportedMedia,
    SkippedItem,
    encoding_doubts,
    encoding_metadata,
    file_key,
    file_size,
    is_text,
    modified_at,
    printable_name,
    read_decoded,
    stable_uuid,
)
from sources.importers.engine.importer import ImportEvent, ImportLimits, ParsingImporter, ProgressCallback, ReadPosition
from sources.importers.engine.markdown_text import split_words
from sources.importers.engine.values import clean_tags, short_title, stored_date
from sources.importers.parsers.parsed_document import DocumentKind, ParsedDocument

TEXT_SUFFIXES = (".txt", ".text")
_PAGE_SUFFIXES = (".html", ".htm", ".xhtml")
# The part by which an archive with a document is recognized.
_PARTS: dict[str, DocumentKind] = {
    "word/document.xml": "docx",
    "ppt/presentation.xml": "pptx",
    "xl/workbook.xml": "xlsx",
    "META-INF/container.xml": "epub",
}
# The main part of an Office document may have any name; then it is recognized by these parts and its folder.
_OFFICE_PARTS = frozenset(["[Content_Types].xml", "_rels/.rels"])
_OFFICE_FOLDERS: dict[str, DocumentKind] = {"word": "docx", "ppt": "pptx", "xl": "xlsx"}
_KIND_BY_SUFFIX: dict[str, DocumentKind] = {".odt": "odt", **{f".{kind}": kind for kind in _PARTS.values()}}
# The first entry of an OpenDocument file is its type, uncompressed.
_OPEN_DOCUMENT_TEXT = re.compile(rb"mimetypeapplication/vnd\.oasis\.opendocument\.text(?:-template)?PK")
_TABLE_SUFFIXES = (".csv", ".tsv")
_DELIMITERS = b",;\t"
_HTML = re.compile(rb"<!doctype\s+html|<html[\s>]|<head[\s>]|<body[\s>]", re.IGNORECASE)
# JSON and JSON Lines may contain HTML. Templates start with a brace too, but not with a string or a list.
_JSON = re.compile(rb"\s*+(?:\{\s*+[\"}]|\[\s*+[\[{\"\]])")
_HEAD_BYTES = 1024


class DocumentsImporter(ParsingImporter):
    name = "documents"
    title = "Documents (txt, html, pdf, epub, docx, pptx, xlsx, odt, rtf, csv)"
    suffixes = (*TEXT_SUFFIXES, *_PAGE_SUFFIXES, *_TABLE_SUFFIXES, *_KIND_BY_SUFFIX, ".pdf", ".rtf")
    output_version = 3
    recognizes_moved_files = True

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 0.0
        kind = document_kind(probe)
        if kind == "html":
            return 0.8 if probe.path.suffix.lower() in _PAGE_SUFFIXES else 0.3
        if kind == "csv":
            # Many programs export tables; those that are more than a table have importers of their own.
            return 0.3
        if kind is not None:
            return 0.95
        return 0.2 if probe.path.suffix.lower() in TEXT_SUFFIXES and is_text(probe.head) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        probe = probe_file(path, limits)
        kind = document_kind(probe)
        if kind is None and is_zip(probe.head):
            raise InvalidParams(f"{printable_name(path.name)}: a zip file, but not a document")
        if kind is None:
            text = read_decoded(path, limits)
            document = ParsedDocument(
                text=text.text.strip(), encoding=text.encoding, is_encoding_doubtful=text.is_doubtful
            )
        else:
            document = self._parse(path, kind, limits)
        yield from encoding_doubts("", document.encoding, is_doubtful=document.is_encoding_doubtful)
        if document.text:
            yield ImportedMedia(_media_draft(path, kind or "text", document, limits))
        else:
            # Scanned pages, for example, are images.
            yield SkippedItem("document without text")
        progress(file_size(path))


IMPORTER = DocumentsImporter()


def document_kind(probe: FileProbe) -> DocumentKind | None:
    """Detects the kind by content. Returns None for plain text, and for files that are not documents."""
    # Some programs write a line before the header (PDF 1.7, annex H, note 13).
    if b"%PDF-" in probe.head[:_HEAD_BYTES]:
        return "pdf"
    suffix = probe.path.suffix.lower()
    if is_zip(probe.head):
        if _OPEN_DOCUMENT_TEXT.search(probe.head[:_HEAD_BYTES]):
            return "odt"
        # An archive without a readable directory is a damaged document if its suffix says so, and is reported as one.
        return _archive_kind(probe.names) if probe.names else _KIND_BY_SUFFIX.get(suffix)
    if probe.head.startswith(b"{\\rtf"):
        return "rtf"
    if not is_text(probe.head):
        return None
    if suffix in _TABLE_SUFFIXES:
        # The first two lines of a table have the same delimiter.
        start = probe.head[: 1 << 14].replace(b"\r", b"\n").replace(b"\0", b"")
        lines = [line for line in start.split(b"\n", 10) if line.strip()]
        return "csv" if len(lines) > 1 and any(mark in lines[0] and mark in lines[1] for mark in _DELIMITERS) else None
    # In UTF-16, every other byte of a tag is 0.
    start = probe.head[:_HEAD_BYTES].removeprefix(b"\xef\xbb\xbf").replace(b"\0", b"")
    return "html" if not _JSON.match(start) and _HTML.search(start) else None


def _archive_kind(names: Sequence[str]) -> DocumentKind | None:
    main_part = next((part for part in _PARTS if part in names), None)
    if main_part is not None:
        return _PARTS[main_part]
    if not set(names) >= _OFFICE_PARTS:
        return None
    folders = {name.partition("/")[0] for name in names}
    return next((kind for folder, kind in _OFFICE_FOLDERS.items() if folder in folders), None)


def _media_draft(path: Path, media_type: str, document: ParsedDocument, limits: ImportLimits) -> MediaDraft:
    return MediaDraft(
        title=short_title(document.title) or short_title(printable_name(path.stem)),
        media_type=media_type,
        author=short_title(document.author),
        url=document.url or UNSET,
        content=document.text,
        tags=clean_tags(split_words(document.metadata.get("keywords"))),
        metadata={"file": printable_name(path.name), **encoding_metadata(document.encoding), **document.metadata},
        uuid=stable_uuid("documents", "media", file_key(path, limits)),
        created_at=stored_date(document.created) or modified_at(path, limits),
    )
