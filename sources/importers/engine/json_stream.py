"""JSON files that are larger than memory: the objects of one long list, found by their braces and given one by one.

Nothing is decoded here but single objects, each of which has a limit on its size and on its depth.
"""

import io
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO, TypeVar

import msgspec
from msgspec import Struct

from config.errors import InvalidParams
from sources.importers.engine.importer import ImportLimits

T = TypeVar("T")

# Most blocks lie within one object and are passed over at once; a shorter one does so more often, a longer one faster.
_BLOCK_BYTES = 1 << 13
_BLANK = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OPENING = b"{["
_NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in b"{}[]")
_AS_PARENTHESES = bytes.maketrans(b"{}[]", b"()()")
# How often pairs are taken out of a block before it is gone through brace by brace.
_LEVELS_MAX = 32
# Between strings most texts are one of these, and say nothing about depth.
_PLAIN = frozenset((b":", b",", b": ", b", "))
_RUN = re.compile(rb"[{\[]+|[}\]]+")
# Far below every depth: no object ends there.
_NO_BASE = -(1 << 62)
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][\dA-Fa-f]{2}\\u[dD][c-fC-F][\dA-Fa-f]{2}|(u[dD][89a-fA-F][\dA-Fa-f]{2})|.)", re.DOTALL
)


class Element(Struct, frozen=True):
    """One object of a file, or why there is none. `number` counts from 1."""

    number: int
    data: bytes = b""
    problem: str = ""


def elements(file: IO[bytes], limits: ImportLimits) -> Iterator[Element]:
    """Of a list of objects, or of objects one after the other. A file that is neither raises InvalidParams; what is
    wrong further on is an element with a problem."""
    first = _first_block(file)
    if first[:1] not in (b"[", b"{"):
        raise InvalidParams("the file: got something else, expected a JSON list or object")
    yield from _Splitter(base=1 if first[:1] == b"[" else 0, limits=limits).split(_blocks(first, file))


def decode(data: bytes | msgspec.Raw, shape: type[T]) -> T:
    """One object. InvalidParams says what is wrong with it.

    Half of a surrogate pair, which JSON can write and no text can hold, is read as NUL: no text may hold that either,
    so it is found where it stands and costs no more than the text it is in.
    """
    try:
        try:
            return msgspec.json.decode(data, type=shape)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return msgspec.json.decode(_ESCAPE.sub(_without_half, bytes(data)), type=shape)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"got another shape, expected that of the format: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams("got something that is not JSON, expected an object") from error


def require_depth(data: bytes, limits: ImportLimits) -> None:
    """Of one object that came on a line of its own."""
    borders = _Borders(_NO_BASE, limits.depth_max)
    for block in _blocks(b"", io.BytesIO(data)):
        for _ in borders.find(block):
            pass
        if borders.deepest > limits.depth_max:
            raise InvalidParams(_too_deep(limits))


def _without_half(escape: re.Match[bytes]) -> bytes:
    return rb"\u0000" if escape[1] else escape[0]


def _first_block(file: IO[bytes]) -> bytes:
    """From the first character that says something; a file may begin with any number of blanks."""
    block = _whole_escapes(file.read(_BLOCK_BYTES), file).removeprefix(_BYTE_ORDER_MARK).lstrip(_BLANK)
    while not block and (read := file.read(_BLOCK_BYTES)):
        block = _whole_escapes(read, file).lstrip(_BLANK)
    return block


def _blocks(first: bytes, file: IO[bytes]) -> Iterator[bytes]:
    yield first
    while block := file.read(_BLOCK_BYTES):
        yield _whole_escapes(block, file)


def _whole_escapes(block: bytes, file: IO[bytes]) -> bytes:
    """With the character after a backslash, where one stands at the end."""
    slashes = len(block) - len(block.rstrip(b"\\"))
    return block + file.read(1) if slashes % 2 else block


class _Borders:
    """Where objects begin and end at one depth. It looks at the text between strings only, and not even at that in a
    block that no object can end in: this is what makes it fast."""

    def __init__(self, base: int, depth_max: int) -> None:
        self._base = base
        self._depth_max = depth_max
        self._in_string = False
        self.depth = 0
        # As far as blocks were gone through: in the others nothing was the first to be deeper than the limit.
        self.deepest = 0

    def find(self, block: bytes) -> Iterator[tuple[int, bool]]:
        """The place of each border, and whether an object begins there. The list itself has one at its end."""
        plain = block.replace(b"\\\\", b"..").replace(b'\\"', b"..") if b"\\" in block else block
        pieces = plain.split(b'"')
        if not self._passes(b"".join(pieces[1 if self._in_string else 0 :: 2])):
            yield from self._go_through(pieces)
        # Before each piece but the first stands a quotation mark.
        self._in_string ^= len(pieces) % 2 == 0

    def _passes(self, outside: bytes) -> bool:
        """Whether a block is inside of one object to its end, and not too deep; then its depth is known at once."""
        braces = outside.translate(_AS_PARENTHESES, _NOT_STRUCTURE)
        levels = 0
        while len(fewer := braces.replace(b"()", b"")) < len(braces):
            braces, levels = fewer, levels + 1
            if levels == _LEVELS_MAX:
                return False
        # What is left closes first and opens then.
        closing = braces.count(b")")
        opening = len(braces) - closing
        if self.depth - closing <= self._base:
            return False
        if self.deepest <= self._depth_max < self.depth + opening + levels:
            return False
        self.depth += opening - closing
        return True

    def _go_through(self, pieces: Iterable[bytes]) -> Iterator[tuple[int, bool]]:
        place, in_string = 0, self._in_string
        for piece in pieces:
            if not in_string and piece not in _PLAIN:
                yield from self._borders(piece, place)
            in_string = not in_string
            place += len(piece) + 1

    def _borders(self, piece: bytes, place: int) -> Iterator[tuple[int, bool]]:
        braces = piece.translate(None, _NOT_STRUCTURE)
        if self.depth - len(braces) > self._base:
            self._follow(braces)
        elif braces:
            yield from self._near_base(piece, place)

    def _follow(self, braces: bytes) -> None:
        """Too deep inside of an object for it to end here."""
        for run in _RUN.findall(braces):
            self.depth += len(run) if run[0] in _OPENING else -len(run)
            self.deepest = max(self.deepest, self.depth)

    def _near_base(self, piece: bytes, place: int) -> Iterator[tuple[int, bool]]:
        for run in _RUN.finditer(piece):
            before, start = self.depth, place + run.start()
            self._follow(run[0])
            after = self.depth
            if before <= self._base < after:
                yield start + self._base - before, True
            if before > self._base >= after:
                self.depth = self._base
                yield start + before - self._base - 1, False
            if before >= self._base > after:
                self.depth = self._base - 1
                yield start + before - self._base, False
            self.depth = after


class _Splitter:
    """Puts objects together out of blocks. One that is too large is followed to its end, and not kept."""

    def __init__(self, base: int, limits: ImportLimits) -> None:
        self._base = base
        self._limits = limits
        self._borders = _Borders(base, base + limits.depth_max)
        self._kept: list[bytes] = []
        self._bytes = 0
        self._number = 0
        self._is_inside = False
        self._is_told = False
        # What follows the list in the block that it ends in.
        self._after: bytes | None = None

    def split(self, blocks: Iterator[bytes]) -> Iterator[Element]:
        for position, block in enumerate(blocks):
            # The bracket that opens the list is no object.
            yield from self._elements(block, 1 if position == 0 and self._base else 0)
            if self._after is not None:
                yield from self._rest(chain((self._after,), blocks))
                return
        if self._is_inside or self._base:
            yield self._broken("got the end of the file in the middle, expected the rest of it")

    def _elements(self, block: bytes, begin: int) -> Iterator[Element]:
        for place, opens in self._borders.find(block):
            if self._borders.depth < self._base:
                yield from self._between(block[begin:place])
                self._after = block[place + 1 :]
                return
            if opens and self._borders.depth > self._base:
                yield from self._between(block[begin:place])
                self._begin()
                begin = place
            elif self._is_inside:
                self._keep(block[begin : place + 1])
                yield self._end()
                begin = place + 1
        if self._is_inside:
            self._keep(block[begin:])
        else:
            yield from self._between(block[begin:])

    def _begin(self) -> None:
        self._is_inside = True
        self._is_told = False
        self._borders.deepest = self._borders.depth

    def _keep(self, part: bytes) -> None:
        self._bytes += len(part)
        if self._bytes <= self._limits.line_max_bytes:
            self._kept.append(part)
        else:
            self._kept.clear()

    def _end(self) -> Element:
        data, size = b"".join(self._kept), self._bytes
        self._is_inside = False
        self._kept.clear()
        self._bytes = 0
        if size > self._limits.line_max_bytes:
            return self._broken(f"got {size} bytes, expected at most {self._limits.line_max_bytes}")
        if self._borders.deepest - self._base > self._limits.depth_max:
            return self._broken(_too_deep(self._limits))
        self._number += 1
        return Element(self._number, data)

    def _between(self, text: bytes) -> Iterator[Element]:
        """What is no object is told once, however long it is."""
        if not self._is_told and text.strip(_BLANK + b","):
            self._is_told = True
            yield self._broken("got something else, expected an object")

    def _rest(self, blocks: Iterable[bytes]) -> Iterator[Element]:
        if any(block.strip(_BLANK) for block in blocks):
            yield self._broken("got more after the end of the list, expected nothing")

    def _broken(self, problem: str) -> Element:
        self._number += 1
        return Element(self._number, problem=problem)


def _too_deep(limits: ImportLimits) -> str:
    return f"got values nested deeper than {limits.depth_max}, expected fewer"
