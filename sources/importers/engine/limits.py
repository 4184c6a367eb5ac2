"""Limits on what importers read, taken from the settings."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from sources.importers.sandbox import SandboxMode

if TYPE_CHECKING:
    from config.settings import Settings


# Unpacked size of an archive, as a multiple of the size of a file: an archive of text compresses by ten to forty times,
# and most have images, which do not.
UNPACKED_TIMES = 16


class ImportLimits(Struct, frozen=True, kw_only=True):
    """Sizes are in unpacked bytes. Those with a default are fixed; the others are settings."""

    file_max_bytes: int
    unpacked_max_bytes: int
    entries_max: int
    item_max_chars: int
    # Text compresses by ten to forty times; a file in an archive that compresses more than this is a bomb.
    unpacked_ratio_max: int = 200
    # One line or value is held in memory several times while it is parsed.
    line_max_bytes: int = 32 << 20
    # Deeper JSON is an attack on parsers that recurse.
    depth_max: int = 100
    # The images of one note together.
    images_max_bytes: int = 16 << 20
    # Lines of a text, values of JSON that is not a list of items, and messages of a conversation: each takes far more
    # memory than its bytes.
    lines_max: int = 1_000_000
    values_max: int = 2_000_000
    messages_max: int = 1_000_000
    # A file with more failed or skipped items than this is given up, unless it has more items that were imported.
    failed_max: int = 10_000
    skipped_max: int = 50_000
    # Limits of the subprocess that parses one document, which is held in memory as a whole. The deadline is long enough
    # to use the CPU time on a busy machine, where a process of low priority gets a tenth of a core.
    parser_cpu_s: int = 10
    parser_memory_max_bytes: int = 512 << 20
    parser_deadline_s: float = 120.0
    # Limits of the process that reads all files of an import. Silence for longer than the deadline ends it.
    reader_memory_max_bytes: int = 2 << 30
    reader_deadline_s: float = 120.0
    # Whether both processes give up access to everything but the imported files.
    sandbox: SandboxMode = "auto"
    # Whether the path identifies the file across imports. It does not for uploads, which get a new path each time.
    has_stable_path: bool = True


def import_limits(settings: "Settings") -> ImportLimits:
    return ImportLimits(
        file_max_bytes=settings.import_max_bytes,
        unpacked_max_bytes=UNPACKED_TIMES * settings.import_max_bytes,
        entries_max=settings.fixed.import_max_conversations,
        item_max_chars=settings.item_max_chars,
        images_max_bytes=settings.fixed.import_images_max_bytes,
        reader_memory_max_bytes=settings.import_reader_memory_mib << 20,
        reader_deadline_s=settings.fixed.import_reader_deadline_s,
        sandbox=settings.import_sandbox,
    )


# -- progress ----------------------------------------------------------------------------------------------------------
# Progress of an import, updated while files are read and items are written.


class ProgressCallback(Protocol):
    """Called with the number of bytes read so far. For a compressed file these are compressed bytes."""

    def __call__(self, bytes_read: int, /) -> None: ...


class ImportProgress(Struct):
    """`before_batch` is awaited before each batch is written, so that the import can wait for others there."""

    bytes_total: int = 0
    bytes_read: int = 0
    items: int = 0
    file: str = ""
    before_batch: Callable[[], Awaitable[None]] | None = None


class FileProgress:
    """Adds the bytes read from one file to the import's total. The total never decreases, although a reader may seek
    backwards."""

    def __init__(self, progress: ImportProgress) -> None:
        self._progress = progress
        self._bytes_before = progress.bytes_read

    def __call__(self, bytes_read: int) -> None:
        self._progress.bytes_read = max(self._progress.bytes_read, self._bytes_before + bytes_read)

    def finish(self, size_bytes: int) -> None:
        """Counts the whole file as read, including parts that were skipped."""
        self._progress.bytes_read = self._bytes_before + size_bytes
