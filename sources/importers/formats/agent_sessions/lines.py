"""Reads the lines of a file that another program may still be writing to, each limited in length."""

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from msgspec import Struct

from sources.importers.engine.confined_files import open_file
from sources.importers.engine.files import require_lines, skip_line
from sources.importers.engine.limits import ImportLimits

# A session is identified, and has a title, within its first lines.
HEADER_LINES = 200
# The largest prompts contain images.
_RECOGNITION_BYTES = 32 << 20


class SessionLine(Struct, frozen=True):
    """`start` and `end` are byte offsets; `number` counts from 1. `is_last`: the line has no newline yet and may be
    incomplete."""

    data: bytes
    number: int
    start: int
    end: int
    is_last: bool = False
    problem: str = ""


def read_lines(file: IO[bytes], offset: int, number: int, limits: ImportLimits) -> Iterator[SessionLine]:
    """Yields the lines from an offset, at which the line with that number starts. Empty lines are counted, but not
    yielded. Raises InvalidParams after too many lines."""
    file.seek(offset)
    while data := file.readline(limits.line_max_bytes + 1):
        require_lines(number, limits)
        end, problem = offset + len(data), ""
        if len(data) > limits.line_max_bytes and not data.endswith(b"\n"):
            end += skip_line(file)
            problem = f"expected at most {limits.line_max_bytes} bytes, got {end - offset}"
            data = b""
        if problem or data.strip():
            is_last = not problem and not data.endswith(b"\n")
            yield SessionLine(data, number, offset, end, is_last=is_last, problem=problem)
        offset, number = end, number + 1


def first_lines(path: Path) -> Iterator[bytes]:
    """Yields the first lines of a file, as far as they are needed to recognize it."""
    with open_file(path) as file:
        yield from lines_within(file, _RECOGNITION_BYTES)


def lines_within(file: IO[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yields lines from the current position, at most `HEADER_LINES` with at most this many bytes together."""
    for _ in range(HEADER_LINES):
        line = file.readline(max_bytes)
        max_bytes -= len(line)
        if not line.strip():
            continue
        if not line.endswith(b"\n") and max_bytes <= 0:
            return
        yield line
