"""Markdown notes: single files, or an Obsidian vault as a folder or zip. The text is kept as written, including links.

Title, tags and dates are taken from the front matter. Settings, attachments and the trash of a vault are not read.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from config.errors import InvalidParams, TooLarge
from config.times import format_time
from sources.drafts import NoteDraft
from sources.importers.engine.archives import Archive, decode_name, is_visible, is_zip, open_archive
from sources.importers.engine.encodings import DecodedText
from sources.importers.engine.export_files import is_zip_file
from sources.importers.engine.file_probe import FileProbe, files_in
from sources.importers.engine.files import (
    decode_item,
    encoding_doubts,
    encoding_metadata,
    file_key,
    file_size,
    is_text,
    modified_at,
    printable_name,
    read_decoded,
    text_max_bytes,
)
from sources.importers.engine.front_matter import normalize_keys, split_front_matter, split_words, stripped_text
from sources.importers.engine.imported_items import (
    FailedItem,
    ImportedNote,
    ImportEvent,
    ReadPosition,
    SkippedItem,
    stable_uuid,
)
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.markdown_text import first_heading, inline_tags, link_targets, remove_code
from sources.importers.engine.progress import ProgressCallback
from sources.importers.engine.times import stored_date
from sources.importers.engine.values import clean_tags, short_title, valid_uuid

_SUFFIXES = (".md", ".markdown", ".mdown", ".mkd")
_SETTINGS_FOLDER = ".obsidian"
_SETTINGS_IN_NAME = re.compile(r"(?:^|[/\\])(\.obsidian[/\\])")
_NOT_A_NOTE = SkippedItem("file in the vault not containing a note")
_CREATED_FIELDS = ("created", "created_at", "date", "date_created", "creation_date")
_MODIFIED_FIELDS = ("modified", "updated", "last_modified", "updated_at", "date_modified", "date_updated")


class MarkdownImporter(Importer):
    name = "markdown"
    title = "Markdown notes, Obsidian vault (a folder, or a zip of it)"
    suffixes = (*_SUFFIXES, ".zip")
    reads_files_alone = True

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 1.0 if _SETTINGS_FOLDER in probe.names else 0.0
        if is_zip(probe.head):
            return _archive_confidence(probe.names)
        return 0.5 if probe.path.suffix.lower() in _SUFFIXES and is_text(probe.head) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        if path.is_dir():
            yield from _read_folder(path, limits, progress)
        elif is_zip_file(path):
            with open_archive(path, limits, progress) as archive:
                yield from _read_archive(archive, path, limits)
        else:
            place = _place_in_vault(path) if limits.has_stable_path else None
            yield from _note_events("", _file_note(path, place, limits), limits)
            progress(file_size(path))


IMPORTER = MarkdownImporter()


class _VaultPath(Struct, frozen=True):
    """The path of a note in a vault. Vaults have notes of the same names, so the vault's name is part of the key."""

    vault: str
    path: str

    @property
    def key(self) -> str:
        return f"{self.vault}/{self.path}"


class _NoteFile(Struct, frozen=True):
    """The text of a note, its file name, and its path in a vault, if it is in one. A note without an id of its own is
    identified by `key`."""

    text: DecodedText
    name: str
    vault_path: str | None
    key: str
    modified_at: str | UnsetType


def _archive_confidence(names: Sequence[str]) -> float:
    """Stays below other importers. An archive that is not a vault must consist mostly of notes, because most source
    archives contain a README."""
    files = [name for name in names if is_visible(name) and not name.endswith("/")]
    notes = sum(map(_is_note, files))
    if not notes:
        return 0.0
    if _vault_folder(names) is not None:
        return 0.6
    return 0.3 if 2 * notes >= len(files) else 0.0


# -- in a folder -------------------------------------------------------------------------------------------------------


def _read_folder(folder: Path, limits: ImportLimits, progress: ProgressCallback) -> Iterator[ImportEvent]:
    bytes_read = 0
    vault = printable_name(folder.resolve().name)
    for file in files_in(folder):
        yield from _read_file(file, _VaultPath(vault, printable_name(file.relative_to(folder).as_posix())), limits)
        bytes_read += file_size(file)
        progress(bytes_read)


def _read_file(file: Path, place: _VaultPath, limits: ImportLimits) -> Iterator[ImportEvent]:
    if not _is_note(file.name):
        yield _NOT_A_NOTE
        return
    try:
        yield from _note_events(place.path, _file_note(file, place, limits), limits)
    except (InvalidParams, TooLarge) as error:
        yield FailedItem(place.path, error.message)
    except OSError as error:
        yield FailedItem(place.path, f"cannot be read: {error.strerror or 'disk error'}")


def _file_note(path: Path, place: _VaultPath | None, limits: ImportLimits) -> _NoteFile:
    text = read_decoded(path, limits)
    key = file_key(path, limits) if place is None else place.key
    return _NoteFile(
        text, printable_name(path.name), None if place is None else place.path, key, modified_at(path, limits)
    )


def _place_in_vault(path: Path) -> _VaultPath | None:
    """Returns the note's path in the vault that contains it, so that it is the same note whether it is read alone or
    with the vault."""
    resolved = path.resolve()
    vault = next((folder for folder in resolved.parents if (folder / _SETTINGS_FOLDER).is_dir()), None)
    if vault is None:
        return None
    return _VaultPath(printable_name(vault.name), printable_name(resolved.relative_to(vault).as_posix()))


# -- in a zip ----------------------------------------------------------------------------------------------------------


def _read_archive(archive: Archive, path: Path, limits: ImportLimits) -> Iterator[ImportEvent]:
    vault = _vault_folder(archive.names)
    for name in archive.names:
        if not is_visible(name):
            continue
        location = decode_name(name)
        if not _is_note(name):
            yield _NOT_A_NOTE
        elif archive.size(name) > text_max_bytes(limits):
            yield FailedItem(location, TooLarge("the note", text_max_bytes(limits)).message)
        else:
            try:
                yield from _note_events(location, _archived_note(archive, name, path, vault, limits), limits)
            except InvalidParams as error:
                yield FailedItem(location, error.message)


def _archived_note(archive: Archive, name: str, path: Path, vault: str | None, limits: ImportLimits) -> _NoteFile:
    """Identifies a note by its path in the vault, as in a folder. Outside a vault it is identified by the archive's
    path and its name there, or, without a stable path, by its content, as if it had been uploaded alone."""
    data = archive.read(name, text_max_bytes(limits))
    decoded_name = decode_name(name)
    place = None if vault is None else _VaultPath(_vault_name(vault, path), decode_name(name.removeprefix(vault)))
    key = f"{file_key(path, limits)}/{decoded_name}" if limits.has_stable_path else sha256(data).hexdigest()
    modified = archive.modified_at(name)
    return _NoteFile(
        text=decode_item(data, limits),
        name=decoded_name.rpartition("/")[2],
        vault_path=None if place is None else place.path,
        key=key if place is None else place.key,
        modified_at=UNSET if modified is None else format_time(modified),
    )


def _vault_folder(names: Sequence[str]) -> str | None:
    """Returns the vault's folder in an archive, with a trailing slash: the outermost one with settings, provided that
    all notes are inside it."""
    folders = [name[: match.start(1)] for name in names if (match := _SETTINGS_IN_NAME.search(name))]
    vault = min(folders, key=len, default=None)
    notes = (name for name in names if _is_note(name) and is_visible(name))
    return vault if vault is not None and all(name.startswith(vault) for name in notes) else None


def _vault_name(folder: str, path: Path) -> str:
    """A vault that is not in a folder of the archive has the name of the archive."""
    return decode_name(re.split(r"[/\\]", folder)[-2]) if folder else printable_name(path.stem)


# -- a note ------------------------------------------------------------------------------------------------------------


def _is_note(name: str) -> bool:
    return posixpath.splitext(name)[1].lower() in _SUFFIXES


def _note_events(location: str, note: _NoteFile, limits: ImportLimits) -> Iterator[ImportEvent]:
    draft = _note_draft(note, limits)
    yield from encoding_doubts(location, note.text.encoding, is_doubtful=note.text.is_doubtful)
    yield ImportedNote(draft)


def title_and_tags(fields: Mapping[str, Any], prose: str, name: str) -> tuple[str, tuple[str, ...]]:
    """Returns the title and the tags of a note. `fields` are those of the front matter, `prose` is the text without
    code, and `name` that of the file."""
    title = stripped_text(fields.get("title")) or first_heading(prose) or PurePosixPath(name).stem
    tags = [
        *split_words(fields.get("tags")),
        *split_words(fields.get("tag")),
        *inline_tags(prose),
    ]
    return short_title(title), tuple(clean_tags(tags))


def _note_draft(note: _NoteFile, limits: ImportLimits) -> NoteDraft:
    front_matter, body = split_front_matter(note.text.text, limits.depth_max)
    fields = normalize_keys(front_matter)
    prose = remove_code(body)
    title, tags = title_and_tags(fields, prose, note.name)
    return NoteDraft(
        title=title,
        content=body.strip("\n"),
        tags=tags,
        metadata={
            **_metadata(note.vault_path or note.name, front_matter, fields, prose),
            **encoding_metadata(note.text.encoding),
        },
        uuid=valid_uuid(fields.get("uuid")) or stable_uuid("markdown", "notes", note.key),
        created_at=_first_date(fields, _CREATED_FIELDS) or note.modified_at,
        last_modified=_first_date(fields, _MODIFIED_FIELDS) or UNSET,
    )


def _first_date(fields: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((date for name in names if (date := stored_date(fields.get(name)))), None)


def _metadata(path: str, front_matter: Mapping[str, Any], fields: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Returns path, links, aliases, and the front matter as written."""
    aliases = [*_aliases(fields.get("aliases")), *_aliases(fields.get("alias"))]
    metadata = {"path": path, "links": link_targets(text), "aliases": aliases, "front_matter": dict(front_matter)}
    return {name: value for name, value in metadata.items() if value}


def _aliases(value: Any) -> list[str]:
    """Unlike tags, aliases may contain spaces."""
    parts = value.split(",") if isinstance(value, str) else value
    return [part.strip() for part in parts or () if isinstance(part, str) and part.strip()]
