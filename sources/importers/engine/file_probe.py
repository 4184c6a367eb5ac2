"""A file or folder as it looks before it is read: how it begins, and the names in it. Nothing is unpacked."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from config.errors import InvalidParams, NotFound, TooLarge
from sources.importers.engine.archives import is_zip, open_archive
from sources.importers.engine.importer import FileProbe, ImportLimits

HEAD_BYTES = 1 << 16
# Names that are shown to importers: every export names what it is in one of its first files.
_NAMES_MAX = 10_000


def probe_file(path: Path, limits: ImportLimits) -> FileProbe:
    """`NotFound` where nothing is; a zip that cannot be read has no names."""
    try:
        if path.is_dir():
            return FileProbe(path, is_folder=True, names=tuple(islice(_names(path), _NAMES_MAX)))
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError as error:
        raise NotFound("file", path.name) from error
    except (OSError, ValueError) as error:
        raise InvalidParams(f"{path.name}: it cannot be read: {_cause(error)}") from error
    if size > limits.file_max_bytes:
        raise TooLarge(path.name, limits.file_max_bytes)
    return FileProbe(path, is_folder=False, head=head, names=_entries(path, limits) if is_zip(head) else ())


def files_in(folder: Path) -> Iterator[Path]:
    """All files below a folder, by name. Symbolic links are followed to files inside of it and to nothing else: a link
    to a folder could lead round in a circle. Hidden folders are a program's own."""
    root = folder.resolve()
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(place, name)
            if _is_inside(path, root):
                yield path


def _is_inside(path: Path, root: Path) -> bool:
    """And a file: a pipe or a device would be read for ever."""
    return path.is_file() and (not path.is_symlink() or path.resolve().is_relative_to(root))


def _names(folder: Path) -> Iterator[str]:
    return (entry.name for entry in sorted(os.scandir(folder), key=lambda entry: entry.name) if not entry.is_symlink())


def _entries(path: Path, limits: ImportLimits) -> tuple[str, ...]:
    try:
        with open_archive(path, limits) as archive:
            return archive.names[:_NAMES_MAX]
    except (InvalidParams, TooLarge):
        return ()


def _cause(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "its name is not one"
