"""Progress on stderr, so that stdout has only the command's result.

On a terminal one line is redrawn; otherwise a plain line is printed every few seconds, without control sequences."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from config.times import format_clock
from server.cli import output

if TYPE_CHECKING:
    from sources.importers.engine.limits import ImportProgress  # other commands than `import` do not need it

_BAR_CELLS = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"
# A shorter part of a name says too little.
_FILE_CELLS_MIN = 8
_DRAW_INTERVAL_S = 0.2
_PRINT_INTERVAL_S = 5.0
_ERASE_LINE = "\r\x1b[2K"
_STDERR = 2


class ProgressLine:
    """What a command is doing, in its own words."""

    def __init__(self) -> None:
        self._draws = sys.stderr.isatty()
        # A terminal shows the first line at once. In a log, a command that is done soon leaves none.
        self._next_at = 0.0 if self._draws else time.monotonic() + _PRINT_INTERVAL_S

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._draws:
            _redraw("")

    def show(self, text: str) -> None:
        now = time.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + (_DRAW_INTERVAL_S if self._draws else _PRINT_INTERVAL_S)
        if self._draws:
            _redraw(output.truncate_cells(text, output.terminal_columns(_STDERR) - 1))
        else:
            click.echo(text, err=True)


def _redraw(line: str) -> None:
    # color=True keeps the sequence that erases the line, even if colours are disabled.
    click.echo(f"{_ERASE_LINE}{line}", err=True, nl=False, color=True)


# -- imports -----------------------------------------------------------------------------------------------------------
# The progress of an import, with bytes, items, rate and remaining time.


@asynccontextmanager
async def show_progress(progress: "ImportProgress") -> AsyncIterator[None]:
    """Shows progress while the block runs."""
    started = time.monotonic()
    draws = sys.stderr.isatty()
    # A task of its own, so that the importer need not know who looks at its progress.
    task = asyncio.create_task(_draw(progress, started) if draws else _print(progress))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if draws:
            _redraw("")
            if progress.items:
                elapsed_s = time.monotonic() - started
                items, rate = output.pluralize(progress.items, "items"), _rate(progress.items, elapsed_s)
                final_line = f"{output.format_size(progress.bytes_read)}, {items} in {format_clock(elapsed_s)} ({rate})"
                output.echo(output.dim(final_line), err=True)


def _styled_parts(progress: "ImportProgress", elapsed_s: float, columns: int) -> list[tuple[str, dict[str, Any]]]:
    """Returns the parts of a line that fits the terminal, with their styles. The name of the file, which comes last, is
    shortened. A line that must be cut has no styles."""
    share = min(1.0, progress.bytes_read / progress.bytes_total) if progress.bytes_total else 0.0
    # The filled and the empty part. It moves in eighths of a cell, so that large files show progress, too.
    cells, eighths = divmod(int(share * _BAR_CELLS * 8), 8)
    bar_filled = "\N{FULL BLOCK}" * cells + (_EIGHTHS[eighths] if eighths else "")
    filled, empty = bar_filled, "\N{LIGHT SHADE}" * (_BAR_CELLS - len(bar_filled))
    remaining = format_clock(elapsed_s * (1 - share) / share) if share else "--:--"
    numbers = (
        f" {share:4.0%}  {output.format_size(progress.bytes_read)} of {output.format_size(progress.bytes_total)}  "
        f"{output.pluralize(progress.items, 'items')}  {_rate(progress.items, elapsed_s)}  {remaining} left"
    )
    columns_left = columns - len(filled + empty + numbers) - 3
    if columns_left < 0:
        return [((filled + empty + numbers)[: max(0, columns - 1)], {})]
    name = output.strip_control_characters(progress.file).replace("\n", " ")
    file = output.truncate_cells(name, columns_left) if columns_left >= _FILE_CELLS_MIN else ""
    file_part = f"  {file}" if file else ""
    return [(filled, {"fg": "cyan"}), (empty, {"dim": True}), (numbers, {}), (file_part, {"dim": True})]


def _rate(items: int, elapsed_s: float) -> str:
    return f"{items / elapsed_s if elapsed_s > 0 else 0:,.0f}/s"


async def _draw(progress: "ImportProgress", started: float) -> None:
    while True:
        parts = _styled_parts(progress, time.monotonic() - started, output.terminal_columns(_STDERR))
        line = "".join(click.style(text, **style) if output.uses_colour() else text for text, style in parts)
        _redraw(line)
        await asyncio.sleep(_DRAW_INTERVAL_S)


async def _print(progress: "ImportProgress") -> None:
    while True:
        await asyncio.sleep(_PRINT_INTERVAL_S)
        click.echo(_plain_line(progress), err=True)


def _plain_line(progress: "ImportProgress") -> str:
    if not progress.file:
        return "looking for files"
    read = f"{output.format_size(progress.bytes_read)} of {output.format_size(progress.bytes_total)}"
    items = output.pluralize(progress.items, "items")
    return f"{read}, {items}: {output.strip_control_characters(progress.file)}"
