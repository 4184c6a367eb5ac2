"""`florilegium embed`: embeds the text of a library for semantic search, without a server."""

import asyncio
import sys
import time

import click

from config.errors import Unavailable
from config.settings import Settings
from server.cli.local_library import LocalLibrary, open_local, user_option
from server.cli.options import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.output import pluralize, print_json

_DRAW_INTERVAL_S = 0.5
_PRINT_INTERVAL_S = 10.0
_ERASE_LINE = "\r\x1b[2K"


@click.command(cls=SettingsCommand)
@user_option
@json_option
@setting_options("data_dir", "single_user_name", "semantic_model")
def embed(overrides: SettingsOverrides, user: str | None, as_json: bool) -> None:
    """Embed the text of a library, so that searches compare meanings too.

    A server does this in the background. Run it after a large import, or if you only use the command line. It can be
    interrupted at any time and continues where it stopped.
    """
    passages, stop = asyncio.run(_embed(overrides.load().settings, user))
    if as_json:
        print_json({"passages": passages, **({"stopped": stop} if stop else {})})
    else:
        click.echo(f"{pluralize(passages, 'passages')} embedded; {stop or 'the library is complete'}.")


async def _embed(settings: Settings, user: str | None) -> tuple[int, str | None]:
    """Returns how many passages were embedded, and which quota is reached, if any."""
    async with open_local(settings, user, writes=True) as local:
        if not local.libraries.state().embedding.is_enabled:
            raise Unavailable("semantic search is off; set semantic_model, and see `florilegium model list`")
        task = asyncio.create_task(local.libraries.embed(local.context.user_id))
        try:
            await _show_progress(local, task)
        finally:
            task.cancel()
        return local.libraries.state().embedding.passages_total, task.result()


async def _show_progress(local: LocalLibrary, task: "asyncio.Task[str | None]") -> None:
    """Returns when the task is done. Raises Unavailable if the model cannot be used."""
    draws = sys.stderr.isatty()
    printed_at = time.monotonic()
    while not (await asyncio.wait([task], timeout=_DRAW_INTERVAL_S))[0]:
        state = local.libraries.state().embedding
        if state.problem is not None:
            raise Unavailable(state.problem)
        line = f"{state.coverage:4.0%} of the library, {pluralize(state.passages_total, 'passages')} embedded"
        if draws:
            click.echo(f"{_ERASE_LINE}{line}", err=True, nl=False, color=True)
        elif time.monotonic() - printed_at > _PRINT_INTERVAL_S:
            printed_at = time.monotonic()
            click.echo(line, err=True)
    if draws:
        click.echo(_ERASE_LINE, err=True, nl=False, color=True)
