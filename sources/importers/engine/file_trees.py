"""The files of an export, by name, whether it is a zip or the folder it was unpacked to."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import UNSET, UnsetType

from config.errors import InvalidParams, TooLarge
from config.times import format_time
from sources.importers.engine.archives import Archive, decode_name, is_visible, open_archive
from sources.importers.engine.file_probe import files_in
from sources.importers.engine.files import file_size, modified_at, printable_name, read_bytes
from sources.importers.engine.limits import ImportLimits, ProgressCallback


class FolderTree:
    """The visible files below a folder. Links are not followed: an export contains none."""

    def __init__(self, folder: Path, limits: ImportLimits, progress: ProgressCallback) -> None:
        files = (path for path in files_in(folder) if not path.is_symlink())
        self._files: Mapping[str, Path] = {printable_name(path.relative_to(folder).as_posix()): path for path in files}
        self._limits = limits
        self._progress = progress
        self._bytes_read = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def read(self, name: str, max_bytes: int) -> bytes:
        """Raises InvalidParams for a file that cannot be read or is too large."""
        path = self._files[name]
        try:
            data = read_bytes(path, max_bytes)
        except TooLarge as error:
            raise InvalidParams(error.message) from error
        except OSError as error:
            raise InvalidParams(f"cannot be read: {error.strerror or 'disk error'}") from error
        self._bytes_read += file_size(path)
        self._progress(self._bytes_read)
        return data

    def modified_at(self, name: str) -> str | UnsetType:
        try:
            return modified_at(self._files[name], self._limits)
        except OSError:
            return UNSET


class ArchiveTree:
    """The visible files of a zip."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        # By the name that people see; the archive is asked by the name that it has.
        self._entries = {decode_name(name): name for name in archive.names if is_visible(name)}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def read(self, name: str, max_bytes: int) -> bytes:
        """Raises InvalidParams for a file that cannot be read or is too large, TooLarge if the archive is."""
        entry = self._entries[name]
        # By the declared size, so that a large file of the export costs nothing.
        if self._archive.size(entry) > max_bytes:
            raise InvalidParams(TooLarge("the file", max_bytes).message)
        return self._archive.read(entry, max_bytes)

    def modified_at(self, name: str) -> str | UnsetType:
        modified = self._archive.modified_at(self._entries[name])
        return UNSET if modified is None else format_time(modified)


FileTree = FolderTree | ArchiveTree


@contextmanager
def open_tree(path: Path, limits: ImportLimits, progress: ProgressCallback) -> Iterator[FileTree]:
    if path.is_dir():
        yield FolderTree(path, limits, progress)
        return
    with open_archive(path, limits, progress) as archive:
        yield ArchiveTree(archive)
