"""Zip archives, read entry by entry. Nothing is extracted to disk, and unpacked sizes are counted while reading.

An archive with unsafe names, links, encryption or a suspicious compression ratio is rejected. Damage inside one entry
is left to the importer to report.
"""

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.files import printable_name
from sources.importers.engine.limits import ImportLimits, ProgressCallback

# The size of one entry in a zip's directory: 46 bytes and its name, plus room for extra fields.
_DIRECTORY_ENTRY_BYTES = 512
# Keeps a low entry limit from rejecting small archives.
_DIRECTORY_MIN_BYTES = 1 << 16
# Entries below this size may have any compression ratio.
_RATIO_FREE_BYTES = 16 << 20
_ENCRYPTED = 0x1
# The lengths of the name and of the extra field are at the end of the header before an entry.
_LOCAL_HEADER = struct.Struct("<26xHH")
_DIRECTORY_SIGNATURE = b"PK\x01\x02"
SIMPLE_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# A zip inside a zip may take this part of the reader's memory.
_INNER_MEMORY_SHARE = 4
_NAME_CHARS = 120
# The earliest time a zip can store; programs write it when they know no time.
_NO_TIME = datetime(1980, 1, 1, tzinfo=UTC)
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError, OSError)


class Archive:
    """The files of a zip, in directory order and without folders."""

    def __init__(self, zip_file: zipfile.ZipFile, limits: ImportLimits, outer: "Archive | None" = None) -> None:
        self._zip = zip_file
        self.limits = limits
        self._outer = outer
        self._unpacked_bytes = 0
        entries = [entry for entry in zip_file.infolist() if not entry.is_dir()]
        if len(entries) > limits.entries_max:
            raise InvalidParams(f"archive: expected at most {limits.entries_max} files, got {len(entries)}")
        for entry in entries:
            # Rejects path traversal and links. Nothing is extracted, but an archive built to escape its folder is not
            # trustworthy in other ways either.
            name = entry.filename
            path = name.replace("\\", "/")
            label = repr(name[:_NAME_CHARS])
            if ".." in path.split("/") or path.startswith("/") or (len(name) > 1 and name[1] == ":"):
                raise InvalidParams(f"archive: {label} points outside the archive")
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise InvalidParams(f"archive: {label} is a symbolic link; only regular files are allowed")
            if entry.flag_bits & _ENCRYPTED:
                raise InvalidParams(f"archive: {label} is encrypted")
        self.entries = {entry.filename: entry for entry in entries}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def size(self, name: str) -> int:
        """Returns the unpacked size that the archive declares. Actual sizes are counted while reading."""
        return self.entries[name].file_size

    def modified_at(self, name: str) -> datetime | None:
        """Returns the entry's modification time, if it has a valid one. Zip times have no time zone; UTC is assumed."""
        try:
            modified = datetime(*self.entries[name].date_time, tzinfo=UTC)
        except ValueError:
            return None
        return modified if modified > _NO_TIME else None

    def require_moderate(self) -> None:
        """Checks the limits on the sizes that the archive declares, for libraries that unpack it themselves. They do
        not read beyond these sizes."""
        for entry in self.entries.values():
            self.count_unpacked(entry.file_size)
            self.require_ratio(entry, entry.file_size)

    def require_ratio(self, entry: zipfile.ZipInfo, size: int) -> None:
        """Raises InvalidParams if so many bytes are too much for the packed size of an entry."""
        ratio_max = self.limits.unpacked_ratio_max
        if size > _RATIO_FREE_BYTES and size > ratio_max * entry.compress_size:
            name = repr(entry.filename[:_NAME_CHARS])
            raise InvalidParams(f"archive: {name} unpacks to more than {ratio_max} times its packed size")

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Opens one file as a stream. Reading raises InvalidParams at damaged data and TooLarge beyond the limits."""
        entry = self.entries.get(name)
        if entry is None:
            raise InvalidParams(f"archive: {name[:_NAME_CHARS]!r} is missing")
        if entry.file_size == 0:
            # Not opened: an archive of 1 MB can have ten thousand of them.
            yield io.BytesIO()
            return
        try:
            packed = self._zip.open(entry)
        except ZIP_ERRORS as error:
            raise _damaged(entry) from error
        with packed:
            yield io.BufferedReader(_EntryReader(self, entry, packed), 1 << 16)

    def read(self, name: str, max_bytes: int) -> bytes:
        """Reads one small file completely."""
        with self.open(name) as file:
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise TooLarge(f"{name[:_NAME_CHARS]!r} in the archive", max_bytes)
        return data

    @contextmanager
    def open_inner(self, name: str) -> Iterator["Archive"]:
        """Opens a zip inside this one. It is read into memory, and what it unpacks to counts as unpacked here."""
        data = self.read(name, self.limits.reader_memory_max_bytes // _INNER_MEMORY_SHARE)
        with _open_zip(BoundedFile(io.BytesIO(data), self.limits.entries_max)) as zip_file:
            yield Archive(zip_file, self.limits, self)

    def count_unpacked(self, size: int) -> None:
        if self._outer is not None:
            self._outer.count_unpacked(size)
        self._unpacked_bytes += size
        if self._unpacked_bytes > self.limits.unpacked_max_bytes:
            raise TooLarge("the unpacked archive", self.limits.unpacked_max_bytes)


@contextmanager
def open_archive(path: Path, limits: ImportLimits, progress: ProgressCallback | None = None) -> Iterator[Archive]:
    """Opens a zip; `progress` is called with the position in the packed file."""
    with open_file(path) as file:
        bounded = BoundedFile(file, limits.entries_max)
        with _open_zip(bounded) as zip_file:
            # Set only now: the directory is at the end of the file, and reading it would report 100%.
            bounded.progress = progress
            yield Archive(zip_file, limits)


def is_zip(head: bytes) -> bool:
    """Checks for a local file header, or the end record of an empty archive."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def entry_start(path: Path, entry: zipfile.ZipInfo, max_bytes: int) -> bytes:
    """Returns the first bytes of an entry that uses one of the `SIMPLE_METHODS`. Reading the directory again would take
    a second if it has 100,000 entries."""
    with open_file(path) as file:
        file.seek(entry.header_offset)
        header = file.read(_LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size:
            return b""
        file.seek(sum(_LOCAL_HEADER.unpack(header)), io.SEEK_CUR)
        data = file.read(min(entry.compress_size, max_bytes))
    if entry.compress_type == zipfile.ZIP_STORED:
        return data
    with suppress(zlib.error):
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, max_bytes)
    return b""


def is_visible(name: str) -> bool:
    """Excludes hidden folders, and the one that macOS adds to archives."""
    *folders, _ = name.replace("\\", "/").split("/")
    return not any(folder.startswith(".") or folder == "__MACOSX" for folder in folders)


def decode_name(name: str) -> str:
    """Corrects names without a declared encoding: `zipfile` decodes them as CP437, but macOS writes UTF-8."""
    with suppress(UnicodeError):
        name = name.encode("cp437").decode()
    return printable_name(name.replace("\\", "/"))


def _open_zip(file: "BoundedFile") -> zipfile.ZipFile:
    try:
        zip_file = zipfile.ZipFile(file)
    except ZIP_ERRORS as error:
        raise InvalidParams("archive: not a valid zip file") from error
    file.is_open = True
    return zip_file


def _damaged(entry: zipfile.ZipInfo) -> InvalidParams:
    return InvalidParams(f"archive: {entry.filename[:_NAME_CHARS]!r} is damaged")


class _EntryReader(io.RawIOBase):
    """Unpacks one entry and enforces the size limits."""

    def __init__(self, archive: Archive, entry: zipfile.ZipInfo, packed: IO[bytes]) -> None:
        super().__init__()
        self._archive = archive
        self._entry = entry
        self._packed = packed
        self._bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._packed.read(len(buffer))
        except ZIP_ERRORS as error:
            raise _damaged(self._entry) from error
        self._bytes += len(data)
        self._archive.count_unpacked(len(data))
        self._archive.require_ratio(self._entry, self._bytes)
        buffer[: len(data)] = data
        return len(data)


class BoundedFile:
    """A file that `zipfile` reads from. It rejects a directory that has more than `entries_max` entries, or is larger
    than they can need, before it is parsed; everything else is read in small blocks."""

    def __init__(self, file: IO[bytes], entries_max: int) -> None:
        self._file = file
        self._entries_max = entries_max
        self._max_bytes = max(_DIRECTORY_MIN_BYTES, entries_max * _DIRECTORY_ENTRY_BYTES)
        self.progress: ProgressCallback | None = None
        # Whether the directory was read.
        self.is_open = False

    def read(self, size: int = -1) -> bytes:
        if size > self._max_bytes:
            raise TooLarge("the archive's directory", self._max_bytes)
        data = self._file.read(size)
        if size > _DIRECTORY_MIN_BYTES and not self.is_open:
            count = data.count(_DIRECTORY_SIGNATURE)
            if count > self._entries_max:
                raise InvalidParams(
                    f"archive: expected at most {self._entries_max} files (import_max_conversations), got {count}"
                )
        if self.progress is not None:
            self.progress(self._file.tell())
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Leaves the file open; its owner closes it."""


# -- tar files ---------------------------------------------------------------------------------------------------------
# The regular files of an uncompressed tar archive, in order. Nothing is extracted.
#
# Only what the tar files of other programs' exports need is understood: short names and sizes below 8 GiB.

_BLOCK_BYTES = 512
_MAGIC_OFFSET, _MAGIC = 257, b"ustar"
_FILE_TYPES = (b"0", b"\0")


def is_tar(head: bytes) -> bool:
    return head[_MAGIC_OFFSET : _MAGIC_OFFSET + len(_MAGIC)] == _MAGIC


def tar_files(file: IO[bytes], limits: ImportLimits) -> Iterator[tuple[str, int]]:
    """Yields the name and size of each file, with the archive positioned at its data."""
    for _ in range(limits.entries_max + 1):
        offset = file.tell()
        header = file.read(_BLOCK_BYTES)
        # Two empty blocks end an archive; some programs write none.
        if not header.strip(b"\0"):
            return
        if len(header) < _BLOCK_BYTES or not is_tar(header):
            raise InvalidParams("tar archive is damaged or truncated")
        field = header[124:136]
        digits = field.strip(b"\0 ")
        if not digits.isdigit() or b"8" in digits or b"9" in digits:
            raise InvalidParams("tar archive is damaged: a size is not a number")
        size = int(digits, 8)
        if header[156:157] in _FILE_TYPES:
            yield header[:100].partition(b"\0")[0].decode("utf-8", "replace"), size
        file.seek(offset + _BLOCK_BYTES + -(-size // _BLOCK_BYTES) * _BLOCK_BYTES)
    raise InvalidParams(f"archive: expected at most {limits.entries_max} files")
