"""`florilegium backup`: copies all libraries and the control database into a folder, while they are in use."""

import time
from pathlib import Path

import click
from msgspec import to_builtins

from auth.registry import Registry
from config.paths import UserId
from server.cli.control import administer, data_root
from server.cli.options import Given, SettingsCommand, json_option, setting_options
from server.cli.output import counted, instant, print_json
from sources.storage.sqlite.maintenance.backups import Backup, back_up


@click.command(cls=SettingsCommand)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@json_option
@setting_options("data_dir")
def backup(given: Given, folder: Path, as_json: bool) -> None:
    """Copy everything into the folder DIR, which must be empty or absent.

    The server may run and write meanwhile. The files of one user are copied as they were at one moment.
    `florilegium restore DIR` puts a backup back.
    """
    settings = given.load().settings
    users = administer(settings, _users)
    made = back_up(data_root(settings), users, folder, instant(time.time()) or "")
    if as_json:
        print_json(to_builtins(made))
    else:
        click.echo(f"{folder}: {contents(made)}")


async def _users(registry: Registry) -> list[tuple[UserId, str]]:
    return [(user.id, user.name) for user in await registry.list_users()]


def contents(made: Backup) -> str:
    """2 users, 5 files, 1,204 rows"""
    files = [made.control, *(file for user in made.users.values() for file in user.files.values())]
    rows = sum(sum(file.rows.values()) for file in files)
    counts = (counted(len(made.users), "users"), counted(len(files), "files"), counted(rows, "rows"))
    return f"{', '.join(counts)}, made {made.made_at}"
