"""The lines of a file that another program may be writing to: one at a time, none longer than the limit."""

from collections.abc import Iterator
from typing import IO

from msgspec import Struct

from sources.importers.engine.importer import ImportLimits

_BLOCK_BYTES = 1 << 16


class Line(Struct, frozen=True):
    """`start` and `end` are bytes of the file, `number` counts from 1. `is_last`: nothing ends it yet, so that it may
    be half of a line."""

    data: bytes
    number: int
    start: int
    end: int
    is_last: bool = False
    problem: str = ""


def lines_of(file: IO[bytes], offset: int, number: int, limits: ImportLimits) -> Iterator[Line]:
    """From an offset, at which the line with that number begins. Empty lines count, and are left out."""
    file.seek(offset)
    while data := file.readline(limits.line_max_bytes + 1):
        end, problem = offset + len(data), ""
        if len(data) > limits.line_max_bytes and not data.endswith(b"\n"):
            end += _skip(file)
            problem = f"got {end - offset} bytes, expected at most {limits.line_max_bytes}"
            data = b""
        if problem or data.strip():
            yield Line(data, number, offset, end, is_last=not problem and not data.endswith(b"\n"), problem=problem)
        offset, number = end, number + 1


def _skip(file: IO[bytes]) -> int:
    """To the end of a line, without keeping it."""
    skipped = 0
    while part := file.readline(_BLOCK_BYTES):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped
