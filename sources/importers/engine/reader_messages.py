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
from sources.importers.engine.imported_items import ReadPosition
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.summary import ImportProblem
from sources.importers.registry import all_importers, importer_by_name

HEADER_BYTES = 4
# Paths are bytes, because a file name need not be valid UTF-8.
FilePath = bytes


class FindFiles(Struct, frozen=True, tag=True):
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


class FoundFile(Struct, frozen=True):
    """A `DiscoveryResult`: the fields of one of its types are set."""

    kind: Literal["file", "problem", "ignored"]
    name: str
    text: str = ""
    path: FilePath = b""
    number: int = 0


class FoundFiles(Struct, frozen=True, tag=True):
    files: Sequence[FoundFile]


class ReadProgress(Struct, frozen=True, tag=True):
    bytes_read: int


class ReadBatch(Struct, frozen=True, tag=True):
    batch: Batch


ReaderRequest = FindFiles | ReadFile | NextBatch
ReaderResponse = FoundFiles | ReadProgress | ReadBatch

encode_request = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(ReaderRequest).decode
encode_response = msgspec.msgpack.Encoder().encode
decode_response = msgspec.msgpack.Decoder(ReaderResponse).decode


def frame(message: bytes) -> bytes:
    return len(message).to_bytes(HEADER_BYTES, "big") + message


def found_file(result: DiscoveryResult) -> FoundFile:
    match result:
        case DiscoveredFile():
            path = os.fsencode(result.path)
            return FoundFile("file", result.name, result.importer.name, path, result.size_bytes)
        case ImportProblem():
            return FoundFile("problem", result.file, result.problem)
        case IgnoredFiles():
            return FoundFile("ignored", "", result.reason, number=result.count)


def discovery_result(found: FoundFile) -> DiscoveryResult:
    match found.kind:
        case "file":
            importer = importer_by_name(found.text, all_importers())
            return DiscoveredFile(Path(os.fsdecode(found.path)), found.name, importer, found.number)
        case "problem":
            return ImportProblem(found.name, "", found.text)
        case "ignored":
            return IgnoredFiles(found.text, found.number)
