"""`florilegium backup`: copies all libraries and the control database into a folder, even while they are in use."""

import time
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import to_builtins

from auth.audit import BACKUP_ACTION
from auth.registry import Registry
from config.paths import UserId
from server.cli.admin import data_root, record_operation, run_with_registry
from server.cli.options import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.output import format_time, pluralize, print_json
from server.stores import require_sqlite
from sources.storage.sqlite.maintenance.backups import BackupManifest, back_up


@click.command(cls=SettingsCommand)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@json_option
@setting_options("data_dir")
def backup(overrides: SettingsOverrides, folder: Path, as_json: bool) -> None:
    """Back up all users and the control database to the folder DIR.

    DIR must be empty or not exist. The server can keep running and writing; the copies of one user's files are
    consistent with each other. Every copy is checked: a damaged or missing file is reported and left out.
    `florilegium restore DIR` restores a backup.

    Exit codes: 0 if everything was copied, 1 otherwise.
    """
    settings = overrides.load().settings
    require_sqlite(
        settings,
        "backup",
        "back up the database with pg_dump, or copy it to files with `florilegium migrate-store --to sqlite:DIRECTORY`",
    )
    users = run_with_registry(settings, _users)
    copy = back_up(data_root(settings), users, folder, format_time(time.time()) or "")
    record_operation(settings, BACKUP_ACTION, "", str(folder.absolute()), contents(copy))
    if as_json:
        print_json(to_builtins(copy))
    else:
        click.echo(f"{folder}: {contents(copy)}")
    report_problems(copy.problems, "not in the backup")


def report_problems(problems: Sequence[str], effect: str) -> None:
    """Names files that a backup lacks on stderr and exits with 1 if there are any."""
    for problem in problems:
        click.echo(f"{effect}: {problem}", err=True)
    if problems:
        click.get_current_context().exit(1)


async def _users(registry: Registry) -> list[tuple[UserId, str]]:
    return [(user.id, user.name) for user in await registry.list_users()]


def contents(backup: BackupManifest) -> str:
    """Describes a backup, such as "2 users, 5 files, 1,204 rows, created 2026-01-31T08:00:00Z"."""
    files = [backup.control, *(file for user in backup.users.values() for file in user.files.values())]
    rows = sum(sum(file.rows.values()) for file in files)
    counts = (pluralize(len(backup.users), "users"), pluralize(len(files), "files"), pluralize(rows, "rows"))
    return f"{', '.join(counts)}, created {backup.made_at}"
