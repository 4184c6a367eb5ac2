"""Karakeep's export (formerly Hoarder): links become media, texts become notes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET

from config.errors import InvalidParams
from sources.drafts import NoteDraft
from sources.importers.engine.export_files import is_json
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import ImportedNote, SkippedItem, file_size, read_json, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import (
    clean_line,
    clean_tags,
    object_or_empty,
    objects,
    short_title,
    stored_time,
    text_or_empty,
    texts,
)
from sources.importers.formats.reading.saved_links import SavedLink, read_links

_FIELDS = (b'"bookmarks"', b'"createdAt"', b'"content"', b'"tags"')


class KarakeepImporter(Importer):
    name = "karakeep"
    title = "Karakeep export (JSON)"
    suffixes = (".json",)

    def recognizes(self, probe: FileProbe) -> float:
        is_object = not probe.is_folder and is_json(probe.head) and probe.head.lstrip()[:1] == b"{"
        return 0.9 if is_object and all(field in probe.head for field in _FIELDS) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        export = read_json(path, limits)
        bookmarks = export.get("bookmarks") if isinstance(export, Mapping) else None
        if not isinstance(bookmarks, list):
            raise InvalidParams("bookmarks: expected a list")
        saved = [(bookmark, object_or_empty(bookmark.get("content"))) for bookmark in objects(bookmarks)]
        links = (
            SavedLink(
                url=text_or_empty(content.get("url")),
                title=text_or_empty(entry.get("title")),
                description=text_or_empty(entry.get("note")),
                tags=tuple(texts(entry.get("tags"))),
                created=stored_time(entry.get("createdAt")),
                state="archived" if entry.get("archived") is True else "",
            )
            for entry, content in saved
            if "url" in content
        )
        yield from read_links("karakeep", links)
        for entry, content in saved:
            if "text" in content:
                yield ImportedNote(_note_draft(entry, text_or_empty(content["text"])))
            elif "url" not in content:
                yield SkippedItem("bookmark of a file")
        progress(file_size(path))


IMPORTER = KarakeepImporter()


def _note_draft(bookmark: Mapping[str, Any], text: str) -> NoteDraft:
    title, note = clean_line(bookmark.get("title")), text_or_empty(bookmark.get("note")).strip()
    return NoteDraft(
        title=short_title(title or text or "Untitled"),
        content="\n\n".join(part for part in (text.strip(), note) if part),
        tags=clean_tags([clean_line(tag) for tag in texts(bookmark.get("tags"))]),
        metadata=compact_metadata(archived=bookmark.get("archived") is True or None),
        uuid=stable_uuid("karakeep", "notes", f"{bookmark.get('createdAt')}/{title}"),
        created_at=stored_time(bookmark.get("createdAt")) or UNSET,
    )
