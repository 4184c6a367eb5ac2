"""Moves a deployment between SQLite and PostgreSQL: every library, then the control data.

Libraries are copied one after another, each as of one moment, while a server may use the source. A library that did not
change since it was copied is skipped, so the command can be repeated: after an interruption, or to copy what was
written meanwhile. The control data is copied last, which makes the target usable, and only if no server writes to the
source.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct

from auth.audit import AuditFile
from auth.postgres_control import CONTROL_SCHEMA_NAME
from auth.registry import ControlLocation, Registry, UserRecord
from auth.sqlite_control import storage_errors
from config.errors import NotFound, StorageError
from config.paths import DataRoot, UserId
from config.postgres.connection import ConnectionOptions, PostgresConnection, Transaction
from config.postgres.errors import postgres_errors
from config.settings import Settings
from server.directory_lock import DirectoryInUse, locked_directory
from server.store_copy import libraries
from server.store_copy.libraries import PostgresTables, SqliteTables, TableDigest, Tables, UncopiedRow, copy_tables
from server.stores import UNFINISHED_MIGRATION, UNFINISHED_MIGRATION_FILE
from sources.storage.sqlite.connection.pool import sqlite_options

# -- control -----------------------------------------------------------------------------------------------------------
# Copies users, keys, accounts, connections, followed sources and the audit log.

# Tables that others refer to come first.
CONTROL_TABLES = (
    "users",
    "keys",
    "revoked_tokens",
    "deleted_users",
    "quotas",
    "passwords",
    "passkeys",
    "account_links",
    "browser_sessions",
    "known_browsers",
    "oauth_clients",
    "oauth_grants",
    "oauth_codes",
    "oauth_tokens",
    "oauth_device_codes",
    "follows",
    "oauth_assertions",
    "followed_deployments",
    "deployment_exclusions",
    "group_members",
    "group_invitations",
    "shares",
    "model_endpoints",
)
_LOCK_TIMEOUT_S = 10.0
# Every write begins with this row, so that none can happen meanwhile.
_LOCK_WRITES = "SELECT revision FROM control_state WHERE id = 1 FOR UPDATE"


async def prepare_control(location: ControlLocation) -> None:
    """Creates the tables, or migrates them to the schema of this version."""
    if isinstance(location, Path):
        DataRoot(location.parent).prepare()
        AuditFile(location.with_name("audit.db")).append(())
    async with Registry.open(location):
        pass


def copy_control(source: ControlLocation, target: ControlLocation) -> Mapping[str, TableDigest]:
    """Replaces the control data of the target. Nobody can write either of them meanwhile, and the target changes
    completely or not at all."""
    with ExitStack() as stack:
        (control, audit), (control_copy, audit_copy) = (stack.enter_context(_open(one)) for one in (source, target))
        # A target with other users is another deployment, which must not be overwritten.
        users, others = (
            {user_id for (user_id,) in tables.rows("users", ("id",))} for tables in (control, control_copy)
        )
        if others - users:
            raise StorageError(
                f"the target has {len(others - users)} users that this deployment does not have; use an empty target"
            )
        digests = copy_tables(control, control_copy, CONTROL_TABLES)
        return {**digests, **copy_tables(audit, audit_copy, ("events",))}


@contextmanager
def _open(location: ControlLocation) -> Iterator[tuple[Tables, Tables]]:
    """Yields the control data and the audit log, in transactions that keep others from writing."""
    if isinstance(location, Path):
        with storage_errors(), ExitStack() as stack:
            connections = [
                stack.enter_context(closing(sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S, isolation_level=None)))
                for path in (location, location.with_name("audit.db"))
            ]
            for connection in connections:
                connection.execute("PRAGMA foreign_keys = ON")
                # Replaced rows may be those of deleted users and keys.
                connection.execute("PRAGMA secure_delete = ON")
                connection.execute("BEGIN IMMEDIATE")
            control, audit = (SqliteTables(connection) for connection in connections)
            yield control, audit
            for connection in connections:
                connection.execute("COMMIT")
        return
    transaction = Transaction(schema=CONTROL_SCHEMA_NAME, lock_timeout_ms=round(_LOCK_TIMEOUT_S * 1000))
    with postgres_errors(), closing(PostgresConnection.connect(location)) as database:
        database.begin(transaction)
        try:
            database.execute(_LOCK_WRITES)
            tables = PostgresTables(database, CONTROL_SCHEMA_NAME)
            yield tables, tables
        except BaseException:
            database.rollback()
            raise
        # Processes that cache users and keys read them again when the revision changes.
        database.execute("UPDATE control_state SET revision = revision + 1 WHERE id = 1")
        database.commit()


COMMAND = "migrate-store"
# The marks of the libraries that were copied to files, in the data directory of the target.
_MARKS = "migrate-store.json"
# The libraries that an error names.
_PROBLEMS_MAX = 10

# Called after each library, with its user and what was copied, or None if it had not changed.
Progress = Callable[[UserRecord, libraries.LibraryCopy | None], None]


class MigrationResult(Struct, frozen=True, kw_only=True):
    """`pending` says why the control data was not copied, and what to do. Empty: the target is complete."""

    users: int
    copied: int
    rows: int
    pending: str = ""


async def migrate_to_postgres(
    settings: Settings, source: DataRoot, target: ConnectionOptions, progress: Progress
) -> MigrationResult:
    source.require_control()
    await prepare_control(target)
    await asyncio.to_thread(_mark_target, target, is_finished=False)
    try:
        with locked_directory(source.root, COMMAND, "maintenance"):
            await prepare_control(source.control_path)
            result = await _copy_files(settings, source, target, progress, can_write=True)
            await asyncio.to_thread(copy_control, source.control_path, target)
            await asyncio.to_thread(_mark_target, target, is_finished=True)
            return result
    except DirectoryInUse as error:
        # A server uses the source. What can be copied meanwhile need not be copied while it is stopped.
        result = await _copy_files(settings, source, target, progress, can_write=False)
        pending = f"{error.message} and run this command again, which copies what has changed"
        return msgspec.structs.replace(result, pending=pending)


async def migrate_to_sqlite(
    settings: Settings, source: ConnectionOptions, target: DataRoot, progress: Progress
) -> MigrationResult:
    target.prepare()
    with locked_directory(target.root, COMMAND, "maintenance"):
        unfinished_mark = target.root / UNFINISHED_MIGRATION_FILE
        unfinished_mark.touch()
        marks_path = target.root / _MARKS
        marks: dict[UserId, str] = {}
        if marks_path.exists():
            marks = msgspec.json.decode(marks_path.read_bytes(), type=dict[UserId, str])
        users = await _list_users(source)
        copied = rows = 0
        for user in users:
            copy = None
            if marks.get(user.id) != await asyncio.to_thread(libraries.mark_of_schema, user.id, source):
                copy = await asyncio.to_thread(
                    libraries.copy_to_sqlite, user.id, source, target, sqlite_options(settings)
                )
                marks[user.id] = copy.mark
                # After each library, so that an interrupted command continues with the next. Written next to the file
                # and moved, so that a power failure leaves the old marks or the new ones.
                unfinished_marks = marks_path.with_name(f"{_MARKS}.unfinished")
                with unfinished_marks.open("wb") as file:
                    file.write(msgspec.json.encode(marks))
                    file.flush()
                    os.fsync(file.fileno())
                unfinished_marks.replace(marks_path)
                copied, rows = copied + 1, rows + copy.rows
            progress(user, copy)
        # Looked at again: what was written during the copy is missing in it.
        changed = [
            u for u in users if marks.get(u.id) != await asyncio.to_thread(libraries.mark_of_schema, u.id, source)
        ]
        result = MigrationResult(users=len(users), copied=copied, rows=rows)
        if changed:
            pending = (
                f"{len(changed)} libraries were written while they were copied; stop all servers and run this command "
                "again, which copies what has changed"
            )
            return msgspec.structs.replace(result, pending=pending)
        # There is no lock as in a data directory: a server that writes nothing at the moment is noticed only by its
        # connections, and what it writes afterwards would be missing in the files.
        if connections := await asyncio.to_thread(libraries.other_connections, source):
            pending = (
                f"a server may be running, because the database has {connections} other connections of this role; stop "
                "all servers and run this command again, which copies what has changed"
            )
            return msgspec.structs.replace(result, pending=pending)
        # Writes new files in a directory of their own and moves them to the target when they are complete: a directory
        # with libraries but without a control database is not served.
        with TemporaryDirectory(dir=target.root, prefix=COMMAND) as directory:
            unfinished = DataRoot(Path(directory))
            # A target that was complete before has a control database, whose content is replaced in one transaction.
            location = target if target.control_path.stat().st_size else unfinished
            await prepare_control(location.control_path)
            await asyncio.to_thread(copy_control, source, location.control_path)
            # The next process records which files each user has. In PostgreSQL users have none.
            with storage_errors(), closing(sqlite3.connect(location.control_path)) as control, control:
                control.execute("UPDATE users SET files = NULL")
            if location is unfinished:
                unfinished.audit_path.replace(target.audit_path)
                unfinished.control_path.replace(target.control_path)
        await prepare_control(target.control_path)  # records which files each user has
        unfinished_mark.unlink()
        return result


async def restore_from_database(
    settings: Settings, source: ConnectionOptions, user: UserRecord
) -> libraries.LibraryCopy:
    """Replaces the library of a user by that of the user with the same name in another database. A user who was deleted
    and added again has another id there."""
    known = next((known for known in await _list_users(source) if known.name == user.name), None)
    if known is None:
        raise NotFound("user", user.name)
    target = ConnectionOptions(url=settings.storage_url)
    # By way of files, which both directions compare row by row with what was read.
    with TemporaryDirectory() as directory:
        files = DataRoot(Path(directory))
        files.prepare()
        copied = await asyncio.to_thread(libraries.copy_to_sqlite, known.id, source, files, sqlite_options(settings))
        if not copied.mark:
            raise NotFound("library", user.name)
        if known.id != user.id:
            folder = files.paths_of(user.id).chacha.parent
            folder.parent.mkdir(parents=True, exist_ok=True)
            files.paths_of(known.id).chacha.parent.rename(folder)
        return await asyncio.to_thread(libraries.copy_to_postgres, files, user.id, target)


def _mark_target(target: ConnectionOptions, *, is_finished: bool) -> None:
    """Until the target is marked as finished, no server starts with it."""
    sql, values = "DELETE FROM store_copies WHERE user_id = ?", (UNFINISHED_MIGRATION,)
    with postgres_errors(), closing(PostgresConnection.connect(target)) as database:
        database.begin(Transaction(schema=CONTROL_SCHEMA_NAME))
        database.execute(sql, values)
        if not is_finished:
            database.execute("INSERT INTO store_copies (user_id, mark, rows, copied_at) VALUES (?, '', 0, 0)", values)
        database.commit()


async def move_schemas(location: ConnectionOptions) -> tuple[int, int]:
    """Moves the libraries that have a schema of their own to the shared tables, each in one transaction. Servers can
    run meanwhile. Returns how many were moved, and the number of users."""
    await prepare_control(location)
    users = await _list_users(location)
    moved = [await asyncio.to_thread(libraries.move_schema, user.id, location) for user in users]
    return sum(moved), len(users)


async def _copy_files(
    settings: Settings, source: DataRoot, target: ConnectionOptions, progress: Progress, *, can_write: bool
) -> MigrationResult:
    """Copies the libraries that changed. Without `can_write`, those that must be migrated first are left out."""
    marks = await asyncio.to_thread(libraries.read_marks, target)
    users = await _list_users(source.control_path)
    copied = rows = 0
    problems: list[str] = []
    for user in users:
        copy = None
        if can_write:
            await asyncio.to_thread(libraries.prepare_files, source, user.id, sqlite_options(settings))
        mark = libraries.mark_of_files(source, user.id)
        is_changed = not mark or marks.get(user.id) != mark
        if is_changed and (can_write or await asyncio.to_thread(libraries.is_current, source, user.id)):
            try:
                copy = await asyncio.to_thread(libraries.copy_to_postgres, source, user.id, target)
            except UncopiedRow as error:
                problems.append(f"{user.name}: {error.message}")
                continue
            copied, rows = copied + 1, rows + copy.rows
        progress(user, copy)
    if problems:
        # The others are copied and need not be copied again.
        more = len(problems) - _PROBLEMS_MAX
        listed = "; ".join(problems[:_PROBLEMS_MAX]) + (f"; and {more} more" if more > 0 else "")
        raise StorageError(
            f"{len(problems)} of {len(users)} libraries cannot be copied: {listed}. Change or delete what is named, "
            "and run this command again"
        )
    return MigrationResult(users=len(users), copied=copied, rows=rows)


async def _list_users(location: ControlLocation) -> list[UserRecord]:
    async with Registry.open(location) as registry:
        return await registry.list_owners()
