"""Opens files and folders for reading. Pipes and devices are refused, and opening one never waits.

Reading can be confined to some paths. The owner of a folder can replace parts of it by links at any moment, so a check
before opening is not enough: each part of a path is opened relative to the folder before it, and none may be a link. A
link that leads to a file below the same paths is resolved first.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from io import BufferedReader
from pathlib import Path

# Where a process finds the files that it was started with.
DESCRIPTOR_FOLDER = "/dev/fd/"
# With O_PATH a folder that may be searched need not be readable. Only Linux has it.
_SEARCH_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
_LIST_FOLDER = os.O_RDONLY | os.O_DIRECTORY
# Does not wait for the writer of a pipe.
_READ_FILE = os.O_RDONLY | os.O_NONBLOCK
_DESCRIPTORS_MAX = 256
_OUTSIDE = "a link leads out of the folder"
_ROOTS: ContextVar[Sequence[str] | None] = ContextVar("readable_paths", default=None)


def confine_reading(paths: Iterable[Path]) -> None:
    """Confines the functions below to these paths, folders with everything in them. The paths have no links."""
    _ROOTS.set([os.fspath(path) for path in paths])


@contextmanager
def reading_confined_to(paths: Iterable[Path]) -> Iterator[None]:
    token = _ROOTS.set([os.fspath(path) for path in paths])
    try:
        yield
    finally:
        _ROOTS.reset(token)


def open_file(path: Path) -> BufferedReader:
    """Raises OSError for anything but a regular file."""
    if os.fspath(path).startswith(DESCRIPTOR_FOLDER):
        descriptor = os.dup(int(path.name))
        os.lseek(descriptor, 0, os.SEEK_SET)
        return os.fdopen(descriptor, "rb")
    with open_parent(path) as (folder, name):
        return open_file_in(folder, name)


def open_file_in(folder: int, name: str | bytes) -> BufferedReader:
    """Opens a file directly in an open folder. Links are refused."""
    # Checked before opening, because opening a device can have effects, and again afterwards, because the owner of the
    # folder can replace the file in between.
    _require_regular(os.stat(name, dir_fd=folder, follow_symlinks=False))
    descriptor = os.open(name, _READ_FILE | os.O_NOFOLLOW, dir_fd=folder)
    try:
        _require_regular(os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


@contextmanager
def open_folder(path: Path) -> Iterator[int]:
    """Opens a folder, to list it or to open what is in it."""
    descriptor = open_without_links(real_path(path), _LIST_FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_parent(path: Path) -> Iterator[tuple[int, str]]:
    """Opens the folder that a path is in, and returns it with the name of the path there. Of a link, these are the
    folder and the name of its target."""
    folder, name = os.path.split(real_path(path))
    descriptor = open_without_links(folder, _SEARCH_FOLDER)
    try:
        yield descriptor, name or "."
    finally:
        os.close(descriptor)


def real_path(path: Path) -> str:
    """Returns the path without links. Raises PermissionError if it is not one that may be read."""
    real = os.path.realpath(path)
    roots = _ROOTS.get()
    if roots is not None and not any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots):
        raise PermissionError(errno.EPERM, _OUTSIDE)
    return real


def open_without_links(path: str, flags: int) -> int:
    """Opens an absolute path. Raises OSError if a part of it is a link."""
    root = os.open("/", _SEARCH_FOLDER)
    try:
        return open_below(root, path.strip("/") or ".", flags)
    finally:
        os.close(root)


def open_below(folder: int, name: str | bytes, flags: int) -> int:
    """Opens a path relative to an open folder, in the same way. It has no `..`."""
    *folders, base_name = name.split("/") if isinstance(name, str) else name.split(b"/")
    current = os.dup(folder)
    try:
        for part in folders:
            # Relative to the descriptor of the folder before, which stays the same folder if its name is taken by a
            # link.
            inner = os.open(part, _SEARCH_FOLDER, dir_fd=current)
            os.close(current)
            current = inner
        return os.open(base_name, flags | os.O_NOFOLLOW, dir_fd=current)
    except OSError as error:
        if error.errno == errno.ELOOP:
            # Which of the two errors a link causes differs between systems.
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error
        raise
    finally:
        os.close(current)


def stat_below(folder: int, name: bytes) -> os.stat_result:
    """Returns the status of a file below an open folder. Of a link, it is its own."""
    parent, _, base_name = name.rpartition(b"/")
    if not parent:
        return os.stat(base_name, dir_fd=folder, follow_symlinks=False)
    descriptor = open_below(folder, parent, _SEARCH_FOLDER)
    try:
        return os.stat(base_name, dir_fd=descriptor, follow_symlinks=False)
    finally:
        os.close(descriptor)


def file_status(path: Path) -> os.stat_result:
    with open_parent(path) as (folder, name):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)


@contextmanager
def opening_only(*paths: Path) -> Iterator[None]:
    """Raises PermissionError if a library that opens files by their paths, such as SQLite, opened others than these, in
    a process that is confined to them: a folder may have been replaced by a link meanwhile. At least one of
    them must be open at the end."""
    if _ROOTS.get() is None:
        yield
        return
    # SQLite opens a path, not a descriptor. What it opened is compared with what the path leads to without links.
    before, expected = _open_files(), _file_ids(paths)
    yield
    # Once more: files may be created meanwhile.
    expected |= _file_ids(paths)
    opened = {number: file for number, file in _open_files().items() if before.get(number) != file}
    if not opened or not expected.issuperset(opened.values()):
        raise PermissionError(errno.EPERM, _OUTSIDE)


def _open_files() -> dict[int, tuple[int, int]]:
    """Returns the files that this process has open, by their descriptors. The lowest free one is always taken, and the
    processes that read files have a few only."""
    files = {}
    for number in range(_DESCRIPTORS_MAX):
        with suppress(OSError):
            files[number] = _file_id(os.fstat(number))
    return files


def _file_ids(paths: Iterable[Path]) -> set[tuple[int, int]]:
    ids = set()
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError):
            ids.add(_file_id(file_status(path)))
    return ids


def _file_id(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _require_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
