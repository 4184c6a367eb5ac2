"""The JSON files of an export: in its zip, in the folder it was unpacked to, or a single one of them."""

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.archives import SIMPLE_METHODS, entry_start, is_zip, open_archive
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.events import FailedItem, ImportEvent
from sources.importers.engine.file_probe import FileProbe, files_in
from sources.importers.engine.files import printable_name
from sources.importers.engine.json_stream import JsonElement, iter_objects
from sources.importers.engine.limits import ImportLimits, ProgressCallback

# Enough to recognize a file, and to look into an archive.
_PEEK_BYTES = 1 << 16
# The size of the archive does not matter here: only the start of one entry is unpacked.
_PEEK_LIMITS = ImportLimits(
    file_max_bytes=1 << 40,
    unpacked_max_bytes=1 << 20,
    unpacked_ratio_max=200,
    entries_max=100_000,
    line_max_bytes=_PEEK_BYTES,
    depth_max=1,
    item_max_chars=_PEEK_BYTES,
)

NameFilter = Callable[[str], bool]


def read_export(
    path: Path,
    limits: ImportLimits,
    progress: ProgressCallback,
    is_export_file: NameFilter,
    noun: str,
    read_object: Callable[[bytes, str], Iterable[ImportEvent]],
) -> Iterator[ImportEvent]:
    """Yields the events of all JSON objects of an export, as `read_objects` does."""
    yield from read_objects(_export_objects(path, limits, progress, is_export_file), noun, read_object)


def read_objects(
    objects: Iterable[tuple[str, JsonElement]], noun: str, read_object: Callable[[bytes, str], Iterable[ImportEvent]]
) -> Iterator[ImportEvent]:
    """Yields the events that `read_object` makes of each object and its location, such as "chat 3". An object that is
    damaged, or for which it raises InvalidParams, is a failed item. Each object comes with the name of its file, which
    is empty if there is only one."""
    for file, element in objects:
        location = f"{file}, {noun} {element.number}" if file else f"{noun} {element.number}"
        try:
            if element.problem:
                raise InvalidParams(element.problem)
            yield from read_object(element.data, location)
        except InvalidParams as error:
            yield FailedItem(location, error.message)


def _export_objects(
    path: Path, limits: ImportLimits, progress: ProgressCallback, is_export_file: NameFilter
) -> Iterator[tuple[str, JsonElement]]:
    """Yields the JSON objects of an export, each with the name of the file it is in. A single file may have any name;
    it is yielded as "". A damaged file of an archive or folder is an element with a problem."""
    if path.is_dir():
        bytes_before = 0
        # An export contains no links, so they are not followed.
        files = {file.relative_to(path).as_posix(): file for file in files_in(path) if not file.is_symlink()}
        for name in _require_files(name for name in files if is_in_unpacked_export(name, is_export_file)):
            with open_file(files[name]) as file:
                try:
                    for element in iter_objects(count_reads(file, limits, progress, bytes_before), limits):
                        yield printable_name(name), element
                except InvalidParams as error:
                    yield printable_name(name), JsonElement(0, problem=error.message)
                # The progress of a folder counts the bytes of all its files.
                bytes_before += file.tell()
    elif is_zip_file(path):
        with open_archive(path, limits, progress) as archive:
            for name in _require_files(name for name in archive.names if is_export_file(name)):
                try:
                    with archive.open(name) as entry:
                        for element in iter_objects(entry, limits):
                            yield name, element
                except InvalidParams as error:
                    yield name, JsonElement(0, problem=error.message)
    else:
        with open_file(path) as file:
            for element in iter_objects(count_reads(file, limits, progress), limits):
                yield "", element


def first_bytes(probe: FileProbe, is_export_file: NameFilter) -> bytes:
    """Returns the first bytes of a file or, for an archive, of its first export file; nothing if it has none."""
    if not is_zip(probe.head):
        return probe.head
    name = next((name for name in sorted(probe.names) if is_export_file(name)), None)
    if name is None:
        return b""
    entry = probe.entries.get(name)
    try:
        if entry is not None and entry.compress_type in SIMPLE_METHODS:
            # Without reading the directory of the zip once more, which takes a second if it has 100,000 entries.
            return entry_start(probe.path, entry, _PEEK_BYTES)
        with open_archive(probe.path, _PEEK_LIMITS) as archive, archive.open(name) as file:
            return file.read(_PEEK_BYTES)
    except (InvalidParams, TooLarge, OSError):
        return b""


def is_in_unpacked_export(name: str, is_export_file: NameFilter) -> bool:
    """Returns whether a file in a folder belongs to the export unpacked there: it is directly in the folder, or is an
    export file because of the subfolder it is in. Other subfolders may contain other exports."""
    return is_export_file(name) and ("/" not in name or not is_export_file(base_name(name)))


def is_json(head: bytes) -> bool:
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"[", b"{")


def is_zip_file(path: Path) -> bool:
    with open_file(path) as file:
        return is_zip(file.read(4))


def base_name(name: str) -> str:
    return name.rpartition("/")[2].lower()


def _require_files(names: Iterator[str]) -> list[str]:
    files = sorted(names)
    if not files:
        raise InvalidParams("export: expected conversations.json, found none of the files of this format")
    return files


def count_reads(file: IO[bytes], limits: ImportLimits, progress: ProgressCallback, bytes_before: int = 0) -> IO[bytes]:
    """Wraps a file so that reading it reports progress and enforces the size limit. `bytes_before` were read from other
    files."""
    return io.BufferedReader(_CountingReader(file, limits, progress, bytes_before), 1 << 16)


class _CountingReader(io.RawIOBase):
    def __init__(self, file: IO[bytes], limits: ImportLimits, progress: ProgressCallback, bytes_before: int) -> None:
        super().__init__()
        self._file = file
        self._max_bytes = limits.file_max_bytes
        self._progress = progress
        self._bytes_read = bytes_before

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._bytes_read += len(data)
        # Probing checked the size, but the file may have grown since.
        if self._bytes_read > self._max_bytes:
            raise TooLarge("the file", self._max_bytes)
        self._progress(self._bytes_read)
        return len(data)
