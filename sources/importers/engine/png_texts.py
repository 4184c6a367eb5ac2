"""Texts in image files: the text chunks of PNG and the EXIF data of WebP. Image data is never decoded."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.confined_files import open_file

SIGNATURE = b"\x89PNG\r\n\x1a\n"
# A keyword is 1 to 79 bytes (PNG, 11.3.4); in character cards those of assets are paths and longer.
_KEYWORD_MAX_BYTES = 512
# Images have up to a few thousand chunks; a file with a million of them is built to be slow.
_CHUNKS_MAX = 200_000
_TEXT_TYPES = (b"tEXt", b"zTXt", b"iTXt")
_END = b"IEND"
_TRUNCATED = "PNG is truncated"


def keywords(path: Path) -> list[str]:
    """Returns the keywords of all text chunks in lower case; of a damaged file, those that can be read."""
    result = []
    try:
        with open_file(path) as file:
            for kind, size in _chunks(file):
                if kind in _TEXT_TYPES:
                    result.append(_keyword(file.read(min(size, _KEYWORD_MAX_BYTES))))
    except InvalidParams:
        pass
    return result


def read_text_chunk(path: Path, keyword: str, max_bytes: int) -> bytes | None:
    """Returns the first text with a keyword (given in lower case), or None if there is none."""
    with open_file(path) as file:
        for kind, size in _chunks(file):
            if kind not in _TEXT_TYPES:
                continue
            # Only the keyword is read first: the texts of other keywords may be large and are not needed.
            start = file.read(min(size, _KEYWORD_MAX_BYTES))
            if _keyword(start) != keyword:
                continue
            if size > max_bytes:
                raise TooLarge(f"the PNG text {keyword!r}", max_bytes)
            data = start + file.read(size - len(start))
            if len(data) < size:
                raise InvalidParams(_TRUNCATED)
            text = data.partition(b"\0")[2]
            if kind == b"zTXt":
                # A byte for the compression method, of which there is one, then zlib data (PNG, 11.3.4).
                return _inflate(text[1:], max_bytes)
            if kind == b"iTXt":
                # Compression flag, compression method, language, translated keyword, then the text (PNG, 11.3.4).
                is_compressed = text[:1] == b"\1"
                text = text[2:].partition(b"\0")[2].partition(b"\0")[2]
                return _inflate(text, max_bytes) if is_compressed else text
            return text
    return None


def require_complete(path: Path) -> None:
    """Raises InvalidParams for a file that is not a PNG, or is truncated."""
    with open_file(path) as file:
        if all(kind != _END for kind, _ in _chunks(file)):
            raise InvalidParams(_TRUNCATED)


def _chunks(file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yields the type and size of each chunk, with the file positioned at its data."""
    if file.read(len(SIGNATURE)) != SIGNATURE:
        raise InvalidParams("not a PNG file")
    offset = len(SIGNATURE)
    for _ in range(_CHUNKS_MAX):
        file.seek(offset)
        header = file.read(8)
        kind, size = header[4:], int.from_bytes(header[:4], "big")
        if len(header) < 8:
            return
        yield kind, size
        if kind == _END:
            return
        # Length, type, data and a checksum, which is not verified: damaged text fails to decode anyway.
        offset += 12 + size
    raise InvalidParams(f"PNG has more than {_CHUNKS_MAX} chunks")


def _keyword(start: bytes) -> str:
    return start.partition(b"\0")[0].decode("latin-1").strip().lower()


def _inflate(data: bytes, max_bytes: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        # Limited while unpacking: a few kilobytes of zlib data can hold gigabytes.
        text = decompressor.decompress(data, max_bytes)
    except zlib.error as error:
        raise InvalidParams("PNG contains a damaged text chunk") from error
    if decompressor.unconsumed_tail:
        raise TooLarge("an unpacked PNG text", max_bytes)
    if not decompressor.eof:
        raise InvalidParams("PNG contains a truncated text chunk")
    return text


# -- webp exif ---------------------------------------------------------------------------------------------------------
# The Exif data of a WebP image. The image itself is never decoded.

_HEADER_BYTES = 12
_WEBP_CHUNKS_MAX = 10_000


def is_webp(head: bytes) -> bool:
    return head[:4] == b"RIFF" and head[8:_HEADER_BYTES] == b"WEBP"


def read_exif(path: Path, max_bytes: int) -> bytes | None:
    """Returns the Exif chunk, which comes after the image; None if there is none."""
    with open_file(path) as file:
        offset = _HEADER_BYTES
        for _ in range(_WEBP_CHUNKS_MAX):
            file.seek(offset)
            header = file.read(8)
            if len(header) < 8:
                return None
            size = int.from_bytes(header[4:], "little")
            if header[:4] == b"EXIF":
                if size > max_bytes:
                    raise TooLarge("the Exif data", max_bytes)
                return file.read(size)
            # Chunks start at even offsets.
            offset += 8 + size + size % 2
    raise InvalidParams(f"WebP has more than {_WEBP_CHUNKS_MAX} chunks")
