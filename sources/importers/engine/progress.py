"""Progress of an import, updated while files are read and items are written."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct


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
