"""Apple Notes, as common exporters write them: the database of apple-notes-to-sqlite, the JSON of
apple_cloud_notes_parser, and the zip that Apple offers on its privacy page.

Exporters that write Markdown need nothing of their own: their files are Markdown notes.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import UNSET

from config.errors import InvalidParams, TooLarge
from config.numbers import replace_unstorable
from sources.drafts import NoteDraft
from sources.importers.engine.archives import is_zip
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.export_files import is_json
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.file_trees import open_tree
from sources.importers.engine.files import (
    FailedItem,
    ImportedNote,
    SkippedItem,
    file_size,
    item_text,
    read_json,
    stable_uuid,
    text_max_bytes,
)
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.markdown_text import inline_tags
from sources.importers.engine.table_reader import (
    RowProgress,
    TableReader,
    TableRow,
    TableSpec,
    compact_metadata,
    has_tables,
    is_database,
    open_database,
)
from sources.importers.engine.values import (
    clean_line,
    clean_tags,
    short_title,
    stored_date,
    stored_time,
    text_or_empty,
    valid_uuid,
)
from sources.importers.parsers.web_page import html_text

_NOTES = TableSpec("notes", ("id", "created", "updated", "folder", "title", "body"))
_FOLDERS = TableSpec("folders", ("id", "long_id", "name"))
_TABLES = (_NOTES, _FOLDERS)
_JSON_FIELDS = (b'"backup_type"', b'"cloudkit_participants"')
# The creation time that Apple adds to the name of a note in its zip.
_CREATED_SUFFIX = re.compile(r"-(\d{4}-\d\d-\d\dT\d\d_\d\d_\d\dZ)\Z")


class AppleNotesImporter(Importer):
    name = "apple_notes"
    title = "Apple Notes (apple-notes-to-sqlite, apple_cloud_notes_parser, Apple's zip)"
    suffixes = (".db", ".sqlite", ".sqlite3", ".json", ".zip")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 0.0
        if is_database(probe):
            return 0.9 if has_tables(probe, _TABLES) else 0.0
        if is_zip(probe.head):
            return 0.8 if any(map(_is_note_entry, probe.names)) else 0.0
        return 0.9 if is_json(probe.head) and all(field in probe.head for field in _JSON_FIELDS) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        with open_file(path) as file:
            head = file.read(16)
        if is_zip(head):
            with open_tree(path, limits, progress) as tree:
                for name in tree.names:
                    if not _is_note_entry(name):
                        yield SkippedItem("file in the archive not containing a note")
                        continue
                    try:
                        # Apple's zip has plain text, the database HTML.
                        text = item_text(tree.read(name, text_max_bytes(limits)), limits, name).strip("\n")
                    except InvalidParams as error:
                        yield FailedItem(name, error.message)
                        continue
                    yield _text_note(PurePosixPath(name), text, tree.modified_at(name))
        elif head == b"SQLite format 3\0":
            yield from _read_database(path, limits, progress)
        else:
            export = read_json(path, limits)
            notes = export.get("notes") if isinstance(export, Mapping) else None
            if not isinstance(notes, Mapping):
                raise InvalidParams("notes: expected an object with notes")
            for key, note in notes.items():
                is_note = isinstance(note, Mapping)
                yield _json_note(key, note) if is_note else FailedItem(f"note {key[:60]!r}", "expected an object")
        progress(file_size(path))


IMPORTER = AppleNotesImporter()
# -- apple-notes-to-sqlite ---------------------------------------------------------------------------------------------


def _read_database(path: Path, limits: ImportLimits, progress: ProgressCallback) -> Iterator[ImportEvent]:
    with open_database(path, limits) as connection:
        reader = TableReader(connection, limits)
        if not all(map(reader.has, _TABLES)):
            raise InvalidParams("not a database of apple-notes-to-sqlite")
        row_progress = RowProgress(progress, file_size(path), reader.count(_NOTES))
        for rowid in reader.rowids(_NOTES):
            try:
                row = reader.row(_NOTES, rowid)
                folders = reader.rows_where(_FOLDERS, "id", row["folder"])
                yield _row_note(row, clean_line(folders[0]["name"]) if folders else "", limits)
            except (InvalidParams, TooLarge) as error:
                yield FailedItem(f"notes, row {rowid}", error.message)
            row_progress.step()


def _row_note(row: TableRow, folder: str, limits: ImportLimits) -> ImportEvent:
    content = html_text(text_or_empty(row["body"]), limits.item_max_chars)
    if not content:
        return SkippedItem("empty note")
    # With it, an older export does not overwrite a newer note.
    updated = stored_time(row["updated"])
    draft = NoteDraft(
        title=short_title(clean_line(row["title"]) or content),
        content=content,
        tags=clean_tags(inline_tags(content)),
        metadata=compact_metadata(folder=folder, updated=updated),
        # Such as x-coredata://…/ICNote/p123, which is unique to the Mac that exported it.
        uuid=stable_uuid("apple_notes", "notes", clean_line(row["id"])),
        created_at=stored_time(row["created"]) or UNSET,
        last_modified=updated or UNSET,
    )
    return ImportedNote(draft)


# -- apple_cloud_notes_parser ------------------------------------------------------------------------------------------


def _json_note(key: str, note: Mapping[str, Any]) -> ImportEvent:
    content = replace_unstorable(text_or_empty(note.get("plaintext"))).strip("\n")
    if not content:
        return SkippedItem("locked note" if note.get("is_password_protected") is True else "empty note")
    uuid = valid_uuid(note.get("uuid"))
    created, modified = _exported_time(note.get("creation_time")), _exported_time(note.get("modify_time"))
    draft = NoteDraft(
        title=short_title(clean_line(note.get("title")) or content),
        content=content,
        tags=clean_tags(inline_tags(content)),
        metadata=compact_metadata(
            folder=clean_line(note.get("folder")),
            account=clean_line(note.get("account")),
            updated=modified,
            pinned=note.get("is_pinned") is True or None,
        ),
        uuid=uuid or stable_uuid("apple_notes", "notes", f"{note.get('note_id', key)}/{note.get('creation_time')}"),
        created_at=created or UNSET,
        last_modified=modified or UNSET,
    )
    return ImportedNote(draft)


def _exported_time(value: object) -> str | None:
    """Times are written as `2024-01-05 10:30:00 +0100`."""
    text = value.replace(" +", "+").replace(" -", "-").replace(" UTC", "Z") if isinstance(value, str) else value
    return stored_time(text) or stored_date(text)


# -- the zip from Apple ------------------------------------------------------------------------------------------------


def _is_note_entry(name: str) -> bool:
    """A note is a folder, below `Notes`, with its text in a file of the same name."""
    *folders, folder, file = ["", *name.split("/")]
    return "Notes" in folders and file == f"{folder}.txt"


def _text_note(path: PurePosixPath, text: str, modified: Any) -> ImportEvent:
    if not text:
        return SkippedItem("empty note")
    dated = _CREATED_SUFFIX.search(path.stem)
    title = path.stem[: dated.start()] if dated else path.stem
    folder = str(path.parent.parent)
    draft = NoteDraft(
        title=short_title(title),
        content=text,
        tags=clean_tags(inline_tags(text)),
        metadata=compact_metadata(folder=folder),
        uuid=stable_uuid("apple_notes", "notes", str(path)),
        created_at=(stored_time(dated[1].replace("_", ":")) if dated else None) or modified,
    )
    return ImportedNote(draft)
