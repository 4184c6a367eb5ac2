"""Messages between the import runner and the process that reads files: length-prefixed MessagePack on two pipes.

What the process sends is decoded into these types only, so a process that was taken over can send wrong items but
cannot make the server run anything.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from sources.importers.engine.batches import Batch, BatchLimits
from sources.importers.engine.discovery import DiscoveredFile, DiscoveryResult, IgnoredFiles
from sources.importers.engine.events import ReadPosition
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.summary import ImportProblem
from sources.importers.parsers.parsed_document import DocumentKind, ParsedDocument, ParseFailure
from sources.importers.registry import FORMATS, all_importers, importer_by_name, load_importer
from sources.importers.sandbox import SandboxMode

HEADER_BYTES = 4
# Paths are bytes, because a file name need not be valid UTF-8.
FilePath = bytes


class Confine(Struct, frozen=True, tag=True):
    """The first request: only these files are opened. If the mode says so, access to others is given up."""

    paths: Sequence[FilePath]
    mode: SandboxMode


class FindFiles(Struct, frozen=True, tag=True):
    paths: Sequence[FilePath]
    limits: ImportLimits
    format_name: str | None


class ProbeFiles(Struct, frozen=True, tag=True):
    """Asks for one result for each of these files of a folder."""

    folder: FilePath
    paths: Sequence[FilePath]
    limits: ImportLimits
    format_name: str | None


class ReadFile(Struct, frozen=True, tag=True):
    importer: str
    path: FilePath
    limits: ImportLimits
    batch_limits: BatchLimits
    position: ReadPosition | None


class NextBatch(Struct, frozen=True, tag=True):
    """Requests the next batch of the file."""


class DocumentResult(Struct, frozen=True, tag=True):
    """The answer to `ParseDocument`."""

    result: ParsedDocument | ParseFailure


class FoundFile(Struct, frozen=True):
    """A `DiscoveryResult`: the fields of one of its types are set."""

    kind: Literal["file", "problem", "ignored"]
    name: FilePath
    # The name of the importer, or a sentence that may contain the name of the file.
    text: FilePath
    path: FilePath = b""
    number: int = 0


class FoundFiles(Struct, frozen=True, tag=True):
    files: Sequence[FoundFile]


class ReadProgress(Struct, frozen=True, tag=True):
    bytes_read: int


class ParseDocument(Struct, frozen=True, tag=True):
    """Asks for the current file, or for a document inside it, to be parsed in another process: the reader may not start
    one."""

    kind: DocumentKind
    data: bytes | None = None


class ReadBatch(Struct, frozen=True, tag=True):
    batch: Batch


class ReadJsonBatch(Struct, frozen=True, tag=True):
    """A batch as JSON, for one with an integer of more than 64 bits, which MessagePack does not have."""

    batch: bytes


ReaderRequest = Confine | FindFiles | ProbeFiles | ReadFile | NextBatch | DocumentResult
ReaderResponse = FoundFiles | ReadProgress | ParseDocument | ReadBatch | ReadJsonBatch

encode_request = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(ReaderRequest).decode
encode_response = msgspec.msgpack.Encoder().encode
# Typed, unlike pickle: whatever bytes arrive, they become one of these values or an error.
_decode_response = msgspec.msgpack.Decoder(ReaderResponse).decode
_decode_batch = msgspec.json.Decoder(Batch).decode


def decode_response(message: bytes) -> ReaderResponse:
    response: ReaderResponse = _decode_response(message)
    return ReadBatch(_decode_batch(response.batch)) if isinstance(response, ReadJsonBatch) else response


def frame(message: bytes) -> bytes:
    return len(message).to_bytes(HEADER_BYTES, "big") + message


def found_file(result: DiscoveryResult) -> FoundFile:
    match result:
        case DiscoveredFile():
            name, importer = os.fsencode(result.name), os.fsencode(result.importer.name)
            return FoundFile("file", name, importer, os.fsencode(result.path), result.size_bytes)
        case ImportProblem():
            return FoundFile("problem", os.fsencode(result.file), os.fsencode(result.problem))
        case IgnoredFiles():
            return FoundFile("ignored", b"", os.fsencode(result.reason), number=result.count)


def discovery_result(found: FoundFile) -> DiscoveryResult:
    name, text, path = map(os.fsdecode, (found.name, found.text, found.path))
    match found.kind:
        case "file":
            # Loading all importers takes longer than importing most files.
            importer = load_importer(text) if text in FORMATS else importer_by_name(text, all_importers())
            return DiscoveredFile(Path(path), name, importer, found.number)
        case "problem":
            return ImportProblem(name, "", text)
        case "ignored":
            return IgnoredFiles(text, found.number)
