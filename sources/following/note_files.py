"""The text of a note as a Markdown file. The front matter of an existing file is kept as it is written."""

import os
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec
from msgspec import Struct

from sources.following.scan import SourceMissing, is_folder, scan_file, scan_folder
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.markdown_text import FRONT_MATTER_MAX_CHARS
from sources.importers.registry import all_importers, importer_by_name, select_importer
from sources.records import Note
from sources.storage.contract import FollowedFile

# As the importer recognizes it.
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)(?<=\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
# What Windows forbids in names, and Obsidian in the target of a link, with the spaces around it.
_UNSAFE_IN_NAMES = re.compile(r'[ \x00-\x1f\x7f/\\:*?"<>|#^\[\]]+')
# File systems accept 255; a number and the suffix are added.
_NAME_MAX_BYTES = 120


def split_file(text: str) -> tuple[str, str]:
    """Returns the lines of the front matter, without the fences, and the body."""
    match = _FRONT_MATTER.match(text[: FRONT_MATTER_MAX_CHARS + 10])
    return (match[1], text[match.end() :]) if match else ("", text)


def with_body(text: str, body: str) -> str:
    """Replaces the body of a file. Blank lines after the front matter and at the end of the file are kept."""
    front_matter, old_body = split_file(text)
    head = text[: len(text) - len(old_body)]
    start = old_body[: len(old_body) - len(old_body.lstrip("\n"))]
    end = old_body[len(old_body.rstrip("\n")) :] or "\n"
    return f"{head}{start}{body.strip(chr(10))}{end}" if front_matter or old_body.strip() else f"{head}{body}\n"


def with_fields(text: str, **fields: str | Sequence[str]) -> str:
    """Sets fields of the front matter. Other lines stay as they are."""
    front_matter, body = split_file(text)
    for name, value in fields.items():
        # Removes a field with its continuation lines, which are indented or list items.
        kept: list[str] = []
        blank: list[str] = []
        is_inside = False
        for line in front_matter.splitlines(keepends=True):
            if is_inside and not line.strip():
                blank.append(line)
                continue
            field, separator, _ = line.partition(":")
            is_continued = is_inside and line.startswith((" ", "\t", "- ", "-\t"))
            kept += () if is_continued else blank
            blank = []
            is_inside = is_continued or (bool(separator) and field.rstrip(" \t").lower() == name.lower())
            kept += () if is_inside else (line,)
        # JSON strings and lists are valid YAML.
        scalar = msgspec.json.encode(value if isinstance(value, str) else list(value)).decode()
        front_matter = "".join(kept + blank) + f"{name}: {scalar}\n"
    return f"---\n{front_matter}---\n{body}"


def new_file(note: Note) -> str:
    """The id in the front matter connects the file with the note."""
    fields: dict[str, str | Sequence[str]] = {"uuid": note.uuid, "title": note.title, "created": note.created_at}
    if note.tags:
        fields["tags"] = note.tags
    return with_fields(f"{note.content.strip(chr(10))}\n", **fields)


def file_name(title: str) -> str:
    """Returns a name that every file system accepts, without the suffix."""
    name = _UNSAFE_IN_NAMES.sub(" ", title).strip(" .")
    encoded = name.encode()[:_NAME_MAX_BYTES]
    return encoded.decode(errors="ignore").strip(" .") or "Untitled"


# -- moves -------------------------------------------------------------------------------------------------------------
# Recognizes files of a followed folder that were renamed or moved.


class ChangedFile(Struct, frozen=True):
    name: bytes
    path: Path
    signature: str
    fingerprint: str
    is_database: bool
    moved_from: bytes | None = None


def match_moves(
    files: Sequence[ChangedFile], known: Mapping[bytes, FollowedFile], missing: Sequence[bytes]
) -> list[ChangedFile]:
    """A new file with the content of a missing one was renamed or moved. Of several, one with the same base name is
    preferred."""
    candidates: dict[str, list[bytes]] = {}
    for name in sorted(missing):
        if known[name].fingerprint:
            candidates.setdefault(known[name].fingerprint, []).append(name)
    matched = []
    for file in sorted(files, key=lambda file: file.name):
        names = candidates.get(file.fingerprint, []) if file.name not in known else []
        moved_from = min(names, key=lambda name: (_base_name(name) != _base_name(file.name), name), default=None)
        if moved_from is not None:
            names.remove(moved_from)
        matched.append(msgspec.structs.replace(file, moved_from=moved_from))
    return matched


def _base_name(name: bytes) -> bytes:
    return name.rpartition(b"/")[2]


# -- layout ------------------------------------------------------------------------------------------------------------
# How a followed path is read: a folder file by file, a folder as a whole, or a single file.

# The name of a folder that is read as a whole.
_WHOLE_FOLDER = b"."


class SourceLayout(Struct, frozen=True, kw_only=True):
    # The folder that names are relative to.
    root: Path
    # Set if the source is a single file, or a folder that only makes sense as a whole, such as an unpacked export.
    unit_name: bytes | None = None
    format_name: str | None = None
    # What is read of a folder that is read file by file: the files with these suffixes, or else with these names, which
    # are known to belong there, so that none of them is deleted.
    suffixes: tuple[bytes, ...] = ()
    names: tuple[bytes, ...] = ()

    def is_wanted(self, name: bytes) -> bool:
        return name in self.names if self.names else name.lower().endswith(self.suffixes)

    def path_of(self, name: bytes) -> Path:
        return self.root if name == _WHOLE_FOLDER else self.root / os.fsdecode(name)

    def signature_of(self, name: bytes) -> str:
        return self.unit_signature() if name == self.unit_name else scan_file(self.path_of(name))

    def unit_signature(self) -> str:
        assert self.unit_name is not None
        if self.unit_name != _WHOLE_FOLDER:
            return scan_file(self.path_of(self.unit_name))
        scan = scan_folder(self.root, lambda _name: True)
        return blake2b(repr(sorted(scan.files.items())).encode(), digest_size=16).hexdigest()


def source_layout(path: Path, format_name: str | None, limits: ImportLimits) -> SourceLayout:
    if not path.exists():
        raise SourceMissing("the followed path does not exist")
    if not is_folder(path):
        return SourceLayout(root=path.parent, unit_name=os.fsencode(path.name), format_name=format_name)
    if names := followed_names(format_name):
        return SourceLayout(root=path, format_name=format_name, names=names)
    importers: Sequence[Importer] = all_importers()
    if format_name is not None:
        importers = (importer_by_name(format_name, importers),)
    importer = select_importer(probe_file(path, limits), importers)
    if importer is None:
        return SourceLayout(root=path, format_name=format_name, suffixes=_suffixes(importers))
    if importer.reads_files_alone:
        # Archives in a vault are attachments.
        suffixes = tuple(suffix for suffix in _suffixes([importer]) if suffix != b".zip")
        return SourceLayout(root=path, format_name=importer.name, suffixes=suffixes)
    return SourceLayout(root=path, unit_name=_WHOLE_FOLDER, format_name=importer.name)


def followed_names(format_name: str | None) -> tuple[bytes, ...]:
    """Returns the names of the files that a folder in this format has; none if any file may belong to it."""
    if format_name is None:
        return ()
    return tuple(map(os.fsencode, importer_by_name(format_name, all_importers()).followed_names))


def _suffixes(importers: Sequence[Importer]) -> tuple[bytes, ...]:
    return tuple({suffix.encode() for importer in importers for suffix in importer.suffixes})
