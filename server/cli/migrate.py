"""`florilegium migrate`: brings libraries up to the schema of this version, or says which of them are behind."""

from typing import Any

import click
from msgspec import Struct

from auth.registry import UserRecord
from config.settings import Settings
from server.cli.control import administer, data_root
from server.cli.options import Given, SettingsCommand, json_option, setting_options
from server.cli.output import print_json, print_table
from sources.storage.sqlite.connection.pool import engine_of
from sources.storage.sqlite.maintenance.maintenance import Standing, standings, upgrade


class _Owned(Struct, frozen=True):
    user: UserRecord
    standing: Standing

    @property
    def state(self) -> str:
        if self.standing.is_newer:
            return "made by a newer version"
        return "current" if self.standing.is_current else "needs migration"

    def as_data(self) -> dict[str, Any]:
        standing = self.standing
        return {
            "user": self.user.name,
            "file": standing.kind,
            "schema": standing.schema,
            "known": standing.known,
            "state": self.state,
        }


@click.command(cls=SettingsCommand)
@click.option("--check", is_flag=True, help="Say which libraries are behind, and change nothing.")
@json_option
@setting_options("data_dir")
def migrate(given: Given, check: bool, as_json: bool) -> None:
    """Bring all libraries up to the schema of this version.

    A server does this by itself when a user first calls; this does it for all, before anyone waits. A copy of each file
    is kept beside it (setting migration_copies_max).

    Exit codes: 0 all are current, 1 some are not.
    """
    settings = given.load().settings
    if not check:
        _upgrade(settings)
    behind = [one for one in _all(settings) if not one.standing.is_current]
    if as_json:
        print_json([one.as_data() for one in behind])
    elif behind:
        rows = [(str(cell) for cell in one.as_data().values()) for one in behind]
        print_table(("USER", "FILE", "SCHEMA", "KNOWN", "STATE"), [tuple(row) for row in rows])
    else:
        click.echo("all libraries are current")
    click.get_current_context().exit(1 if behind else 0)


def _upgrade(settings: Settings) -> None:
    root, engine = data_root(settings), engine_of(settings)
    for one in _all(settings):
        if not one.standing.is_current and not one.standing.is_newer:
            upgrade(root, one.user.id, one.standing.kind, engine)


def _all(settings: Settings) -> list[_Owned]:
    root = data_root(settings)
    if not root.control_path.exists():  # what is not there yet is made with the schema of this version
        return []
    users = administer(settings, lambda registry: registry.list_users())
    return [_Owned(user, standing) for user in users for standing in standings(root, user.id)]
