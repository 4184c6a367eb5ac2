"""Reads files in a child process, so that a hostile or damaged file cannot stop, slow down or crash the server.

The process is started when the first file is read and reads all files of an import. If it ends or makes no progress,
the file counts as unreadable and the next file gets a new process.
"""

import asyncio
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from signal import SIGKILL
from typing import IO

import msgspec
from loguru import logger

from config.errors import InvalidParams
from sources.importers.engine import reader_messages
from sources.importers.engine.batches import Batch, BatchLimits
from sources.importers.engine.confined_files import reading_confined_to
from sources.importers.engine.discovery import DiscoveredFile, DiscoveryResult
from sources.importers.engine.events import ReadPosition
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportLimits, ProgressCallback
from sources.importers.parsers.parsed_document import OUT_OF_MEMORY, ParsedDocument, ParseFailure, parse_in_subprocess
from sources.importers.registry import all_importers, importer_by_name
from sources.importers.sandbox import NO_SANDBOX, NO_SANDBOX_PROBLEM, child_environment

# How much lower the priority of the process is. Reading a batch takes up to 100 ms of CPU time, for which a search on
# the same core would otherwise have to wait. A tenth of a busy core is left to it, so that it makes progress.
_NICENESS = 10
_PRIORITY_MAX = 19
_READ_BYTES = 1 << 20
_CLOSE_POLL_S = 0.1
_LOGGED_BYTES = 4_000


def require_inside(results: Sequence[DiscoveryResult], paths: Sequence[Path]) -> None:
    """Rejects files outside the paths, which only a process that was taken over names: they would be opened to the next
    process."""
    try:
        folders = [path.resolve() for path in paths]
        found = [result.path.resolve() for result in results if isinstance(result, DiscoveredFile)]
    except (OSError, RuntimeError):  # a folder was replaced while its path was resolved
        raise InvalidParams("a folder was replaced while it was read; try again") from None
    if not all(any(map(path.is_relative_to, folders)) for path in found):
        raise InvalidParams("the process that looks for files named one outside the import")


class ReaderProcess:
    """The child process, and the requests to it. The process can read the paths only, folders with everything in them;
    they have no links. Calls block; they may come from different threads. `kill` may come from any thread at any
    time."""

    def __init__(self, limits: ImportLimits, paths: Sequence[Path]) -> None:
        self._limits = limits
        self._paths = paths
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._received = bytearray()
        self._file: reader_messages.ReadFile | None = None
        self._parses_left = 0
        self._is_closed = False
        # A call whose pipe was closed meanwhile could read from another file that got its number.
        self._calls = threading.Lock()

    def find_files(self, paths: Sequence[Path], format_name: str | None) -> list[DiscoveryResult]:
        return self._find(reader_messages.FindFiles(list(map(os.fsencode, paths)), self._limits, format_name))

    def probe_files(self, folder: Path, paths: Sequence[Path], format_name: str | None) -> list[DiscoveryResult]:
        """Returns one result for each file."""
        names = list(map(os.fsencode, paths))
        results = self._find(reader_messages.ProbeFiles(os.fsencode(folder), names, self._limits, format_name))
        if len(results) != len(paths):
            raise InvalidParams("the process that looks for files returned results for others")
        return results

    def _find(self, request: reader_messages.FindFiles | reader_messages.ProbeFiles) -> list[DiscoveryResult]:
        with self._calls:
            response = self._request(request)
            while isinstance(response, reader_messages.ReadProgress):
                response = self._receive()
        assert isinstance(response, reader_messages.FoundFiles)
        results = [reader_messages.discovery_result(found) for found in response.files]
        require_inside(results, self._paths)
        return results

    def open_file(self, request: reader_messages.ReadFile) -> None:
        self._file = request
        self._parses_left = request.limits.entries_max
        with self._calls:
            self._write(request)

    def next_batch(self, progress: ProgressCallback) -> Batch:
        """Returns the next batch. If the process ends instead, that is the failure of the file."""
        try:
            with self._calls:
                response = self._request(reader_messages.NextBatch())
                while not isinstance(response, reader_messages.ReadBatch):
                    if isinstance(response, reader_messages.ParseDocument):
                        self._write(reader_messages.DocumentResult(self._parse(response)))
                    elif isinstance(response, reader_messages.ReadProgress):
                        progress(response.bytes_read)
                    response = self._receive()
        except InvalidParams as error:
            return Batch(is_last=True, failure=error.message)
        return response.batch

    def _parse(self, request: reader_messages.ParseDocument) -> ParsedDocument | ParseFailure:
        """Parses the current file once, and as many documents inside it as an archive may have: a reader that was taken
        over could otherwise ask for it forever."""
        file, process = self._file, self._process
        if file is None or process is None or self._parses_left == 0:
            self.kill()
            return ParseFailure("the document was already parsed")
        self._parses_left = self._parses_left - 1 if request.data is not None else 0
        document = Path(os.fsdecode(file.path)) if request.data is None else request.data
        try:
            with reading_confined_to(self._paths):
                return parse_in_subprocess(document, request.kind, file.limits, process.pid)
        except InvalidParams as error:
            return ParseFailure(error.message)
        except OSError:
            # The group of the reader no longer exists, because the import was stopped.
            return ParseFailure("the import was stopped")

    def kill(self) -> None:
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, SIGKILL)

    def close(self) -> None:
        """Ends the process permanently, and with it a call that is running."""
        self._is_closed = True
        self.kill()
        while not self._calls.acquire(timeout=_CLOSE_POLL_S):
            self.kill()  # it was started at this moment
        try:
            self._end()
        finally:
            self._calls.release()

    def _request(self, request: reader_messages.ReaderRequest) -> reader_messages.ReaderResponse:
        self._write(request)
        return self._receive()

    def _write(self, request: reader_messages.ReaderRequest) -> None:
        process = self._start() if self._process is None else self._process
        assert process.stdin is not None
        try:
            process.stdin.write(reader_messages.frame(reader_messages.encode_request(request)))
            process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None

    def _receive(self) -> reader_messages.ReaderResponse:
        length = int.from_bytes(self._read(reader_messages.HEADER_BYTES), "big")
        try:
            response: reader_messages.ReaderResponse = reader_messages.decode_response(self._read(length))
        except msgspec.MsgspecError as error:
            self.kill()
            raise self._failure() from error
        return response

    def _read(self, length: int) -> bytes:
        """Every byte that arrives counts as progress."""
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        due = time.monotonic() + self._limits.reader_deadline_s
        while len(self._received) < length:
            # Silence for longer than the deadline means a loop: the process reports its progress several times a
            # second.
            if not select.select([descriptor], [], [], max(0.0, due - time.monotonic()))[0]:
                self.kill()
                self._end()
                raise InvalidParams(f"reading made no progress for {self._limits.reader_deadline_s:g} s")
            data = os.read(descriptor, _READ_BYTES)
            if not data:
                raise self._failure()
            self._received += data
            due = time.monotonic() + self._limits.reader_deadline_s
        taken = bytes(self._received[:length])
        del self._received[:length]
        return taken

    def _start(self) -> "subprocess.Popen[bytes]":
        if self._is_closed:
            raise InvalidParams("the import was stopped")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
        self._received.clear()
        # -P: modules are not looked for in the current folder, which may be one with imported files.
        command = [sys.executable, "-P", "-m", "sources.importers.reader", str(self._limits.reader_memory_max_bytes)]
        self._process = subprocess.Popen(  # noqa: S603 - our own module, and arguments that no shell reads
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=child_environment(),
            # So that the parser of a document is ended with it, and Ctrl-C reaches the import runner only.
            process_group=0,
        )
        # From its start, which takes longer than reading a batch.
        priority = min(_PRIORITY_MAX, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
        os.setpriority(os.PRIO_PROCESS, self._process.pid, priority)
        self._write(reader_messages.Confine(list(map(os.fsencode, self._paths)), self._limits.sandbox))
        return self._process

    def _failure(self) -> InvalidParams:
        code = self._end()
        if code == OUT_OF_MEMORY:
            return InvalidParams(f"reading took more than {self._limits.reader_memory_max_bytes >> 20} MiB of memory")
        if code == NO_SANDBOX:
            return InvalidParams(NO_SANDBOX_PROBLEM)
        return InvalidParams("the process that reads it ended unexpectedly; the file may be damaged")

    def _end(self) -> int:
        """Ends the process, logs what it reported, and returns its exit code."""
        process, errors = self._process, self._errors
        self._process = self._errors = None
        if process is None or errors is None:
            return 0
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            # A process that was asked to end by closing its pipes gets a second for that.
            code = process.wait(1)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, SIGKILL)
            code = process.wait()
        with errors:
            # The end of what it wrote to stderr is the reason, such as a traceback.
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - _LOGGED_BYTES))
            if text := errors.read().decode(errors="replace").strip():
                logger.error("The process that reads imported files ended with code {}:\n{}", code, text)
        return code


class ProcessBatchReader:
    """Reads one file in the process, batch by batch."""

    def __init__(
        self,
        process: ReaderProcess,
        importer: Importer,
        path: Path,
        limits: ImportLimits,
        batch_limits: BatchLimits,
        progress: ProgressCallback,
        position: ReadPosition | None,
    ) -> None:
        self._process = process
        self._progress = progress
        self._request: reader_messages.ReadFile | None = reader_messages.ReadFile(
            importer.name, os.fsencode(path), limits, batch_limits, position
        )
        self._is_finished = False

    def next_batch(self) -> Batch:
        if self._request is not None:
            request, self._request = self._request, None
            try:
                self._process.open_file(request)
            except InvalidParams as error:
                return Batch(is_last=True, failure=error.message)
        batch = self._process.next_batch(self._progress)
        self._is_finished = batch.is_last
        return batch

    def stop(self) -> None:
        """Ends the process if it is still reading, so that a batch in progress does not delay a cancelled import."""
        if not self._is_finished:
            self._process.kill()

    def close(self) -> None:
        """The process closes the file when it opens the next one or ends."""


@asynccontextmanager
async def open_reader_process(limits: ImportLimits, paths: Sequence[Path]) -> AsyncIterator[ReaderProcess]:
    process = ReaderProcess(limits, paths)
    try:
        yield process
    finally:
        await asyncio.to_thread(process.close)


async def find_files(paths: Sequence[Path], limits: ImportLimits, format_name: str | None) -> list[DiscoveryResult]:
    """Decides in a process of its own which importers read the files. Cancelling it ends the process."""
    if format_name is not None:
        importer_by_name(format_name, all_importers())  # here, because an error in that process is a fault of a file
    async with open_reader_process(limits, [path.resolve() for path in paths]) as process:
        finding = asyncio.create_task(asyncio.to_thread(process.find_files, paths, format_name))
        try:
            return await asyncio.shield(finding)
        finally:
            process.kill()
            # Its result is an error if the process was killed, and no caller waits for it then.
            await asyncio.gather(finding, return_exceptions=True)
