"""The texts in a PNG, by their keywords: its chunks are walked, and no picture is ever decoded."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from config.errors import InvalidParams, TooLarge

SIGNATURE = b"\x89PNG\r\n\x1a\n"
# A keyword is 1 to 79 bytes (PNG, 11.3.4); those of assets in cards are paths and longer.
_KEYWORD_MAX_BYTES = 512
# A picture in small parts has some thousand chunks; a file that has a million of them was made to be slow.
_CHUNKS_MAX = 200_000
_TEXT_TYPES = (b"tEXt", b"zTXt", b"iTXt")
_END = b"IEND"


def keywords(path: Path) -> list[str]:
    """Those of all texts, in lower case; of a file that is not whole, as many as there are."""
    found = []
    try:
        with path.open("rb") as file:
            for kind, size in _chunks(file):
                if kind in _TEXT_TYPES:
                    found.append(_keyword(file.read(min(size, _KEYWORD_MAX_BYTES))))
    except InvalidParams:
        pass
    return found


def text_of(path: Path, wanted: str, max_bytes: int) -> bytes | None:
    """The first text with a keyword, in any case, as bytes; none where there is none."""
    with path.open("rb") as file:
        for kind, size in _chunks(file):
            if kind not in _TEXT_TYPES:
                continue
            begin = file.read(min(size, _KEYWORD_MAX_BYTES))
            if _keyword(begin) != wanted:
                continue
            if size > max_bytes:
                raise TooLarge(f"the text {wanted!r} of the picture", max_bytes)
            data = begin + file.read(size - len(begin))
            if len(data) < size:
                raise InvalidParams("the picture: got its beginning, expected all of it")
            return _TEXTS[kind](data.partition(b"\0")[2], max_bytes)
    return None


def require_whole(path: Path) -> None:
    """InvalidParams for what is no PNG, or ends before its end."""
    with path.open("rb") as file:
        if all(kind != _END for kind, _ in _chunks(file)):
            raise InvalidParams("the picture: got its beginning, expected all of it")


def _chunks(file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """The type and size of each chunk, with the file at the beginning of its data."""
    if file.read(len(SIGNATURE)) != SIGNATURE:
        raise InvalidParams("the picture: got something else, expected a PNG")
    place = len(SIGNATURE)
    for _ in range(_CHUNKS_MAX):
        file.seek(place)
        head = file.read(8)
        kind, size = head[4:], int.from_bytes(head[:4], "big")
        if len(head) < 8:
            return
        yield kind, size
        if kind == _END:
            return
        # Length, type and the checksum after the data; the checksum says nothing that the text would not.
        place += 12 + size
    raise InvalidParams(f"the picture: got more than {_CHUNKS_MAX} chunks, expected fewer")


def _keyword(begin: bytes) -> str:
    return begin.partition(b"\0")[0].decode("latin-1").strip().lower()


def _plain(rest: bytes, _max_bytes: int) -> bytes:
    return rest


def _packed(rest: bytes, max_bytes: int) -> bytes:
    """One byte that names the method, of which there is one, then zlib."""
    return _inflated(rest[1:], max_bytes)


def _international(rest: bytes, max_bytes: int) -> bytes:
    """A flag, a method, a language and a translated keyword, then the text."""
    is_packed, _, after = rest[:1] == b"\1", rest[1:2], rest[2:]
    text = after.partition(b"\0")[2].partition(b"\0")[2]
    return _inflated(text, max_bytes) if is_packed else text


def _inflated(data: bytes, max_bytes: int) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(data, max_bytes)
    except zlib.error as error:
        raise InvalidParams("the picture: got a damaged text, expected one that unpacks") from error
    if unpacking.unconsumed_tail:
        raise TooLarge("a text of the picture, unpacked,", max_bytes)
    if not unpacking.eof:
        raise InvalidParams("the picture: got half of a text, expected all of it")
    return text


_TEXTS = {b"tEXt": _plain, b"zTXt": _packed, b"iTXt": _international}
