"""Reads files with one importer, as the intake does, and damages them at random."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from config.errors import InvalidParams, TooLarge
from config.settings import Settings
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.import_runner import limits_of
from sources.importers.engine.imported_items import ImportEvent
from sources.importers.engine.importer import Importer
from sources.importers.formats import character_cards, documents, markdown, prompt_files, subtitles
from sources.importers.registry import select_importer

LIMITS = limits_of(Settings())
OFFERED: tuple[Importer, ...] = tuple(
    module.IMPORTER for module in (markdown, prompt_files, character_cards, subtitles, documents)
)


def write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def short_id(value: object) -> str | None:
    """What a test is called whose argument is a whole file."""
    return f"{len(value)} bytes" if isinstance(value, bytes) and len(value) > 60 else None


def read(importer: Importer, path: Path, **limits: Any) -> list[ImportEvent]:
    return list(importer.read(path, replace(LIMITS, **limits), lambda bytes_read: None, None))


def draft(importer: Importer, path: Path, **limits: Any) -> Any:
    """Of the one item in a file."""
    (arrival,) = read(importer, path, **limits)
    return arrival.draft  # type: ignore[union-attr]  # what is no item fails here, as it should


def reader_of(path: Path) -> str | None:
    """The name of the importer that would read a file."""
    found = select_importer(probe_file(path, LIMITS), OFFERED)
    return None if found is None else found.name


def survive(importer: Importer, name: str, data: bytes) -> None:
    """Looks at a file and reads it: it may be refused, and that is all that may happen."""
    with TemporaryDirectory() as folder:
        path = write(Path(folder, name), data)
        importer.recognizes(probe_file(path, LIMITS))
        with suppress(InvalidParams, TooLarge):
            read(importer, path)


@st.composite
def damaged(draw: st.DrawFn, samples: Mapping[str, bytes]) -> tuple[str, bytes]:
    """One of some files, with parts cut out, repeated, turned into others, or put into it."""
    name = draw(st.sampled_from(sorted(samples)))
    data = samples[name]
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 40)))
        put = draw(st.one_of(st.binary(max_size=12), st.sampled_from(_NASTY), st.just(data[start:end] * 2)))
        data = data[:start] + put + data[end:]
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
