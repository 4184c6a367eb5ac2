"""Decides which files are imported and which importer reads each, by content or by the format the user named.

Every file is reported, including those ignored: damaged files as problems, files of unsupported formats as a count.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from config.errors import FlorilegiumError, NotFound
from sources.importers.engine.file_probe import FileProbe, files_in, is_link, probe_file
from sources.importers.engine.files import file_size, printable_name
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.summary import ImportProblem, find_damage
from sources.importers.registry import importer_by_name, select_importer

# A source tree can contain hundreds of suffixes; the most frequent ones are listed.
_SUFFIXES_SHOWN = 6
_SUFFIX_MAX_CHARS = 12
# Importers of archives with any documents are less confident.
_CERTAIN = 0.9


class DiscoveredFile(Struct, frozen=True):
    """A file, or a folder read as a whole, and the importer that reads it. `name` identifies it in reports. Without a
    stable path it is always read from the start, because a later import could not recognize it."""

    path: Path
    name: str
    importer: Importer
    size_bytes: int
    has_stable_path: bool = True


class IgnoredFiles(Struct, frozen=True):
    """Files that are not imported; `reason` is a phrase as in `SkippedItem`."""

    reason: str
    count: int


DiscoveryResult = DiscoveredFile | ImportProblem | IgnoredFiles


def discover(
    paths: Sequence[Path], limits: ImportLimits, importers: Sequence[Importer], format_name: str | None = None
) -> Iterator[DiscoveryResult]:
    """Yields the files to import. A folder is read as a whole if an importer recognizes it, otherwise file by file. A
    file named by the user together with its format is not checked against that format."""
    # `--format` overrides what the content suggests; if the file has another format, its importer reports why.
    named = importer_by_name(format_name, importers) if format_name else None
    for path in paths:
        try:
            probe = probe_file(path, limits)
        except NotFound:
            yield ImportProblem(printable_name(str(path)), "", "no such file or folder; check the path")
            continue
        except FlorilegiumError as error:
            yield ImportProblem(path.name or str(path), "", error.message)
            continue
        if probe.is_folder:
            yield from _discover_folder(probe, limits, importers if named is None else (named,))
        elif named is None and probe.is_zip and all(name.startswith("Takeout/") for name in probe.names):
            # Google Takeout packs the data of all chosen products into one archive, and each has its own importer.
            products = [importer for importer in importers if importer.recognizes(probe) >= _CERTAIN]
            readers = products if len(products) > 1 else [select_importer(probe, importers)]
            yield from (_discover_file(probe, importer, limits, importers) for importer in readers)
        else:
            yield _discover_file(probe, named or select_importer(probe, importers), limits, importers)


def discover_in_folder(
    folder: Path,
    paths: Sequence[Path],
    limits: ImportLimits,
    importers: Sequence[Importer],
    format_name: str | None = None,
) -> Iterator[DiscoveryResult]:
    """Yields one result for each of these files of a folder, as if the folder were read file by file."""
    if format_name:
        importers = (importer_by_name(format_name, importers),)
    for path in paths:
        name = (folder.name / path.relative_to(folder)).as_posix() if path.is_relative_to(folder) else path.name
        result = _discover_file_in_folder(path, name, limits, importers)
        yield result or IgnoredFiles("unsupported file", 1)


def _discover_file(
    probe: FileProbe, importer: Importer | None, limits: ImportLimits, importers: Sequence[Importer]
) -> DiscoveredFile | ImportProblem:
    if importer is None:
        names = ", ".join(importer.name for importer in importers)
        unsupported = f"unsupported format; if it has one of these formats, name that format: {names}"
        return ImportProblem(probe.path.name, "", find_damage(probe, limits) or unsupported)
    return DiscoveredFile(probe.path, probe.path.name, importer, file_size(probe.path))


def _discover_folder(
    probe: FileProbe, limits: ImportLimits, importers: Sequence[Importer]
) -> Iterator[DiscoveryResult]:
    folder = probe.path
    skipped: dict[Path, str] = {}
    importer = select_importer(probe, importers)
    if importer is not None:
        # The size is for the progress only.
        yield DiscoveredFile(folder, folder.name or str(folder), importer, sum(map(file_size, files_in(folder))))
        # The files in an export's folder that do not belong to the export are reported.
        names = (path.relative_to(folder).as_posix() for path in files_in(folder, skipped))
        unused = Counter(_suffix(Path(name)) for name in names if not importer.reads_from_folder(name))
        yield from _ignored(unused, f"file not used by {importer.name}")
        yield from _skipped(folder, skipped)
        return
    suffixes = tuple({suffix for importer in importers for suffix in importer.suffixes})
    ignored, root = Counter[str](), folder.resolve()
    for path in files_in(folder, skipped):
        # Read under both names, the file would be one item, which changes its title with every import.
        if is_link(path) and not _is_hidden(path.resolve().relative_to(root)):
            skipped[path] = ""
            continue
        name = (folder.name / path.relative_to(folder)).as_posix()
        # By its suffix first: opening every file of a source tree would take long.
        is_candidate = path.name.lower().endswith(suffixes)
        result = _discover_file_in_folder(path, name, limits, importers) if is_candidate else None
        if result is None:
            ignored[_suffix(path)] += 1
        else:
            yield result
    reason = f"file not in {importers[0].name} format" if len(importers) == 1 else "unsupported file"
    yield from _ignored(ignored, reason)
    yield from _skipped(folder, skipped)


def _discover_file_in_folder(
    path: Path, name: str, limits: ImportLimits, importers: Sequence[Importer]
) -> DiscoveredFile | ImportProblem | None:
    """Returns None for a file of an unsupported format: in a folder that is not an error, but a damaged file is."""
    try:
        probe = probe_file(path, limits)
    except FlorilegiumError as error:
        return ImportProblem(name, "", error.message)
    importer = select_importer(probe, importers)
    if importer is not None:
        return DiscoveredFile(path, name, importer, file_size(path))
    # Files of other programs are counted, but a damaged export is a problem that the user should know of.
    damage = find_damage(probe, limits)
    return None if damage is None else ImportProblem(name, "", damage)


def _ignored(suffixes: Counter[str], reason: str) -> Iterator[IgnoredFiles]:
    if suffixes:
        shown = [suffix for suffix, _ in suffixes.most_common(_SUFFIXES_SHOWN)]
        listing = ", ".join(shown + ["…"] * (len(suffixes) > len(shown)))
        yield IgnoredFiles(f"{reason} ({listing})", suffixes.total())


def _skipped(folder: Path, skipped: Mapping[Path, str]) -> Iterator[DiscoveryResult]:
    for path, problem in skipped.items():
        if problem:
            yield ImportProblem((folder.name / path.relative_to(folder)).as_posix(), "", problem)
    if links := sum(not problem for problem in skipped.values()):
        yield IgnoredFiles("symbolic link not followed", links)


def _is_hidden(path: Path) -> bool:
    """Whether a path in a folder leads through a hidden folder, which is not searched."""
    return any(part.startswith(".") for part in path.parts[:-1])


def _suffix(path: Path) -> str:
    return printable_name(path.suffix.lower())[:_SUFFIX_MAX_CHARS] or "no suffix"
