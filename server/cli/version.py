"""`florilegium version`: prints the installed version."""

import platform
import sqlite3

import click

from server.cli.options import json_option
from server.cli.output import print_json
from server.protocol.versions import ALL_VERSIONS
from server.version import VERSION


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        print_json(
            {
                "version": VERSION,
                "python": platform.python_version(),
                "sqlite": sqlite3.sqlite_version,
                "protocol_versions": ALL_VERSIONS,
            }
        )
    else:
        click.echo(VERSION)
