"""The process that reads imported files: `python -m sources.importers.reader MEMORY_BYTES`.

It has no environment, a limit on its memory and two pipes, and runs in a sandbox: it can open the files of the import,
but no others. A file that makes it crash, run out of memory or loop ends this process and not the server.
"""

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from config.errors import InvalidParams
from sources.importers.engine import reader_messages
from sources.importers.engine.batches import BatchReader, limit_events
from sources.importers.engine.confined_files import confine_reading
from sources.importers.engine.discovery import DiscoveryResult, discover, discover_in_folder
from sources.importers.engine.events import FailedItem, ImportedItem
from sources.importers.engine.importer import ParsingImporter
from sources.importers.engine.limits import ImportLimits
from sources.importers.parsers.parsed_document import OUT_OF_MEMORY, DocumentKind, ParsedDocument, ParseFailure
from sources.importers.registry import all_importers, load_importer
from sources.importers.sandbox import confine

_PROGRESS_EVERY_S = 0.1


class _Reader:
    """Answers requests, one after the other."""

    def __init__(
        self, requests: Iterator[reader_messages.ReaderRequest], send: Callable[[reader_messages.ReaderResponse], None]
    ) -> None:
        self._requests = requests
        self._send = send
        self._batches: BatchReader | None = None
        self._progress_at = 0.0

    def run(self) -> None:
        for request in self._requests:
            match request:
                case reader_messages.Confine(names, mode):
                    paths = [Path(os.fsdecode(name)) for name in names]
                    confine_reading(paths)
                    confine(paths, mode)
                case reader_messages.FindFiles(paths, limits, format_name):
                    found_paths = [Path(os.fsdecode(path)) for path in paths]
                    self._send_found(discover(found_paths, limits, all_importers(), format_name))
                case reader_messages.ProbeFiles(folder, paths, limits, format_name):
                    importers = all_importers() if format_name is None else (load_importer(format_name),)
                    probe_paths = [Path(os.fsdecode(path)) for path in paths]
                    folder_path = Path(os.fsdecode(folder))
                    # One result for each path, in their order.
                    self._send_found(discover_in_folder(folder_path, probe_paths, limits, importers, format_name))
                case reader_messages.ReadFile():
                    if self._batches is not None:
                        self._batches.close()
                    importer = load_importer(request.importer)
                    if isinstance(importer, ParsingImporter):
                        # This process may not start another, so the server starts the parser of a document.
                        importer = type(importer)(self._parse)
                    path = Path(os.fsdecode(request.path))
                    events = importer.read(path, request.limits, self._report_progress, request.position)
                    self._batches = BatchReader(limit_events(events, request.limits), request.batch_limits)
                case reader_messages.NextBatch():
                    assert self._batches is not None
                    batch = self._batches.next_batch()
                    try:
                        self._send(reader_messages.ReadBatch(batch))
                    except (UnicodeEncodeError, OverflowError, TypeError, ValueError, RecursionError):
                        for kind, items in batch.items.items():
                            batch.reports += [FailedItem(kind, _NOT_SENT) for item in items if not _is_sendable(item)]
                            items[:] = [item for item in items if _is_sendable(item)]
                        self._send(reader_messages.ReadJsonBatch(msgspec.json.encode(batch)))

    def _send_found(self, results: Iterator[DiscoveryResult]) -> None:
        files = []
        for result in results:
            files.append(reader_messages.found_file(result))
            self._report_progress(0)
        self._send(reader_messages.FoundFiles(files))

    def _parse(self, document: Path | bytes, kind: DocumentKind, limits: ImportLimits) -> ParsedDocument:
        """A path is that of the file that is being read."""
        self._send(reader_messages.ParseDocument(kind, document if isinstance(document, bytes) else None))
        answer = next(self._requests)
        assert isinstance(answer, reader_messages.DocumentResult)
        if isinstance(answer.result, ParseFailure):
            raise InvalidParams(answer.result.problem)
        return answer.result

    def _report_progress(self, bytes_read: int) -> None:
        # Also what tells the server that this process still works; see `ReaderProcess`.
        if time.monotonic() > self._progress_at + _PROGRESS_EVERY_S:
            self._progress_at = time.monotonic()
            self._send(reader_messages.ReadProgress(bytes_read))


_NOT_SENT = "contains a lone surrogate or too many levels"


def _is_sendable(item: ImportedItem) -> bool:
    try:
        msgspec.json.encode(item)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError, RecursionError):
        return False
    return True


def _requests(stream: BinaryIO) -> Iterator[reader_messages.ReaderRequest]:
    while header := stream.read(reader_messages.HEADER_BYTES):
        yield reader_messages.decode_request(stream.read(int.from_bytes(header, "big")))


def _send(response: reader_messages.ReaderResponse) -> None:
    sys.stdout.buffer.write(reader_messages.frame(reader_messages.encode_response(response)))
    sys.stdout.buffer.flush()


def _main(memory_max_bytes: int) -> None:
    # Before the first request, and so before any file is opened.
    for kind, value in ((resource.RLIMIT_AS, memory_max_bytes), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (value, value))
    try:
        # The server ended if the answers are not read.
        with suppress(BrokenPipeError):
            _Reader(_requests(sys.stdin.buffer), _send).run()
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
