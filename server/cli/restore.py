"""`florilegium restore`: restores a backup into an empty data directory, or one user of it, or verifies it."""

from pathlib import Path

import click
from msgspec import to_builtins

from config.paths import UserId
from config.settings import Settings
from server.cli.admin import data_root, find_user, run_with_registry
from server.cli.backup import contents, report_problems
from server.cli.options import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.output import pluralize, print_json
from server.directory_lock import locked_directory
from server.stores import require_sqlite
from sources.storage.sqlite.maintenance.backups import BackupUser, restore_user, verify_user
from sources.storage.sqlite.maintenance.backups import restore as restore_backup
from sources.storage.sqlite.maintenance.backups import verify as verify_backup

_NOT_IN_BACKUP = "not in the backup"


@click.command(cls=SettingsCommand)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--verify", is_flag=True, help="Verify the backup without writing anything.")
@click.option("--user", help="Replace only the files of this user, who must exist. Stop the server first.")
@json_option
@setting_options("data_dir")
def restore(overrides: SettingsOverrides, folder: Path, verify: bool, user: str | None, as_json: bool) -> None:
    """Restore the backup in DIR into the data directory.

    The data directory must be empty or not exist, except with --user. The checksums and row counts of all files are
    verified first; a damaged backup is rejected.

    With --user, the replaced files are kept next to the restored ones, as `chacha.db.replaced-NUMBER`.

    Exit codes: 0 if everything is in the backup, 1 otherwise.
    """
    settings = overrides.load().settings
    require_sqlite(
        settings,
        "restore",
        "restore a dump of the database with pg_restore, or restore into a data directory and copy that with "
        "`florilegium migrate-store`",
    )
    if user is not None:
        _restore_user(settings, folder, user, verify=verify, as_json=as_json)
        return
    backup = verify_backup(folder) if verify else restore_backup(folder, data_root(settings))
    if as_json:
        print_json(to_builtins(backup))
    else:
        click.echo(f"{folder} {_outcome(verify)}: {contents(backup)}")
    report_problems(backup.problems, _NOT_IN_BACKUP)


def _restore_user(settings: Settings, folder: Path, name: str, *, verify: bool, as_json: bool) -> None:
    if verify:
        _, files = verify_user(folder, name)
    else:
        root, user_id = data_root(settings), _user_id(settings, name)
        with locked_directory(root.root, "restore", "maintenance"):
            files = restore_user(folder, name, root, user_id)
    if as_json:
        print_json(to_builtins(files))
    else:
        click.echo(f"{name} in {folder} {_outcome(verify)}: {_describe(files)}")
    report_problems([f"{name}: {problem}" for problem in files.problems], _NOT_IN_BACKUP)


def _user_id(settings: Settings, name: str) -> UserId:
    return run_with_registry(settings, lambda registry: find_user(registry, name)).id


def _describe(user: BackupUser) -> str:
    rows = sum(sum(file.rows.values()) for file in user.files.values())
    return f"{pluralize(len(user.files), 'files')}, {pluralize(rows, 'rows')}"


def _outcome(verify: bool) -> str:
    return "is intact" if verify else "was restored"
