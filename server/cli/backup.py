"""Commands that copy or move whole libraries: `backup`, `restore`, `export`, `migrate` and `migrate-store`."""

import asyncio
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import click
import msgspec
from msgspec import Struct, convert, structs, to_builtins

from auth.audit import BACKUP_ACTION, BACKUP_FAILED_ACTION
from auth.control_database import CONTROL_SCHEMA
from auth.registry import UserRecord, read_control_schema, read_users
from config.errors import ConfigurationError
from config.loading import MIGRATION_SOURCE_VARIABLE, MIGRATION_TARGET_VARIABLE
from config.paths import DatabaseKind, DataRoot, UserId
from config.postgres.connection import ConnectionOptions
from config.postgres.errors import describe_url, is_postgres_url, require_postgres_url
from server.cli.lazy_group import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.local_library import (
    data_root,
    find_user,
    open_local,
    record_operation,
    require_data_root,
    run_with_registry,
)
from server.cli.options import admin_options, group_option, library_options, owner_of
from server.cli.output import format_time, pluralize, print_json, print_result, print_table
from server.cli.progress import ProgressLine
from server.cli.remote import LocalApi, RemoteApi, admin_server, library_server, remote_library_server
from server.directory_lock import locked_directory
from server.store_copy import migration
from server.store_copy.libraries import LibraryCopy
from server.stores import require_sqlite
from sources.exporters.export import create_empty_folder, export_library
from sources.exporters.lines import MANIFEST, ExportManifest
from sources.storage.sqlite.connection.pool import sqlite_options
from sources.storage.sqlite.maintenance.backups import BackupManifest, BackupUser, back_up, restore_user, verify_user
from sources.storage.sqlite.maintenance.backups import restore as restore_backup
from sources.storage.sqlite.maintenance.backups import verify as verify_backup
from sources.storage.sqlite.maintenance.maintenance import schema_statuses, upgrade


@click.command(cls=SettingsCommand)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@admin_options
def backup(overrides: SettingsOverrides, folder: Path, as_json: bool) -> None:
    """Back up all users and the control database to the folder DIR.

    DIR must be empty or not exist. The server can keep running and writing; the copies of one user's files are
    consistent with each other. Every copy is checked: a damaged or missing file is reported and left out.
    `florilegium restore DIR` restores a backup.
    """
    settings = overrides.load().settings
    require_sqlite(
        settings,
        "backup",
        "back up the database with pg_dump, or copy it to files with `florilegium migrate-store --to sqlite:DIRECTORY`",
    )
    records = run_with_registry(settings, lambda registry: registry.list_owners())
    users, groups = [(user.id, user.name) for user in records], {user.id for user in records if user.kind == "group"}
    with ProgressLine() as progress:

        def show(done: int) -> None:
            progress.show(f"{done:,} of {pluralize(len(users), 'libraries')} copied")

        copy = back_up(data_root(settings), users, folder, format_time(time.time()) or "", show, groups)
    # GET /api/v1/server and the console show the newest of these events as the last backup.
    action = BACKUP_FAILED_ACTION if copy.problems else BACKUP_ACTION
    record_operation(settings, action, "", str(folder.absolute()), contents(copy))
    print_result(to_builtins(copy), f"{folder}: {contents(copy)}", as_json=as_json)
    report_problems(copy.problems)


def report_problems(problems: Sequence[str]) -> None:
    """Names files that a backup lacks on stderr and exits with 1 if there are any."""
    # A damaged file does not keep the others from being saved, but a script must notice.
    for problem in problems:
        click.echo(f"not in the backup: {problem}", err=True)
    if problems:
        click.get_current_context().exit(1)


def contents(backup: BackupManifest) -> str:
    """Describes a backup, such as "2 users, 5 files, 1,204 rows, created 2026-01-31T08:00:00Z"."""
    files = [backup.control, *(file for user in backup.users.values() for file in user.files.values())]
    rows = sum(sum(file.rows.values()) for file in files)
    groups = sum(user.is_group for user in backup.users.values())
    counts = [pluralize(len(backup.users) - groups, "users"), pluralize(len(files), "files"), pluralize(rows, "rows")]
    if groups:
        counts.insert(1, pluralize(groups, "groups"))
    return f"{', '.join(counts)}, created {backup.made_at}"


# -- restore -----------------------------------------------------------------------------------------------------------
# `florilegium restore`: restores a backup into an empty data directory, or one user of it, or verifies it.


@click.command(cls=SettingsCommand)
@click.argument("source", metavar="DIR")
@click.option("--verify", is_flag=True, help="Verify the backup without writing anything.")
@click.option("--user", help="Replace only the files of this user, who must exist.")
@admin_options
def restore(overrides: SettingsOverrides, source: str, verify: bool, user: str | None, as_json: bool) -> None:
    """Restore the backup in DIR into the data directory.

    The data directory must be empty or not exist, except with --user. The checksums and row counts of all files are
    verified first; a damaged backup is rejected.

    With --user, the replaced files are kept next to the restored ones, as `chacha.db.replaced-NUMBER`.

    In PostgreSQL, DIR is the address of another database, into which `pg_restore` has restored a dump, and --user is
    required: the library of this user is replaced by the one in that database.
    """
    settings = overrides.load().settings
    if settings.storage_url and user is not None and not verify and is_postgres_url(source):
        require_postgres_url("DIR", source)
        record = run_with_registry(settings, lambda registry: find_user(registry, user))
        copy = asyncio.run(migration.restore_from_database(settings, ConnectionOptions(url=source), record))
        result = {"user": record.name, "rows": copy.rows}
        print_result(result, f"{record.name} was restored: {pluralize(copy.rows, 'rows')}", as_json=as_json)
        return
    folder = Path(source)
    require_sqlite(
        settings,
        "restore",
        "restore a dump of the database with pg_restore; pass the address of that database and --user to restore one "
        "user from it",
    )
    root, outcome = data_root(settings), "is intact" if verify else "was restored"
    if user is None:
        backup = verify_backup(folder) if verify else restore_backup(folder, root)
        print_result(to_builtins(backup), f"{folder} {outcome}: {contents(backup)}", as_json=as_json)
        report_problems(backup.problems)
        return
    if verify:
        _, files = verify_user(folder, user)
    elif isinstance(server := library_server(settings, user), LocalApi):
        answer = asyncio.run(server.run("restore", {"folder": str(folder.absolute())}))
        files = convert(answer, BackupUser)
    else:
        # The id comes from this server: a user who was deleted and added again has another one in the backup.
        user_id = run_with_registry(settings, lambda registry: find_user(registry, user)).id
        with locked_directory(root.root, "restore", "maintenance"):
            files = restore_user(folder, user, root, user_id)
    rows = pluralize(sum(sum(file.rows.values()) for file in files.files.values()), "rows")
    counts = f"{pluralize(len(files.files), 'files')}, {rows}"
    print_result(to_builtins(files), f"{user} in {folder} {outcome}: {counts}", as_json=as_json)
    report_problems([f"{user}: {problem}" for problem in files.problems])


# -- export ------------------------------------------------------------------------------------------------------------
# `florilegium export`: writes a user's whole library into a folder, as JSON lines and Markdown pages.


@click.command(cls=SettingsCommand)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@group_option
@library_options
def export(overrides: SettingsOverrides, folder: Path, user: str | None, library: str | None, as_json: bool) -> None:
    """Export a whole library into the folder DIR, which must be empty or absent.

    DIR/*.jsonl contain every field of every item; `florilegium import DIR` reads them. The Markdown pages are for
    people. Deleted items are not exported.
    """
    with ProgressLine() as progress:
        progress.show(f"writing {folder}")
        settings = overrides.load().settings
        if (server := remote_library_server(user)) is not None:
            manifest = _download_export(server, folder, library)
        else:

            async def write() -> ExportManifest:
                async with open_local(settings, owner_of(user, library)) as local, local.library() as opened:
                    return await export_library(opened, folder)

            manifest = asyncio.run(write())
    counts = ", ".join(pluralize(count, kind) for kind, count in manifest.counts.items() if count)
    print_result(structs.asdict(manifest), f"{folder}: {counts or 'the library is empty'}", as_json=as_json)


def _download_export(server: RemoteApi, folder: Path, library: str | None) -> ExportManifest:
    """Unpacks what the server sends. The manifest is moved last, as it is written last."""
    create_empty_folder(folder)
    with tempfile.TemporaryDirectory(dir=folder.absolute().parent) as directory:
        archive, unpacked = Path(directory, "export.zip"), Path(directory, "florilegium")
        server.download("/api/v1/export" + (f"?library={quote(library)}" if library else ""), archive)
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(directory)
        manifest = msgspec.json.decode((unpacked / MANIFEST).read_bytes(), type=ExportManifest)
        for path in sorted(unpacked.iterdir(), key=lambda path: path.name == MANIFEST):
            path.rename(folder / path.name)
    return manifest


# -- migrate store -----------------------------------------------------------------------------------------------------
# `florilegium migrate-store`: moves all data between SQLite and PostgreSQL.

_FILES = "sqlite:"
Store = DataRoot | ConnectionOptions


@click.command("migrate-store", cls=SettingsCommand)
@click.option(
    "--to",
    "target",
    required=True,
    envvar=MIGRATION_TARGET_VARIABLE,
    metavar="STORE",
    help=f"postgresql://USER:PASSWORD@HOST/DATABASE, or sqlite:DIRECTORY. Default: ${MIGRATION_TARGET_VARIABLE}.",
)
@click.option(
    "--from",
    "source",
    envvar=MIGRATION_SOURCE_VARIABLE,
    metavar="STORE",
    help=f"Where the data is now. Default: ${MIGRATION_SOURCE_VARIABLE}, or the store of the settings.",
)
@json_option
@setting_options("data_dir")
# A URL contains a password, and other accounts can read command lines: both stores can be named in the environment.
def migrate_store(overrides: SettingsOverrides, target: str, source: str | None, as_json: bool) -> None:
    """Copy all users and libraries from SQLite to PostgreSQL, or back.

    With a PostgreSQL database as both source and target, the libraries of early development versions, which had a
    schema for each user, are moved to the shared tables. Otherwise that happens when a library is first used.

    The source is not changed. A server may use it meanwhile, until the last step: stop the server and run the command
    again, which copies what has changed. An interrupted command continues with the next library.
    """
    settings = overrides.load().settings
    if source:
        old = _parse_store("--from", source)
    else:
        old = ConnectionOptions(url=settings.storage_url) if settings.storage_url else data_root(settings)
    new = _parse_store("--to", target)

    def print_progress(user: UserRecord, copy: LibraryCopy | None) -> None:
        click.echo(f"{user.name}: {'not changed' if copy is None else f'{copy.rows} rows'}", err=True)

    # `describe_url` leaves out the password.
    if isinstance(old, DataRoot) and isinstance(new, ConnectionOptions):
        click.echo(f"{old.root} -> PostgreSQL at {describe_url(new.url)}", err=True)
        result = asyncio.run(migration.migrate_to_postgres(settings, old, new, print_progress))
    elif isinstance(old, ConnectionOptions) and isinstance(new, DataRoot):
        click.echo(f"PostgreSQL at {describe_url(old.url)} -> {new.root}", err=True)
        result = asyncio.run(migration.migrate_to_sqlite(settings, old, new, print_progress))
    elif isinstance(old, ConnectionOptions) and isinstance(new, ConnectionOptions) and old.url == new.url:
        moved, users = asyncio.run(migration.move_schemas(new))
        print_result({"moved": moved, "users": users}, f"{moved} of {users} libraries moved.", as_json=as_json)
        return
    else:
        raise ConfigurationError(
            "--to: expected the other engine; to copy SQLite files, use `florilegium backup`; "
            "to copy PostgreSQL, `pg_dump`"
        )
    end = f"Not complete: {result.pending}." if result.pending else "The target is complete."
    text = f"{result.copied} of {result.users} libraries copied, {result.rows} rows.\n{end}"
    advice = "" if result.pending else " Set storage_url, or data_dir, to use it."
    print_result(structs.asdict(result), text + advice, as_json=as_json)
    if result.pending:
        click.get_current_context().exit(1)


def _parse_store(option: str, text: str) -> Store:
    if text.startswith(_FILES):
        # Shells expand ~ only at the beginning of a word.
        return DataRoot(Path(text.removeprefix(_FILES)).expanduser())
    if not is_postgres_url(text):
        raise ConfigurationError(f"{option}: expected postgresql://USER:PASSWORD@HOST/DATABASE or sqlite:DIRECTORY")
    require_postgres_url(option, text)
    return ConnectionOptions(url=text)


# -- migrate -----------------------------------------------------------------------------------------------------------
# `florilegium migrate`: upgrades libraries to the schema of this version, or lists those that need it.


# `--check` must change nothing, so that the versions are read without opening a file for writing.
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
        versions = {"schema": self.version, "known": self.newest}
        return {"user": self.user, "file": self.file, **versions, "state": self.state}


@click.command(cls=SettingsCommand)
@click.option("--check", is_flag=True, help="List libraries that need an upgrade, without changing anything.")
@admin_options
def migrate(overrides: SettingsOverrides, check: bool, as_json: bool) -> None:
    """Upgrade all libraries to the schema of this version.

    A server upgrades a library when its user first calls. This command upgrades all of them in advance, so that no
    user has to wait. A copy of each file is kept next to it (the newest two).
    """
    settings = overrides.load().settings
    require_sqlite(settings, "migrate", "libraries in PostgreSQL are migrated when they are first used")
    root = require_data_root(settings)
    old = [] if check else [file for file in _all(root) if file.state == "needs migration"]
    if old and isinstance(server := admin_server(settings), LocalApi):
        with ProgressLine() as progress:
            users = "{done:,} of {total:,} users upgraded"
            asyncio.run(server.run("migrate", {}, lambda state: progress.show(users.format(**state))))
    elif old:
        # A server upgrades libraries, too, when their users call.
        with locked_directory(root.root, "migrate", "writer"), ProgressLine() as progress:
            # Opening migrates the control database.
            run_with_registry(settings, lambda registry: registry.list_owners())
            for number, file in enumerate(old):
                progress.show(f"{number:,} of {pluralize(len(old), 'files')} upgraded")
                if file.user_id is not None:
                    upgrade(root, file.user_id, cast("DatabaseKind", file.file), sqlite_options(settings))
    outdated = [file for file in _all(root) if file.state != "current"]
    if as_json:
        print_json([file.as_data() for file in outdated])
    elif outdated:
        rows = [[str(cell) for cell in file.as_data().values()] for file in outdated]
        print_table(("USER", "FILE", "SCHEMA", "KNOWN", "STATE"), rows)
    else:
        click.echo("All libraries are current.")
    click.get_current_context().exit(1 if outdated else 0)


def _all(root: DataRoot) -> list[_FileSchema]:
    """Reads the schemas of all files without opening any of them for writing."""
    control = _FileSchema("-", None, "control", read_control_schema(root.control_path), CONTROL_SCHEMA.newest_version)
    return [
        control,
        *(
            _FileSchema(name, user_id, status.kind, status.version, status.newest)
            for user_id, name in read_users(root.control_path)
            for status in schema_statuses(root, user_id)
        ),
    ]
