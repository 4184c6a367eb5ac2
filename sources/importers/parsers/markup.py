"""XML as an office file has it, read as a stream of events. Declarations of entities are refused where they begin, so
that none is ever expanded, and nothing outside of the file is ever loaded."""

from collections.abc import Callable, Mapping
from typing import IO
from xml.parsers import expat

from config.errors import InvalidParams

_BLOCK_BYTES = 1 << 16
# Of a tag or a comment. One that has not ended is looked at from its beginning with every block.
_TOKEN_MAX_BYTES = 1 << 20
# Between the address of a namespace and a name in it.
_SEPARATOR = " "

Begin = Callable[[str, Mapping[str, str]], None]


def read_markup(file: IO[bytes], begin: Begin, end: Callable[[str], None], text: Callable[[str], None]) -> None:
    """Elements are told by their names without a namespace; attributes by their names with it."""
    parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
    parser.buffer_text = True
    parser.StartElementHandler = lambda name, attributes: begin(local(name), attributes)
    parser.EndElementHandler = lambda name: end(local(name))
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = _require_no_declarations
    parser.EntityDeclHandler = _refuse_entity
    try:
        read_bytes = 0
        while block := file.read(_BLOCK_BYTES):
            parser.Parse(block, False)
            read_bytes += len(block)
            _require_progress(read_bytes - parser.CurrentByteIndex)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise InvalidParams(
            f"XML: got {expat.ErrorString(error.code)!r} in line {error.lineno}, expected XML"
        ) from error


def _require_progress(behind_bytes: int) -> None:
    if behind_bytes > _TOKEN_MAX_BYTES:
        raise InvalidParams(f"XML: got a tag or comment of more than {_TOKEN_MAX_BYTES} bytes, expected a shorter one")


def local(name: str) -> str:
    return name.rpartition(_SEPARATOR)[2]


def attribute(attributes: Mapping[str, str], name: str) -> str:
    """By its name in whichever namespace."""
    return next((value for key, value in attributes.items() if local(key) == name), "")


def _require_no_declarations(_name: str, _system: str | None, _public: str | None, has_declarations: int) -> None:
    if has_declarations:
        raise InvalidParams("XML: got a document type with declarations, expected none")


def _refuse_entity(*_declared: object) -> None:
    raise InvalidParams("XML: got the declaration of an entity, expected none")


class Gathered:
    """The texts of some elements, by name: what a small file of properties says."""

    def __init__(self, wanted: frozenset[str]) -> None:
        self.found: dict[str, list[str]] = {}
        self._wanted = wanted
        self._open = ""
        self._text: list[str] = []

    def begin(self, name: str, _attributes: Mapping[str, str]) -> None:
        if name in self._wanted:
            self._open, self._text = name, []

    def end(self, name: str) -> None:
        if name == self._open:
            text = " ".join("".join(self._text).split())
            if text:
                self.found.setdefault(name, []).append(text[:1_000])
            self._open = ""

    def text(self, data: str) -> None:
        if self._open:
            self._text.append(data)

    def first(self, name: str) -> str:
        return next(iter(self.found.get(name, ())), "")
