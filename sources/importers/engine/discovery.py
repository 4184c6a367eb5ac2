"""Which files there are to read, and who reads each: by content, or by the format that was asked for. What is not read
is told where it is broken, and counted where it is of no format."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from config.errors import FlorilegiumError
from sources.importers.engine.damage import damage_of
from sources.importers.engine.file_probe import files_in, probe_file
from sources.importers.engine.files import plain_name
from sources.importers.engine.import_runner import DiscoveryResult, IgnoredFiles, ImportProblem
from sources.importers.engine.importer import DiscoveredFile, FileProbe, Importer, ImportLimits
from sources.importers.registry import importer_by_name, select_importer

_UNKNOWN = "got a format that nobody here reads, expected one of those in docs/import.md"
_NO_ENDING = "no ending"
# A tree of programs has hundreds; the most frequent say what was there.
_ENDINGS_SHOWN = 6
_ENDING_MAX_CHARS = 12


def find(
    paths: Sequence[Path], limits: ImportLimits, offered: Sequence[Importer], format_name: str | None = None
) -> Iterator[DiscoveryResult]:
    """A folder is read as a whole where an importer knows it as one, else file by file: those that somebody knows.
    A file that was named, with the format that was named, is read without a question."""
    asked = importer_by_name(format_name, offered) if format_name else None
    for path in paths:
        try:
            probe = probe_file(path, limits)
        except FlorilegiumError as error:
            yield ImportProblem(path.name or str(path), "", error.message)
            continue
        if probe.is_folder:
            yield from _in_folder(probe, limits, offered if asked is None else (asked,))
        else:
            yield _file(probe, asked or select_importer(probe, offered), limits)


def _file(probe: FileProbe, importer: Importer | None, limits: ImportLimits) -> DiscoveredFile | ImportProblem:
    if importer is None:
        return ImportProblem(probe.path.name, "", damage_of(probe, limits) or _UNKNOWN)
    return DiscoveredFile(probe.path, probe.path.name, importer, _size(probe.path))


def _in_folder(probe: FileProbe, limits: ImportLimits, offered: Sequence[Importer]) -> Iterator[DiscoveryResult]:
    folder = probe.path
    reader = select_importer(probe, offered)
    if reader is not None:
        yield DiscoveredFile(folder, folder.name or str(folder), reader, sum(map(_size, files_in(folder))))
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


def _known_file(
    path: Path, name: str, limits: ImportLimits, offered: Sequence[Importer]
) -> DiscoveredFile | ImportProblem | None:
    """What nobody knows is no mistake here, for a folder holds many things; what is broken is."""
    try:
        probe = probe_file(path, limits)
    except FlorilegiumError as error:
        return ImportProblem(name, "", error.message)
    importer = select_importer(probe, offered)
    if importer is not None:
        return DiscoveredFile(path, name, importer, _size(path))
    damage = damage_of(probe, limits)
    return None if damage is None else ImportProblem(name, "", damage)


def _beside(folder: Path, reader: Importer) -> Iterator[IgnoredFiles]:
    """What lies in a folder with an export that is read as a whole, and is no part of it."""
    if reader.reads_of_folder is None:
        return
    names = (path.relative_to(folder).as_posix() for path in files_in(folder))
    endings = Counter(_ending(Path(name)) for name in names if not reader.reads_of_folder(name))
    yield from _left_out(endings, f"of the folder that {reader.name} does not read")


def _left_out(endings: Counter[str], which: str) -> Iterator[IgnoredFiles]:
    count = endings.total()
    if count:
        shown = [ending for ending, _ in endings.most_common(_ENDINGS_SHOWN)]
        told = ", ".join(shown + ["…"] * (len(endings) > len(shown)))
        yield IgnoredFiles(f"{'file' if count == 1 else 'files'} {which} ({told})", count)


def _ending(path: Path) -> str:
    return plain_name(path.suffix.lower())[:_ENDING_MAX_CHARS] or _NO_ENDING


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
