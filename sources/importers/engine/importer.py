"""The interface of an importer, and how to add one.

An importer recognizes one format by its content and reads it piece by piece, in bounded memory. It never writes: the
import runner stores the items and finds out which of them are new.

To add a format:

1. Write a subclass of `FileImporter` in a module of `sources/importers/formats`, next to formats of the same kind. It
   implements `read_file`, which gets the arguments of `read` as one object.
2. Add a line to `sources/importers/registry.py`. Its name is what users pass to `florilegium import --format`.
3. Describe the format in `docs/import.md`; a test checks that its name is there in backticks.

A subclass implements:

- `name`, `title`: the name in the registry, and a description for people.
- `suffixes`: lower-case file name suffixes that this format can have; other files in a folder are not probed for it. A
  file that the user names is probed by every importer, so `recognizes` checks the suffix itself if content is not
  enough.
- `recognizes(probe)`: the confidence, from 0.0 (not this format) to 1.0 (certain), judged by the first bytes of a file
  or the names in a zip or folder. It must not raise, whatever the bytes are. The most confident importer is chosen.
- `read(path, limits, progress, position)`: a generator of the values in `events.py`.
  - Yield an `Imported…` for every item, with a draft whose `uuid` is the same each time the item is read: the id that
    the format itself gives it if that is globally unique, otherwise `stable_uuid(format, kind, key)`. `kind` is
    "notes", "media" and so on; `key` consists of what does not change when the item is edited or others are inserted
    before it, and starts with `file_key(path, limits)` unless it is unique across files.
  - Times in drafts are strings as `stored_time` and `stored_date` in `values.py` return them.
  - Yield `FailedItem` for an item that cannot be read and go on with the next; `SkippedItem` for one that is left out
    on purpose. Every item of the file is reported in one of these ways.
  - Raise `InvalidParams` if the file as a whole cannot be read, and `TooLarge` if it exceeds a limit.
  - Call `progress(bytes_read)` from time to time.

Optional: `output_version`, `recognizes_moved_files`, `reads_from_folder`, `followed_databases`, and `Checkpoint` events
for files that grow at their end; see below.
"""

# About this package: `formats/` has a module for each family of formats. Read first: `engine/importer.py`, what a
# format implements; `formats/text_notes.py`, short ones; `engine/import_runner.py`, how items are written; and
# `reader.py`, the confined process in which importers run. An import crosses three processes. The server writes the
# library. The reader finds, recognizes and reads files, and may open no others. A document is parsed in a third
# process, which the server starts because the reader may not. Nothing here knows a user: the caller passes a library.
# Importers yield drafts with stable ids, so that an import can be repeated or completed at any time.

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from sources.importers.engine.archives import is_visible
from sources.importers.engine.events import Events, SkippedItem, StartPosition
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.input_file import InputFile, is_in_unpacked_export, read_export
from sources.importers.engine.limits import ImportLimits, ProgressCallback
from sources.importers.engine.table_reader import FollowedDatabase
from sources.importers.parsers.parsed_document import DocumentParser, parse_in_subprocess

# Formats take what their signatures need from here, too, instead of from four modules.
__all__ = [
    "Events",
    "ExportImporter",
    "FileImporter",
    "FileProbe",
    "ImportLimits",
    "Importer",
    "InputFile",
    "ParsingImporter",
]


class Importer(ABC):
    """Reads one format; see the module docstring."""

    name: ClassVar[str]
    title: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    # A file that was imported completely is not read again while its bytes and this number are unchanged. Only for
    # formats that keep everything in one file; increase it when the importer starts to read more, or differently. 0
    # means that files are always read.
    output_version: ClassVar[int] = 0
    # Whether a file is one media item identified by its location, and is recognized by its bytes after it was moved.
    # Needs an `output_version`.
    recognizes_moved_files: ClassVar[bool] = False
    # Whether each file of a recognized folder can be read alone, with the same result. A followed folder is then read
    # file by file, so that a change of one file does not mean reading all of them.
    reads_files_alone: ClassVar[bool] = False
    # Of a followed database with these tables, only the rows that changed are read again. The importer must yield
    # `DeletedItem` for rows that are marked as deleted.
    followed_databases: ClassVar[tuple[FollowedDatabase, ...]] = ()
    # If a folder is followed as this format, these files in it are, and no others.
    followed_names: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def recognizes(self, probe: FileProbe) -> float:
        """Returns the confidence, from 0.0 to 1.0, that this importer can read the file or folder."""

    @abstractmethod
    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        """Yields the contents. `position` is that of the last `Checkpoint` this importer yielded for the same file, or
        None to read from the start."""

    def reads_from_folder(self, name: str) -> bool:
        """Returns whether `read` uses this file of a folder that it reads as a whole. Files for which this is False are
        reported as ignored; an importer that reports unused files itself keeps the default."""
        return True


# -- built-in formats --------------------------------------------------------------------------------------------------


class FileImporter(Importer):
    """The base of the formats in this package, which get one object with all that `read` is called with."""

    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        # A generator, so that nothing is read before the first event is asked for.
        yield from self.read_file(InputFile(path, limits, progress, position))

    @abstractmethod
    def read_file(self, file: InputFile) -> Events:
        """Yields the contents, as `read` does."""

    def unused_files(self, count: int) -> list[SkippedItem]:
        """Reports files of an export that the format does not read."""
        return [SkippedItem(f"file not used by {self.name}")] * count


class ExportImporter(FileImporter):
    """Reads exports that consist of JSON files with objects, which reports call by `noun`: a zip, the folder it was
    unpacked to, or one of the files alone."""

    suffixes = (".json", ".zip")
    noun: ClassVar[str]

    @abstractmethod
    def is_export_file(self, name: str) -> bool:
        """Returns whether a file of a zip or folder, given by its path there, has such objects."""

    @abstractmethod
    def read_object(self, data: bytes, location: str, limits: ImportLimits) -> Events:
        """Yields what one object contains. Raises InvalidParams if it cannot be read."""

    def read_file(self, file: InputFile) -> Events:
        def read(data: bytes, location: str) -> Events:
            return self.read_object(data, location, file.limits)

        yield from read_export(file, self.is_export_file, self.noun, read)
        if file.is_zip:  # of a folder, the discovery reports files that are not used
            with file.open_archive() as archive:
                unused = [name for name in archive.names if is_visible(name) and not self.is_export_file(name)]
            yield from self.unused_files(len(unused))

    def reads_from_folder(self, name: str) -> bool:
        return is_in_unpacked_export(name, self.is_export_file)


class ParsingImporter(FileImporter):
    """An importer that has documents, or documents inside files, parsed in another process. The process that reads
    imported files may not start one, so it replaces `parse`."""

    def __init__(self, parse: DocumentParser = parse_in_subprocess) -> None:
        self._parse = parse
