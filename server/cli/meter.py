"""A long job on a terminal: one line that is drawn anew, with bytes, items, rate and the time that is left. Where no
terminal reads, a plain line now and then."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click

from server.cli.paint import clock, harmless, terminal_columns
from sources.importers.intake import Meter

_BAR_CELLS = 24
_FILE_CELLS_MIN = 8
_DRAWN_EVERY_S = 0.2
_SAID_EVERY_S = 10.0
_ERASE_LINE = "\r\x1b[2K"
_STDERR = 2
_UNITS = ("B", "KB", "MB", "GB", "TB")


@asynccontextmanager
async def shown(meter: Meter, *, is_terminal: bool | None = None) -> AsyncIterator[None]:
    """On stderr: what a command prints for programs stays alone on stdout."""
    drawing = asyncio.create_task(_draw(meter) if _reads_terminal(is_terminal) else _say(meter))
    try:
        yield
    finally:
        drawing.cancel()
        await asyncio.wait([drawing])
        if _reads_terminal(is_terminal):
            click.echo(_ERASE_LINE, err=True, nl=False, color=True)


def line(meter: Meter, elapsed_s: float, columns: int) -> str:
    """One line that fits, the least important last: it is the file that is cut."""
    done = min(1.0, meter.bytes_read / meter.bytes_total) if meter.bytes_total else 0.0
    full = int(done * _BAR_CELLS)
    parts = [
        "\N{FULL BLOCK}" * full + "\N{LIGHT SHADE}" * (_BAR_CELLS - full),
        f"{done:4.0%}",
        f"{size(meter.bytes_read)} of {size(meter.bytes_total)}",
        f"{meter.items:,} items",
        f"{meter.items / elapsed_s if elapsed_s > 0 else 0:,.0f}/s",
        f"{clock(elapsed_s * (1 - done) / done) if done else '--:--'} left",
    ]
    told = "  ".join(parts)
    room = columns - len(told) - 3
    file = harmless(meter.file).replace("\n", " ")
    return f"{told}  {file[:room]}" if room >= _FILE_CELLS_MIN else told[: max(0, columns - 1)]


def size(count: int) -> str:
    """12 KB, 3.4 MB: decimal, as disks are sold and files are listed."""
    amount, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            break
        amount /= 1000
    return f"{amount:.1f} {unit}" if unit not in ("B", "KB") else f"{amount:.0f} {unit}"


async def _draw(meter: Meter) -> None:
    begun = time.monotonic()
    while True:
        drawn = line(meter, time.monotonic() - begun, terminal_columns(_STDERR))
        click.echo(f"{_ERASE_LINE}{drawn}", err=True, nl=False, color=True)
        await asyncio.sleep(_DRAWN_EVERY_S)


async def _say(meter: Meter) -> None:
    while True:
        await asyncio.sleep(_SAID_EVERY_S)
        read = f"{size(meter.bytes_read)} of {size(meter.bytes_total)}"
        click.echo(f"{read}, {meter.items:,} items: {harmless(meter.file)}", err=True)


def _reads_terminal(is_terminal: bool | None) -> bool:
    return sys.stderr.isatty() if is_terminal is None else is_terminal
