"""`florilegium migrate`: upgrades libraries to the schema of this version, or lists those that need it."""

from typing import Any, cast

import click
from msgspec import Struct

from auth.control_schema import CONTROL_SCHEMA
from auth.registry import read_control_schema, read_users
from config.paths import DatabaseKind, DataRoot, UserId
from config.settings import Settings
from server.cli.admin import data_root, run_with_registry
from server.cli.options import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.output import print_json, print_table
from server.directory_lock import locked_directory
from server.stores import require_sqlite
from sources.storage.sqlite.connection.pool import sqlite_options
from sources.storage.sqlite.maintenance.maintenance import schema_statuses, upgrade


class _FileSchema(Struct, frozen=True):
    """The schema of one file. `user_id` is None for the control database."""

    user: str
    user_id: UserId | None
    file: str
    version: int
    newest: int

    @property
    def state(self) -> str:
        if self.version > self.newest:
            return "created by a newer version"
        return "current" if self.version == self.newest else "needs migration"

    def as_data(self) -> dict[str, Any]:
        return {
            "user": self.user,
            "file": self.file,
            "schema": self.version,
            "known": self.newest,
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
    require_sqlite(settings, "migrate", "libraries in PostgreSQL are migrated when they are first used")
    if not check:
        _upgrade(settings)
    outdated = [file for file in _all(data_root(settings)) if file.state != "current"]
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
    outdated = [file for file in _all(root) if file.state == "needs migration"]
    if not outdated:
        return
    with locked_directory(root.root, "migrate", "writer"):
        run_with_registry(settings, lambda registry: registry.list_users())  # opening migrates the control database
        for file in outdated:
            if file.user_id is not None:
                upgrade(root, file.user_id, cast("DatabaseKind", file.file), options)


def _all(root: DataRoot) -> list[_FileSchema]:
    """Reads the schemas of all files without opening any of them for writing."""
    root.require_control()
    if not root.control_path.exists():  # new files are created with the current schema
        return []
    control = _FileSchema("-", None, "control", read_control_schema(root.control_path), CONTROL_SCHEMA)
    return [
        control,
        *(
            _FileSchema(name, user_id, status.kind, status.version, status.newest)
            for user_id, name in read_users(root.control_path)
            for status in schema_statuses(root, user_id)
        ),
    ]
