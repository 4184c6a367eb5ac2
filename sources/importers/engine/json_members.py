"""Reads a long list inside a JSON object, as in `{"name": …, "messages": […]}`, without holding the list in memory."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from msgspec import Struct

from config.errors import InvalidParams
from sources.importers.engine.json_stream import JsonElement, iter_list
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.values import parse_json

_BLOCK_BYTES = 1 << 16
# A bracket, or a string and the colon that makes it a key.
_TOKEN = re.compile(rb'[{}\[\]]|"(?P<string>(?:[^"\\]++|\\.)*+)(?P<closed>"?)(?:\s*+(?P<colon>:))?+', re.DOTALL)
_OPENING = (b"{", b"[")
_BRACKETS = (*_OPENING, b"}", b"]")
_NO_KEY = b""
# Half a second of work. Twelve thousand messages have as many.
_TOKENS_MAX = 500_000


class MemberList(Struct, frozen=True):
    """The members of the object before the list, and the elements of the list."""

    header: Mapping[str, Any]
    elements: Iterator[JsonElement]


def read_member_list(file: IO[bytes], path: Sequence[str], limits: ImportLimits) -> MemberList | None:
    """Returns the list at a path of keys, or None if there is no list before the end of the file."""
    before, rest = _find_list(file, [key.encode() for key in path], limits)
    if rest is None:
        return None
    header = parse_json(before + b"[]" + b"}" * len(path), limits)
    return MemberList(header, iter_list(rest, file, limits))


def element_object(element: JsonElement, limits: ImportLimits) -> Mapping[str, Any]:
    """Decodes an element of a list that must be an object."""
    if element.problem:
        raise InvalidParams(element.problem)
    value = parse_json(element.data, limits)
    if not isinstance(value, Mapping):
        raise InvalidParams("expected an object")
    return value


def _find_list(file: IO[bytes], path: Sequence[bytes], limits: ImportLimits) -> tuple[bytes, bytes | None]:
    """Returns the bytes before the list, and the first bytes of the list."""
    scanner = JsonScanner(file, limits)
    for token, start in scanner:
        if token == b"[" and scanner.is_at(path):
            return scanner.data[:start], scanner.data[start:]
    return scanner.data, None


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
            is_end = not self._read_more()
            for token in _TOKEN.finditer(self.data, self._position):
                bracket = token[0]
                if bracket in _BRACKETS:
                    yield bracket, token.start()
                    self._pass(bracket)
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

    def _pass(self, bracket: bytes) -> None:
        if bracket in _OPENING:
            self._containers.append(self.key)
            if len(self._containers) > self._limits.depth_max:
                raise InvalidParams(f"nested more than {self._limits.depth_max} levels deep")
        elif self._containers:
            self._containers.pop()
        self.key = _NO_KEY

    def _read_more(self) -> bool:
        # Twice as much every time: a long string is matched from its start again.
        block = self._file.read(max(_BLOCK_BYTES, len(self.data)))
        self.data += block
        if len(self.data) > self._limits.line_max_bytes:
            raise InvalidParams(f"expected at most {self._limits.line_max_bytes} bytes before the list, got more")
        return bool(block)
