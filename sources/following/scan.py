"""Looks at the files of a followed folder without opening them: their names, and signatures that change with them."""

# ruff: noqa: PTH116, PTH118, PTH120 - names are bytes, which `pathlib` does not support

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

from config.errors import InvalidParams

NamePredicate = Callable[[bytes], bool]

# What SQLite writes next to a database. Committed rows can be in the write-ahead log only.
DATABASE_COMPANIONS = (b"-wal", b"-journal")
_DATABASE_HEADER = b"SQLite format 3\0"
# A file that changed less than this before it was looked at can change again without getting another time: file systems
# keep times in steps of some milliseconds.
_SETTLED_AFTER_NS = 50_000_000
SETTLING_PAUSE_S = 0.06
_UNSETTLED = "?"
_SAMPLE_BYTES = 1 << 16


class SourceMissing(InvalidParams):
    """The followed folder or file is not there. Nothing is deleted because of it."""


class FolderScan(Struct, kw_only=True):
    """`files` maps names, relative to the folder, to signatures. Files in `unreadable` folders may exist or not.
    `mounts` are the folders on another file system than the followed one."""

    root_id: str
    files: dict[bytes, str] = {}
    unreadable: set[bytes] = set()
    mounts: set[bytes] = set()

    def is_unknown(self, name: bytes) -> bool:
        return any(name.startswith(folder) for folder in self.unreadable)


def scan_folder(root: Path, is_wanted: NamePredicate, scope: Sequence[bytes] | None = None) -> FolderScan:
    """Returns the files below a folder, or those that `scope` names, with everything in the folders it names. Hidden
    folders are left out, and symbolic links are followed only to files inside the folder."""
    try:
        status = root.stat()
    except OSError as error:
        raise SourceMissing(f"the folder cannot be read: {(error.strerror or 'unknown error').lower()}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise SourceMissing("the folder is no longer a folder")
    scan = FolderScan(root_id=f"{status.st_dev}:{status.st_ino}")
    walk = _Walk(os.fsencode(root.resolve()), is_wanted, scan, status.st_dev)
    if scope is None:
        walk.add_folder(b"")
    else:
        for name in scope:
            walk.add(name)
    return scan


def scan_file(path: Path) -> str:
    """Returns the signature of a single file."""
    try:
        status = path.stat()
    except OSError as error:
        raise SourceMissing(f"the file cannot be read: {(error.strerror or 'unknown error').lower()}") from error
    if not stat.S_ISREG(status.st_mode):
        raise SourceMissing("the file is no longer a regular file")
    return _signature(status, _companion_statuses(os.fsencode(path)))


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


def is_hidden(name: bytes) -> bool:
    """Whether a folder in the name is hidden."""
    return any(part.startswith(b".") for part in name.split(b"/")[:-1])


def fingerprint(path: Path) -> str:
    """Returns a digest of the size, the start and the end of a file, by which it is recognized under another name.
    Empty files have none."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(_SAMPLE_BYTES)
            file.seek(max(0, size - _SAMPLE_BYTES))
            tail = file.read(_SAMPLE_BYTES)
    except OSError:
        return ""
    return blake2b(b"%d\0%s%s" % (size, head, tail), digest_size=16).hexdigest() if size else ""


def is_database_file(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_DATABASE_HEADER)) == _DATABASE_HEADER
    except OSError:
        return False


class _Walk:
    def __init__(self, root: bytes, is_wanted: NamePredicate, scan: FolderScan, device: int) -> None:
        self._root = root
        self._is_wanted = is_wanted
        self._scan = scan
        self._device = device

    def add(self, name: bytes) -> None:
        """Adds a file, or a folder with everything in it. A name that does not exist adds nothing."""
        path = os.path.join(self._root, name)
        if is_hidden(name + b"/") or not self._is_inside(os.path.dirname(path)):
            return
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return
        except OSError:
            self._scan.unreadable.add(name)
            return
        if stat.S_ISDIR(status.st_mode):
            self.add_folder(name)
        else:
            self._add_file(name, path, _companion_statuses(path))

    def add_folder(self, folder: bytes) -> None:
        pending = [folder]
        while pending:
            pending += self._add_files_in(pending.pop())

    def _add_files_in(self, folder: bytes) -> Iterator[bytes]:
        """Adds the files directly in a folder and yields its subfolders."""
        try:
            with os.scandir(os.path.join(self._root, folder)) as listing:
                entries = {entry.name: entry for entry in listing}
        except FileNotFoundError:
            return
        except OSError:
            self._scan.unreadable.add(folder + b"/" if folder else b"")
            return
        for base_name, entry in entries.items():
            name = os.path.join(folder, base_name)
            if entry.is_dir(follow_symlinks=False):
                if not base_name.startswith(b"."):
                    self._note_mount(name, entry)
                    yield name
            else:
                companions = [entries[base_name + end] for end in DATABASE_COMPANIONS if base_name + end in entries]
                self._add_file(name, entry.path, _statuses(companions))

    def _note_mount(self, name: bytes, entry: "os.DirEntry[bytes]") -> None:
        with suppress(OSError):
            if entry.stat(follow_symlinks=False).st_dev != self._device:
                self._scan.mounts.add(name + b"/")

    def _add_file(self, name: bytes, path: bytes, companions: Sequence[os.stat_result]) -> None:
        if not self._is_wanted(name):
            return
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                if not self._is_inside(path):
                    return
                status = os.stat(path)
        except FileNotFoundError:
            return
        except OSError:
            self._scan.unreadable.add(name)
            return
        if stat.S_ISREG(status.st_mode):
            self._scan.files[name] = _signature(status, companions)

    def _is_inside(self, path: bytes) -> bool:
        resolved = os.path.realpath(path)
        return resolved == self._root or resolved.startswith(self._root.rstrip(b"/") + b"/")


def _signature(status: os.stat_result, companions: Sequence[os.stat_result]) -> str:
    # A program that opens a database creates an empty log, which changes nothing.
    companions = [companion for companion in companions if companion.st_size]
    newest_ns = max(status.st_mtime_ns, *(companion.st_mtime_ns for companion in companions), 0)
    parts = [f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"]
    parts += [f"{companion.st_size} {companion.st_mtime_ns}" for companion in companions]
    return ", ".join(parts) + (_UNSETTLED if time.time_ns() - newest_ns < _SETTLED_AFTER_NS else "")


def _statuses(entries: Sequence["os.DirEntry[bytes]"]) -> list[os.stat_result]:
    statuses = []
    for entry in entries:
        with suppress(OSError):
            statuses.append(entry.stat())
    return statuses


def _companion_statuses(path: bytes) -> list[os.stat_result]:
    statuses = []
    for end in DATABASE_COMPANIONS:
        with suppress(OSError):
            statuses.append(os.stat(path + end))
    return statuses
