"""The subprocess that parses one document: `python -m sources.importers.parsers KIND PATH LIMITS`.

Its standard input is empty, or has the page that is requested of the document. It applies its limits and enters the
sandbox before it opens the document, writes one JSON result to stdout and exits. If it cannot, the exit code is the
result.
"""

import resource
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import msgspec

from config.errors import FlorilegiumError
from sources.importers.engine.limits import ImportLimits
from sources.importers.parsers.parsed_document import OUT_OF_MEMORY, ParsedDocument, ParseFailure, PdfPage
from sources.importers.sandbox import confine

# By module and function, so that only the parser in use is loaded.
_PARSERS = {
    "html": ("web_page", "parse_page"),
    "pdf": ("pdf", "parse_pdf"),
    "pdf-page": ("pdf", "read_page"),
    "epub": ("epub", "parse_epub"),
    "docx": ("office", "parse_word"),
    "pptx": ("office", "parse_slides"),
    "xlsx": ("tables", "parse_workbook"),
    "odt": ("office", "parse_text_document"),
    "rtf": ("office", "parse_rich_text"),
    "csv": ("tables", "parse_table"),
}


def _set_limit(kind: int, soft: int, hard: int) -> None:
    with suppress(ValueError, OSError):
        resource.setrlimit(kind, (soft, hard))


def _main(kind: str, path: str, encoded_limits: str) -> None:
    limits = msgspec.json.decode(encoded_limits, type=ImportLimits)
    # Sets the limits that the system supports. The parent enforces the deadline in any case.
    # The soft limit already ends the process; the hard limit is one second higher.
    _set_limit(resource.RLIMIT_CPU, limits.parser_cpu_s, limits.parser_cpu_s + 1)
    _set_limit(resource.RLIMIT_AS, limits.parser_memory_max_bytes, limits.parser_memory_max_bytes)
    # The process writes to a pipe only: no files, and no core dump.
    _set_limit(resource.RLIMIT_FSIZE, 0, 0)
    _set_limit(resource.RLIMIT_CORE, 0, 0)
    # The document was opened by the parent, so the sandbox need not allow any file.
    confine([], limits.sandbox)
    module, function = _PARSERS[kind]
    request = sys.stdin.buffer.read()
    arguments = (msgspec.json.decode(request),) if request else ()
    result: ParsedDocument | PdfPage | ParseFailure
    try:
        try:
            result = getattr(import_module(f"sources.importers.parsers.{module}"), function)(
                Path(path), limits, *arguments
            )
        except FlorilegiumError as error:
            result = ParseFailure(error.message)
        except OSError as error:
            result = ParseFailure(f"cannot be read: {error.strerror or 'disk error'}")
        encoded = msgspec.json.encode(result)
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
    sys.stdout.buffer.write(encoded)


if __name__ == "__main__":
    _main(*sys.argv[1:])
