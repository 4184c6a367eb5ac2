"""Reads XML as a stream of events. Entity declarations are rejected, so that none is expanded, and nothing outside the
file is loaded."""

from collections.abc import Iterator, Mapping
from typing import IO
from xml.parsers import expat

from config.errors import InvalidParams
from sources.importers.engine.archives import Archive

_BLOCK_BYTES = 1 << 16
# Limits a tag or comment: expat scans an unfinished one from its start with every block.
_TOKEN_MAX_BYTES = 1 << 20
# Separates the namespace URI from the local name.
_SEPARATOR = " "
_TEXT_MAX_CHARS = 1_000


class XmlHandler:
    """Receives events; subclasses override what they need. Element names have no namespace, attribute names do."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """An element starts."""

    def end(self, name: str) -> None:
        """An element ends."""

    def data(self, text: str) -> None:
        """Text between tags."""


def read_xml(file: IO[bytes], handler: XmlHandler) -> None:
    for _ in read_xml_blocks(file, handler):
        pass


def read_part(archive: Archive, name: str, handler: XmlHandler) -> None:
    with archive.open(name) as file:
        read_xml(file, handler)


def read_xml_blocks(file: IO[bytes], handler: XmlHandler) -> Iterator[None]:
    """Reads a large file block by block, so that the caller can take what the handler has collected so far."""
    parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
    parser.buffer_text = True
    parser.StartElementHandler = lambda name, attributes: handler.start(_local_name(name), attributes)
    parser.EndElementHandler = lambda name: handler.end(_local_name(name))
    parser.CharacterDataHandler = handler.data

    def reject_declarations(_name: str, _system: str | None, _public: str | None, has_declarations: int) -> None:
        if has_declarations:
            raise InvalidParams("XML contains a document type with declarations, which is not supported")

    def reject_entity(*_declaration: object) -> None:
        raise InvalidParams("XML declares an entity, which is not supported")

    parser.StartDoctypeDeclHandler = reject_declarations
    parser.EntityDeclHandler = reject_entity
    try:
        bytes_read = 0
        while block := file.read(_BLOCK_BYTES):
            parser.Parse(block, False)
            bytes_read += len(block)
            pending_bytes = bytes_read - parser.CurrentByteIndex
            if pending_bytes > _TOKEN_MAX_BYTES:
                raise InvalidParams(f"XML contains a tag or comment of more than {_TOKEN_MAX_BYTES} bytes")
            yield
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise InvalidParams(f"XML is invalid: {expat.ErrorString(error.code)} in line {error.lineno}") from error


def attribute(attributes: Mapping[str, str], name: str) -> str:
    """Returns an attribute by its local name, in any namespace."""
    return next((value for key, value in attributes.items() if _local_name(key) == name), "")


def _local_name(name: str) -> str:
    return name.rpartition(_SEPARATOR)[2]


class ElementTexts(XmlHandler):
    """Collects the texts of some elements by name, for small files with properties."""

    def __init__(self, names: frozenset[str]) -> None:
        self.texts: dict[str, list[str]] = {}
        self._names = names
        self._open_element = ""
        self._parts: list[str] = []

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name in self._names:
            self._open_element, self._parts = name, []

    def end(self, name: str) -> None:
        if name == self._open_element:
            text = " ".join("".join(self._parts).split())
            if text:
                self.texts.setdefault(name, []).append(text[:_TEXT_MAX_CHARS])
            self._open_element = ""

    def data(self, text: str) -> None:
        if self._open_element:
            self._parts.append(text)

    def first(self, name: str) -> str:
        return next(iter(self.texts.get(name, ())), "")
