"""Google Keep, as Google Takeout exports it: one JSON file for each note, in a zip or unpacked.

Takeout writes every note twice, as JSON and as a web page; the page is skipped.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import UNSET

from config.errors import InvalidParams
from sources.drafts import NoteDraft
from sources.importers.engine.archives import is_zip
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.export_files import first_bytes, is_zip_file
from sources.importers.engine.file_probe import HEAD_BYTES, FileProbe
from sources.importers.engine.file_trees import open_tree
from sources.importers.engine.files import FailedItem, ImportedNote, SkippedItem, file_size, read_json, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import (
    clean_line,
    clean_tags,
    objects,
    parse_json,
    short_title,
    stored_time,
    text_or_empty,
)

_FIELDS = (rb'"isTrashed"', rb'"userEditedTimestampUsec"')
_ENTRY = re.compile(r"(?:^|/)Keep/[^/]{1,300}\.json$")
_PAGE_SUFFIX = ".html"
_LABELS_MAX = 100


class GoogleKeepImporter(Importer):
    name = "google_keep"
    title = "Google Keep (Takeout)"
    suffixes = (".json", ".zip", _PAGE_SUFFIX)

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 0.0
        if probe.path.suffix.lower() == _PAGE_SUFFIX:
            head, note = b"", probe.path.with_suffix(".json")
            with suppress(OSError), open_file(note) as file:
                head = file.read(HEAD_BYTES) if note.is_file() else b""
            return 0.9 if _is_keep_note(head) else 0.0
        head = first_bytes(probe, _is_note_entry) if is_zip(probe.head) else probe.head
        return 0.9 if _is_keep_note(head) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        if is_zip_file(path):
            with open_tree(path, limits, progress) as tree:
                for name in tree.names:
                    if not _is_note_entry(name):
                        yield SkippedItem("file in the archive not containing a Keep note")
                        continue
                    try:
                        data = parse_json(tree.read(name, limits.line_max_bytes), limits)
                        yield _read_note(data, name.rpartition("/")[2].removesuffix(".json"))
                    except InvalidParams as error:
                        yield FailedItem(name, error.message)
        elif path.suffix.lower() == _PAGE_SUFFIX:
            # Recognized so that it is not imported as a document.
            yield SkippedItem("web page of a note that is also there as JSON")
        else:
            yield _read_note(read_json(path, limits), path.stem)
        progress(file_size(path))


IMPORTER = GoogleKeepImporter()


def _is_note_entry(name: str) -> bool:
    return _ENTRY.search(name) is not None


def _is_keep_note(head: bytes) -> bool:
    return head.lstrip()[:1] == b"{" and all(field in head for field in _FIELDS)


def _read_note(note: Any, file_stem: str) -> ImportEvent:
    if not isinstance(note, Mapping):
        raise InvalidParams("expected a note, got JSON of another kind")
    if note.get("isTrashed") is True:
        return SkippedItem("note in the trash")
    title = clean_line(note.get("title"))
    # The text, the list and the links of a note.
    checklist = (
        f"- [{'x' if item.get('isChecked') is True else ' '}] {text_or_empty(item.get('text'))}"
        for item in objects(note.get("listContent"))
    )
    annotations = (
        (clean_line(one.get("title")), clean_line(one.get("url"))) for one in objects(note.get("annotations"))
    )
    links = (f"[{name or url}]({url})" if url else name for name, url in annotations)
    parts = (text_or_empty(note.get("textContent")).strip("\n"), "\n".join(checklist), "\n".join(links))
    content = "\n\n".join(filter(None, parts))
    if not title and not content:
        return SkippedItem("empty note")
    created, edited = note.get("createdTimestampUsec"), _microseconds(note.get("userEditedTimestampUsec"))
    draft = NoteDraft(
        title=short_title(title or content),
        content=content,
        tags=clean_tags([clean_line(label.get("name")) for label in objects(note.get("labels"))][:_LABELS_MAX]),
        metadata=compact_metadata(
            updated=edited,
            pinned=note.get("isPinned") is True or None,
            archived=note.get("isArchived") is True or None,
            attachments=[clean_line(file.get("filePath")) for file in objects(note.get("attachments"))],
        ),
        # Notes have no id, but the microsecond of their creation.
        uuid=stable_uuid("google_keep", "notes", str(created) if isinstance(created, int) else file_stem),
        created_at=_microseconds(created) or edited or UNSET,
        last_modified=edited or UNSET,
    )
    return ImportedNote(draft)


def _microseconds(value: object) -> str | None:
    return stored_time(value // 1000) if isinstance(value, int) and not isinstance(value, bool) else None
