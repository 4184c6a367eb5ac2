"""Reads files with one importer, as the import runner does, and damages them at random."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from config.errors import InvalidParams, TooLarge
from config.settings import Settings
from sources.importers.engine.discovery import discover
from sources.importers.engine.events import ImportEvent
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.importer import Importer, ParsingImporter
from sources.importers.engine.limits import ImportLimits, ImportProgress, import_limits
from sources.importers.engine.summary import ImportSummary
from sources.importers.parsers.epub import parse_epub
from sources.importers.parsers.office import parse_rich_text, parse_slides, parse_text_document, parse_word
from sources.importers.parsers.parsed_document import DocumentKind, ParsedDocument, parse_in_subprocess
from sources.importers.parsers.tables import parse_table, parse_workbook
from sources.importers.parsers.web_page import parse_page
from sources.importers.registry import all_importers, load_importer, select_importer
from sources.storage.contract import Library

_PARSERS: Mapping[str, Callable[[Path, ImportLimits], ParsedDocument]] = {
    "html": parse_page,
    "epub": parse_epub,
    "docx": parse_word,
    "pptx": parse_slides,
    "xlsx": parse_workbook,
    "odt": parse_text_document,
    "rtf": parse_rich_text,
    "csv": parse_table,
}
LIMITS = import_limits(Settings())
SINGLE_FILE_IMPORTERS: tuple[Importer, ...] = tuple(
    map(load_importer, ("markdown", "prompt_files", "character_cards", "subtitles", "documents"))
)


def write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def short_id(value: object) -> str | None:
    """Returns a short test id for a parameter that is a whole file."""
    return f"{len(value)} bytes" if isinstance(value, bytes) and len(value) > 60 else None


def read(importer: Importer, path: Path, **limits: Any) -> list[ImportEvent]:
    return list(importer.read(path, replace(LIMITS, **limits), lambda bytes_read: None, None))


def read_draft(importer: Importer, path: Path, **limits: Any) -> Any:
    """Returns the draft of the only item in a file."""
    (event,) = read(importer, path, **limits)
    return event.draft  # type: ignore[union-attr]  # anything but an item fails here, as it should


def importer_for(path: Path) -> str | None:
    """Returns the name of the importer that would read a file."""
    importer = select_importer(probe_file(path, LIMITS), SINGLE_FILE_IMPORTERS)
    return None if importer is None else importer.name


def in_process(importer: Importer) -> Importer:
    """Returns an importer that reads files and parses documents in this process, which is faster and can be observed:
    processes read with the registered importers only. PDF is parsed in a process of its own, because damaged files can
    crash pdfium."""
    return type(importer)(_parse_here) if isinstance(importer, ParsingImporter) else type(importer)()


async def import_here(
    library: Library | None,
    *paths: Path,
    importers: Sequence[Importer] | None = None,
    settings: Settings | None = None,
    rereads_unchanged: bool = True,
    limits: ImportLimits | None = None,
) -> ImportSummary:
    """Imports files, which are read in this process."""
    settings = settings or Settings()
    limits = limits or import_limits(settings)
    here = [in_process(importer) for importer in importers or all_importers()]
    results = list(discover(paths, limits, here))
    progress = ImportProgress()
    return await run_import(library, results, settings, progress, rereads_unchanged=rereads_unchanged, limits=limits)


def _parse_here(document: Path | bytes, kind: DocumentKind, limits: ImportLimits) -> ParsedDocument:
    if kind == "pdf":
        return parse_in_subprocess(document, kind, limits)
    if isinstance(document, Path):
        return _PARSERS[kind](document, limits)
    with TemporaryDirectory() as folder:
        return _PARSERS[kind](write(Path(folder, "document"), document), limits)


def read_or_reject(importer: Importer, name: str, data: bytes) -> None:
    """Probes and reads a file, which may be rejected; any other error fails the test."""
    with TemporaryDirectory() as folder:
        path = write(Path(folder, name), data)
        importer.recognizes(probe_file(path, LIMITS))
        with suppress(InvalidParams, TooLarge):
            read(importer, path)


@st.composite
def damaged_files(draw: st.DrawFn, samples: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Draws one of the samples, with parts removed, repeated, replaced or inserted."""
    name = draw(st.sampled_from(sorted(samples)))
    data = samples[name]
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 40)))
        replacement = draw(st.one_of(st.binary(max_size=12), st.sampled_from(_NASTY), st.just(data[start:end] * 2)))
        data = data[:start] + replacement + data[end:]
    return name, data


_NASTY = (
    b"\0",
    b"\xff\xfe",
    b"\\ud800",
    b'"',
    b"{" * 300,
    b"[" * 300,
    b"---\n",
    b"-->",
    b"99999999999",
    b"\r",
    b"<!--",
)
