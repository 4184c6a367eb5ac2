"""A look at a file or folder before it is read: its first bytes, and the names inside it. Nothing is unpacked."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from zipfile import ZipInfo

from msgspec import Struct

from config.errors import InvalidParams, NotFound, TooLarge
from sources.importers.engine.archives import SIMPLE_METHODS, entry_start, is_zip, open_archive
from sources.importers.engine.confined_files import open_file, open_folder
from sources.importers.engine.files import describe_read_error, is_text
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.table_reader import TableSpec, table_columns

# Enough to recognize a file, and to look into an archive.
HEAD_BYTES = 1 << 16
# The size of the archive does not matter here: only the start of one entry is unpacked.
_PEEK_LIMITS = ImportLimits(
    file_max_bytes=1 << 40,
    unpacked_max_bytes=1 << 20,
    entries_max=100_000,
    line_max_bytes=HEAD_BYTES,
    depth_max=1,
    item_max_chars=HEAD_BYTES,
)
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

    @property
    def suffix(self) -> str:
        return self.path.suffix.lower()

    @property
    def is_zip(self) -> bool:
        return is_zip(self.head)

    @property
    def is_text(self) -> bool:
        return not self.is_folder and is_text(self.head)

    @property
    def is_database(self) -> bool:
        return self.head.startswith(b"SQLite format 3\0")

    def has_tables(self, *tables: TableSpec) -> bool:
        """Returns whether the file is a database with all of these tables and their required columns."""
        if not self.is_database:
            return False
        columns = table_columns(self.path, *(table.name for table in tables))
        return all(columns[table.name] >= frozenset(table.required) for table in tables)

    def is_json(self, *marks: bytes | re.Pattern[bytes]) -> bool:
        """Returns whether a file starts like JSON and has all of these marks in its first bytes."""
        return is_json(self.head, *marks)

    def first_bytes(self, is_export_file: Callable[[str], bool]) -> bytes:
        """Returns the first bytes of the file or, for an archive, of its first export file; nothing if it has none."""
        if not self.is_zip:
            return self.head
        name = next((name for name in sorted(self.names) if is_export_file(name)), None)
        if name is None:
            return b""
        entry = self.entries.get(name)
        try:
            if entry is not None and entry.compress_type in SIMPLE_METHODS:
                # Without reading the directory of the zip once more, which takes a second if it has 100,000 entries.
                return entry_start(self.path, entry, HEAD_BYTES)
            with open_archive(self.path, _PEEK_LIMITS) as archive, archive.open(name) as file:
                return file.read(HEAD_BYTES)
        except (InvalidParams, TooLarge, OSError):
            return b""


def is_json(head: bytes, *marks: bytes | re.Pattern[bytes]) -> bool:
    if head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] not in (b"[", b"{"):
        return False
    return all(mark in head if isinstance(mark, bytes) else mark.search(head) for mark in marks)


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


def is_link(path: Path) -> bool:
    """Unlike `Path.is_symlink`, returns False if the path cannot be examined; opening it fails with the reason."""
    return os.path.islink(path)  # noqa: PTH114 - see above


def files_in(folder: Path, skipped: dict[Path, str] | None = None) -> Iterator[Path]:
    """Yields all files below a folder, sorted by name. Hidden folders are left out. Symbolic links are followed only to
    files inside the folder; a link to a folder could form a loop. `skipped` receives the other links, and the folders
    that cannot be read, each with the problem, which is empty for a link."""
    # Links are compared with the real path of the folder, which may itself be reached through a link.
    root = folder.resolve()
    skipped = {} if skipped is None else skipped
    pending = [folder]
    while pending:
        parent = pending.pop()
        files, folders = [], []
        try:
            with open_folder(parent) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    path = parent / entry.name
                    if entry.is_dir(follow_symlinks=False):
                        folders += [path] * (not entry.name.startswith("."))
                    elif entry.is_symlink():
                        # `isfile` excludes links to pipes and devices, which might never end.
                        if os.path.isfile(path) and path.resolve().is_relative_to(root):  # noqa: PTH113 - never raises
                            files.append(path)
                        else:
                            skipped[path] = ""
                    elif entry.is_file(follow_symlinks=False):
                        files.append(path)
        except OSError as error:
            skipped[parent] = describe_read_error(error)
        yield from sorted(files)
        # In reverse, because the last one is taken next.
        pending += sorted(folders, reverse=True)
