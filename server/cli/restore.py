"""`florilegium restore`: puts a backup back into an empty data directory, or only says whether it is whole."""

from pathlib import Path

import click
from msgspec import to_builtins

from server.cli.backup import contents
from server.cli.control import data_root
from server.cli.options import Given, SettingsCommand, json_option, setting_options
from server.cli.output import print_json
from sources.storage.sqlite.maintenance.backups import restore as put_back
from sources.storage.sqlite.maintenance.backups import verify as verify_backup


@click.command(cls=SettingsCommand)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--verify", is_flag=True, help="Look whether the backup is whole, and write nothing.")
@json_option
@setting_options("data_dir")
def restore(given: Given, folder: Path, verify: bool, as_json: bool) -> None:
    """Put the backup in DIR into the data directory, which must be empty or absent.

    Every file is compared with its checksum and its rows are counted first; a backup that is damaged is refused.
    """
    settings = given.load().settings
    found = verify_backup(folder) if verify else put_back(folder, data_root(settings))
    if as_json:
        print_json(to_builtins(found))
    else:
        click.echo(f"{folder} {'is whole' if verify else 'was restored'}: {contents(found)}")
