"""Documents as media: plain text, web pages, PDF, EPUB, Word and presentations; their text, searched by passages.

Plain text is read here. Everything that needs a parser is parsed in a process of its own, with limits.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import UNSET

from config.errors import InvalidParams
from sources.drafts import MediaDraft
from sources.importers.engine.archives import is_zip
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.files import (
    changed_at,
    date_of,
    few_tags,
    is_text,
    key_of,
    plain_name,
    read_text,
    short_title,
    size_of,
)
from sources.importers.engine.front_matter import words_of
from sources.importers.engine.imported_items import ImportedMedia, ImportEvent, ReadPosition, SkippedItem, stable_uuid
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback
from sources.importers.parsers.confined import Kind, parse_confined
from sources.importers.parsers.prose import Parsed

_TEXT_SUFFIXES = (".txt", ".text")
_PAGE_SUFFIXES = (".html", ".htm", ".xhtml")
# What tells an archive with a document in it from others.
_PARTS: dict[str, Kind] = {
    "word/document.xml": "docx",
    "ppt/presentation.xml": "pptx",
    "META-INF/container.xml": "epub",
}
_BY_SUFFIX: dict[str, Kind] = {f".{kind}": kind for kind in _PARTS.values()}
_PAGE = re.compile(rb"<!doctype\s+html|<html[\s>]|<head[\s>]|<body[\s>]", re.IGNORECASE)
_HEAD_BYTES = 1024


def _recognizes(probe: FileProbe) -> float:
    if probe.is_folder:
        return 0.0
    kind = _kind(probe)
    if kind == "html":
        return 0.8 if probe.path.suffix.lower() in _PAGE_SUFFIXES else 0.3
    if kind is not None:
        return 0.95
    return 0.2 if probe.path.suffix.lower() in _TEXT_SUFFIXES and is_text(probe.head) else 0.0


def _kind(probe: FileProbe) -> Kind | None:
    """By content; none is plain text, or not a document."""
    # Some programs write a line before it (PDF 1.7, annex H, note 13).
    if b"%PDF-" in probe.head[:_HEAD_BYTES]:
        return "pdf"
    if is_zip(probe.head):
        by_content: Kind | None = next((kind for part, kind in _PARTS.items() if part in probe.names), None)
        # One whose list of files cannot be read is a damaged document, if it is called one, and is told as that.
        return by_content if probe.names else _BY_SUFFIX.get(probe.path.suffix.lower())
    # In UTF-16, every other byte of a tag is 0.
    is_page = is_text(probe.head) and _PAGE.search(probe.head[:_HEAD_BYTES].replace(b"\0", b""))
    return "html" if is_page else None


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, _mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    probe = probe_file(path, limits)
    kind = _kind(probe)
    if kind is None and is_zip(probe.head):
        raise InvalidParams(f"{plain_name(path.name)}: got an archive of something else, expected docx, pptx or epub")
    parsed = Parsed(text=read_text(path, limits).strip()) if kind is None else parse_confined(path, kind, limits)
    # A scanned page is a picture.
    yield (
        ImportedMedia(_media(path, kind or "text", parsed, limits))
        if parsed.text
        else SkippedItem("a document without text")
    )
    progress(size_of(path))


def _media(path: Path, media_type: str, parsed: Parsed, limits: ImportLimits) -> MediaDraft:
    return MediaDraft(
        title=short_title(parsed.title) or short_title(plain_name(path.stem)),
        media_type=media_type,
        author=short_title(parsed.author),
        url=parsed.url or UNSET,
        content=parsed.text,
        tags=few_tags(words_of(parsed.metadata.get("keywords"))),
        metadata={"file": plain_name(path.name), **parsed.metadata},
        uuid=stable_uuid("documents", "media", key_of(path, limits)),
        created_at=date_of(parsed.created) or changed_at(path, limits),
    )


IMPORTER = Importer(
    name="documents",
    title="Documents (txt, html, pdf, epub, docx, pptx)",
    recognizes=_recognizes,
    read=_read,
    suffixes=(*_TEXT_SUFFIXES, *_PAGE_SUFFIXES, ".pdf", ".epub", ".docx", ".pptx"),
    edition=2,
)
