"""A long job on a terminal: one line that is drawn anew, with bytes, items, rate and the time that is left. Where no
terminal reads, a plain line now and then."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unicodedata import east_asian_width

import click

from server.cli.output import pluralize
from server.cli.terminal import dim, echo, format_clock, strip_control_characters, terminal_columns, uses_colour
from sources.importers.engine.import_runner import ImportProgress

_BAR_CELLS = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"
_FILE_CELLS_MIN = 8
_DRAW_INTERVAL_S = 0.2
_PRINT_INTERVAL_S = 10.0
_ERASE_LINE = "\r\x1b[2K"
_STDERR = 2
_UNITS = ("B", "KB", "MB", "GB", "TB")


@asynccontextmanager
async def shown(meter: ImportProgress, *, is_terminal: bool | None = None) -> AsyncIterator[None]:
    """On stderr: what a command prints for programs stays alone on stdout."""
    begun = time.monotonic()
    drawing = asyncio.create_task(_draw(meter, begun) if _reads_terminal(is_terminal) else _say(meter))
    try:
        yield
    finally:
        drawing.cancel()
        await asyncio.wait([drawing])
        if _reads_terminal(is_terminal):
            click.echo(_ERASE_LINE, err=True, nl=False, color=True)
            if meter.items:
                echo(dim(_ending(meter, time.monotonic() - begun)), err=True)


def line(meter: ImportProgress, elapsed_s: float, columns: int) -> str:
    """One line that fits, the least important last: it is the file that is cut."""
    return "".join(text for text, _ in _parts(meter, elapsed_s, columns))


def _parts(meter: ImportProgress, elapsed_s: float, columns: int) -> list[tuple[str, dict[str, Any]]]:
    """The line in pieces, each with its colours. Where there is room for less than all, no piece is painted."""
    done = min(1.0, meter.bytes_read / meter.bytes_total) if meter.bytes_total else 0.0
    full, rest = _bar(done)
    left = format_clock(elapsed_s * (1 - done) / done) if done else "--:--"
    told = (
        f" {done:4.0%}  {size(meter.bytes_read)} of {size(meter.bytes_total)}  {pluralize(meter.items, 'items')}  "
        f"{_rate(meter.items, elapsed_s)}  {left} left"
    )
    room = columns - len(full + rest + told) - 3
    if room < 0:
        return [((full + rest + told)[: max(0, columns - 1)], {})]
    file = _cut(strip_control_characters(meter.file).replace("\n", " "), room) if room >= _FILE_CELLS_MIN else ""
    return [(full, {"fg": "cyan"}), (rest, {"dim": True}), (told, {}), (f"  {file}" if file else "", {"dim": True})]


def _bar(done: float) -> tuple[str, str]:
    """In eighths of a cell, so that it moves though the file is large."""
    cells, eighths = divmod(int(done * _BAR_CELLS * 8), 8)
    full = "\N{FULL BLOCK}" * cells + (_EIGHTHS[eighths] if eighths else "")
    return full, "\N{LIGHT SHADE}" * (_BAR_CELLS - len(full))


def _cut(text: str, cells: int) -> str:
    """As much of a text as stands in so many cells; Chinese characters take two."""
    taken = 0
    for at, character in enumerate(text):
        taken += 2 if east_asian_width(character) in "WF" else 1
        if taken > cells:
            return text[:at]
    return text


def _rate(items: int, elapsed_s: float) -> str:
    return f"{items / elapsed_s if elapsed_s > 0 else 0:,.0f}/s"


def _ending(meter: ImportProgress, elapsed_s: float) -> str:
    """What is left of the line when all is done."""
    items, rate = pluralize(meter.items, "items"), _rate(meter.items, elapsed_s)
    return f"{size(meter.bytes_read)}, {items} in {format_clock(elapsed_s)} ({rate})"


def size(count: int) -> str:
    """12 KB, 3.4 MB: decimal, as disks are sold and files are listed."""
    amount, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            break
        amount /= 1000
    return f"{amount:.1f} {unit}" if unit not in ("B", "KB") else f"{amount:.0f} {unit}"


async def _draw(meter: ImportProgress, begun: float) -> None:
    while True:
        parts = _parts(meter, time.monotonic() - begun, terminal_columns(_STDERR))
        # What erases the line steers the terminal, whatever is thought of colours there.
        drawn = "".join(click.style(text, **style) if uses_colour() else text for text, style in parts)
        click.echo(f"{_ERASE_LINE}{drawn}", err=True, nl=False, color=True)
        await asyncio.sleep(_DRAW_INTERVAL_S)


async def _say(meter: ImportProgress) -> None:
    while True:
        await asyncio.sleep(_PRINT_INTERVAL_S)
        read = f"{size(meter.bytes_read)} of {size(meter.bytes_total)}"
        click.echo(f"{read}, {pluralize(meter.items, 'items')}: {strip_control_characters(meter.file)}", err=True)


def _reads_terminal(is_terminal: bool | None) -> bool:
    return sys.stderr.isatty() if is_terminal is None else is_terminal
