"""Reads JSON files larger than memory: the objects of one long list, located by their braces and yielded one by one.

Only single objects are decoded, each limited in size and depth. An object that is damaged costs no other.

ijson 3.6 reads exports faster (80 MB/s instead of 30 MB/s), but has no limits: 200 kB of nested lists take all memory
(2.7 ms here), a string of 60 MB takes 23 s (0.14 s here), and the first error ends the file.
"""

import io
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import IO, Any, TypeVar

import msgspec
from msgspec import Struct

from config.errors import InvalidParams
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.values import Fields, has_too_many_values, parse_json, too_many_values

T = TypeVar("T")

# Blocks that lie completely inside one object are skipped at once. Smaller blocks do so more often, larger ones faster.
_BLOCK_BYTES = 1 << 13
_WHITESPACE = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OPENING = b"{["
_NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in b"{}[]")
_AS_PARENTHESES = bytes.maketrans(b"{}[]", b"()()")
# How often pairs are removed from a block before it is scanned brace by brace.
_LEVELS_MAX = 32
# Most of the text between strings is one of these, which do not affect the depth.
_PLAIN = frozenset((b"", b":", b",", b": ", b", "))
_RUN = re.compile(rb"[{\[]+|[}\]]+")
# Below every depth: no object ends there.
_NO_BASE = -(1 << 62)
# A surrogate that is not half of a pair. Escaped backslashes were removed before.
_UNPAIRED = re.compile(
    rb"\\u[dD](?:[89abAB][\dA-Fa-f]{2}(?!\\u[dD][c-fC-F][\dA-Fa-f]{2})"
    rb"|(?<!\\u[dD][89abAB][\dA-Fa-f]{2}\\u[dD])[c-fC-F][\dA-Fa-f]{2})"
)


class JsonElement(Struct, frozen=True):
    """The bytes of one object, or the problem with it. `number` counts from 1."""

    number: int
    data: bytes = b""
    problem: str = ""


def iter_objects(file: IO[bytes], limits: ImportLimits) -> Iterator[JsonElement]:
    """Yields the objects of a list, or of a file with one object after the other. Raises InvalidParams for a file that
    is neither; later errors are elements with a problem."""
    # The first block without leading white space, of which there may be any amount.
    first = _complete_escape(file.read(_BLOCK_BYTES), file).removeprefix(_BYTE_ORDER_MARK).lstrip(_WHITESPACE)
    while not first and (data := file.read(_BLOCK_BYTES)):
        first = _complete_escape(data, file).lstrip(_WHITESPACE)
    if first[:1] not in (b"[", b"{"):
        raise InvalidParams("expected a JSON list or object")
    yield from _ObjectSplitter(base=1 if first[:1] == b"[" else 0, limits=limits).split(_blocks(first, file))


def decode_object(data: bytes | msgspec.Raw, shape: type[T]) -> T:
    """Decodes one object; raises InvalidParams if it is malformed.

    An unpaired surrogate, which JSON can express but text cannot hold, is decoded as NUL. Texts with NUL are rejected
    later, so only that text is lost.
    """
    try:
        try:
            return msgspec.json.decode(data, type=shape)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            # `\\ud800` is a backslash and a word. A NUL byte cannot occur in JSON, so it can represent the backslash.
            hidden = bytes(data).replace(b"\\\\", b"\0")
            repaired = _UNPAIRED.sub(rb"\\u0000", hidden).replace(b"\0", b"\\\\")
            return msgspec.json.decode(repaired, type=shape)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"unexpected structure: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams("not valid JSON") from error


def decode_fields(data: bytes | msgspec.Raw) -> Fields:
    """Decodes one object of which all fields may be missing; see `decode_object`."""
    return Fields(decode_object(data, dict[str, Any]))


def decode_apart(data: bytes | msgspec.Raw, name: str) -> tuple[Fields, msgspec.Raw]:
    """Decodes one object except for a member, which is returned as it is, or as null if there is none. The parts of the
    member can then be decoded one by one, so that a damaged one costs no other."""
    members = decode_object(data, dict[str, msgspec.Raw])
    apart = members.pop(name, msgspec.Raw(b"null"))
    return Fields({key: decode_object(value, object) for key, value in members.items()}), apart


def decode_list(data: msgspec.Raw) -> list[msgspec.Raw]:
    """Returns the elements of a list that `decode_apart` returned; none for null."""
    return [] if bytes(data) == b"null" else decode_object(data, list[msgspec.Raw])


def decode_line(data: bytes, limits: ImportLimits) -> Fields:
    """Decodes an object on a line of its own."""
    require_depth(data, limits)
    return decode_fields(data.removeprefix(_BYTE_ORDER_MARK))


def require_depth(data: bytes, limits: ImportLimits) -> None:
    """Raises InvalidParams if an object on a line of its own is nested too deeply, or has too many values."""
    if has_too_many_values(data, limits):
        raise InvalidParams(too_many_values(limits))
    boundaries = _BoundaryFinder(_NO_BASE, limits.depth_max)
    for block in _blocks(b"", io.BytesIO(data)):
        for _ in boundaries.find(block):
            pass
        if boundaries.deepest > limits.depth_max:
            raise InvalidParams(_too_deep(limits))


def _blocks(first: bytes, file: IO[bytes]) -> Iterator[bytes]:
    yield first
    while block := file.read(_BLOCK_BYTES):
        yield _complete_escape(block, file)


def _complete_escape(block: bytes, file: IO[bytes]) -> bytes:
    """Adds the next byte if the block ends with a backslash that escapes it."""
    backslashes = len(block) - len(block.rstrip(b"\\"))
    return block + file.read(1) if backslashes % 2 else block


class _BoundaryFinder:
    """Finds where objects at one depth start and end. It looks only at the text between strings, and skips blocks in
    which no object can end: this is what makes it fast."""

    def __init__(self, base: int, depth_max: int) -> None:
        self._base = base
        self._depth_max = depth_max
        self._in_string = False
        self.depth = 0
        # The greatest depth in scanned blocks. Skipped blocks are never the first to exceed the limit.
        self.deepest = 0

    def find(self, block: bytes) -> Iterator[tuple[int, bool]]:
        """Yields the offset of each boundary, and whether an object starts there. The end of the list counts as a
        boundary, too."""
        # Escaped quotation marks do not end a string. The replacement has the same length, so that offsets stay valid.
        plain = block.replace(b"\\\\", b"..").replace(b'\\"', b"..") if b"\\" in block else block
        # No bracket at all, as within a long text: only whether it ends inside a string matters.
        if not plain.translate(None, _NOT_STRUCTURE):
            self._in_string ^= plain.count(b'"') % 2 == 1
            return
        pieces = plain.split(b'"')
        if not self._skip(b"".join(pieces[1 if self._in_string else 0 :: 2])):
            offset, in_string = 0, self._in_string
            for piece in pieces:
                if not in_string and piece not in _PLAIN:
                    braces = piece.translate(None, _NOT_STRUCTURE)
                    if self.depth - len(braces) > self._base:
                        # No object can end here.
                        for run in _RUN.findall(braces):
                            self.depth += len(run) if run[0] in _OPENING else -len(run)
                            self.deepest = max(self.deepest, self.depth)
                    elif braces:
                        yield from self._boundaries(piece, offset)
                in_string = not in_string
                offset += len(piece) + 1
        # Every piece except the first follows a quotation mark.
        self._in_string ^= len(pieces) % 2 == 0

    def _skip(self, outside: bytes) -> bool:
        """Returns True if the block ends inside the object it starts in and is not too deep, after updating the depth.
        `outside` is the text of the block outside strings."""
        braces = outside.translate(_AS_PARENTHESES, _NOT_STRUCTURE)
        levels = 0
        while len(fewer := braces.replace(b"()", b"")) < len(braces):
            braces, levels = fewer, levels + 1
            if levels == _LEVELS_MAX:
                return False
        # The remaining closing braces precede the remaining opening ones.
        closing = braces.count(b")")
        opening = len(braces) - closing
        if self.depth - closing <= self._base:
            return False
        if self.deepest <= self._depth_max < self.depth + opening + levels:
            return False
        self.depth += opening - closing
        return True

    def _boundaries(self, piece: bytes, offset: int) -> Iterator[tuple[int, bool]]:
        """Scans a piece in which an object may start or end."""
        base = self._base
        for run in _RUN.finditer(piece):
            before, start, length = self.depth, offset + run.start(), len(run[0])
            if run[0][0] in _OPENING:
                self.depth = before + length
                self.deepest = max(self.deepest, self.depth)
                if before <= base < self.depth:
                    yield start + base - before, True
                continue
            after = before - length
            if before > base >= after:
                self.depth = base
                yield start + before - base - 1, False
            if before >= base > after:
                self.depth = base - 1
                yield start + before - base, False
            self.depth = after


class _ObjectSplitter:
    """Assembles objects from blocks. An object that is too large is read to its end but not kept."""

    def __init__(self, base: int, limits: ImportLimits, *, is_whole_file: bool = True) -> None:
        self._base = base
        self._limits = limits
        self._is_whole_file = is_whole_file
        self._finder = _BoundaryFinder(base, base + limits.depth_max)
        self._parts: list[bytes] = []
        self._bytes = 0
        self._number = 0
        self._is_inside = False
        self._is_junk_reported = False
        # What follows the end of the list in the same block.
        self._after_list: bytes | None = None

    def split(self, blocks: Iterator[bytes]) -> Iterator[JsonElement]:
        for index, block in enumerate(blocks):
            # The first byte of a list is its opening bracket.
            yield from self._split_block(block, 1 if index == 0 and self._base else 0)
            if self._after_list is not None:
                rest = chain((self._after_list,), blocks)
                if self._is_whole_file and any(part.strip(_WHITESPACE) for part in rest):
                    yield self._failed("unexpected data after the end of the list")
                return
        if self._is_inside or self._base:
            yield self._failed("file is truncated")

    def _split_block(self, block: bytes, start: int) -> Iterator[JsonElement]:
        for offset, opens in self._finder.find(block):
            if self._finder.depth < self._base:
                yield from self._check_between(block[start:offset])
                self._after_list = block[offset + 1 :]
                return
            if opens and self._finder.depth > self._base:
                yield from self._check_between(block[start:offset])
                self._is_inside = True
                self._is_junk_reported = False
                self._finder.deepest = self._finder.depth
                start = offset
            elif self._is_inside:
                self._add_part(block[start : offset + 1])
                yield self._end()
                start = offset + 1
        if self._is_inside:
            self._add_part(block[start:])
        else:
            yield from self._check_between(block[start:])

    def _add_part(self, part: bytes) -> None:
        self._bytes += len(part)
        if self._bytes <= self._limits.line_max_bytes:
            self._parts.append(part)
        else:
            self._parts.clear()

    def _end(self) -> JsonElement:
        data, size = b"".join(self._parts), self._bytes
        self._is_inside = False
        self._parts.clear()
        self._bytes = 0
        if size > self._limits.line_max_bytes:
            return self._failed(f"expected at most {self._limits.line_max_bytes} bytes, got {size}")
        if self._finder.deepest - self._base > self._limits.depth_max:
            return self._failed(_too_deep(self._limits))
        # Checked before the object is decoded, because the values take the memory, not the bytes.
        if has_too_many_values(data, self._limits):
            return self._failed(too_many_values(self._limits))
        self._number += 1
        return JsonElement(self._number, data)

    def _check_between(self, text: bytes) -> Iterator[JsonElement]:
        """Reports anything other than an object between two objects, once."""
        if not self._is_junk_reported and text.strip(_WHITESPACE + b","):
            self._is_junk_reported = True
            yield self._failed("expected an object")

    def _failed(self, problem: str) -> JsonElement:
        self._number += 1
        return JsonElement(self._number, problem=problem)


def _too_deep(limits: ImportLimits) -> str:
    return f"nested more than {limits.depth_max} levels deep"


# -- json members ------------------------------------------------------------------------------------------------------
# Reads a long list inside a JSON object, as in `{"name": …, "messages": […]}`, without holding the list in memory.

_MEMBER_BLOCK_BYTES = 1 << 16
# A bracket, or a string and the colon that makes it a key.
_TOKEN = re.compile(rb'[{}\[\]]|"(?P<string>(?:[^"\\]++|\\.)*+)(?P<closed>"?)(?:\s*+(?P<colon>:))?+', re.DOTALL)
_MEMBER_OPENING = (b"{", b"[")
_BRACKETS = (*_MEMBER_OPENING, b"}", b"]")
_NO_KEY = b""
# Half a second of work. Twelve thousand messages have as many.
_TOKENS_MAX = 500_000


class MemberList(Struct, frozen=True):
    """The members of the object before the list, and the elements of the list."""

    header: Fields
    elements: Iterator[JsonElement]


def read_member_list(file: IO[bytes], path: Sequence[str], limits: ImportLimits) -> MemberList | None:
    """Returns the list at a path of keys, or None if there is no list before the end of the file."""
    # Importers of Discord, Telegram and Grok need the members before the list, and then its elements one by one.
    scanner, keys = JsonScanner(file, limits), [key.encode() for key in path]
    for token, start in scanner:
        if token == b"[" and scanner.is_at(keys):
            # An empty list and the closing braces make the bytes before the list an object of their own.
            header = parse_json(scanner.data[:start] + b"[]" + b"}" * len(path), limits)
            blocks = _blocks(_complete_escape(scanner.data[start:], file), file)
            # What follows the list is ignored.
            elements = _ObjectSplitter(base=1, limits=limits, is_whole_file=False).split(blocks)
            return MemberList(Fields.of(header), elements)
    return None


def element_object(element: JsonElement, limits: ImportLimits) -> Fields:
    """Decodes an element of a list that must be an object."""
    if element.problem:
        raise InvalidParams(element.problem)
    return Fields.require(parse_json(element.data, limits))


class JsonScanner:
    """Walks through the brackets of a JSON text. When an opening bracket is yielded, `key` is the key of the value that
    it opens; in a list it is empty."""

    def __init__(self, file: IO[bytes], limits: ImportLimits) -> None:
        self.data = b""
        self.key = _NO_KEY
        self._file = file
        self._limits = limits
        self._position = 0
        # The keys of the containers around the current value; that of the whole text is empty.
        self._containers: list[bytes] = []

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        tokens_left, is_end = _TOKENS_MAX, False
        while not is_end:
            # Twice as much every time: a long string is matched from its start again.
            block = self._file.read(max(_MEMBER_BLOCK_BYTES, len(self.data)))
            self.data += block
            if len(self.data) > self._limits.line_max_bytes:
                raise InvalidParams(f"expected at most {self._limits.line_max_bytes} bytes before the list, got more")
            is_end = not bool(block)
            for token in _TOKEN.finditer(self.data, self._position):
                bracket = token[0]
                if bracket in _BRACKETS:
                    yield bracket, token.start()
                    if bracket in _MEMBER_OPENING:
                        self._containers.append(self.key)
                        if len(self._containers) > self._limits.depth_max:
                            raise InvalidParams(_too_deep(self._limits))
                    elif self._containers:
                        self._containers.pop()
                    self.key = _NO_KEY
                elif not token["closed"] or (token.end() == len(self.data) and not is_end):
                    # The string, or the space after it, may continue in the next block.
                    break
                elif token["colon"]:
                    self.key = token["string"]
                self._position = token.end()
                tokens_left -= 1
                if not tokens_left:
                    raise InvalidParams(f"JSON has more than {_TOKENS_MAX} values")
            else:
                self._position = len(self.data)

    def is_at(self, path: Sequence[bytes]) -> bool:
        """Returns whether the value that is being opened is at a path of keys."""
        return len(self._containers) == len(path) and [*self._containers[1:], self.key] == list(path)
