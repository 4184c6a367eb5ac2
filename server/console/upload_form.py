"""Forms with one file, as browsers send them without JavaScript. The file may be large, so the body stays on disk."""

import io
import mmap
from collections.abc import Iterator, Mapping
from typing import IO

from msgspec import Struct

from config.errors import InvalidParams
from server.rest.forms import PartHead, part_delimiter, read_part_head

_PARTS_MAX = 20
_HEAD_MAX_BYTES = 8 * 1024
_VALUE_MAX_BYTES = 8 * 1024


class FileRange(io.RawIOBase):
    """Some bytes of a file, as a file of their own."""

    def __init__(self, file: IO[bytes], start: int, end: int) -> None:
        super().__init__()
        self._file = file
        self._end = end
        file.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]  # the buffers that io passes
        content = self._file.read(min(len(buffer), self._end - self._file.tell()))
        buffer[: len(content)] = content
        return len(content)


class UploadForm(Struct, frozen=True):
    """`filename` is empty, and so is the file, if none was chosen."""

    values: Mapping[str, str]
    filename: str
    file: IO[bytes]


def read_upload_form(content_type: str, body: IO[bytes]) -> UploadForm:
    """Reads a body of `multipart/form-data`. Searches all of it, so it must not run on the event loop."""
    values: dict[str, str] = {}
    filename, file = "", (0, 0)
    delimiter = part_delimiter(content_type)
    body.seek(0, io.SEEK_END)
    if not body.tell():
        raise InvalidParams("form data: expected at least one part, got an empty body")
    with mmap.mmap(body.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for head, start, end in _parts(content, delimiter):
            if head.filename is None:
                values[head.name] = _value(head.name, content[start : min(end, start + _VALUE_MAX_BYTES + 1)])
            elif head.filename:
                filename, file = head.filename, (start, end)
    return UploadForm(values, filename, io.BufferedReader(FileRange(body, *file)))


def _parts(content: mmap.mmap, delimiter: bytes) -> Iterator[tuple[PartHead, int, int]]:
    """Yields the head of each part, and where its content begins and ends."""
    if content[: len(delimiter) - 2] != delimiter[2:]:
        raise InvalidParams("form data: expected the boundary at the start of the body")
    start = len(delimiter) - 2
    for _ in range(_PARTS_MAX):
        if content[start : start + 2] == b"--":
            return
        end = content.find(delimiter, start)
        blank_line = content.find(b"\r\n\r\n", start, start + _HEAD_MAX_BYTES)
        if blank_line < 0 or end < blank_line + 4:
            raise InvalidParams("form data: expected complete parts, got a truncated body")
        yield read_part_head(content[start:blank_line]), blank_line + 4, end
        start = end + len(delimiter)
    raise InvalidParams(f"form data: expected at most {_PARTS_MAX} parts")


def _value(name: str, value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise InvalidParams(f"{name[:60]}: expected UTF-8 text, got other bytes") from error
    if len(value) > _VALUE_MAX_BYTES:
        raise InvalidParams(f"{name[:60]}: expected at most {_VALUE_MAX_BYTES} bytes")
    return text
