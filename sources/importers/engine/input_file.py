"""The file or folder that an importer reads: its bytes, text, JSON or tables, and the files inside it."""

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

from msgspec import UNSET, Struct, UnsetType

from config.errors import InvalidParams, TooLarge
from config.times import format_time
from sources.importers.engine import files
from sources.importers.engine.archives import Archive, decode_name, is_visible, is_zip, open_archive
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.encodings import DecodedText
from sources.importers.engine.events import Events, FailedItem, ImportEvent, StartPosition
from sources.importers.engine.file_probe import HEAD_BYTES, files_in, is_link
from sources.importers.engine.files import printable_name
from sources.importers.engine.json_stream import JsonElement, iter_objects
from sources.importers.engine.limits import ImportLimits, ProgressCallback
from sources.importers.engine.table_reader import TableReader, open_database
from sources.importers.engine.values import parse_json


class InputFile(Struct, frozen=True):
    """`position` is where to start: that of the last `Checkpoint` that was yielded for the file, or None."""

    path: Path
    limits: ImportLimits
    progress: ProgressCallback
    position: StartPosition = None

    @property
    def name(self) -> str:
        return printable_name(self.path.name)

    @property
    def stem(self) -> str:
        return printable_name(self.path.stem)

    @property
    def suffix(self) -> str:
        return self.path.suffix.lower()

    @property
    def key(self) -> str:
        return files.file_key(self.path, self.limits)

    @property
    def modified_at(self) -> str | UnsetType:
        return files.modified_at(self.path, self.limits)

    @property
    def is_folder(self) -> bool:
        return self.path.is_dir()

    @property
    def is_zip(self) -> bool:
        return not self.is_folder and is_zip(self.head(4))

    def head(self, max_bytes: int = HEAD_BYTES) -> bytes:
        with open_file(self.path) as file:
            return file.read(max_bytes)

    def content(self) -> bytes:
        return files.read_bytes(self.path, self.limits.line_max_bytes)

    def text(self) -> str:
        return files.read_text(self.path, self.limits)

    def decoded_text(self) -> DecodedText:
        return files.read_decoded(self.path, self.limits)

    def json(self) -> Any:
        return files.read_json(self.path, self.limits)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Reading the file reports progress and enforces the size limit."""
        with open_file(self.path) as file:
            yield _count_reads(file, self)

    def elements(self) -> Iterator[JsonElement]:
        """Yields the objects of a JSON file with a list, or with one object after the other."""
        with self.open() as file:
            yield from iter_objects(file, self.limits)

    def open_archive(self) -> AbstractContextManager[Archive]:
        return open_archive(self.path, self.limits, self.progress)

    def open_database(self) -> AbstractContextManager[TableReader]:
        return open_database(self.path, self.limits, self.progress)

    @contextmanager
    def open_tree(self) -> Iterator["FileTree"]:
        """Opens an export by the names of its files, whether it is a zip or the folder it was unpacked to."""
        if self.is_folder:
            yield FolderTree(self)
            return
        with self.open_archive() as archive:
            yield ArchiveTree(archive)


def _count_reads(file: IO[bytes], source: InputFile, bytes_before: int = 0) -> IO[bytes]:
    """`bytes_before` were read from other files."""
    return io.BufferedReader(_CountingReader(file, source, bytes_before), 1 << 16)


class _CountingReader(io.RawIOBase):
    def __init__(self, file: IO[bytes], source: InputFile, bytes_before: int) -> None:
        super().__init__()
        self._file = file
        self._max_bytes = source.limits.file_max_bytes
        self._progress = source.progress
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


# -- file trees --------------------------------------------------------------------------------------------------------
# The visible files of an export, by name, whether it is a zip or the folder it was unpacked to.


class FileTree(ABC):
    """`entries` are the files by the names that people see."""

    def __init__(self, entries: Mapping[str, Any], limits: ImportLimits) -> None:
        self._entries = entries
        self.limits = limits
        self.names = tuple(entries)
        # Files that an importer has not read, which it reports.
        self.unread = set(entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    @abstractmethod
    def read(self, name: str, max_bytes: int) -> bytes:
        """Raises InvalidParams for a file that cannot be read or is too large, TooLarge if the archive is."""

    @abstractmethod
    def modified_at(self, name: str) -> str | UnsetType: ...

    def text(self, name: str) -> str:
        """Reads the text of one item."""
        return files.item_text(self.read(name, files.text_max_bytes(self.limits)), self.limits, name)

    def json(self, name: str) -> Any:
        return parse_json(self.read(name, self.limits.line_max_bytes), self.limits)

    def read_each(self, read: Callable[[str], ImportEvent | None]) -> Events:
        """Yields what `read` makes of each file, if anything. A file for which it raises InvalidParams has failed."""
        for name in self.names:
            try:
                event = read(name)
            except InvalidParams as error:
                event = FailedItem(name, error.message)
            if event is not None:
                yield event


class FolderTree(FileTree):
    """Links are not followed: an export contains none."""

    def __init__(self, folder: InputFile) -> None:
        paths = (path for path in files_in(folder.path) if not is_link(path))
        entries = {printable_name(path.relative_to(folder.path).as_posix()): path for path in paths}
        super().__init__(entries, folder.limits)
        self._progress = folder.progress
        self._bytes_read = 0

    def read(self, name: str, max_bytes: int) -> bytes:
        path: Path = self._entries[name]
        self.unread.discard(name)
        try:
            data = files.read_bytes(path, max_bytes)
        except TooLarge as error:
            raise InvalidParams(error.message) from error
        except OSError as error:
            raise InvalidParams(files.describe_read_error(error)) from error
        self._bytes_read += files.file_size(path)
        self._progress(self._bytes_read)
        return data

    def modified_at(self, name: str) -> str | UnsetType:
        try:
            return files.modified_at(self._entries[name], self.limits)
        except OSError:
            return UNSET


class ArchiveTree(FileTree):
    def __init__(self, archive: Archive) -> None:
        # The archive is asked by the name that it has.
        super().__init__({decode_name(name): name for name in archive.names if is_visible(name)}, archive.limits)
        self._archive = archive

    def read(self, name: str, max_bytes: int) -> bytes:
        entry: str = self._entries[name]
        self.unread.discard(name)
        # By the declared size, so that a large file of the export costs nothing.
        if self._archive.size(entry) > max_bytes:
            raise InvalidParams(TooLarge("the file", max_bytes).message)
        return self._archive.read(entry, max_bytes)

    def modified_at(self, name: str) -> str | UnsetType:
        modified = self._archive.modified_at(self._entries[name])
        return UNSET if modified is None else format_time(modified)


# -- JSON exports ------------------------------------------------------------------------------------------------------
# The JSON files of an export: in its zip, in the folder it was unpacked to, or a single one of them.

NameFilter = Callable[[str], bool]


def read_export(
    source: InputFile, is_export_file: NameFilter, noun: str, read_object: Callable[[bytes, str], Events]
) -> Events:
    """Yields the events of all JSON objects of an export, as `read_objects` does."""
    yield from read_objects(_export_objects(source, is_export_file), noun, read_object)


def read_objects(
    objects: Iterable[tuple[str, JsonElement]], noun: str, read_object: Callable[[bytes, str], Events]
) -> Events:
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


def _export_objects(source: InputFile, is_export_file: NameFilter) -> Iterator[tuple[str, JsonElement]]:
    """Yields the JSON objects of an export, each with the name of the file it is in. A single file may have any name;
    it is yielded as "". A damaged file of an archive or folder is an element with a problem."""
    path, limits = source.path, source.limits
    if source.is_folder:
        bytes_before = 0
        # An export contains no links, so they are not followed.
        found = {file.relative_to(path).as_posix(): file for file in files_in(path) if not is_link(file)}
        for name in _require_files(name for name in found if is_in_unpacked_export(name, is_export_file)):
            with open_file(found[name]) as file:
                try:
                    for element in iter_objects(_count_reads(file, source, bytes_before), limits):
                        yield printable_name(name), element
                except InvalidParams as error:
                    yield printable_name(name), JsonElement(0, problem=error.message)
                # The progress of a folder counts the bytes of all its files.
                bytes_before += file.tell()
    elif source.is_zip:
        with source.open_archive() as archive:
            for name in _require_files(name for name in archive.names if is_export_file(name)):
                try:
                    with archive.open(name) as entry:
                        for element in iter_objects(entry, limits):
                            yield name, element
                except InvalidParams as error:
                    yield name, JsonElement(0, problem=error.message)
    else:
        yield from (("", element) for element in source.elements())


def is_in_unpacked_export(name: str, is_export_file: NameFilter) -> bool:
    """Returns whether a file in a folder belongs to the export unpacked there: it is directly in the folder, or is an
    export file because of the subfolder it is in. Other subfolders may contain other exports."""
    return is_export_file(name) and ("/" not in name or not is_export_file(base_name(name)))


def base_name(name: str) -> str:
    return name.rpartition("/")[2].lower()


def _require_files(names: Iterator[str]) -> list[str]:
    found = sorted(names)
    if not found:
        raise InvalidParams("export: expected conversations.json, found none of the files of this format")
    return found
