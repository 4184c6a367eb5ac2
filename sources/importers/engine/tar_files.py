"""The regular files of an uncompressed tar archive, in order. Nothing is extracted.

Only what the tar files of other programs' exports need is understood: short names and sizes below 8 GiB.
"""

from collections.abc import Iterator
from typing import IO

from config.errors import InvalidParams
from sources.importers.engine.limits import ImportLimits

_BLOCK_BYTES = 512
_MAGIC_OFFSET, _MAGIC = 257, b"ustar"
_FILE_TYPES = (b"0", b"\0")


def is_tar(head: bytes) -> bool:
    return head[_MAGIC_OFFSET : _MAGIC_OFFSET + len(_MAGIC)] == _MAGIC


def tar_files(file: IO[bytes], limits: ImportLimits) -> Iterator[tuple[str, int]]:
    """Yields the name and size of each file, with the archive positioned at its data."""
    for _ in range(limits.entries_max + 1):
        offset = file.tell()
        header = file.read(_BLOCK_BYTES)
        # Two empty blocks end an archive; some programs write none.
        if not header.strip(b"\0"):
            return
        if len(header) < _BLOCK_BYTES or not is_tar(header):
            raise InvalidParams("tar archive is damaged or truncated")
        size = _octal(header[124:136])
        if header[156:157] in _FILE_TYPES:
            yield header[:100].partition(b"\0")[0].decode("utf-8", "replace"), size
        file.seek(offset + _BLOCK_BYTES + -(-size // _BLOCK_BYTES) * _BLOCK_BYTES)
    raise InvalidParams(f"archive: expected at most {limits.entries_max} files")


def _octal(field: bytes) -> int:
    digits = field.strip(b"\0 ")
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise InvalidParams("tar archive is damaged: a size is not a number")
    return int(digits, 8)
