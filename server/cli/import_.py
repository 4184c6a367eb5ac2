"""`florilegium import`: brings exports, files and folders into a user's library. Running it again costs little and
changes nothing."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import click
from msgspec.structs import asdict

from config.settings import Settings
from server.cli.local_library import open_local, user_option
from server.cli.meter import shown
from server.cli.options import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.output import print_json
from server.cli.terminal import dim, echo, strip_control_characters
from sources.importers.engine.discovery import find
from sources.importers.engine.import_runner import (
    OUTCOMES,
    DiscoveryResult,
    ImportProgress,
    ImportSummary,
    limits_of,
    run_import,
)
from sources.importers.registry import importers

_ASKED_FOR = OUTCOMES[:3]
# As shells tell of a program that SIGINT ended: 128 and the signal's number.
_INTERRUPTED = 130


@click.command("import", cls=SettingsCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--format", "format_name", help="Read everything as this format. Default: what the content looks like.")
@click.option("--dry-run", is_flag=True, help="Read everything and write nothing.")
@click.option("--again", is_flag=True, help="Read files that came before and have not changed, too.")
@user_option
@json_option
@setting_options("data_dir", "single_user_name")
def import_(
    overrides: SettingsOverrides,
    paths: tuple[Path, ...],
    format_name: str | None,
    dry_run: bool,
    again: bool,
    user: str | None,
    as_json: bool,
) -> None:
    """Bring exports, files and folders into a library.

    What was imported before is known again: it is updated where it changed there, and left alone where it did not.

    Exit codes: 0 all is in, 1 something could not be read, 2 nothing could, 130 interrupted.
    """
    settings, meter = overrides.load().settings, ImportProgress()
    try:
        founds = list(find(paths, limits_of(settings), importers(), format_name))
        summary = asyncio.run(_import(settings, founds, user, meter, is_rehearsal=dry_run, reads_again=again))
    except KeyboardInterrupt:
        echo(farewell(meter, is_rehearsal=dry_run), err=True)
        click.get_current_context().exit(_INTERRUPTED)
    if as_json:
        print_json(asdict(summary))
    else:
        for told in report(summary, is_rehearsal=dry_run):
            echo(told)
    click.get_current_context().exit(exit_code(summary))


async def _import(
    settings: Settings,
    founds: list[DiscoveryResult],
    user: str | None,
    meter: ImportProgress,
    *,
    is_rehearsal: bool,
    reads_again: bool,
) -> ImportSummary:
    if is_rehearsal:
        async with shown(meter):
            return await run_import(None, founds, settings, meter)
    async with (
        open_local(settings, user, creates=True) as local,
        local.libraries.library(local.context) as library,
        shown(meter),
    ):
        return await run_import(library, founds, settings, meter, reads_again=reads_again)


def farewell(meter: ImportProgress, *, is_rehearsal: bool) -> str:
    """What somebody who interrupts an import wants to know. What is being written at that moment comes in as well."""
    if is_rehearsal:
        return "interrupted: this was a rehearsal, and nothing was written"
    return f"interrupted: {meter.items:,} items or more are in, and stay; the same command goes on from there"


def exit_code(summary: ImportSummary) -> int:
    if summary.is_in_vain:
        return 2
    return 1 if summary.missing else 0


def report(summary: ImportSummary, *, is_rehearsal: bool) -> Iterator[str]:
    """The summary for a person: a table of what came, what was left out and why, what went wrong and where."""
    yield from _table(summary)
    for reason, count in sorted(summary.skipped.items()):
        yield dim(f"left out: {count:,} {strip_control_characters(reason)}")
    for problem in summary.problems:
        place = ", ".join(filter(None, (problem.file, problem.place)))
        yield click.style("not read: ", fg="red") + strip_control_characters(f"{place}: {problem.problem}")
    untold = summary.broken + summary.unread - len(summary.problems)
    if untold > 0:
        yield f"and {untold:,} more"
    if not summary.files and not summary.unread:
        yield "nothing here is of a format that can be read"
    if is_rehearsal:
        yield "this was a rehearsal: nothing was written"


def _table(summary: ImportSummary) -> Iterator[str]:
    """Columns for what did not happen are left out, unless they are those that everybody asks for."""
    kinds = sorted(summary.kinds.items())
    shown = [name for name in OUTCOMES if name in _ASKED_FOR or any(getattr(counts, name) for _, counts in kinds)]
    rows = [("", *shown), *((kind, *(f"{getattr(counts, name):,}" for name in shown)) for kind, counts in kinds)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for kind, *cells in rows if kinds else ():
        yield "  ".join([kind.ljust(widths[0]), *(c.rjust(w) for c, w in zip(cells, widths[1:], strict=True))])
