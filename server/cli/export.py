"""`florilegium export`: writes a user's whole library into a folder, as JSON lines and Markdown pages."""

import asyncio
from pathlib import Path

import click
from msgspec.structs import asdict

from config.settings import Settings
from server.cli.local_library import open_local, user_option
from server.cli.options import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.output import pluralize, print_json
from sources.exporters.export import export_library
from sources.exporters.lines import ExportManifest


@click.command(cls=SettingsCommand)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@user_option
@json_option
@setting_options("data_dir", "single_user_name")
def export(overrides: SettingsOverrides, folder: Path, user: str | None, as_json: bool) -> None:
    """Export a whole library into the folder DIR, which must be empty or absent.

    DIR/*.jsonl contain every field of every item; `florilegium import DIR` reads them. The Markdown pages are for
    people. Deleted items are not exported.
    """
    manifest = asyncio.run(_export(overrides.load().settings, folder, user))
    if as_json:
        print_json(asdict(manifest))
        return
    counts = ", ".join(pluralize(count, kind) for kind, count in manifest.counts.items() if count)
    click.echo(f"{folder}: {counts or 'the library is empty'}")


async def _export(settings: Settings, folder: Path, user: str | None) -> ExportManifest:
    async with open_local(settings, user) as local, local.libraries.library(local.context) as library:
        return await export_library(library, folder)
