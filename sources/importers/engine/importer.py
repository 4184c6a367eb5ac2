"""What an importer is: it recognises its format by content and reads it piece by piece, in bounded memory.

It reads and never writes; where the items go, and whether they are new, is the intake's to know.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from sources.importers.engine.imported_items import ImportEvent, ReadPosition


class ImportLimits(Struct, frozen=True, kw_only=True):
    """What is read of a file before it is refused, from the settings. Sizes are of unpacked bytes."""

    file_max_bytes: int
    unpacked_max_bytes: int
    unpacked_ratio_max: int
    entries_max: int
    line_max_bytes: int
    depth_max: int
    item_max_chars: int
    # Of the process in which one document is parsed.
    parser_cpu_s: int = 10
    parser_memory_max_bytes: int = 512 << 20
    parser_deadline_s: float = 30.0
    # Whether where a file lies, and since when, says something of it; of one that was uploaded it does not.
    has_place: bool = True


class FileProbe(Struct, frozen=True):
    """A file or folder as it looks before it is read: what a format is recognised by. For a zip, `names` are those of
    its entries; for a folder, of the files directly in it; `head` is how a file begins."""

    path: Path
    is_folder: bool
    head: bytes = b""
    names: tuple[str, ...] = ()


class ProgressCallback(Protocol):
    """Told how far a reader has come, in bytes of the file as it lies on the disk."""

    def __call__(self, bytes_read: int, /) -> None: ...


class Importer(Struct, frozen=True, kw_only=True):
    """A format. `recognises` is how sure it is (0 not mine, 1 certain); the surest reads. `read` yields arrivals as it
    goes; it raises InvalidParams for a file that is not what it seemed, and TooLarge beyond a limit. One whose files
    grow at their end yields `Reached` marks, and is given the last one when it reads the file again."""

    name: str
    title: str
    recognizes: Callable[[FileProbe], float]
    read: Callable[[Path, ImportLimits, ProgressCallback, ReadPosition | None], Iterator[ImportEvent]]
    # Of files that are found in a folder, those that this format may read, as lower-case suffixes.
    suffixes: tuple[str, ...] = ()
    # Of a folder that it reads as a whole, the files that it reads, by their place in it: the others are counted. One
    # that has none counts for itself what it leaves out.
    reads_of_folder: Callable[[str], bool] | None = None
    # Above 0 where all it reads stands in its one file, which need not be read again as long as it is the same. To be
    # raised when it reads something more, or otherwise.
    edition: int = 0


class DiscoveredFile(Struct, frozen=True):
    """A file, or a folder that is read as one, and who reads it. `name` is what the summary calls it. Without a place
    of its own it is read from its beginning: it could not be known again."""

    path: Path
    name: str
    importer: Importer
    size_bytes: int
    has_place: bool = True
