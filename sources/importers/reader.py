"""The process that reads imported files: `python -m sources.importers.reader MEMORY_BYTES`.

It has no environment, a limit on its memory and two pipes. A file that makes it crash, run out of memory or loop ends
this process and not the server.
"""

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from sources.importers.engine.batches import Batch, BatchReader
from sources.importers.engine.discovery import discover
from sources.importers.engine.imported_items import FailedItem, ImportedItem
from sources.importers.engine.reader_messages import (
    HEADER_BYTES,
    FindFiles,
    FoundFiles,
    NextBatch,
    ReadBatch,
    ReaderRequest,
    ReaderResponse,
    ReadFile,
    ReadProgress,
    decode_request,
    encode_response,
    found_file,
    frame,
)
from sources.importers.parsers.sandbox import OUT_OF_MEMORY
from sources.importers.registry import all_importers, importer_by_name

_PROGRESS_EVERY_S = 0.1


class _Reader:
    """Answers requests, one after the other."""

    def __init__(self, send: Callable[[ReaderResponse], None]) -> None:
        self._send = send
        self._batches: BatchReader | None = None
        self._progress_at = 0.0

    def answer(self, request: ReaderRequest) -> None:
        match request:
            case FindFiles(paths, limits, format_name):
                results = discover([Path(os.fsdecode(path)) for path in paths], limits, all_importers(), format_name)
                self._send(FoundFiles([found_file(result) for result in results]))
            case ReadFile():
                self._open(request)
            case NextBatch():
                assert self._batches is not None
                self._send_batch(self._batches.next_batch())

    def _open(self, request: ReadFile) -> None:
        if self._batches is not None:
            self._batches.close()
        importer = importer_by_name(request.importer, all_importers())
        path = Path(os.fsdecode(request.path))
        events = importer.read(path, request.limits, self._report_progress, request.position)
        self._batches = BatchReader(events, request.batch_limits)

    def _send_batch(self, batch: Batch) -> None:
        try:
            self._send(ReadBatch(batch))
        except (UnicodeEncodeError, OverflowError, TypeError, ValueError, RecursionError):
            for kind, items in batch.items.items():
                batch.reports += [FailedItem(kind, _NOT_SENT) for item in items if not _is_sendable(item)]
                items[:] = [item for item in items if _is_sendable(item)]
            self._send(ReadBatch(batch))

    def _report_progress(self, bytes_read: int) -> None:
        if time.monotonic() > self._progress_at + _PROGRESS_EVERY_S:
            self._progress_at = time.monotonic()
            self._send(ReadProgress(bytes_read))


_NOT_SENT = "contains a lone surrogate, a number out of range or too many levels"


def _is_sendable(item: ImportedItem) -> bool:
    try:
        encode_response(item)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError, RecursionError):
        return False
    return True


def _requests(stream: BinaryIO) -> Iterator[ReaderRequest]:
    while header := stream.read(HEADER_BYTES):
        yield decode_request(stream.read(int.from_bytes(header, "big")))


def _send(response: ReaderResponse) -> None:
    sys.stdout.buffer.write(frame(encode_response(response)))
    sys.stdout.buffer.flush()


def _main(memory_max_bytes: int) -> None:
    # Only the soft limits: the processes that parse single documents set their own.
    for kind, value in ((resource.RLIMIT_AS, memory_max_bytes), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))
    reader = _Reader(_send)
    try:
        # The server went away if nobody reads the answers.
        with suppress(BrokenPipeError):
            for request in _requests(sys.stdin.buffer):
                reader.answer(request)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
