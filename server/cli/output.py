"""How commands print: tables for people, JSON for programs, and times that both can read."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from config.times import format_time_seconds


def print_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest value; the last one is not padded."""
    widths = [max(len(row[column]) for row in (titles, *rows)) for column in range(len(titles))]
    for row in (titles, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def counted(count: int, things: str) -> str:
    """1,204 notes, 1 note, 1 entry. Of media there is no other form."""
    if count != 1:
        return f"{count:,} {things}"
    return f"1 {things.removesuffix('ies')}y" if things.endswith("ies") else f"1 {things.removesuffix('s')}"


def instant(seconds: float | None) -> str | None:
    """Seconds since 1970 as ISO 8601 in UTC, to the second."""
    return None if seconds is None else format_time_seconds(seconds)
