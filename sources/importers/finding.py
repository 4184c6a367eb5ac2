"""Which files there are to read, and who reads each: by content, or by the format that was asked for."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from config.errors import FlorilegiumError, InvalidParams, TooLarge
from sources.importers.archives import is_zip, open_archive
from sources.importers.importer import Found, Importer, Limits, Sight
from sources.importers.intake import Problem
from sources.importers.registry import importer_named, recognise
from sources.importers.sight import files_in, look

_UNKNOWN = "got a format that nobody here reads, expected one of those in docs/import.md"


def find(
    paths: Sequence[Path], limits: Limits, offered: Sequence[Importer], format_name: str | None = None
) -> Iterator[Found | Problem]:
    """A folder is read as a whole where an importer knows it as one, else file by file: those that somebody knows.
    A file that was named, with the format that was named, is read without a question."""
    asked = importer_named(format_name, offered) if format_name else None
    for path in paths:
        try:
            sight = look(path, limits)
        except FlorilegiumError as error:
            yield Problem(path.name or str(path), "", error.message)
            continue
        if sight.is_folder:
            yield from _in_folder(sight, limits, offered if asked is None else (asked,))
        else:
            yield _file(sight, asked or recognise(sight, offered), limits)


def _file(sight: Sight, importer: Importer | None, limits: Limits) -> Found | Problem:
    if importer is None:
        return Problem(sight.path.name, "", _why_unknown(sight, limits))
    return Found(sight.path, sight.path.name, importer, _size(sight.path))


def _why_unknown(sight: Sight, limits: Limits) -> str:
    """An archive that is refused shows nobody what is in it."""
    try:
        if is_zip(sight.head):
            with open_archive(sight.path, limits):
                pass
    except (InvalidParams, TooLarge) as error:
        return error.message
    return _UNKNOWN


def _in_folder(sight: Sight, limits: Limits, offered: Sequence[Importer]) -> Iterator[Found | Problem]:
    folder = sight.path
    reader = recognise(sight, offered)
    if reader is not None:
        yield Found(folder, folder.name or str(folder), reader, sum(map(_size, files_in(folder))))
        return
    suffixes = tuple({suffix for importer in offered for suffix in importer.suffixes})
    for path in files_in(folder):
        if path.name.lower().endswith(suffixes):
            yield from _known_file(path, path.relative_to(folder).as_posix(), limits, offered)


def _known_file(path: Path, name: str, limits: Limits, offered: Sequence[Importer]) -> Iterator[Found | Problem]:
    """What nobody knows is no mistake here: a folder holds many things."""
    try:
        importer = recognise(look(path, limits), offered)
    except FlorilegiumError as error:
        yield Problem(name, "", error.message)
        return
    if importer is not None:
        yield Found(path, name, importer, _size(path))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
