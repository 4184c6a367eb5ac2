"""`florilegium restore`: restores a backup into an empty data directory, or verifies it."""

from pathlib import Path

import click
from msgspec import to_builtins

from server.cli.admin import data_root
from server.cli.backup import contents
from server.cli.options import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.output import print_json
from sources.storage.sqlite.maintenance.backups import restore as restore_backup
from sources.storage.sqlite.maintenance.backups import verify as verify_backup


@click.command(cls=SettingsCommand)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--verify", is_flag=True, help="Verify the backup without writing anything.")
@json_option
@setting_options("data_dir")
def restore(overrides: SettingsOverrides, folder: Path, verify: bool, as_json: bool) -> None:
    """Restore the backup in DIR into the data directory.

    The data directory must be empty or not exist. The checksums and row counts of all files are verified first; a
    damaged backup is rejected.
    """
    settings = overrides.load().settings
    backup = verify_backup(folder) if verify else restore_backup(folder, data_root(settings))
    if as_json:
        print_json(to_builtins(backup))
    else:
        click.echo(f"{folder} {'is intact' if verify else 'was restored'}: {contents(backup)}")
