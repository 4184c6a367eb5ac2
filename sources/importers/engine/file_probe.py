"""A look at a file or folder before it is read: its first bytes, and the names inside it. Nothing is unpacked."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from zipfile import ZipInfo

from msgspec import Struct

from config.errors import InvalidParams, NotFound, TooLarge
from sources.importers.engine.archives import is_zip, open_archive
from sources.importers.engine.confined_files import open_file, open_folder
from sources.importers.engine.limits import ImportLimits

HEAD_BYTES = 1 << 16
# The files that identify an export are among its first entries.
_NAMES_MAX = 10_000


class FileProbe(Struct, frozen=True):
    """What a format is recognized by: `head` holds the first bytes of a file; `names` the entries of a zip, or the
    files directly in a folder. `entries` says where the entries of a zip are, so that importers need not read its
    directory again."""

    path: Path
    is_folder: bool
    head: bytes = b""
    names: tuple[str, ...] = ()
    entries: Mapping[str, ZipInfo] = {}


def probe_file(path: Path, limits: ImportLimits) -> FileProbe:
    """Raises `NotFound` if the path does not exist. A zip that cannot be read has no names."""
    try:
        if path.is_dir():
            return FileProbe(path, is_folder=True, names=tuple(islice(_names(path), _NAMES_MAX)))
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(HEAD_BYTES)
    except FileNotFoundError as error:
        raise NotFound("file", path.name) from error
    except (OSError, ValueError) as error:
        raise InvalidParams(f"{path.name}: cannot be read: {_cause(error)}") from error
    if size > limits.file_max_bytes:
        raise TooLarge(path.name, limits.file_max_bytes)
    entries = _entries(path, limits) if is_zip(head) else {}
    return FileProbe(path, is_folder=False, head=head, names=tuple(entries), entries=entries)


def files_in(folder: Path) -> Iterator[Path]:
    """Yields all files below a folder, sorted by name. Hidden folders are left out. Symbolic links are followed only to
    files inside the folder; a link to a folder could form a loop."""
    root = folder.resolve()
    pending = [folder]
    while pending:
        parent = pending.pop()
        # The names of files and of visible subfolders; none of a folder that cannot be read.
        folder_files, folder_folders = [], []
        with suppress(OSError), open_folder(parent) as descriptor, os.scandir(descriptor) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folder_folders += [entry.name] * (not entry.name.startswith("."))
                elif entry.is_file(follow_symlinks=False) or (
                    entry.is_symlink() and _leads_inside(parent, entry, root)
                ):
                    folder_files.append(entry.name)
        files, folders = folder_files, folder_folders
        yield from (parent / name for name in sorted(files))
        pending += [parent / name for name in sorted(folders, reverse=True)]


def _leads_inside(folder: Path, link: "os.DirEntry[str]", root: Path) -> bool:
    """Excludes pipes and devices, which might never end."""
    path = folder / link.name
    return path.is_file() and path.resolve().is_relative_to(root)


def _names(folder: Path) -> list[str]:
    with open_folder(folder) as descriptor, os.scandir(descriptor) as entries:
        return sorted(entry.name for entry in entries if not entry.is_symlink())


def _entries(path: Path, limits: ImportLimits) -> Mapping[str, ZipInfo]:
    try:
        with open_archive(path, limits) as archive:
            return dict(islice(archive.entries.items(), _NAMES_MAX))
    except (InvalidParams, TooLarge):
        return {}


def _cause(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "invalid path"
