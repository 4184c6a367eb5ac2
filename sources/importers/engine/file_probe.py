"""A look at a file or folder before it is read: its first bytes, and the names inside it. Nothing is unpacked."""

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from zipfile import ZipInfo

from msgspec import Struct

from config.errors import InvalidParams, NotFound, TooLarge
from sources.importers.engine.archives import is_zip, open_archive
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
        size = path.stat().st_size
        with path.open("rb") as file:
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
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if _is_file_inside(path, root):
                yield path


def _is_file_inside(path: Path, root: Path) -> bool:
    """Excludes pipes and devices, which might never end."""
    return path.is_file() and (not path.is_symlink() or path.resolve().is_relative_to(root))


def _names(folder: Path) -> Iterator[str]:
    return (entry.name for entry in sorted(os.scandir(folder), key=lambda entry: entry.name) if not entry.is_symlink())


def _entries(path: Path, limits: ImportLimits) -> Mapping[str, ZipInfo]:
    try:
        with open_archive(path, limits) as archive:
            return dict(islice(archive.entries.items(), _NAMES_MAX))
    except (InvalidParams, TooLarge):
        return {}


def _cause(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "invalid path"
