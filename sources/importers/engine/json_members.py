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
_TOKEN = re.compile(rb'["{}\[\]:]')
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_NO_KEY = b""


class MemberList(Struct, frozen=True):
    """The members of the object before the list, and the elements of the list."""

    header: Mapping[str, Any]
    elements: Iterator[JsonElement]


def read_member_list(file: IO[bytes], path: Sequence[str], limits: ImportLimits) -> MemberList | None:
    """Returns the list at a path of keys, or None if there is no list before the end of the file."""
    before, rest = _find_list(file, [key.encode() for key in path], limits)
    if rest is None:
        return None
    header = parse_json(before + b"[]" + b"}" * len(path), limits.depth_max)
    return MemberList(header, iter_list(rest, file, limits))


def element_object(element: JsonElement, limits: ImportLimits) -> Mapping[str, Any]:
    """Decodes an element of a list that must be an object."""
    if element.problem:
        raise InvalidParams(element.problem)
    value = parse_json(element.data, limits.depth_max)
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
        self._string = _NO_KEY
        # The keys of the containers around the current value; that of the whole text is empty.
        self._containers: list[bytes] = []

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        while (token := self._next_token()) is not None:
            start = self._position
            if token == b'"':
                self._read_string()
                continue
            self._position += 1
            if token == b":":
                self.key = self._string
            elif token in (b"{", b"["):
                yield token, start
                self._containers.append(self.key)
                self.key = _NO_KEY
                if len(self._containers) > self._limits.depth_max:
                    raise InvalidParams(f"nested more than {self._limits.depth_max} levels deep")
            else:
                yield token, start
                self.key = _NO_KEY
                if self._containers:
                    self._containers.pop()

    def is_at(self, path: Sequence[bytes]) -> bool:
        """Returns whether the value that is being opened is at a path of keys."""
        return len(self._containers) == len(path) and [*self._containers[1:], self.key] == list(path)

    def _next_token(self) -> bytes | None:
        while True:
            token = _TOKEN.search(self.data, self._position)
            if token is not None:
                self._position = token.start()
                return token[0]
            self._position = len(self.data)
            if not self._read_more():
                return None

    def _read_string(self) -> None:
        while (string := _STRING.match(self.data, self._position)) is None:
            if not self._read_more():
                raise InvalidParams("file is truncated")
        self._string = string[1]
        self._position = string.end()

    def _read_more(self) -> bool:
        # Twice as much every time: a long string is matched from its start again.
        block = self._file.read(max(_BLOCK_BYTES, len(self.data)))
        self.data += block
        if len(self.data) > self._limits.line_max_bytes:
            raise InvalidParams(f"expected at most {self._limits.line_max_bytes} bytes before the list, got more")
        return bool(block)
