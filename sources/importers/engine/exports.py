"""The JSON files of an export: in the zip it came as, in the folder it was unpacked to, or one of them alone."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.archives import Archive, is_zip, open_archive
from sources.importers.engine.file_probe import files_in
from sources.importers.engine.files import plain_name
from sources.importers.engine.importer import FileProbe, ImportLimits, ProgressCallback
from sources.importers.engine.json_stream import Element, elements

# Enough of a file to see what it is, and of an archive to see what is in it.
_PEEK_BYTES = 1 << 16
_PEEK_LIMITS = ImportLimits(
    file_max_bytes=1 << 40,
    unpacked_max_bytes=1 << 20,
    unpacked_ratio_max=200,
    entries_max=100_000,
    line_max_bytes=_PEEK_BYTES,
    depth_max=1,
    item_max_chars=_PEEK_BYTES,
)

Wanted = Callable[[str], bool]


def export_elements(
    path: Path, limits: ImportLimits, progress: ProgressCallback, is_wanted: Wanted
) -> Iterator[tuple[str, Element]]:
    """The objects in those files of an export whose names are wanted, with the file's name; of a single file, which may
    be called anything, all, without a name: it is that of the export. A damaged file of an archive is an element with a
    problem."""
    if path.is_dir():
        yield from _in_folder(path, limits, progress, is_wanted)
    elif _is_archive(path):
        with open_archive(path, limits, progress) as archive:
            yield from _in_archive(archive, limits, is_wanted)
    else:
        with path.open("rb") as file:
            for element in elements(counted(file, limits, progress), limits):
                yield "", element


def place_of(file: str, element: str) -> str:
    """Where something stands in an export: in which of its files, where there are several, and there."""
    return f"{file}, {element}" if file else element


def beginning(probe: FileProbe, is_wanted: Wanted) -> bytes:
    """How a file begins, or the first of those that are wanted in an archive; nothing where there is none."""
    if not is_zip(probe.head):
        return probe.head
    name = next((name for name in sorted(probe.names) if is_wanted(name)), None)
    if name is None:
        return b""
    try:
        with open_archive(probe.path, _PEEK_LIMITS) as archive, archive.open(name) as file:
            return file.read(_PEEK_BYTES)
    except (InvalidParams, TooLarge, OSError):
        return b""


def stands_in(name: str, is_wanted: Wanted) -> bool:
    """Whether a file is one of the export that was unpacked to a folder: directly in it, or wanted for the folder that
    it is in. Below may lie another export."""
    return is_wanted(name) and ("/" not in name or not is_wanted(base_name(name)))


def is_json(head: bytes) -> bool:
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"[", b"{")


def base_name(name: str) -> str:
    return PurePosixPath(name).name.lower()


def _in_archive(archive: Archive, limits: ImportLimits, is_wanted: Wanted) -> Iterator[tuple[str, Element]]:
    for name in _required(name for name in archive.names if is_wanted(name)):
        try:
            with archive.open(name) as file:
                for element in elements(file, limits):
                    yield name, element
        except InvalidParams as error:
            yield name, Element(0, problem=error.message)


def _in_folder(
    folder: Path, limits: ImportLimits, progress: ProgressCallback, is_wanted: Wanted
) -> Iterator[tuple[str, Element]]:
    before = 0
    # Links are not followed: an export has none.
    files = {file.relative_to(folder).as_posix(): file for file in files_in(folder) if not file.is_symlink()}
    for name in _required(name for name in files if stands_in(name, is_wanted)):
        with files[name].open("rb") as file:
            try:
                for element in elements(counted(file, limits, progress, before), limits):
                    yield plain_name(name), element
            except InvalidParams as error:
                yield plain_name(name), Element(0, problem=error.message)
            before += file.tell()


def _required(names: Iterator[str]) -> list[str]:
    found = sorted(names)
    if not found:
        raise InvalidParams("the export: got none of the files that belong to one, expected conversations.json")
    return found


def _is_archive(path: Path) -> bool:
    with path.open("rb") as file:
        return is_zip(file.read(4))


def counted(file: IO[bytes], limits: ImportLimits, progress: ProgressCallback, before: int = 0) -> IO[bytes]:
    """A file as it is read, within its limit, and told. `before` is what was read of others."""
    return io.BufferedReader(_Counted(file, limits, progress, before), 1 << 16)


class _Counted(io.RawIOBase):
    def __init__(self, file: IO[bytes], limits: ImportLimits, progress: ProgressCallback, before: int) -> None:
        super().__init__()
        self._file = file
        self._max_bytes = limits.file_max_bytes
        self._progress = progress
        self._bytes_read = before

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._bytes_read += len(data)
        if self._bytes_read > self._max_bytes:
            raise TooLarge("the file", self._max_bytes)
        self._progress(self._bytes_read)
        return len(data)
