"""One line of progress on stderr, so that stdout has only the command's result: redrawn on a terminal, and otherwise
printed every few seconds, without the sequences that only a terminal understands."""

import sys
import time
from types import TracebackType

import click

from server.cli.output import terminal_columns, truncate_cells

_DRAW_INTERVAL_S = 0.2
_PRINT_INTERVAL_S = 5.0
_ERASE_LINE = "\r\x1b[2K"
_STDERR = 2


class ProgressLine:
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
            click.echo(_ERASE_LINE, err=True, nl=False, color=True)

    def show(self, text: str) -> None:
        now = time.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + (_DRAW_INTERVAL_S if self._draws else _PRINT_INTERVAL_S)
        if self._draws:
            line = truncate_cells(text, terminal_columns(_STDERR) - 1)
            # color=True keeps the sequence that erases the line, even if colours are disabled.
            click.echo(f"{_ERASE_LINE}{line}", err=True, nl=False, color=True)
        else:
            click.echo(text, err=True)
