"""`florilegium migrate`: upgrades libraries to the schema of this version, or lists those that need it."""

from typing import Any

import click
from msgspec import Struct

from auth.registry import UserRecord
from config.settings import Settings
from server.cli.admin import data_root, run_with_registry
from server.cli.options import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.output import print_json, print_table
from server.directory_lock import locked_directory
from sources.storage.sqlite.connection.pool import sqlite_options
from sources.storage.sqlite.maintenance.maintenance import SchemaStatus, schema_statuses, upgrade


class _UserFile(Struct, frozen=True):
    user: UserRecord
    status: SchemaStatus

    @property
    def state(self) -> str:
        if self.status.is_unsupported:
            return "created by a newer version"
        return "current" if self.status.is_current else "needs migration"

    def as_data(self) -> dict[str, Any]:
        status = self.status
        return {
            "user": self.user.name,
            "file": status.kind,
            "schema": status.version,
            "known": status.newest,
            "state": self.state,
        }


@click.command(cls=SettingsCommand)
@click.option("--check", is_flag=True, help="List libraries that need an upgrade, without changing anything.")
@json_option
@setting_options("data_dir")
def migrate(overrides: SettingsOverrides, check: bool, as_json: bool) -> None:
    """Upgrade all libraries to the schema of this version.

    A server upgrades a library when its user first calls. This command upgrades all of them in advance, so that no
    user has to wait. A copy of each file is kept next to it (setting migration_copies_max).

    Exit codes: 0 if all libraries are current, 1 otherwise.
    """
    settings = overrides.load().settings
    if not check:
        _upgrade(settings)
    outdated = [file for file in _all(settings) if not file.status.is_current]
    if as_json:
        print_json([file.as_data() for file in outdated])
    elif outdated:
        rows = [(str(cell) for cell in file.as_data().values()) for file in outdated]
        print_table(("USER", "FILE", "SCHEMA", "KNOWN", "STATE"), [tuple(row) for row in rows])
    else:
        click.echo("All libraries are current.")
    click.get_current_context().exit(1 if outdated else 0)


def _upgrade(settings: Settings) -> None:
    root, options = data_root(settings), sqlite_options(settings)
    outdated = [file for file in _all(settings) if not file.status.is_current and not file.status.is_unsupported]
    if not outdated:
        return
    with locked_directory(root.root, "migrate", "writer"):
        for file in outdated:
            upgrade(root, file.user.id, file.status.kind, options)


def _all(settings: Settings) -> list[_UserFile]:
    root = data_root(settings)
    if not root.control_path.exists():  # new files are created with the current schema
        return []
    users = run_with_registry(settings, lambda registry: registry.list_users())
    return [_UserFile(user, status) for user in users for status in schema_statuses(root, user.id)]
