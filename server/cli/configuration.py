"""`florilegium config`: what the settings are, and where each came from."""

import click

from config.loading import describe, settings_markdown
from server.cli.options import Given, SettingsCommand, json_option, setting_options
from server.cli.output import print_json, print_table


@click.group()
def config() -> None:
    """Show the settings and their documentation."""


@config.command(cls=SettingsCommand)
@click.option("--origin", is_flag=True, help="Also say where each value came from.")
@json_option
@setting_options()
def show(given: Given, origin: bool, as_json: bool) -> None:
    """Print every setting as it is in force; secrets are masked."""
    loaded = given.load()
    rows = describe(loaded)
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
    """Print the manual page of all settings, in Markdown."""
    click.echo(settings_markdown(), nl=False)
