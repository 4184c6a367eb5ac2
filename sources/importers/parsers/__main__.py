"""The process in which one document is parsed: `python -m sources.importers.parsers KIND PATH LIMITS`.

It limits itself before it looks at the document, writes one answer and ends; where it cannot, its end is the answer.
"""

import resource
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import msgspec

from config.errors import FlorilegiumError
from sources.importers.engine.importer import ImportLimits
from sources.importers.parsers.confined import OUT_OF_MEMORY
from sources.importers.parsers.prose import Parsed, Refused

_PARSERS = {
    "html": ("web_page", "parse_page"),
    "pdf": ("pdf", "parse_pdf"),
    "epub": ("book", "parse_book"),
    "docx": ("office", "parse_word"),
    "pptx": ("office", "parse_slides"),
}


def _parse(kind: str, path: Path, limits: ImportLimits) -> Parsed | Refused:
    module, function = _PARSERS[kind]
    try:
        parsed: Parsed = getattr(import_module(f"sources.importers.parsers.{module}"), function)(path, limits)
    except FlorilegiumError as error:
        return Refused(error.message)
    except OSError as error:
        return Refused(f"it cannot be read: {error.strerror or 'the disk failed'}")
    return parsed


def _confine(limits: ImportLimits) -> None:
    """Not every system has every limit; the deadline of the one who waits holds in any case."""
    # A second more than the soft limit, whose signal ends the process already.
    _limit(resource.RLIMIT_CPU, limits.parser_cpu_s, limits.parser_cpu_s + 1)
    _limit(resource.RLIMIT_AS, limits.parser_memory_max_bytes, limits.parser_memory_max_bytes)
    # It writes to a pipe and to no file, nor a picture of its memory when it ends badly.
    _limit(resource.RLIMIT_FSIZE, 0, 0)
    _limit(resource.RLIMIT_CORE, 0, 0)


def _limit(what: int, soft: int, hard: int) -> None:
    with suppress(ValueError, OSError):
        resource.setrlimit(what, (soft, hard))


def _main(kind: str, path: str, limits: str) -> None:
    told = msgspec.json.decode(limits, type=ImportLimits)
    _confine(told)
    try:
        answer = msgspec.json.encode(_parse(kind, Path(path), told))
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    _main(*sys.argv[1:])
