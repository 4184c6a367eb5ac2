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
    """What a format is recognized by: `head` holds the first bytes of a file, and nothing of a folder; `names` the
    entries of a zip, or the files directly in a folder. `entries` says where the entries of a zip are, so that
    importers need not read its directory again."""

    path: Path
    is_folder: bool
    head: bytes = b""
    names: tuple[str, ...] = ()
    entries: Mapping[str, ZipInfo] = {}


def probe_file(path: Path, limits: ImportLimits) -> FileProbe:
    """Raises `NotFound` if the path does not exist. A zip that cannot be read has no names."""
    try:
        if path.is_dir():
            with open_folder(path) as descriptor, os.scandir(descriptor) as found:
                names = sorted(entry.name for entry in found if not entry.is_symlink())
            return FileProbe(path, is_folder=True, names=tuple(names[:_NAMES_MAX]))
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(HEAD_BYTES)
    except FileNotFoundError as error:
        raise NotFound("file", path.name) from error
    except (OSError, ValueError) as error:
        # A ValueError is a path with a NUL character.
        cause = error.strerror if isinstance(error, OSError) else None
        raise InvalidParams(f"{path.name}: cannot be read: {cause or 'invalid path'}") from error
    if size > limits.file_max_bytes:
        raise TooLarge(path.name, limits.file_max_bytes)
    entries: Mapping[str, ZipInfo] = {}
    if is_zip(head):
        with suppress(InvalidParams, TooLarge), open_archive(path, limits) as archive:
            # A zip that is damaged or refused has no names; the importer that its suffix suggests then reports why.
            entries = dict(islice(archive.entries.items(), _NAMES_MAX))
    return FileProbe(path, is_folder=False, head=head, names=tuple(entries), entries=entries)


def files_in(folder: Path) -> Iterator[Path]:
    """Yields all files below a folder, sorted by name. Hidden folders are left out. Symbolic links are followed only to
    files inside the folder; a link to a folder could form a loop."""
    # Links are compared with the real path of the folder, which may itself be reached through a link.
    root = folder.resolve()
    pending = [folder]
    while pending:
        parent = pending.pop()
        # A folder that cannot be read has no files.
        files, folders = [], []
        with suppress(OSError), open_folder(parent) as descriptor, os.scandir(descriptor) as entries:
            for entry in entries:
                path = parent / entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders += [path] * (not entry.name.startswith("."))
                elif entry.is_symlink():
                    # `is_file` excludes links to pipes and devices, which might never end.
                    files += [path] * (path.is_file() and path.resolve().is_relative_to(root))
                elif entry.is_file(follow_symlinks=False):
                    files.append(path)
        yield from sorted(files)
        # In reverse, because the last one is taken next.
        pending += sorted(folders, reverse=True)
