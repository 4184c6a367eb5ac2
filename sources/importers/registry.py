"""The formats that can be read, one line each: the module `sources/importers/<name>.py`, whose `IMPORTER` it is.

They are imported when somebody imports something, not when the program starts.
"""

from collections.abc import Sequence
from functools import cache
from importlib import import_module

from config.errors import InvalidParams
from sources.importers.engine.importer import FileProbe, Importer

# Of two that are equally sure of a file, the one that stands first reads it.
FORMATS: tuple[str, ...] = (
    "own_export",
    "conversations",
    "chatgpt",
    "claude_ai",
    "chatgpt_browser",
    "tldw",
    "conversation_memory",
    "agentkit",
    "claude_code",
    "codex",
    "sillytavern",
    "character_cards",
    "subtitles",
    "prompt_files",
    "markdown",
    "documents",
)


@cache
def importers() -> tuple[Importer, ...]:
    return tuple(_load(name) for name in FORMATS)


def importer_by_name(name: str, offered: Sequence[Importer]) -> Importer:
    """The one that `--format` asks for."""
    for importer in offered:
        if importer.name == name:
            return importer
    known = ", ".join(importer.name for importer in offered)
    raise InvalidParams(f"format: got {name[:60]!r}, expected one of {known}")


def select_importer(probe: FileProbe, offered: Sequence[Importer]) -> Importer | None:
    """The importer that is surest that a file or folder is its own; none where nobody knows it."""
    sure = [(importer.recognizes(probe), importer) for importer in offered]
    certainty, surest = max(sure, key=lambda one: one[0], default=(0.0, None))
    return surest if certainty > 0 else None


def _load(name: str) -> Importer:
    importer = import_module(f"sources.importers.formats.{name}").IMPORTER
    assert isinstance(importer, Importer)
    return importer
