"""`florilegium check`: checks the integrity of all libraries, or of one."""

from typing import Any

import click
from msgspec import Struct

from auth.registry import UserRecord
from config.settings import Settings
from server.cli.admin import data_root, find_user, run_with_registry
from server.cli.options import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.output import pluralize, print_json, print_table
from server.stores import require_sqlite
from sources.storage.sqlite.maintenance.library_check import FileCheck, FileState, check_library

ADVICE: dict[FileState, str] = {
    "missing": "`florilegium restore DIR --user {name}`",
    "damaged": "`florilegium restore DIR --user {name}`, or `florilegium repair --user {name}`",
    "index damaged": "`florilegium reindex --user {name}`",
    "newer": "upgrade Florilegium",
}


class UserFileCheck(Struct, frozen=True):
    """The check of one file of a user."""

    user: UserRecord
    file: FileCheck

    @property
    def advice(self) -> str:
        return ADVICE[self.file.state].format(name=self.user.name) if self.file.state in ADVICE else ""

    def as_data(self) -> dict[str, Any]:
        file = self.file
        return {
            "user": self.user.name,
            "file": file.kind,
            "state": file.state,
            "detail": file.detail,
            "advice": self.advice,
        }


@click.command(cls=SettingsCommand)
@click.option("--user", help="Check only the library of this user.")
@json_option
@setting_options("data_dir")
def check(overrides: SettingsOverrides, user: str | None, as_json: bool) -> None:
    """Check all libraries: expected files, SQLite's integrity check, every text, and every index against its rows.

    Changes nothing and can run while a server does; writes to a library wait while one of its indexes is compared.

    Exit codes: 0 if everything is intact, 1 otherwise.
    """
    settings = overrides.load().settings
    require_sqlite(settings, "check", "check the database with pg_amcheck")
    checks = check_users(settings, user)
    faults = [check for check in checks if check.file.state != "ok"]
    if as_json:
        print_json([check.as_data() for check in checks])
    else:
        if faults:
            rows = [(fault.user.name, fault.file.kind, fault.file.state, fault.advice) for fault in faults]
            print_table(("USER", "FILE", "STATE", "REPAIR"), rows)
        users = pluralize(len({check.user.id for check in checks}), "users")
        click.echo(f"{pluralize(len(checks), 'files')} of {users} checked, {pluralize(len(faults), 'faults')} found.")
    click.get_current_context().exit(1 if faults else 0)


def check_users(settings: Settings, name: str | None) -> list[UserFileCheck]:
    """Checks the files of one user, or of all."""
    root = data_root(settings)
    if name is None:
        users = run_with_registry(settings, lambda registry: registry.list_users())
    else:
        users = [run_with_registry(settings, lambda registry: find_user(registry, name))]
    return [UserFileCheck(user, file) for user in users for file in check_library(root, user.id)]
