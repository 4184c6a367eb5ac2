"""Documents, imported as media: plain text, web pages, PDF, EPUB, office documents and tables; alone, in a zip, or
attached to a message.

Plain text is read here. All other types are parsed in a subprocess with limits.
"""

import posixpath
import re
from contextlib import suppress
from hashlib import sha256
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from zipfile import ZipFile

from msgspec import UNSET, UnsetType

from config.errors import InvalidParams
from sources.drafts import MediaDraft
from sources.importers.engine import files
from sources.importers.engine.archives import ZIP_ERRORS, is_visible, is_zip
from sources.importers.engine.events import FailedItem, ImportedMedia, ImportEvent, SkippedItem, stable_uuid
from sources.importers.engine.file_probe import HEAD_BYTES, probe_file
from sources.importers.engine.importer import Events, FileProbe, ImportLimits, InputFile, ParsingImporter
from sources.importers.engine.input_file import FileTree
from sources.importers.engine.markdown_text import split_words
from sources.importers.engine.values import clean_line, clean_tags, compact_metadata, short_title, stored_date
from sources.importers.parsers.parsed_document import DocumentKind, DocumentParser, ParsedDocument

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
            return 0.8 if probe.suffix in _PAGE_SUFFIXES else 0.3
        if kind == "csv":
            # Many programs export tables; those that are more than a table have importers of their own.
            return 0.3
        if kind is not None:
            return 0.95
        return 0.2 if probe.suffix in TEXT_SUFFIXES and probe.is_text else 0.0

    def read_file(self, file: InputFile) -> Events:
        probe = probe_file(file.path, file.limits)
        kind = document_kind(probe)
        if kind is None and probe.is_zip:
            raise InvalidParams(f"{file.name}: a zip file, but not a document")
        if kind is None:
            text = file.decoded_text()
            document = ParsedDocument(
                text=text.text.strip(), encoding=text.encoding, is_encoding_doubtful=text.is_doubtful
            )
        else:
            document = self._parse(file.path, kind, file.limits)
        yield from files.encoding_doubts("", document.encoding, is_doubtful=document.is_encoding_doubtful)
        yield _document_event(
            document,
            kind or "text",
            file.stem,
            stable_uuid("documents", "media", file.key),
            file.modified_at,
            {"file": file.name, **files.encoding_metadata(document.encoding), **document.metadata},
        )


def _document_event(
    document: ParsedDocument,
    kind: str,
    file_stem: str,
    uuid: str,
    modified: str | UnsetType,
    metadata: dict[str, Any],
) -> ImportedMedia | SkippedItem:
    if not document.text:
        # Scanned pages, for example, are images.
        return SkippedItem("document without text")
    draft = MediaDraft(
        title=short_title(document.title) or short_title(file_stem),
        media_type=kind,
        author=short_title(document.author),
        url=document.url or UNSET,
        content=document.text,
        tags=clean_tags(split_words(document.metadata.get("keywords"))),
        metadata=metadata,
        uuid=uuid,
        created_at=stored_date(document.created) or modified,
    )
    return ImportedMedia(draft)


def document_kind(probe: FileProbe) -> DocumentKind | None:
    """Detects the kind by content. Returns None for plain text, and for files that are not documents."""
    # Some programs write a line before the header (PDF 1.7, annex H, note 13).
    if not probe.is_zip and b"%PDF-" in probe.head[:_HEAD_BYTES]:
        return "pdf"
    suffix = probe.suffix
    if probe.is_zip:
        if _OPEN_DOCUMENT_TEXT.search(probe.head[:_HEAD_BYTES]):
            return "odt"
        if not probe.names:
            # An archive without a readable directory is a damaged document if its suffix says so, and is reported so.
            return _KIND_BY_SUFFIX.get(suffix)
        kinds = {kind for part, kind in _PARTS.items() if part in probe.names}
        if not kinds and set(probe.names) >= _OFFICE_PARTS:
            folders = {name.partition("/")[0] for name in probe.names}
            kinds = {kind for folder, kind in _OFFICE_FOLDERS.items() if folder in folders}
        return next((kind for kind in _PARTS.values() if kind in kinds), None)
    if probe.head.startswith(b"{\\rtf"):
        return "rtf"
    if not probe.is_text:
        return None
    if suffix in _TABLE_SUFFIXES:
        # The first two lines of a table have the same delimiter.
        start = probe.head[: 1 << 14].replace(b"\r", b"\n").replace(b"\0", b"")
        lines = [line for line in start.split(b"\n", 10) if line.strip()]
        return "csv" if len(lines) > 1 and any(mark in lines[0] and mark in lines[1] for mark in b",;\t") else None
    # In UTF-16, every other byte of a tag is 0.
    start = probe.head[:_HEAD_BYTES].removeprefix(b"\xef\xbb\xbf").replace(b"\0", b"")
    return "html" if not _JSON.match(start) and _HTML.search(start) else None


# -- documents inside other files --------------------------------------------------------------------------------------
# Documents inside other files: attachments of messages, and the files of a zip. Each becomes a media item.


def embedded_kind(name: str, data: bytes) -> DocumentKind | Literal["text"] | None:
    """Returns None for a file that cannot be read as a document, judged by its content."""
    names: tuple[str, ...] = ()
    if is_zip(data):
        with suppress(*ZIP_ERRORS), ZipFile(BytesIO(data)) as archive:
            names = tuple(archive.namelist())
    probe = FileProbe(Path(name), is_folder=False, head=data[:HEAD_BYTES], names=names)
    return document_kind(probe) or ("text" if probe.suffix in TEXT_SUFFIXES and probe.is_text else None)


def read_embedded(
    name: str,
    data: bytes,
    kind: DocumentKind | Literal["text"],
    parse: DocumentParser,
    limits: ImportLimits,
    uuid: str,
    date: str | UnsetType,
    **origin: str,
) -> ImportedMedia | SkippedItem | FailedItem:
    """`origin` is metadata that says where the document comes from."""
    try:
        if kind != "text":
            # In the confined process of documents, which gets the bytes through a file in memory: nothing is unpacked
            # to disk.
            parsed = parse(data, kind, limits)
        elif len(data) > files.text_max_bytes(limits):
            raise InvalidParams(f"larger than {files.text_max_bytes(limits)} bytes")
        else:
            parsed = ParsedDocument(text=files.decode_text(data, limits, name).strip())
    except InvalidParams as error:
        return FailedItem(name, error.message)
    path = PurePosixPath(name)
    metadata = compact_metadata(file=clean_line(path.name), **origin, **parsed.metadata)
    return _document_event(parsed, kind, clean_line(path.stem), uuid, date, metadata)


# -- a zip of documents ------------------------------------------------------------------------------------------------
# A zip of documents: every document in it becomes a media item, as if it had been imported alone.


class DocumentZipImporter(ParsingImporter):
    name = "document_zip"
    title = "Zip of documents"
    suffixes = (".zip",)

    def recognizes(self, probe: FileProbe) -> float:
        """Stays below the formats whose exports are zips with documents in them."""
        if probe.is_folder or not probe.is_zip:
            return 0.0
        # Most archives contain some text, so at least half of the files must be documents.
        files = [name for name in probe.names if is_visible(name)]
        return 0.25 if 0 < len(files) <= 2 * sum(map(_has_document_suffix, files)) else 0.0

    def read_file(self, file: InputFile) -> Events:
        key = file.key if file.limits.has_stable_path else None
        with file.open_tree() as tree:
            yield from tree.read_each(lambda name: self._read_entry(tree, name, key))

    def _read_entry(self, tree: FileTree, name: str, key: str | None) -> ImportEvent:
        if not _has_document_suffix(name):
            return SkippedItem("file in the archive not containing a document")
        data = tree.read(name, tree.limits.line_max_bytes)
        # Skipped before its kind is looked for: a zip can have thousands of empty files.
        if not data:
            return SkippedItem("document without text")
        kind = embedded_kind(name, data)
        if kind is None:
            return SkippedItem("file in the archive not containing a document")
        own_key = sha256(data).hexdigest() if key is None else f"{key}/{name}"
        uuid, date = stable_uuid("document_zip", "media", own_key), tree.modified_at(name)
        return read_embedded(name, data, kind, self._parse, tree.limits, uuid, date, path=name)


def _has_document_suffix(name: str) -> bool:
    return posixpath.splitext(name)[1].lower() in DocumentsImporter.suffixes
