"""`florilegium demo`: adds the demo library to a user's library."""

import asyncio
from pathlib import Path
from shlex import quote

import click

from config.settings import Settings
from server.cli.local_library import open_local, user_option
from server.cli.options import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.output import pluralize, print_json
from server.cli.tour import tour
from sources.demo import FillResult, fill


@click.command(cls=SettingsCommand)
@user_option
@json_option
@setting_options("data_dir", "single_user_name")
def demo(overrides: SettingsOverrides, user: str | None, as_json: bool) -> None:
    """Add the demo library to a user's library.

    It covers one year of a small observatory, in all five sources. Existing items are left alone.
    """
    settings = overrides.load().settings
    result = asyncio.run(_fill(settings, user))
    if as_json:
        print_json({"items": result.items, "new": result.new})
        return
    click.echo(f"{describe_items(result)}; {result.new} new in the library of {user or settings.single_user_name!r}")
    click.echo(f"\nTry:\n\n{tour(_options(overrides, user))}\n")


async def _fill(settings: Settings, user: str | None) -> FillResult:
    async with (
        open_local(settings, user, creates=True, writes=True) as local,
        local.libraries.library(local.context) as library,
    ):
        return await fill(library)


def describe_items(result: FillResult) -> str:
    """Returns `23 notes, 7 media, …`."""
    return ", ".join(pluralize(count, source) for source, count in result.items.items())


def _options(overrides: SettingsOverrides, user: str | None) -> str:
    """Returns the options that the next command needs to find the same library."""
    options: dict[str, str | Path | None] = {
        "--user": user,
        "--data-dir": overrides.cli["data_dir"],
        "--single-user-name": overrides.cli["single_user_name"],
        "--config": overrides.config_file,
    }
    return "".join(f" {option} {quote(str(value))}" for option, value in options.items() if value is not None)
