"""The base of importers that read documents, or files with documents inside them."""

from sources.importers.engine.importer import Importer
from sources.importers.parsers.parser_process import DocumentParser, parse_in_subprocess


class ParsingImporter(Importer):
    """An importer that has documents parsed in another process. The process that reads imported files may not start
    one, so it replaces `parse`."""

    def __init__(self, parse: DocumentParser = parse_in_subprocess) -> None:
        self._parse = parse
