"""The Exif data of a WebP image. The image itself is never decoded."""

from pathlib import Path

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.confined_files import open_file

_HEADER_BYTES = 12
_CHUNKS_MAX = 10_000
_EXIF = b"EXIF"


def is_webp(head: bytes) -> bool:
    return head[:4] == b"RIFF" and head[8:_HEADER_BYTES] == b"WEBP"


def read_exif(path: Path, max_bytes: int) -> bytes | None:
    """Returns the Exif chunk, which comes after the image; None if there is none."""
    with open_file(path) as file:
        offset = _HEADER_BYTES
        for _ in range(_CHUNKS_MAX):
            file.seek(offset)
            header = file.read(8)
            if len(header) < 8:
                return None
            size = int.from_bytes(header[4:], "little")
            if header[:4] == _EXIF:
                if size > max_bytes:
                    raise TooLarge("the Exif data", max_bytes)
                return file.read(size)
            # Chunks start at even offsets.
            offset += 8 + size + size % 2
    raise InvalidParams(f"WebP has more than {_CHUNKS_MAX} chunks")
