"""Markdown notes: single files, or an Obsidian vault as a folder or zip. The text is kept as written, including links.

Title, tags and dates are taken from the front matter. Settings, the trash and most attachments of a vault are not read.
Images that a note shows are stored with it: those next to the note, at the place in the vault that the text names, or
in the folder that Obsidian saves attachments in. Each note finds the same images, whether it is read alone or with the
vault, and none outside of the vault.
"""

# About this package: A format is recognized by its content, and `recognizes` returns how certain it is: 0.9 and more
# for marks that only this format has, about 0.5 for files that are known by their suffix, and less for formats that
# could be anything, such as plain text. `../registry.py` lists them; a test compares a sample of each with a golden
# file. Ids must never change: a later export with other ids would import everything once more.

import posixpath
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from msgspec import UNSET, Struct, UnsetType

from config.errors import InvalidParams, TooLarge
from config.numbers import replace_unstorable
from config.times import format_time
from sources.drafts import NoteDraft, NoteImage
from sources.importers.engine import files, markdown_text
from sources.importers.engine.archives import Archive, decode_name, is_visible
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.encodings import DecodedText
from sources.importers.engine.events import FailedItem, ImportedNote, SkippedItem, stable_uuid
from sources.importers.engine.file_probe import files_in
from sources.importers.engine.importer import Events, FileImporter, FileProbe, ImportLimits, InputFile
from sources.importers.engine.values import clean_tags, json_or_none, short_title, stored_date, valid_uuid

_SUFFIXES = (".md", ".markdown", ".mdown", ".mkd")
_SETTINGS_FOLDER = ".obsidian"
_SETTINGS_IN_NAME = re.compile(r"(?:^|[/\\])(\.obsidian[/\\])")
_NOT_A_NOTE = SkippedItem("file in the vault not containing a note")
_CREATED_FIELDS = ("created", "created_at", "date", "date_created", "creation_date")
_APP_SETTINGS = f"{_SETTINGS_FOLDER}/app.json"
_APP_SETTINGS_MAX_BYTES = 1 << 20
_IMAGES_MAX = 100
# `![[picture.png|300]]`, and `![alt](picture.png)` or `![alt](<my picture.png>)`.
_EMBEDDED_IMAGE = re.compile(r"!\[\[([^\[\]|#\n]{1,200})(?:[|#][^\[\]\n]{0,200})?\]\]")
_LINKED_IMAGE = re.compile(r"!\[[^\[\]\n]{0,500}\]\((?:<([^<>\n]{1,500})>|([^()\s]{1,500}))(?:\s[^()\n]{0,200})?\)")
# The images that browsers show, by their first bytes. SVG is left out: it can contain scripts.
_IMAGE_STARTS = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
_MODIFIED_FIELDS = ("modified", "updated", "last_modified", "updated_at", "date_modified", "date_updated")


class MarkdownImporter(FileImporter):
    name = "markdown"
    title = "Markdown notes, Obsidian vault (a folder, or a zip of it)"
    suffixes = (*_SUFFIXES, ".zip")
    reads_files_alone = True

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 1.0 if _SETTINGS_FOLDER in probe.names else 0.0
        if probe.is_zip:
            # Stays below other importers. An archive that is not a vault must consist mostly of notes, because most
            # source archives contain a README.
            entries = [name for name in probe.names if is_visible(name) and not name.endswith("/")]
            notes = sum(map(_is_note, entries))
            if not notes:
                return 0.0
            if _vault_folder(probe.names) is not None:
                return 0.6
            return 0.3 if 2 * notes >= len(entries) else 0.0
        return 0.5 if probe.suffix in _SUFFIXES and probe.is_text else 0.0

    def read_file(self, file: InputFile) -> Events:
        path, limits = file.path, file.limits
        if file.is_folder:
            bytes_read = 0
            folder = path.resolve()
            images = _VaultFolder(folder, limits)
            for note in files_in(path):
                name = files.printable_name(note.relative_to(path).as_posix())
                if _is_note(note.name):
                    try:
                        yield from _note_events(name, _file_note(note, folder, name, limits), limits, images)
                    except (InvalidParams, TooLarge) as error:
                        yield FailedItem(name, error.message)
                    except OSError as error:
                        yield FailedItem(name, files.describe_read_error(error))
                else:
                    yield _NOT_A_NOTE
                bytes_read += files.file_size(note)
                file.progress(bytes_read)
        elif file.is_zip:
            with file.open_archive() as archive:
                yield from _read_archive(archive, path, limits)
        else:
            # A note in a vault is the same note, whether it is read alone or with the vault.
            resolved = path.resolve()
            vaults = (folder for folder in resolved.parents if (folder / _SETTINGS_FOLDER).is_dir())
            vault = next(vaults, None) if limits.has_stable_path else None
            if vault is None:
                alone = _NoteFile(file.decoded_text(), file.name, None, file.key, file.modified_at)
                yield from _note_events("", alone, limits)
            else:
                name = files.printable_name(resolved.relative_to(vault).as_posix())
                images = _VaultFolder(vault, limits, is_confined=True)
                yield from _note_events("", _file_note(path, vault, name, limits), limits, images)
            file.progress(files.file_size(path))


class _NoteFile(Struct, frozen=True):
    """The text of a note, its file name, and its path in a vault, if it is in one. A note without an id of its own is
    identified by `key`. Vaults have notes of the same names, so the vault's name is part of it."""

    text: DecodedText
    name: str
    vault_path: str | None
    key: str
    modified_at: str | UnsetType


def _file_note(path: Path, vault: Path, name: str, limits: ImportLimits) -> _NoteFile:
    key = f"{files.printable_name(vault.name)}/{name}"
    text, modified = files.read_decoded(path, limits), files.modified_at(path, limits)
    return _NoteFile(text, files.printable_name(path.name), name, key, modified)


def _read_archive(archive: Archive, path: Path, limits: ImportLimits) -> Events:
    vault = _vault_folder(archive.names)
    images = None if vault is None else _VaultArchive(archive, vault, limits)
    # A vault that is not in a folder of the archive has the name of the archive.
    vault_name = decode_name(re.split(r"[/\\]", vault)[-2]) if vault else files.printable_name(path.stem)
    for name in archive.names:
        if not is_visible(name):
            continue
        location = decode_name(name)
        if not _is_note(name):
            yield _NOT_A_NOTE
        # By the declared size, so that nothing is unpacked.
        elif archive.size(name) > files.text_max_bytes(limits):
            yield FailedItem(location, TooLarge("the note", files.text_max_bytes(limits)).message)
        else:
            try:
                # Identifies a note by its path in the vault, as in a folder. Outside a vault it is identified by the
                # archive's path and its name there, or, without a stable path, by its content, as if it had been
                # uploaded alone.
                data = archive.read(name, files.text_max_bytes(limits))
                in_vault = None if vault is None else decode_name(name.removeprefix(vault))
                if in_vault is not None:
                    key = f"{vault_name}/{in_vault}"
                elif limits.has_stable_path:
                    key = f"{files.file_key(path, limits)}/{location}"
                else:
                    key = sha256(data).hexdigest()
                time = archive.modified_at(name)
                modified = UNSET if time is None else format_time(time)
                note = _NoteFile(files.decode_item(data, limits), location.rpartition("/")[2], in_vault, key, modified)
                yield from _note_events(location, note, limits, images)
            except InvalidParams as error:
                yield FailedItem(location, error.message)


def _vault_folder(names: Sequence[str]) -> str | None:
    """Returns the vault's folder in an archive, with a trailing slash: the outermost one with settings, provided that
    all notes are inside it."""
    folders = [name[: match.start(1)] for name in names if (match := _SETTINGS_IN_NAME.search(name))]
    vault = min(folders, key=len, default=None)
    notes = (name for name in names if _is_note(name) and is_visible(name))
    return vault if vault is not None and all(name.startswith(vault) for name in notes) else None


def _is_note(name: str) -> bool:
    return posixpath.splitext(name)[1].lower() in _SUFFIXES


def _note_events(location: str, note: _NoteFile, limits: ImportLimits, vault: "_VaultFiles | None" = None) -> Events:
    front_matter, body = markdown_text.split_front_matter(note.text.text, limits.depth_max)
    fields = markdown_text.normalize_keys(front_matter)
    prose = markdown_text.remove_code(body)
    title, tags = title_and_tags(fields, prose, note.name)
    metadata = {
        "path": note.vault_path or note.name,
        "links": markdown_text.link_targets(prose),
        "aliases": [*_aliases(fields.get("aliases")), *_aliases(fields.get("alias"))],
        "front_matter": dict(front_matter),
    }
    draft = NoteDraft(
        title=title,
        content=body.strip("\n"),
        tags=tags,
        metadata={
            **{name: value for name, value in metadata.items() if value},
            **files.encoding_metadata(note.text.encoding),
        },
        uuid=valid_uuid(fields.get("uuid")) or stable_uuid("markdown", "notes", note.key),
        created_at=_first_date(fields, _CREATED_FIELDS) or note.modified_at,
        last_modified=_first_date(fields, _MODIFIED_FIELDS) or UNSET,
    )
    yield from files.encoding_doubts(location, note.text.encoding, is_doubtful=note.text.is_doubtful)
    images = None
    if vault is not None and note.vault_path is not None:
        images = vault.images_of(note.vault_path, markdown_text.remove_code(str(draft.content)))
    yield ImportedNote(draft, images)


# -- images ------------------------------------------------------------------------------------------------------------


class _VaultFiles:
    """Finds the images that notes of a vault show."""

    _is_confined = False

    def __init__(self, limits: ImportLimits) -> None:
        self._limits = limits
        settings = json_or_none(
            (self._read(_APP_SETTINGS, _APP_SETTINGS_MAX_BYTES) or b"").decode("utf-8", "replace"), limits
        )
        folder = settings.get("attachmentFolderPath") if isinstance(settings, Mapping) else None
        # The setting of Obsidian for new attachments: a folder of the vault, or `./name` next to each note.
        self._attachments = folder if isinstance(folder, str) else ""

    def _read(self, name: str, max_bytes: int) -> bytes | None:
        """Returns a file of the vault, or None if it does not exist, is larger, or is not inside the vault."""
        raise NotImplementedError

    def images_of(self, note: str, prose: str) -> tuple[NoteImage, ...] | None:
        """Returns None if it is not known which images the note has."""
        names = [match[1].strip() for match in _EMBEDDED_IMAGE.finditer(prose)]
        names += [unquote(match[1] or match[2]) for match in _LINKED_IMAGE.finditer(prose)]
        images: list[NoteImage] = []
        room = self._limits.images_max_bytes
        for name in list(dict.fromkeys(names))[:_IMAGES_MAX]:
            image = self._find(name, posixpath.dirname(note), room)
            if image is not None:
                images.append(image)
                room -= len(image.data)
        # The process that reads a single note may not be allowed to open its images. Those that are stored are kept
        # then.
        return None if self._is_confined and names and not images else tuple(images)

    def _find(self, name: str, folder: str, room: int) -> NoteImage | None:
        if "://" in name or name != replace_unstorable(name):
            return None
        attachments = self._attachments
        saved_in = posixpath.join(folder, attachments) if attachments.startswith("./") else attachments.strip("/")
        for parent in (folder, "", saved_in):
            path = posixpath.normpath(posixpath.join(parent, name))
            is_inside = not path.startswith(("/", "../")) and path != ".."
            data = self._read(path, room) if is_inside and is_visible(path) else None
            media_type = next((kind for kind, start in _IMAGE_STARTS.items() if start.match(data or b"")), None)
            if data is not None and media_type is not None:
                return NoteImage(name, media_type, data)
        return None


class _VaultFolder(_VaultFiles):
    """With `is_confined`, a note is read alone, perhaps by a process that may read nothing else."""

    def __init__(self, folder: Path, limits: ImportLimits, *, is_confined: bool = False) -> None:
        self._folder = folder
        self._is_confined = is_confined
        super().__init__(limits)

    def _read(self, name: str, max_bytes: int) -> bytes | None:
        path = self._folder / name
        try:
            if not path.resolve().is_relative_to(self._folder):
                return None  # a link leads out of the vault
            with open_file(path) as file:
                data = file.read(max_bytes + 1)
        except (OSError, ValueError):
            return None
        return data if len(data) <= max_bytes else None


class _VaultArchive(_VaultFiles):
    def __init__(self, archive: Archive, vault: str, limits: ImportLimits) -> None:
        self._archive = archive
        self._names = {decode_name(name.removeprefix(vault)): name for name in archive.names if name.startswith(vault)}
        super().__init__(limits)

    def _read(self, name: str, max_bytes: int) -> bytes | None:
        entry = self._names.get(name)
        if entry is None or self._archive.size(entry) > max_bytes:
            return None
        try:
            return self._archive.read(entry, max_bytes)
        except InvalidParams:
            return None


def title_and_tags(fields: Mapping[str, Any], prose: str, name: str) -> tuple[str, tuple[str, ...]]:
    """Returns the title and the tags of a note. `fields` are those of the front matter, `prose` is the text without
    code, and `name` that of the file."""
    title = markdown_text.stripped_text(fields.get("title")) or markdown_text.first_heading(prose)
    listed = [word for field in ("tags", "tag") for word in markdown_text.split_words(fields.get(field))]
    return short_title(title or PurePosixPath(name).stem), clean_tags([*listed, *markdown_text.inline_tags(prose)])


def _first_date(fields: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((date for name in names if (date := stored_date(fields.get(name)))), None)


def _aliases(value: Any) -> list[str]:
    """Unlike tags, aliases may contain spaces."""
    parts = value.split(",") if isinstance(value, str) else value
    return [part.strip() for part in parts or () if isinstance(part, str) and part.strip()]
