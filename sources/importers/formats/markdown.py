"""Markdown notes, one file or a whole Obsidian vault, as a folder or a zip: the text stays as it was written, links
and all.

What a note says of itself above its text (title, tags, dates) becomes the note's own; of the vault nothing else is
read: no settings, no attachments, nothing from the bin.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from config.errors import InvalidParams, TooLarge
from config.times import format_time
from sources.drafts import NoteDraft
from sources.importers.engine.archives import Archive, is_zip, open_archive
from sources.importers.engine.file_probe import files_in
from sources.importers.engine.files import (
    changed_at,
    date_of,
    decoded,
    few_tags,
    is_text,
    key_of,
    own_uuid,
    plain_name,
    read_text,
    short_title,
    size_of,
    text_max_bytes,
)
from sources.importers.engine.front_matter import lower_keys, split_front_matter, text_of, words_of
from sources.importers.engine.imported_items import (
    FailedItem,
    ImportedNote,
    ImportEvent,
    ReadPosition,
    SkippedItem,
    stable_uuid,
)
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback

_SUFFIXES = (".md", ".markdown", ".mdown", ".mkd")
_VAULT = ".obsidian"
_SETTINGS = re.compile(r"(?:^|[/\\])(\.obsidian[/\\])")
_NO_NOTE = SkippedItem("a file of the vault that is no note")
_CREATED = ("created", "created_at", "date", "date_created", "creation_date")
_LINKS_MAX = 1_000
_FOUND_MAX = 10_000
# Code has its own # and [[. Within a line it is short, so that a megabyte of backticks is not read once for each.
_CODE = re.compile(
    r"^[ ]{0,3}(```+|~~~+).*?(?:^[ ]{0,3}\1|\Z)|(?<!`)(`++)[^\n]{0,1000}?(?<!`)\2(?!`)", re.DOTALL | re.MULTILINE
)
_HEADING = re.compile(r"^#[ \t]+([^\n]+)$", re.MULTILINE)
_TAG = re.compile(r"(?<![^\s(,;>])#([\w/-]*[^\W\d_][\w/-]*|[\w/-]*[_/-][\w/-]*)")
_LINK = re.compile(r"!?\[\[([^\[\]\n]{1,500})\]\]")


def _recognizes(probe: FileProbe) -> float:
    if probe.is_folder:
        return 1.0 if _VAULT in probe.names else 0.0
    if is_zip(probe.head):
        return _likeness(probe.names)
    return 0.5 if probe.path.suffix.lower() in _SUFFIXES and is_text(probe.head) else 0.0


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, _mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    if path.is_dir():
        yield from _in_folder(path, limits, progress)
    elif _is_archive(path):
        with open_archive(path, limits, progress) as archive:
            yield from _in_archive(archive, path, limits)
    else:
        place = _place_in_vault(path) if limits.has_place else None
        yield ImportedNote(_note(_written_in(path, place, limits), limits))
        progress(size_of(path))


def _likeness(names: Sequence[str]) -> float:
    """Of an archive. Whoever knows more of it comes first; one that is no vault has to be mostly notes, or every
    program's source with a page to read in it would be one."""
    files = [name for name in names if _is_visible(name) and not name.endswith("/")]
    notes = sum(map(_is_note, files))
    if not notes:
        return 0.0
    return 0.6 if _vault_in(names) is not None else 0.3 if 2 * notes >= len(files) else 0.0


class _Written(Struct, frozen=True):
    """The text of a note, what its file is called, and where it lies in its vault, if it is in one; without an id of
    its own it is known by `key`."""

    text: str
    name: str
    place: str | None
    key: str
    changed_at: str | UnsetType


# -- in a folder -------------------------------------------------------------------------------------------------------


def _in_folder(folder: Path, limits: ImportLimits, progress: ProgressCallback) -> Iterator[ImportEvent]:
    read_bytes = 0
    for file in files_in(folder):
        yield _arrival(file, plain_name(file.relative_to(folder).as_posix()), limits)
        read_bytes += size_of(file)
        progress(read_bytes)


def _arrival(file: Path, place: str, limits: ImportLimits) -> ImportEvent:
    if not _is_note(file.name):
        return _NO_NOTE
    try:
        return ImportedNote(_note(_written_in(file, place, limits), limits))
    except (InvalidParams, TooLarge) as error:
        return FailedItem(place, error.message)
    except OSError as error:
        return FailedItem(place, f"it cannot be read: {error.strerror or 'the disk failed'}")


def _written_in(path: Path, place: str | None, limits: ImportLimits) -> _Written:
    text = read_text(path, limits)
    key = place or key_of(path, limits)
    return _Written(text, plain_name(path.name), place, key, changed_at(path, limits))


def _place_in_vault(path: Path) -> str | None:
    """The name that a note has in the vault it lies in, so that it is the same note, read alone or with the others."""
    resolved = path.resolve()
    vault = next((folder for folder in resolved.parents if (folder / _VAULT).is_dir()), None)
    return None if vault is None else plain_name(resolved.relative_to(vault).as_posix())


# -- in a zip ----------------------------------------------------------------------------------------------------------


def _in_archive(archive: Archive, path: Path, limits: ImportLimits) -> Iterator[ImportEvent]:
    vault = _vault_in(archive.names)
    for name in archive.names:
        if not _is_visible(name):
            continue
        shown = _readable(name)
        if not _is_note(name):
            yield _NO_NOTE
        elif archive.size(name) > text_max_bytes(limits):
            yield FailedItem(shown, TooLarge("the note", text_max_bytes(limits)).message)
        else:
            try:
                yield ImportedNote(_note(_written_at(archive, name, path, vault, limits), limits))
            except InvalidParams as error:
                yield FailedItem(shown, error.message)


def _written_at(archive: Archive, name: str, path: Path, vault: str | None, limits: ImportLimits) -> _Written:
    """The path in the vault, so that it is the same note as in the folder. What is in no vault is known by where the
    archive lies and by its name there; in one that lies nowhere, by its bytes, as if it had been sent alone."""
    data = archive.read(name, text_max_bytes(limits))
    place = None if vault is None else _readable(name.removeprefix(vault))
    alone = f"{key_of(path, limits)}/{_readable(name)}" if limits.has_place else sha256(data).hexdigest()
    changed = archive.changed_at(name)
    return _Written(
        text=decoded(data),
        name=_readable(name).rpartition("/")[2],
        place=place,
        key=place or alone,
        changed_at=UNSET if changed is None else format_time(changed),
    )


def _vault_in(names: Sequence[str]) -> str | None:
    """The folder of an archive that is the vault, with its slash: the outermost that has settings in it, if no note
    lies elsewhere."""
    found = [name[: match.start(1)] for name in names if (match := _SETTINGS.search(name))]
    vault = min(found, key=len, default=None)
    notes = (name for name in names if _is_note(name) and _is_visible(name))
    return vault if vault is not None and all(name.startswith(vault) for name in notes) else None


def _is_visible(name: str) -> bool:
    """As in a folder on the disk; one more is what a Mac adds to archives."""
    folders = re.split(r"[/\\]", name)[:-1]
    return not any(folder.startswith(".") or folder == "__MACOSX" for folder in folders)


def _readable(name: str) -> str:
    """Names in an archive that does not say how they are written are read as those of DOS; Macs write UTF-8 there."""
    with suppress(UnicodeError):
        name = name.encode("cp437").decode()
    return plain_name(name.replace("\\", "/"))


def _is_archive(path: Path) -> bool:
    with path.open("rb") as file:
        return is_zip(file.read(4))


# -- a note ------------------------------------------------------------------------------------------------------------


def _is_note(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in _SUFFIXES


def _note(found: _Written, limits: ImportLimits) -> NoteDraft:
    front, body = split_front_matter(found.text, limits.depth_max)
    own = lower_keys(front)
    outside_code = _CODE.sub(" ", body)
    tags = [
        *words_of(own.get("tags")),
        *words_of(own.get("tag")),
        *(tag.strip("/") for tag in _found(_TAG, outside_code)),
    ]
    return NoteDraft(
        title=short_title(text_of(own.get("title")) or _first_heading(outside_code) or PurePosixPath(found.name).stem),
        content=body.strip("\n"),
        tags=few_tags(tags),
        metadata=_metadata(found.place or found.name, front, own, outside_code),
        uuid=own_uuid(own.get("uuid")) or stable_uuid("markdown", "notes", found.key),
        created_at=_created(own) or found.changed_at,
    )


def _found(wanted: re.Pattern[str], text: str) -> Iterator[str]:
    """More than anybody reads are not looked for: each would take fifty bytes, however short it is."""
    return (found[1] for found in islice(wanted.finditer(text), _FOUND_MAX))


def _first_heading(text: str) -> str:
    found = _HEADING.search(text)
    return found[1].strip().rstrip("#").strip() if found else ""


def _created(own: Mapping[str, Any]) -> str | None:
    return next((when for name in _CREATED if (when := date_of(own.get(name)))), None)


def _metadata(place: str, front: Mapping[str, Any], own: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Where the note was, what it links to, its other names, and its front matter as it stood there."""
    aliases = [*_names(own.get("aliases")), *_names(own.get("alias"))]
    links = list(dict.fromkeys(_target(link) for link in _found(_LINK, text)))[:_LINKS_MAX]
    found = {"path": place, "links": links, "aliases": aliases, "front_matter": dict(front)}
    return {name: value for name, value in found.items() if value}


def _names(value: Any) -> list[str]:
    """Other names of a note may have spaces in them."""
    parts = value.split(",") if isinstance(value, str) else value
    return [part.strip() for part in parts or () if isinstance(part, str) and part.strip()]


def _target(link: str) -> str:
    """What a link leads to, without the words that are shown for it."""
    return link.partition("|")[0].strip()


IMPORTER = Importer(
    name="markdown",
    title="Markdown notes, Obsidian vault (a folder, or a zip of it)",
    recognizes=_recognizes,
    read=_read,
    suffixes=(*_SUFFIXES, ".zip"),
)
