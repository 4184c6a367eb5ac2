"""Output of commands: tables, JSON, times and questions."""

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from config.times import format_time_seconds
from server.cli.cells import cell_width, pad_cells


def print_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints columns as wide as their widest value. The last column is not padded."""
    widths = [max(cell_width(row[column]) for row in (titles, *rows)) for column in range(len(titles))]
    for row in (titles, *rows):
        cells = [pad_cells(cell, width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def pluralize(count: int, nouns: str) -> str:
    """Returns "1,204 notes", "1 note" or "1 entry". `nouns` is the plural; "media" has no singular here."""
    if count != 1:
        return f"{count:,} {nouns}"
    return f"1 {nouns.removesuffix('ies')}y" if nouns.endswith("ies") else f"1 {nouns.removesuffix('s')}"


def format_time(seconds: float | None) -> str | None:
    """Formats seconds since 1970 as ISO 8601 in UTC, without fractions."""
    return None if seconds is None else format_time_seconds(seconds)


def confirm(question: str) -> None:
    """Asks on the terminal, and ends the command unless the answer is yes."""
    if not sys.stdin.isatty():
        raise click.UsageError("cannot ask for confirmation without a terminal; add --yes")
    click.confirm(question, abort=True)
