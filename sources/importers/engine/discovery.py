"""Which files there are to read, and who reads each: by content, or by the format that was asked for. What is not read
is told where it is broken, and counted where it is of no format."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from config.errors import FlorilegiumError
from sources.importers.engine.damage import damage_of
from sources.importers.engine.file_probe import files_in, look
from sources.importers.engine.files import plain_name
from sources.importers.engine.import_runner import Finding, Passed, Problem
from sources.importers.engine.importer import Found, Importer, Limits, Sight
from sources.importers.registry import importer_named, recognise

_UNKNOWN = "got a format that nobody here reads, expected one of those in docs/import.md"
_NO_ENDING = "no ending"
# A tree of programs has hundreds; the most frequent say what was there.
_ENDINGS_SHOWN = 6
_ENDING_MAX_CHARS = 12


def find(
    paths: Sequence[Path], limits: Limits, offered: Sequence[Importer], format_name: str | None = None
) -> Iterator[Finding]:
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
        return Problem(sight.path.name, "", damage_of(sight, limits) or _UNKNOWN)
    return Found(sight.path, sight.path.name, importer, _size(sight.path))


def _in_folder(sight: Sight, limits: Limits, offered: Sequence[Importer]) -> Iterator[Finding]:
    folder = sight.path
    reader = recognise(sight, offered)
    if reader is not None:
        yield Found(folder, folder.name or str(folder), reader, sum(map(_size, files_in(folder))))
        yield from _beside(folder, reader)
        return
    suffixes = tuple({suffix for importer in offered for suffix in importer.suffixes})
    endings = Counter[str]()
    for path in files_in(folder):
        name = (folder.name / path.relative_to(folder)).as_posix()
        found = _known_file(path, name, limits, offered) if path.name.lower().endswith(suffixes) else None
        if found is None:
            endings[_ending(path)] += 1
        else:
            yield found
    kind = f"another format than {offered[0].name}" if len(offered) == 1 else "no known format"
    yield from _left_out(endings, f"of {kind}")


def _known_file(path: Path, name: str, limits: Limits, offered: Sequence[Importer]) -> Found | Problem | None:
    """What nobody knows is no mistake here, for a folder holds many things; what is broken is."""
    try:
        sight = look(path, limits)
    except FlorilegiumError as error:
        return Problem(name, "", error.message)
    importer = recognise(sight, offered)
    if importer is not None:
        return Found(path, name, importer, _size(path))
    damage = damage_of(sight, limits)
    return None if damage is None else Problem(name, "", damage)


def _beside(folder: Path, reader: Importer) -> Iterator[Passed]:
    """What lies in a folder with an export that is read as a whole, and is no part of it."""
    if reader.reads_of_folder is None:
        return
    names = (path.relative_to(folder).as_posix() for path in files_in(folder))
    endings = Counter(_ending(Path(name)) for name in names if not reader.reads_of_folder(name))
    yield from _left_out(endings, f"of the folder that {reader.name} does not read")


def _left_out(endings: Counter[str], which: str) -> Iterator[Passed]:
    count = endings.total()
    if count:
        shown = [ending for ending, _ in endings.most_common(_ENDINGS_SHOWN)]
        told = ", ".join(shown + ["…"] * (len(endings) > len(shown)))
        yield Passed(f"{'file' if count == 1 else 'files'} {which} ({told})", count)


def _ending(path: Path) -> str:
    return plain_name(path.suffix.lower())[:_ENDING_MAX_CHARS] or _NO_ENDING


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
