"""`florilegium repair`: rebuilds damaged indexes of a library and salvages the readable rows of damaged files."""

import click

from auth.library_files import forget_file
from auth.registry import UserRecord
from config.file_copies import set_aside
from config.paths import DataRoot
from config.settings import Settings
from server.cli.admin import data_root, find_user, run_with_registry
from server.cli.options import SettingsCommand, SettingsOverrides, setting_options
from server.cli.output import pluralize
from server.directory_lock import locked_directory
from server.stores import require_sqlite
from sources.storage.sqlite.connection.pool import sqlite_options
from sources.storage.sqlite.maintenance.library_check import FileCheck, check_library
from sources.storage.sqlite.maintenance.maintenance import reindex
from sources.storage.sqlite.maintenance.salvage import SalvageReport, salvage


@click.command(cls=SettingsCommand)
@click.option("--user", required=True, help="The user whose library is repaired.")
@click.option("--accept-loss", is_flag=True, help="Let the user start with an empty file in place of a missing one.")
@setting_options("data_dir")
def repair(overrides: SettingsOverrides, user: str, accept_loss: bool) -> None:
    """Repair a library without a backup, while no server is running.

    Damaged indexes are rebuilt. From damaged files the readable rows are copied to new ones; the damaged files are
    kept. If you have a recent backup, `florilegium restore DIR --user NAME` loses less.

    Exit codes: 0 if the library is intact now and nothing was lost, 1 otherwise.
    """
    settings = overrides.load().settings
    require_sqlite(settings, "repair", "restore a dump of the database with pg_restore")
    root, record = data_root(settings), run_with_registry(settings, lambda registry: find_user(registry, user))
    with locked_directory(root.root, "repair", "maintenance"):
        checks = check_library(root, record.id)
        repairs = [_repair(settings, root, record, check, accept_loss=accept_loss) for check in checks]
        is_intact = all(check.state == "ok" for check in check_library(root, record.id))
    click.get_current_context().exit(0 if all(repairs) and is_intact else 1)


def _repair(settings: Settings, root: DataRoot, user: UserRecord, check: FileCheck, *, accept_loss: bool) -> bool:
    """Repairs one file and reports it. Returns whether nothing was lost."""
    kind = check.kind
    match check.state:
        case "ok":
            click.echo(f"{kind}.db: intact")
            return True
        case "index damaged":
            entries = reindex(root, user.id, kind, sqlite_options(settings))
            click.echo(f"{kind}.db: indexes rebuilt, {pluralize(entries, 'entries')}")
            return True
        case "damaged":
            report = salvage(root, user.id, kind)
            reindex(root, user.id, kind, sqlite_options(settings))
            click.echo(f"{kind}.db: {_describe(report)}")
        case "missing" if accept_loss:
            set_aside(getattr(root.paths_of(user.id), kind))
            forget_file(root.control_path, user.id, kind)
            click.echo(f"{kind}.db: missing; {user.name} starts with an empty one")
        case "missing":
            click.echo(
                f"{kind}.db: missing; run `florilegium restore DIR --user {user.name}`, or pass --accept-loss to start "
                "with an empty one"
            )
        case _:
            click.echo(f"{kind}.db: written by a newer version; upgrade Florilegium")
    return False


def _describe(report: SalvageReport) -> str:
    rows = pluralize(sum(report.rows.values()), "rows")
    gaps = ", ".join(f"{table} ({pluralize(count, 'places')})" for table, count in report.gaps.items())
    lost = f"; unreadable: {gaps}" if gaps else "; every row was readable"
    return f"{rows} salvaged{lost}; the damaged file is kept as {report.replaced}"
