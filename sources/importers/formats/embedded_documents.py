"""Documents inside other files: attachments of messages, and the files of a zip. Each becomes a media item."""

from contextlib import suppress
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZipFile

from msgspec import UNSET, Struct, UnsetType

from config.errors import InvalidParams
from sources.drafts import MediaDraft
from sources.importers.engine.archives import ZIP_ERRORS, is_zip
from sources.importers.engine.file_probe import HEAD_BYTES, FileProbe
from sources.importers.engine.files import (
    FailedItem,
    ImportedMedia,
    SkippedItem,
    decode_text,
    is_text,
    stable_uuid,
    text_max_bytes,
)
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.markdown_text import split_words
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import clean_line, clean_tags, short_title, stored_date
from sources.importers.formats.documents import TEXT_SUFFIXES, document_kind
from sources.importers.parsers.parsed_document import DocumentKind, DocumentParser, ParsedDocument


class EmbeddedDocument(Struct, frozen=True):
    """A file inside another one. `key` identifies it for the importer `owner`; `metadata` says where it comes from."""

    name: str
    data: bytes
    owner: str
    key: str
    metadata: dict[str, Any] = {}
    created_at: str | UnsetType = UNSET


def is_document(name: str, data: bytes) -> bool:
    """Returns whether the file can be read as a document, judged by its content."""
    return _kind(name, data) is not None or (
        PurePosixPath(name).suffix.lower() in TEXT_SUFFIXES and is_text(data[:HEAD_BYTES])
    )


def read_embedded(
    document: EmbeddedDocument, parse: DocumentParser, limits: ImportLimits
) -> ImportedMedia | SkippedItem | FailedItem:
    try:
        kind = _kind(document.name, document.data)
        if kind is not None:
            # In the confined process of documents, which gets the bytes through a file in memory: nothing is unpacked
            # to disk.
            parsed = parse(document.data, kind, limits)
        elif len(document.data) > text_max_bytes(limits):
            raise InvalidParams(f"larger than {text_max_bytes(limits)} bytes")
        else:
            parsed = ParsedDocument(text=decode_text(document.data, limits, document.name).strip())
    except InvalidParams as error:
        return FailedItem(document.name, error.message)
    if not parsed.text:
        return SkippedItem("document without text")
    path = PurePosixPath(document.name)
    media_draft = MediaDraft(
        title=short_title(parsed.title) or short_title(clean_line(path.stem)),
        media_type=kind or "text",
        author=short_title(parsed.author),
        url=parsed.url or UNSET,
        content=parsed.text,
        tags=clean_tags(split_words(parsed.metadata.get("keywords"))),
        metadata=compact_metadata(file=clean_line(path.name), **document.metadata, **parsed.metadata),
        uuid=stable_uuid(document.owner, "media", document.key),
        created_at=stored_date(parsed.created) or document.created_at,
    )
    return ImportedMedia(media_draft)


def _kind(name: str, data: bytes) -> DocumentKind | None:
    names: tuple[str, ...] = ()
    if is_zip(data):
        with suppress(*ZIP_ERRORS), ZipFile(BytesIO(data)) as archive:
            names = tuple(archive.namelist())
    return document_kind(FileProbe(Path(name), is_folder=False, head=data[:HEAD_BYTES], names=names))
