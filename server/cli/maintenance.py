"""Commands that check, repair, reindex and embed libraries, and `florilegium schema`."""

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec

from auth.registry import UserRecord
from config.errors import ConfigurationError, StorageError
from config.postgres.errors import error_code
from config.settings import Settings
from server.cli.caller import run_long
from server.cli.lazy_group import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.local_library import data_root, find_user, open_local, run_with_registry
from server.cli.options import admin_options, library_options, user_option
from server.cli.output import pluralize, print_json, print_result, print_table
from server.cli.progress import ProgressLine
from server.cli.remote import LocalApi, library_server
from server.directory_lock import locked_directory
from server.long_commands import RepairReport, repair_library
from server.stores import require_sqlite
from sources.installed import ADDED_KINDS, TABLE_KINDS
from sources.storage.postgres import PostgresLibraries
from sources.storage.postgres.tables import LIBRARY_STATEMENTS
from sources.storage.postgres.tables import kind_table as postgres_statements
from sources.storage.sqlite.maintenance.library_check import FileState, check_library
from sources.storage.sqlite.maintenance.maintenance import SCHEMAS
from sources.storage.sqlite.schema.kinds import kind_statements as sqlite_statements


@click.command(cls=SettingsCommand)
@user_option
@json_option
@setting_options("data_dir", "single_user_name", "semantic_model")
def embed(overrides: SettingsOverrides, user: str | None, as_json: bool) -> None:
    """Embed the text of a library, so that searches compare meanings too.

    A server does this in the background. Run it after a large import, or if you only use the command line. It can be
    interrupted at any time and continues where it stopped.
    """
    with ProgressLine() as line:

        def show(state: Mapping[str, Any]) -> None:
            line.show(f"{state['coverage']:4.0%} of the library, {pluralize(state['passages'], 'passages')} embedded")

        result = asyncio.run(run_long(overrides.load().settings, user, "embed", show_progress=show))
    passages, stop = result["passages"], result["stopped"]
    print_result(
        {"passages": passages, **({"stopped": stop} if stop else {})},
        f"{pluralize(passages, 'passages')} embedded; {stop or 'the library is complete'}.",
        as_json=as_json,
    )


# -- repair ------------------------------------------------------------------------------------------------------------
# `florilegium repair`: rebuilds damaged indexes of a library and salvages the readable rows of damaged files.


@click.command(cls=SettingsCommand)
@click.option("--user", required=True, help="The user whose library is repaired.")
@click.option("--accept-loss", is_flag=True, help="Let the user start with an empty file in place of a missing one.")
@json_option
@setting_options("data_dir")
def repair(overrides: SettingsOverrides, user: str, accept_loss: bool, as_json: bool) -> None:
    """Repair a library without a backup.

    Damaged indexes are rebuilt. From damaged files the readable rows are copied to new ones; the damaged files are
    kept. If you have a recent backup, `florilegium restore DIR --user NAME` loses less.
    """
    settings = overrides.load().settings
    require_sqlite(settings, "repair", "restore a dump of the database with pg_restore")
    if isinstance(server := library_server(settings, user), LocalApi):
        report = msgspec.convert(asyncio.run(server.run("repair", {"accept_loss": accept_loss})), RepairReport)
    else:
        root, record = data_root(settings), run_with_registry(settings, lambda registry: find_user(registry, user))
        # Damaged files are replaced, so that no server and no other command may write to them.
        with locked_directory(root.root, "repair", "maintenance"):
            report = repair_library(settings, root, record, accept_loss=accept_loss)
    print_result(report, "\n".join(report.lines), as_json=as_json)
    click.get_current_context().exit(0 if report.is_whole else 1)


# -- check -------------------------------------------------------------------------------------------------------------
# `florilegium check`: checks the integrity of all libraries, or of one.

# What to do about a file in each state.
ADVICE: dict[FileState, str] = {
    "missing": "`florilegium restore DIR --user {name}`",
    "damaged": "`florilegium restore DIR --user {name}`, or `florilegium repair --user {name}`",
    "index damaged": "`florilegium reindex --user {name}`",
    "newer": "upgrade Florilegium",
    "inaccessible": "{detail}; free disk space, or as root run `chown -R {owner} {home} && chmod -R u+rwX {home}`",
}


_POSTGRES_ADVICE = {"damaged": "restore this user from a dump", "index damaged": ADVICE["index damaged"]}


@click.command(cls=SettingsCommand)
@click.option("--user", help="Check only the library of this user.")
@admin_options
def check(overrides: SettingsOverrides, user: str | None, as_json: bool) -> None:
    """Check all libraries: expected files, SQLite's integrity check, every text, and every index against its rows.

    Changes nothing and can run while a server does; writes to a library wait while one of its indexes is compared. In
    PostgreSQL, every text and the full-text indexes are checked; `pg_amcheck` checks the files of the server.
    """
    settings = overrides.load().settings
    if user is None:
        records = run_with_registry(settings, lambda registry: registry.list_owners())
    else:
        records = [run_with_registry(settings, lambda registry: find_user(registry, user))]
    root = data_root(settings)
    checks: list[dict[str, str]] = []
    if settings.storage_url:
        checks = asyncio.run(_check_postgres(settings, records))
        records = []
    with ProgressLine() as progress:
        for number, record in enumerate(records):
            progress.show(f"{number:,} of {pluralize(len(records), 'users')} checked")
            checks += (
                {
                    "user": record.name,
                    "file": file.kind,
                    "state": file.state,
                    "detail": file.detail,
                    "advice": ADVICE.get(file.state, "").format(
                        name=record.name,
                        detail=file.detail,
                        owner=root.root.stat().st_uid,
                        home=shlex.quote(str(root.paths_of(record.id).chacha.parent)),
                    ),
                }
                for file in check_library(root, record.id)
            )
    faults = [check for check in checks if check["state"] != "ok"]
    if as_json:
        print_json(checks)
    else:
        if faults:
            rows = [(fault["user"], fault["file"], fault["state"], fault["advice"]) for fault in faults]
            print_table(("USER", "FILE", "STATE", "REPAIR"), rows)
        users = pluralize(len({check["user"] for check in checks}), "users")
        libraries = pluralize(len(checks), "libraries" if settings.storage_url else "files")
        click.echo(f"{libraries} of {users} checked, {pluralize(len(faults), 'faults')} found.")
    click.get_current_context().exit(1 if faults else 0)


async def _check_postgres(settings: Settings, users: Sequence[UserRecord]) -> list[dict[str, str]]:
    """Reads every text of the libraries, one after the other."""
    checks: list[dict[str, str]] = []
    if not users:
        return checks
    async with open_local(settings, users[0].name) as local:
        libraries = local.libraries
        if not isinstance(libraries, PostgresLibraries):
            raise ConfigurationError("check: the engine of storage_url cannot be checked")
        for record in users:
            state, detail = "ok", ""
            try:
                faults = {kind: count for kind, count in (await libraries.check_index(record.id)).items() if count}
                if faults:
                    state = "index damaged"
                    detail = ", ".join(f"{count} {kind} do not match" for kind, count in faults.items())
            except StorageError as error:
                # Damaged data or a damaged index of the server. Others, such as a lost connection, end the command.
                if not error_code(error.__cause__).startswith("XX"):
                    raise
                state, detail = "damaged", error.message
            advice = _POSTGRES_ADVICE.get(state, "").format(name=record.name)
            checks.append({"user": record.name, "file": "library", "state": state, "detail": detail, "advice": advice})
    return checks


# -- indexes and tables ------------------------------------------------------------------------------------------------


@click.command(cls=SettingsCommand)
@library_options
def reindex(overrides: SettingsOverrides, user: str | None, as_json: bool) -> None:
    """Rebuild the full-text indexes of a library from its rows.

    Needed if `florilegium check` reports a damaged index. Writes to the library wait until it is done. In PostgreSQL
    the index is built in batches, between which a server can write.
    """
    with ProgressLine() as line:

        def show(file: str) -> None:
            line.show(f"indexing {file}.db" if file else "indexing")

        entries = asyncio.run(run_long(overrides.load().settings, user, "reindex", show_progress=show))
    counts = ", ".join(f"{kind}: {pluralize(count, 'entries')}" for kind, count in entries.items())
    print_result(entries, counts or "Nothing to index.", as_json=as_json)


@click.command()
@click.argument("source", required=False)
@click.option("--engine", type=click.Choice(("sqlite", "postgres")), default="sqlite", show_default=True)
@json_option
def schema(source: str | None, engine: str, as_json: bool) -> None:
    """Print the SQL that creates the tables of a library, or those of SOURCE.

    The tables of notes, characters, prompts, observations and the kinds of other distributions derive from their
    declarations.
    """
    kinds = {kind.source: kind for kind in TABLE_KINDS}
    if source is not None and source not in kinds:
        raise click.BadParameter(f"expected one of {', '.join(kinds)}, got {source!r}", param_hint="SOURCE")
    of_kind = sqlite_statements if engine == "sqlite" else postgres_statements
    whole = LIBRARY_STATEMENTS
    if engine == "sqlite":
        whole = tuple(sql for database in SCHEMAS.values() for sql in database.statements)
    added = [sql for kind in ADDED_KINDS for sql in of_kind(kind)]
    statements = [sql.strip() for sql in (of_kind(kinds[source]) if source is not None else (*whole, *added))]
    print_result(statements, "\n".join(f"{statement};\n" for statement in statements), as_json=as_json)
