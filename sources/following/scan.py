"""Looks at the files of a followed folder without opening them: their names, and signatures that change with them."""

# ruff: noqa: PTH118 - names are bytes, which `pathlib` does not support

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

from config.errors import InvalidParams
from sources.importers.engine.confined_files import open_below, open_file, open_folder, open_parent, stat_below

NamePredicate = Callable[[bytes], bool]

# What SQLite writes next to a database. Committed rows can be in the write-ahead log only.
DATABASE_COMPANIONS = (b"-wal", b"-journal")
_DATABASE_HEADER = b"SQLite format 3\0"
# A file that changed less than this before it was looked at can change again without getting another time: file systems
# keep times in steps of some milliseconds.
_SETTLED_AFTER_NS = 50_000_000
SETTLING_PAUSE_S = 0.06
# At the end of a signature that may not change with the file.
_UNSETTLED = "?"
# Read of the start and of the end of a file to recognize it, however large it is.
_SAMPLE_BYTES = 1 << 16


class SourceMissing(InvalidParams):
    """The followed folder or file is not there. Nothing is deleted because of it."""


class FolderScan(Struct, kw_only=True):
    root_id: str
    files: dict[bytes, str] = {}  # signatures by name, relative to the folder
    unreadable: set[bytes] = set()  # folders whose files may exist or not
    mounts: set[bytes] = set()  # folders on another file system than the followed one


def scan_folder(root: Path, is_wanted: NamePredicate, scope: Sequence[bytes] | None = None) -> FolderScan:
    """Returns the files below a folder, or those that `scope` names, with everything in the folders it names. Hidden
    folders are left out, and symbolic links are followed only to files inside the folder."""
    try:
        with open_folder(root) as descriptor:
            status = os.fstat(descriptor)
            scan = FolderScan(root_id=f"{status.st_dev}:{status.st_ino}")
            walk = _Walk(os.fsencode(root), descriptor, is_wanted, scan, status.st_dev)
            if scope is None:
                walk.add_folder(b"")
            else:
                for name in scope:
                    walk.add(name)
    except NotADirectoryError as error:
        raise SourceMissing("the path is no longer a folder") from error
    except OSError as error:
        raise SourceMissing(f"the folder cannot be read: {(error.strerror or 'unknown error').lower()}") from error
    return scan


def scan_file(path: Path) -> str:
    """Returns the signature of a single file."""
    try:
        with open_parent(path) as (folder, name):
            return file_signature(folder, os.fsencode(name))
    except OSError as error:
        raise SourceMissing(f"the file cannot be read: {(error.strerror or 'unknown error').lower()}") from error


def file_signature(folder: int, name: bytes) -> str:
    """Returns the signature of a file directly in an open folder."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise SourceMissing("the file is no longer a regular file")
    return _signature(status, _companion_statuses(folder, name))


def scan_names(root: Path, names: Sequence[bytes]) -> str | None:
    """Returns the signature of those of the named files that exist, or None if there are none."""
    signatures = []
    for name in names:
        with suppress(SourceMissing):
            signatures.append(f"{os.fsdecode(name)}: {scan_file(root / os.fsdecode(name))}")
    return "; ".join(signatures) or None


def is_settled(signature: str) -> bool:
    """Whether the file is certain to get another signature when it changes."""
    return not signature.endswith(_UNSETTLED)


def unsettled(signature: str) -> str:
    return signature if signature.endswith(_UNSETTLED) else signature + _UNSETTLED


def is_hidden(name: bytes) -> bool:
    """Whether a folder in the name is hidden."""
    return any(part.startswith(b".") for part in name.split(b"/")[:-1])


def missing_names(root: Path, names: Sequence[bytes]) -> list[bytes]:
    """Returns those of the names that no file, folder or link below a folder has."""
    try:
        with open_folder(root) as folder:
            missing = []
            for name in names:
                with suppress(OSError):  # what cannot be looked at may be there
                    try:
                        stat_below(folder, name)
                    except (FileNotFoundError, NotADirectoryError):
                        missing.append(name)
            return missing
    except OSError as error:
        raise SourceMissing(f"the folder cannot be read: {(error.strerror or 'unknown error').lower()}") from error


def is_folder(path: Path) -> bool:
    with suppress(OSError), open_folder(path):
        return True
    return False


def fingerprint(path: Path) -> str:
    """Returns a digest of the size, the start and the end of a file, by which it is recognized under another name.
    Empty files have none."""
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(_SAMPLE_BYTES)
            file.seek(max(0, size - _SAMPLE_BYTES))
            tail = file.read(_SAMPLE_BYTES)
    except OSError:
        return ""
    return blake2b(b"%d\0%s%s" % (size, head, tail), digest_size=16).hexdigest() if size else ""


def is_database_file(path: Path) -> bool:
    try:
        with open_file(path) as file:
            return file.read(len(_DATABASE_HEADER)) == _DATABASE_HEADER
    except OSError:
        return False


class _Walk:
    """Adds files to a scan. Folders are opened below the followed one, without links: its owner may replace any of them
    by a link to another folder at any moment."""

    def __init__(self, root: bytes, descriptor: int, is_wanted: NamePredicate, scan: FolderScan, device: int) -> None:
        self._root = root
        self._descriptor = descriptor
        self._is_wanted = is_wanted
        self._scan = scan
        self._device = device

    def add(self, name: bytes) -> None:
        """Adds a file, or a folder with everything in it. A name that does not exist adds nothing."""
        if is_hidden(name + b"/"):
            return
        parent, base_name = os.path.split(name)
        try:
            with self._open(parent) as folder:
                status = os.stat(base_name or b".", dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    if self._is_wanted(name):
                        self._add_file(name, status, _companion_statuses(folder, base_name))
                    return
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError:
            self._scan.unreadable.add(name)
            return
        self.add_folder(name)

    def add_folder(self, folder: bytes) -> None:
        pending = [folder]
        while pending:
            folder = pending.pop()
            prefix = folder + b"/" if folder else b""
            try:
                with self._open(folder) as descriptor, os.scandir(descriptor) as listing:
                    entries = {entry.name: entry for entry in listing}
                    subfolders: list[bytes] = []
                    for base_name, entry in entries.items():
                        name = prefix + os.fsencode(base_name)
                        if not entry.is_dir(follow_symlinks=False):
                            self._add_entry(name, entry, entries)
                        elif not base_name.startswith("."):
                            with suppress(OSError):
                                if entry.stat(follow_symlinks=False).st_dev != self._device:
                                    self._scan.mounts.add(name + b"/")
                            subfolders.append(name)
                    pending += subfolders
            except (FileNotFoundError, NotADirectoryError):
                # It was removed since its parent was listed.
                continue
            except OSError:
                self._scan.unreadable.add(prefix)

    @contextmanager
    def _open(self, folder: bytes) -> Iterator[int]:
        descriptor = open_below(self._descriptor, folder or b".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _add_entry(self, name: bytes, entry: "os.DirEntry[str]", entries: "Mapping[str, os.DirEntry[str]]") -> None:
        if not self._is_wanted(name):
            return
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError:
            self._scan.unreadable.add(name)
            return
        companions = []
        for end in map(os.fsdecode, DATABASE_COMPANIONS):
            if entry.name + end in entries:
                with suppress(OSError):
                    companions.append(entries[entry.name + end].stat(follow_symlinks=False))
        self._add_file(name, status, companions)

    def _add_file(self, name: bytes, status: os.stat_result, companions: Sequence[os.stat_result]) -> None:
        if stat.S_ISLNK(status.st_mode):
            # Only links to files inside the folder are followed.
            resolved = os.path.realpath(os.path.join(self._root, name))
            prefix = self._root.rstrip(b"/") + b"/"
            if not resolved.startswith(prefix):
                return
            try:
                status = stat_below(self._descriptor, resolved.removeprefix(prefix))
            except OSError:
                return
        if stat.S_ISREG(status.st_mode):
            self._scan.files[name] = _signature(status, companions)


def _signature(status: os.stat_result, companions: Sequence[os.stat_result]) -> str:
    # A program that opens a database creates an empty log, which changes nothing.
    companions = [companion for companion in companions if companion.st_size]
    newest_ns = max(status.st_mtime_ns, *(companion.st_mtime_ns for companion in companions), 0)
    # A program can restore st_mtime after it wrote a file, but not st_ctime. st_ino shows that a file was replaced.
    parts = [f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"]
    parts += [f"{companion.st_size} {companion.st_mtime_ns}" for companion in companions]
    return ", ".join(parts) + (_UNSETTLED if time.time_ns() - newest_ns < _SETTLED_AFTER_NS else "")


def _companion_statuses(folder: int, name: bytes) -> list[os.stat_result]:
    statuses = []
    for end in DATABASE_COMPANIONS:
        with suppress(OSError):
            statuses.append(os.stat(name + end, dir_fd=folder, follow_symlinks=False))
    return statuses
