"""`florilegium config`: shows the settings and where each value comes from."""

import click

from config.loading import describe_settings, settings_markdown
from server.cli.options import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.output import print_json, print_table


@click.group()
def config() -> None:
    """Show the settings and their documentation."""


@config.command(cls=SettingsCommand)
@click.option("--origin", is_flag=True, help="Also show where each value comes from.")
@json_option
@setting_options()
def show(overrides: SettingsOverrides, origin: bool, as_json: bool) -> None:
    """Print the effective value of every setting. Secrets are masked."""
    loaded = overrides.load()
    rows = describe_settings(loaded)
    if as_json:
        print_json(rows)
    else:
        titles = ("SETTING", "VALUE", "UNIT", *(("ORIGIN",) if origin else ()))
        cells = [(row.name, row.value, row.unit, *((row.origin,) if origin else ())) for row in rows]
        print_table(titles, cells)
    for warning in loaded.warnings:
        click.echo(f"florilegium: warning: {warning}", err=True)


@config.command()
def docs() -> None:
    """Print the reference of all settings as Markdown."""
    click.echo(settings_markdown(), nl=False)
