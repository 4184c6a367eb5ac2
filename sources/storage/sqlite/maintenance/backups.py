"""Copies of whole libraries while they are in use, and what proves that a copy is whole.

All files of one user are copied as they were at one moment: for that moment their writers wait (some milliseconds), a
reader is begun on each file, and the copies are made of what these readers see, while others write on. A backup is laid
out as a data directory, with a manifest beside it.
"""

# ruff: noqa: S608 - names of tables come out of our own files; values are parameters

import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import get_args

import msgspec
from msgspec import Struct

from config.errors import Conflict, NotFound, StorageError
from config.paths import DatabaseKind, DataRoot, UserId
from sources.storage.sqlite.connection.copies import copy_database
from sources.storage.sqlite.connection.errors import translate
from sources.storage.sqlite.maintenance.maintenance import BLUEPRINTS
from sources.storage.sqlite.schema.migrations import schema_version

MANIFEST = "backup.json"
FORMAT = "florilegium-backup"
FORMAT_VERSION = 1
KINDS: tuple[DatabaseKind, ...] = get_args(DatabaseKind)
# How long a copy waits for writers of other processes to end what they are at.
_PATIENCE_MS = 30_000
_MANIFEST_MAX_BYTES = 1 << 28
_FILE_MODE = 0o600


class Copied(Struct, frozen=True):
    """A file as it was copied: `rows` counts those of each table."""

    size_bytes: int
    sha256: str
    schema: int
    rows: Mapping[str, int]


class CopiedUser(Struct, frozen=True):
    name: str
    files: Mapping[DatabaseKind, Copied]


class Backup(Struct, frozen=True, kw_only=True):
    """The manifest. It is written last: a folder without one is no backup."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    made_at: str
    control: Copied
    users: Mapping[str, CopiedUser]


def back_up(data_root: DataRoot, users: Sequence[tuple[UserId, str]], folder: Path, made_at: str) -> Backup:
    """Copy the control database and the libraries of these users, by id and name, into an empty folder."""
    with _errors("the backup cannot be written"):
        _require_empty(folder, "the folder of a backup")
        target = DataRoot(folder)
        target.prepare()
        with closing(_connect(data_root.control_path)) as control:
            _begin_reading(control)
            copied = _copy(control, target.control_path)
        backup = Backup(
            made_at=made_at,
            control=copied,
            users={user_id: CopiedUser(name, _copy_user(data_root, user_id, target)) for user_id, name in users},
        )
        _write_manifest(folder, backup)
    return backup


def verify(folder: Path) -> Backup:
    """The manifest of a backup in which every file is what it was. `StorageError` says what is not."""
    with _errors("the backup cannot be read"):
        backup = _read_manifest(folder)
        root = DataRoot(folder)
        _verify_file(root.control_path, "control.db", backup.control)
        for user_id, user in backup.users.items():
            paths = _paths(root, user_id)
            for kind, file in user.files.items():
                _require_known(kind, file.schema)
                _verify_file(paths[kind], f"{kind}.db of {user.name!r}", file)
    return backup


def restore(folder: Path, data_root: DataRoot) -> Backup:
    """Put a backup, once it is verified, where no data is. A restore that fails takes away what it has written."""
    backup = verify(folder)
    with _errors("the backup cannot be restored"):
        if data_root.root.exists():
            _require_empty(data_root.root, "the data directory")
        try:
            _put_back(backup, DataRoot(folder), data_root)
        except BaseException:
            for path in (data_root.root / "users", data_root.control_path):
                with suppress(OSError):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            raise
    return backup


def _put_back(backup: Backup, source: DataRoot, target: DataRoot) -> None:
    """The control database last: until it is there, nobody can use what is half there."""
    target.root.mkdir(0o700, parents=True, exist_ok=True)
    for user_id, user in backup.users.items():
        held = _paths(source, user_id)
        target.prepare_user(UserId(user_id))
        for kind in user.files:
            _transfer(held[kind], target.ensure_database(UserId(user_id), kind), user.files[kind])
    target.prepare()
    _transfer(source.control_path, target.control_path, backup.control)


# -- copying -----------------------------------------------------------------------------------------------------------


def _copy_user(data_root: DataRoot, user_id: UserId, target: DataRoot) -> dict[DatabaseKind, Copied]:
    held: dict[DatabaseKind, Path] = {kind: path for kind, path in _paths(data_root, user_id).items() if path.exists()}
    with ExitStack() as opened:
        readers: dict[DatabaseKind, sqlite3.Connection] = {
            kind: opened.enter_context(closing(_connect(path))) for kind, path in held.items()
        }
        with _stillness(list(held.values())):
            for reader in readers.values():
                _begin_reading(reader)
        return {kind: _copy(reader, target.ensure_database(user_id, kind)) for kind, reader in readers.items()}


@contextmanager
def _stillness(paths: Sequence[Path]) -> Iterator[None]:
    """Nobody writes to any of these files: one transaction holds the write locks of all."""
    if not paths:
        yield
        return
    with closing(_connect(paths[0])) as lock:
        for number, path in enumerate(paths[1:]):
            lock.execute(f"ATTACH DATABASE ? AS beside{number}", (str(path),))
        lock.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            lock.rollback()


def _begin_reading(connection: sqlite3.Connection) -> None:
    """From here on the connection sees the file as it is now. A transaction begins with what is read first."""
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()


def _copy(connection: sqlite3.Connection, path: Path) -> Copied:
    copy_database(connection, path)
    return _described(path)


def _transfer(source: Path, target: Path, file: Copied) -> None:
    """A copy that is the same bytes, or none: the disk may fail between a look and a copy."""
    with source.open("rb") as read, target.open("wb") as write:
        shutil.copyfileobj(read, write, 1 << 20)
        write.flush()
        os.fsync(write.fileno())
    if _digest(target) != file.sha256:
        raise StorageError("the backup changed while it was restored; nothing was kept")


# -- proving -----------------------------------------------------------------------------------------------------------


def _described(path: Path) -> Copied:
    with closing(_frozen(path)) as connection:
        return Copied(
            size_bytes=path.stat().st_size,
            sha256=_digest(path),
            schema=schema_version(connection),
            rows=_rows(connection),
        )


def _rows(connection: sqlite3.Connection) -> dict[str, int]:
    """Of tables with rows of our own; what an index keeps for itself is made of them."""
    names = connection.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT GLOB 'sqlite_*'"
    )
    return {
        name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for (name,) in sorted(names.fetchall())
    }


def _verify_file(path: Path, name: str, file: Copied) -> None:
    if not path.is_file() or path.is_symlink():
        raise StorageError(f"the backup is not whole: {name} is missing")
    if path.stat().st_size != file.size_bytes or _digest(path) != file.sha256:
        raise StorageError(f"the backup is damaged: {name} is not what was written")
    with closing(_frozen(path)) as connection:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise StorageError(f"the backup is damaged: {name} does not hold together")
        if schema_version(connection) != file.schema or _rows(connection) != file.rows:
            raise StorageError(f"the backup is damaged: {name} has not the rows that the manifest tells")


def _require_known(kind: DatabaseKind, schema: int) -> None:
    known = len(BLUEPRINTS[kind].migrations)
    if schema > known:
        raise StorageError(
            f"the backup has {kind} libraries of schema {schema}, made by a newer version of Florilegium; "
            f"this one knows schemas up to {known}: upgrade it"
        )


# -- files -------------------------------------------------------------------------------------------------------------


def _paths(root: DataRoot, user_id: str) -> dict[DatabaseKind, Path]:
    """Places are computed from the id and never read out of a manifest, so none leads out of the folder."""
    paths = root.paths_of(UserId(user_id))
    return {kind: getattr(paths, kind) for kind in KINDS}


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _frozen(path: Path) -> sqlite3.Connection:
    """A copy that nobody writes to: SQLite makes no log beside it."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True, isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _digest(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _require_empty(folder: Path, what: str) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise Conflict(f"{what} is not empty: nothing is ever overwritten; choose another, or move what is there")


def _write_manifest(folder: Path, backup: Backup) -> None:
    descriptor = os.open(folder / MANIFEST, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(backup)))
        file.flush()
        os.fsync(file.fileno())


def _read_manifest(folder: Path) -> Backup:
    path = folder / MANIFEST
    if not path.is_file():
        raise NotFound("backup", folder.name)
    if path.stat().st_size > _MANIFEST_MAX_BYTES:
        raise StorageError("the backup cannot be read: its manifest is too large")
    try:
        backup = msgspec.json.decode(path.read_bytes(), type=Backup)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StorageError("the backup is damaged: its manifest cannot be read") from error
    if backup.format != FORMAT or backup.format_version > FORMAT_VERSION:
        raise StorageError("the backup was made by a newer version of Florilegium: upgrade it")
    return backup


@contextmanager
def _errors(failed: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(f"{failed}: {translate(error, 'a library', _PATIENCE_MS).message}") from error
    except OSError as error:
        raise StorageError(f"{failed}: {error.strerror or 'the disk failed'}") from error
