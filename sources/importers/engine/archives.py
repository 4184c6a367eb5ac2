"""A zip as an importer reads it: entry by entry, never extracted, its sizes counted as they unpack.

An archive that lies about its sizes, leads out of itself or hides a bomb is refused; what is wrong inside one entry is
the importer's to tell.
"""

import io
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.importer import ImportLimits, ProgressCallback

# Of an entry in the directory of a zip: 46 bytes and its name, with room for what other programs add.
_DIRECTORY_ENTRY_BYTES = 512
# No directory is so small that a limit on it should refuse an archive of a few files.
_DIRECTORY_MIN_BYTES = 1 << 16
# A small entry may be packed as well as it likes: it does no harm.
_RATIO_FREE_BYTES = 16 << 20
_ENCRYPTED = 0x1
_SHOWN_CHARS = 120
# The first moment a zip can name: programs write it where they know none.
_NO_TIME = datetime(1980, 1, 1, tzinfo=UTC)
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError, OSError)


class Archive:
    """The files of a zip, in the order of its directory; folders are not among them."""

    def __init__(self, opened: zipfile.ZipFile, limits: ImportLimits) -> None:
        self._zip = opened
        self.limits = limits
        self._unpacked_bytes = 0
        entries = [entry for entry in opened.infolist() if not entry.is_dir()]
        if len(entries) > limits.entries_max:
            raise InvalidParams(f"the archive: got {len(entries)} files, expected at most {limits.entries_max}")
        for entry in entries:
            _require_plain(entry)
        self._entries = {entry.filename: entry for entry in entries}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def size(self, name: str) -> int:
        """Unpacked, as the archive says it; what is read is counted all the same."""
        return self._entries[name].file_size

    def changed_at(self, name: str) -> datetime | None:
        """When the file was last changed; a zip names no zone, and some name no time."""
        try:
            changed = datetime(*self._entries[name].date_time, tzinfo=UTC)
        except ValueError:
            return None
        return changed if changed > _NO_TIME else None

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """One file, as a stream. What is damaged raises InvalidParams wherever it is found, what grows beyond the
        limits TooLarge."""
        entry = self._entries.get(name)
        if entry is None:
            raise InvalidParams(f"the archive: got no {name[:_SHOWN_CHARS]!r}, expected it")
        try:
            packed = self._zip.open(entry)
        except _BROKEN as error:
            raise _damaged(entry) from error
        with packed:
            yield io.BufferedReader(_Unpacked(self, entry, packed), 1 << 16)

    def read(self, name: str, max_bytes: int) -> bytes:
        """One small file, whole."""
        with self.open(name) as file:
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise TooLarge(f"{name[:_SHOWN_CHARS]!r} in the archive", max_bytes)
        return data

    def count(self, size: int) -> None:
        self._unpacked_bytes += size
        if self._unpacked_bytes > self.limits.unpacked_max_bytes:
            raise TooLarge("the archive, unpacked,", self.limits.unpacked_max_bytes)


@contextmanager
def open_archive(path: Path, limits: ImportLimits, progress: ProgressCallback | None = None) -> Iterator[Archive]:
    """The zip in a file; `progress` is told how much of it was read."""
    directory_bytes = max(_DIRECTORY_MIN_BYTES, limits.entries_max * _DIRECTORY_ENTRY_BYTES)
    with path.open("rb") as file:
        bounded = _Bounded(file, directory_bytes)
        with _zip_in(bounded) as opened:
            # The list of files stands at the end: whoever is told of that would think that all was read.
            bounded.progress = progress
            yield Archive(opened, limits)


def is_zip(head: bytes) -> bool:
    """By its first bytes: a file's header, or the end of an archive without files."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def _zip_in(file: "_Bounded") -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except _BROKEN as error:
        raise InvalidParams("the archive: got something that cannot be read, expected a zip") from error


def _require_plain(entry: zipfile.ZipInfo) -> None:
    """Nothing is ever extracted, but an archive made to lead out of a folder is not one to trust with the rest."""
    name = entry.filename
    parts = PurePosixPath(name.replace("\\", "/"))
    shown = repr(name[:_SHOWN_CHARS])
    if ".." in parts.parts or parts.is_absolute() or (len(name) > 1 and name[1] == ":"):
        raise InvalidParams(f"the archive: got the name {shown}, expected names inside of it")
    if stat.S_ISLNK(entry.external_attr >> 16):
        raise InvalidParams(f"the archive: got {shown}, a symbolic link, expected plain files")
    if entry.flag_bits & _ENCRYPTED:
        raise InvalidParams(f"the archive: got {shown}, encrypted, expected files that can be read")


def _damaged(entry: zipfile.ZipInfo) -> InvalidParams:
    return InvalidParams(f"{entry.filename[:_SHOWN_CHARS]!r} in the archive: got damaged data, expected a whole file")


class _Unpacked(io.RawIOBase):
    """An entry as it unpacks, counted."""

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
        except _BROKEN as error:
            raise _damaged(self._entry) from error
        self._bytes += len(data)
        self._archive.count(len(data))
        most = self._archive.limits.unpacked_ratio_max
        if self._bytes > _RATIO_FREE_BYTES and self._bytes > most * self._entry.compress_size:
            raise InvalidParams(
                f"{self._entry.filename[:_SHOWN_CHARS]!r} in the archive: got more than {most} times its packed "
                "size, expected text"
            )
        buffer[: len(data)] = data
        return len(data)


class _Bounded:
    """A file of which no more is read at once than its directory may take: the rest is read in small parts."""

    def __init__(self, file: IO[bytes], max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self.progress: ProgressCallback | None = None

    def read(self, size: int = -1) -> bytes:
        if size > self._max_bytes:
            raise TooLarge("the archive's list of files", self._max_bytes)
        data = self._file.read(size)
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
        """Not ours to close."""
