"""`florilegium import`: imports exports, files and folders into a user's library. Running it again is cheap and changes
only what has changed."""

import asyncio
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import msgspec
from msgspec import structs

from config.errors import FlorilegiumError
from server.cli.caller import run_long
from server.cli.lazy_group import NamedValue, SettingsCommand, SettingsOverrides
from server.cli.local_library import data_root
from server.cli.options import group_option, library_options, owner_of
from server.cli.output import dim, echo, pluralize, print_json, strip_control_characters
from server.cli.progress import show_progress
from server.cli.remote import RemoteApi, remote_library_server
from server.stores import has_control_data
from sources.importers.engine.discovery import DiscoveredFile, IgnoredFiles
from sources.importers.engine.file_probe import files_in
from sources.importers.engine.files import printable_name
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.limits import ImportLimits, ImportProgress, import_limits
from sources.importers.engine.reader_process import find_files
from sources.importers.engine.summary import OUTCOMES, ImportProblem, ImportSummary, count_reason
from sources.importers.registry import format_names

# These columns are always shown: new, updated, unchanged.
_MAIN_OUTCOMES = OUTCOMES[:3]
# What shells report for a program ended by SIGINT: 128 plus the number of the signal.
_INTERRUPTED = 130
# How often the state of an import on another machine is asked for.
_POLL_S = 0.5
# Formats of a folder's files that are sent as one archive, because ids come from paths, and the format of the archive.
_PACKED = {"markdown": "markdown", "documents": "document_zip"}
_DRY_RUN = "Dry run: nothing was written."


@click.command("import", cls=SettingsCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "format_name",
    type=NamedValue(format_names()),
    help=f"Read all files as this format: {', '.join(format_names())}. Default: detect it by content.",
)
@click.option("--dry-run", is_flag=True, help="Read everything and write nothing. Every item counts as new.")
@click.option("--again", is_flag=True, help="Also read files that have not changed since the last import.")
@group_option
@library_options
def import_(
    overrides: SettingsOverrides,
    paths: tuple[Path, ...],
    format_name: str | None,
    dry_run: bool,
    again: bool,
    user: str | None,
    library: str | None,
    as_json: bool,
) -> None:
    """Import exports, files and folders into a library.

    Items that were imported before are recognized: changed items are updated, all others are left alone.

    Exit codes: 0 everything was imported, 1 something could not be read, 2 nothing could be read, 130 interrupted.
    """
    progress = ImportProgress()

    def update_progress(values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            setattr(progress, name, value)

    async def work() -> ImportSummary:
        settings = overrides.load().settings
        server = remote_library_server(user)
        if server is None and dry_run and not has_control_data(settings, data_root(settings)):
            # A trial before the first import must not create a data directory.
            results = await find_files(paths, import_limits(settings), format_name)
            async with show_progress(progress):
                return await run_import(None, results, settings, progress)
        async with show_progress(progress):
            if server is not None:
                options = {"dry_run": str(dry_run).lower(), "library": library}
                limits = import_limits(settings)
                summary = await _upload(server, paths, limits, format_name, options, update_progress)
                return _with_given_paths(summary, paths)
            files = [str(path.absolute()) for path in paths]
            request = {"paths": files, "format": format_name, "dry_run": dry_run, "again": again}
            result = await run_long(settings, owner_of(user, library), "import", request, update_progress, creates=True)
            return _with_given_paths(msgspec.convert(result, ImportSummary), paths)

    try:
        summary = asyncio.run(work())
    # What was written stays: each batch is a transaction, and the next import continues.
    except KeyboardInterrupt:
        echo(interruption_message(progress, is_dry_run=dry_run), err=True)
        click.get_current_context().exit(_INTERRUPTED)
    if as_json:
        print_json(structs.asdict(summary))
    else:
        for line in report_lines(summary, is_dry_run=dry_run):
            echo(line)
    click.get_current_context().exit(exit_code(summary))


async def _upload(
    server: RemoteApi,
    paths: Sequence[Path],
    limits: ImportLimits,
    format_name: str | None,
    options: Mapping[str, str | None],
    update_progress: Callable[[Mapping[str, Any]], None],
) -> ImportSummary:
    """Sends what is found here to another machine, and waits until it is imported there."""
    total = ImportSummary()
    for path in paths:
        root = path.resolve()
        packed: dict[str, list[Path]] = {}
        single: list[Path] = []
        for found in await find_files([root], limits, format_name):
            match found:
                case ImportProblem():
                    total.add(ImportSummary(failed_files=1, problems=[found]))
                case IgnoredFiles(reason, count):
                    total.skip(reason, count)
                case DiscoveredFile():
                    if found.path.is_dir():
                        packed[found.importer.name] = list(files_in(root))
                    elif found.path != root and found.importer.name in _PACKED:
                        packed.setdefault(found.importer.name, []).append(found.path)
                    else:
                        single.append(found.path)
        with tempfile.TemporaryDirectory() as directory:
            for name, files in packed.items():
                archive = Path(directory, f"{root.name}.zip")
                await asyncio.to_thread(_pack, archive, root, files)
                values = {**options, "format": _PACKED.get(name, name)}
                total.add(await asyncio.to_thread(_upload_file, server, archive, values, update_progress))
        for file in single:
            values = {**options, "format": format_name}
            total.add(await asyncio.to_thread(_upload_file, server, file, values, update_progress))
    return total


def _pack(archive: Path, folder: Path, files: Iterable[Path]) -> None:
    """Writes the files of a folder to a zip, with their paths, and that it is a vault if it is one."""
    # A zip has no times before 1980, and only names that are text.
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as target:
        for file in files:
            target.write(file, f"{folder.name}/{printable_name(file.relative_to(folder).as_posix())}")
        if (folder / ".obsidian").is_dir():
            target.writestr(f"{folder.name}/.obsidian/app.json", "{}")


def _upload_file(
    server: RemoteApi, file: Path, options: Mapping[str, Any], update_progress: Callable[[Mapping[str, Any]], None]
) -> ImportSummary:
    job = server.upload("/api/v1/import", file, name=printable_name(file.name), **options)
    of_library = {} if options["library"] is None else {"library": options["library"]}
    while job["state"] in ("waiting", "running"):
        update_progress({name: job[name] for name in ("bytes_read", "bytes_total", "items")} | {"file": file.name})
        time.sleep(_POLL_S)
        address = f"/api/v1/import/{quote(job['id'], safe='')}"
        job = msgspec.json.decode(server.request("GET", address, query=of_library))
    if job["summary"] is None:
        raise FlorilegiumError(f"{file.name}: {job['problem'] or job['state']}")
    return msgspec.convert(job["summary"], ImportSummary)


def _with_given_paths(summary: ImportSummary, paths: Sequence[Path]) -> ImportSummary:
    """Names files as the caller did. The paths were made absolute, because a server has another working directory."""

    def name(file: str) -> str:
        for path in paths:
            if Path(file).is_relative_to(path.absolute()):
                return str(path / Path(file).relative_to(path.absolute()))
        return file

    for problems in (summary.problems, summary.doubts):
        problems[:] = [structs.replace(problem, file=name(problem.file)) for problem in problems]
    return summary


def interruption_message(progress: ImportProgress, *, is_dry_run: bool) -> str:
    """The count is a minimum, because a batch that is being written at this moment is still committed."""
    if is_dry_run:
        return f"Interrupted. {_DRY_RUN}"
    items, verb = pluralize(progress.items, "items"), "was" if progress.items == 1 else "were"
    return f"Interrupted. At least {items} {verb} imported and kept. Run the same command again to import the rest."


def exit_code(summary: ImportSummary) -> int:
    if summary.is_failed:
        return 2
    return 1 if summary.failures else 0


def report_lines(summary: ImportSummary, *, is_dry_run: bool) -> Iterator[str]:
    """Yields a table of the outcomes, then what was skipped, what failed and what may be wrong, with the reasons."""
    # Leaves out columns without counts, except for the main outcomes.
    kinds = sorted(summary.kinds.items())
    shown = [name for name in OUTCOMES if name in _MAIN_OUTCOMES or any(getattr(counts, name) for _, counts in kinds)]
    rows = [("", *shown), *((kind, *(f"{getattr(counts, name):,}" for name in shown)) for kind, counts in kinds)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for kind, *cells in rows if kinds else ():
        yield "  ".join([kind.ljust(widths[0]), *(c.rjust(w) for c, w in zip(cells, widths[1:], strict=True))])
    for reason, count in sorted(summary.skipped.items()):
        yield dim(f"skipped: {count_reason(count, strip_control_characters(reason))}")
    for label, colour, problems in (("failed: ", "red", summary.problems), ("check: ", "yellow", summary.doubts)):
        for problem in problems:
            location = ", ".join(filter(None, (problem.file, problem.location)))
            yield click.style(label, fg=colour) + strip_control_characters(f"{location}: {problem.problem}")
    if summary.doubtful_items > len(summary.doubts):
        yield f"and {pluralize(summary.doubtful_items - len(summary.doubts), 'more items')} to check"
    hidden = summary.failures - len(summary.problems)
    if hidden > 0:
        yield f"and {pluralize(hidden, 'more failures')}"
    if not summary.files and not summary.failed_files:
        yield "No supported files found."
    if is_dry_run:
        yield f"{_DRY_RUN} It does not look into the library, so every item counts as new."
