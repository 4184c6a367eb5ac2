"""Backups of whole libraries while they are in use, their verification, and restore.

All files of one user are copied as of one moment: their writers are locked for a few milliseconds while a read
transaction is started on each file, and the copies are made from these transactions while others keep writing. A backup
has the layout of a data directory plus a manifest.
"""

# ruff: noqa: S608 - table names come from our own files; values are parameters

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from auth.audit import AUDIT_SCHEMA
from auth.control_database import CONTROL_SCHEMA
from auth.library_files import record_file
from config.errors import DATABASE_ERRORS, Conflict, DiskFull, NotFound, StorageError
from config.paths import (
    DATABASE_KINDS,
    DatabaseKind,
    DataRoot,
    UserId,
    copy_database,
    inherit_owner,
    is_read_only,
    set_aside,
    sync_directory,
)
from sources.storage.sqlite.connection.errors import is_no_space, is_unwritable, translate
from sources.storage.sqlite.maintenance import library_check
from sources.storage.sqlite.maintenance.maintenance import SCHEMAS
from sources.storage.sqlite.schema.kinds import schema_version

# -- snapshots ---------------------------------------------------------------------------------------------------------
# Reads all files of one user as of one moment, while others keep writing.
#
# Their writers are locked for a few milliseconds while a read transaction is started on each file.

# How long to wait for the locks of other processes.
BUSY_TIMEOUT_MS = 30_000


@contextmanager
def open_snapshots(data_root: DataRoot, user_id: UserId) -> Iterator[Mapping[DatabaseKind, sqlite3.Connection]]:
    """Yields a connection for each file that has content. All of them see the same moment."""
    kinds: list[DatabaseKind] = [kind for kind in DATABASE_KINDS if data_root.has_content(user_id, kind)]
    paths: list[Path] = [getattr(data_root.paths_of(user_id), kind) for kind in kinds]
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(connect_reader(path))) for path in paths]
        with locked_for_writing(paths):
            for connection in connections:
                begin_snapshot(connection)
        yield dict(zip(kinds, connections, strict=True))


def connect_reader(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


@contextmanager
def locked_for_writing(paths: Sequence[Path]) -> Iterator[None]:
    """Holds the write locks of all files in one transaction, so that no other connection writes to any of them."""
    if not paths:
        yield
        return
    with closing(connect_reader(paths[0])) as lock:
        for number, path in enumerate(paths[1:]):
            lock.execute(f"ATTACH DATABASE ? AS attached{number}", (str(path),))
        lock.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            lock.rollback()


def begin_snapshot(connection: sqlite3.Connection) -> None:
    """Makes the connection see the file as it is now. SQLite takes the snapshot at the first read."""
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()


MANIFEST = "backup.json"
FORMAT = "florilegium-backup"
FORMAT_VERSION = 1
_MANIFEST_MAX_BYTES = 1 << 28
_FILE_MODE = 0o600
# In the directory of a user who is restored: the copies, before and after they are complete.
_COPIES, _RESTORED = "restored.unfinished", "restored"


class BackupFile(Struct, frozen=True):
    """One file of a backup. `rows` is the number of rows in each table."""

    size_bytes: int
    sha256: str
    schema: int
    rows: Mapping[str, int]


class BackupUser(Struct, frozen=True):
    """The files of one user, or of a group. `problems` names the damaged or missing files, which could not be
    copied."""

    name: str
    files: Mapping[DatabaseKind, BackupFile]
    problems: tuple[str, ...] = ()
    is_group: bool = False


class BackupManifest(Struct, frozen=True, kw_only=True):
    """Written last: a directory without a manifest is not a backup."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    made_at: str
    control: BackupFile
    users: Mapping[str, BackupUser]
    # Backups of older versions have none.
    audit: BackupFile | None = None

    @property
    def problems(self) -> list[str]:
        """What the backup lacks, such as "ada: chacha.db is missing"."""
        return [f"{user.name}: {problem}" for user in self.users.values() for problem in user.problems]


def back_up(
    data_root: DataRoot,
    users: Sequence[tuple[UserId, str]],
    folder: Path,
    made_at: str,
    show_progress: Callable[[int], None] = lambda done: None,
    groups: Collection[UserId] = (),
) -> BackupManifest:
    """Copies the control database and the libraries of these users, given as ids and names, to an empty directory.
    Those in `groups` are groups. `show_progress` is called with the number of users that are copied, before each.

    Every copy is checked. A damaged or missing file is left out and listed in `problems`, so that the fault of one
    user's file does not prevent the backup of the others. If the backup fails, nothing is left of it.
    """
    with _translated_errors("the backup cannot be written"):
        _require_empty(folder, "the backup directory")
        # An error of `prepare` would be about the data directory.
        folder.mkdir(0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        target = DataRoot(folder)
        with _no_partial_copies(target):
            target.prepare()
            with closing(connect_reader(data_root.control_path)) as control:
                begin_snapshot(control)
                copy_database(control, target.control_path)
            if fault := library_check.find_fault(target.control_path):
                raise StorageError(f"control.db {fault}; restore it from an older backup")
            audit = _copy_audit(data_root, target)
            copies: dict[str, BackupUser] = {}
            for user_id, name in users:
                show_progress(len(copies))
                copied = _copy_user(data_root, user_id, name, target)
                copies[user_id] = structs.replace(copied, is_group=user_id in groups)
            manifest = BackupManifest(
                made_at=made_at,
                control=_describe(target.control_path),
                users=copies,
                audit=audit,
            )
            descriptor = os.open(folder / MANIFEST, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(manifest)))
                file.flush()
                os.fsync(file.fileno())
    return manifest


def verify(folder: Path) -> BackupManifest:
    """Checks every file of a backup and returns the manifest. Raises a `StorageError` that describes the first
    fault."""
    with _translated_errors("the backup cannot be read"):
        manifest = _read_manifest(folder)
        root = DataRoot(folder)
        _require_supported("a control database", manifest.control.schema, CONTROL_SCHEMA.newest_version)
        _verify_file(root.control_path, "control.db", manifest.control, None)
        if manifest.audit is not None:
            _require_supported("an audit log", manifest.audit.schema, AUDIT_SCHEMA)
            _verify_file(root.audit_path, "audit.db", manifest.audit, None)
        for user_id, user in manifest.users.items():
            _verify_user(root, user_id, user)
    return manifest


def verify_user(folder: Path, name: str) -> tuple[UserId, BackupUser]:
    """Checks the files of one user in a backup. Returns the user's id in the backup, and the files."""
    with _translated_errors("the backup cannot be read"):
        manifest = _read_manifest(folder)
        for user_id, user in manifest.users.items():
            if user.name == name:
                _verify_user(DataRoot(folder), user_id, user)
                return UserId(user_id), user
    raise NotFound("user in the backup", name)


def restore_user(folder: Path, name: str, data_root: DataRoot, user_id: UserId) -> BackupUser:
    """Replaces the files of one user, who must not have them open, by those of a backup: all of them, or none.

    The replaced files are kept next to them. Files that the backup does not have stay as they are.
    """
    source_id, user = verify_user(folder, name)
    with _translated_errors("the backup cannot be restored"):
        home, source = data_root.prepare_user(user_id).chacha.parent, _paths(DataRoot(folder), source_id)
        _finish_restore(data_root, home)
        copies = home / _COPIES
        try:
            copies.mkdir(0o700)
            for kind, file in user.files.items():
                _copy_verified(source[kind], copies / source[kind].name, file, owner=home)
            sync_directory(copies)
            descriptor = os.open(copies, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            inherit_owner(descriptor, home)
            os.close(descriptor)
            # If the process ends from here on, the next start of a server, or the next restore, completes this one.
            copies.rename(home / _RESTORED)
        except BaseException:
            shutil.rmtree(copies, ignore_errors=True)
            raise
        _finish_restore(data_root, home)
    return user


def finish_restores(data_root: DataRoot) -> None:
    """Completes what a killed process left of `restore_user`. No library may be open."""
    for folder in data_root.root.glob(f"users/*/u_*/{_RESTORED}*"):
        # A directory that cannot be read is one user's problem, and must not keep the server from starting.
        with suppress(OSError, StorageError):
            _finish_restore(data_root, folder.parent)


def _finish_restore(data_root: DataRoot, home: Path) -> None:
    """Replaces the files of a user by their complete copies, and deletes incomplete ones."""
    shutil.rmtree(home / _COPIES, ignore_errors=True)
    restored = home / _RESTORED
    if restored.is_dir():
        for kind in DATABASE_KINDS:
            if (copy := restored / f"{kind}.db").exists():
                set_aside(home / copy.name)
                copy.rename(home / copy.name)
        sync_directory(home)
        for kind in DATABASE_KINDS:
            if data_root.has_content(UserId(home.name), kind):
                record_file(data_root.control_path, UserId(home.name), kind)
        restored.rmdir()


def restore(folder: Path, data_root: DataRoot) -> BackupManifest:
    """Verifies a backup and copies it to an empty data directory. If that fails, the copied files are removed."""
    manifest = verify(folder)
    with _translated_errors("the backup cannot be restored"):
        if data_root.root.exists():
            _require_empty(data_root.root, "the data directory")
        with _no_partial_copies(data_root):
            # Copies the control database last and gives it its name when it is complete: without it, a partly restored
            # directory is not served.
            source = DataRoot(folder)
            data_root.root.mkdir(0o700, parents=True, exist_ok=True)
            for user_id, user in manifest.users.items():
                restored_paths = _paths(source, user_id)
                data_root.prepare_user(UserId(user_id))
                for kind in user.files:
                    _copy_verified(
                        restored_paths[kind], data_root.ensure_database(UserId(user_id), kind), user.files[kind]
                    )
            if manifest.audit is not None:
                _copy_verified(source.audit_path, data_root.audit_path, manifest.audit)
            unfinished = _unfinished_control(data_root)
            _copy_verified(source.control_path, unfinished, manifest.control)
            unfinished.replace(data_root.control_path)
            sync_directory(data_root.root)
    return manifest


@contextmanager
def _no_partial_copies(root: DataRoot) -> Iterator[None]:
    """Removes what was written to a directory that was empty, if the block fails: on a full disk, it keeps the disk
    full."""
    try:
        yield
    except BaseException:
        paths = (root.control_path, _unfinished_control(root), root.audit_path, root.root / MANIFEST)
        for path in (root.root / "users", *paths):
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise


def _unfinished_control(root: DataRoot) -> Path:
    return root.control_path.with_name(root.control_path.name + ".unfinished")


# -- copying -----------------------------------------------------------------------------------------------------------


def _copy_audit(data_root: DataRoot, target: DataRoot) -> BackupFile | None:
    if not data_root.audit_path.exists():
        return None
    try:
        with closing(connect_reader(data_root.audit_path)) as audit:
            begin_snapshot(audit)
            copy_database(audit, target.audit_path)
        fault = library_check.find_fault(target.audit_path)
    except DATABASE_ERRORS as error:
        if is_no_space(error):
            raise
        fault = f"cannot be read ({error}); check its owner"
    if fault:
        raise StorageError(f"audit.db {fault}, or move it out of the data directory to start a new audit log")
    return _describe(target.audit_path)


def _copy_user(data_root: DataRoot, user_id: UserId, name: str, target: DataRoot) -> BackupUser:
    paths: dict[DatabaseKind, Path] = {
        kind: path
        for kind, path in _paths(data_root, user_id).items()
        if os.path.exists(path)  # noqa: PTH110 - Path.exists raises if the directory cannot be read
    }
    problems = library_check.missing_files(data_root, user_id)
    files: dict[DatabaseKind, BackupFile] = {}
    with ExitStack() as stack:
        readers: dict[DatabaseKind, sqlite3.Connection] = {}
        lockable: list[Path] = []
        for kind, path in paths.items():
            with _collected_faults(kind, problems):
                reader, can_lock = _connect_reader(path)
                readers[kind] = stack.enter_context(closing(reader))
                if can_lock:
                    lockable.append(path)
        with locked_for_writing(lockable):
            for reader in readers.values():
                begin_snapshot(reader)
        for kind, reader in readers.items():
            with _collected_faults(kind, problems):
                files[kind] = _copy(reader, target.ensure_database(user_id, kind), kind)
    return BackupUser(name, files, tuple(problems))


def _connect_reader(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Returns a connection, and whether the file can be locked. On a full or read-only disk, SQLite can only open a
    file without a log as immutable; nothing can write to it then."""
    connection = connect_reader(path)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        connection.rollback()
    except DATABASE_ERRORS as error:
        connection.close()
        log = path.with_name(path.name + "-wal")
        cannot_write = is_no_space(error) or (is_unwritable(error) and is_read_only(path))
        if not cannot_write or (log.exists() and log.stat().st_size):
            raise
        return library_check.connect_immutable(path), False
    return connection, True


@contextmanager
def _collected_faults(kind: DatabaseKind, problems: list[str]) -> Iterator[None]:
    """Adds a fault of the source to the problems. A full target disk still ends the backup."""
    try:
        yield
    except _DamagedCopy as error:
        problems.append(error.message)
    except DATABASE_ERRORS as error:
        translated = translate(error, kind, BUSY_TIMEOUT_MS)
        if isinstance(translated, DiskFull):
            raise
        problems.append(f"{kind}.db: {translated.message}")


class _DamagedCopy(StorageError):
    """A copy that failed its check."""


def _copy(connection: sqlite3.Connection, path: Path, kind: DatabaseKind) -> BackupFile:
    """Keeps no copy that `restore` would reject."""
    try:
        copy_database(connection, path)
        if fault := library_check.find_fault(path):
            raise _DamagedCopy(f"{kind}.db {fault}")
        return _describe(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _copy_verified(source: Path, target: Path, file: BackupFile, *, owner: Path | None = None) -> None:
    """Copies a file and checks the digest again: the disk may fail between verification and copy."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, _FILE_MODE)
    with source.open("rb") as reader, os.fdopen(descriptor, "wb") as writer:
        inherit_owner(descriptor, owner or target.parent)
        shutil.copyfileobj(reader, writer, 1 << 20)
        writer.flush()
        os.fsync(writer.fileno())
    if _digest(target) != file.sha256:
        raise StorageError("the backup changed while it was being restored; nothing was kept")


# -- verifying ---------------------------------------------------------------------------------------------------------


def _describe(path: Path) -> BackupFile:
    with closing(library_check.connect_immutable(path)) as connection:
        return BackupFile(
            size_bytes=path.stat().st_size,
            sha256=_digest(path),
            schema=schema_version(connection),
            rows=_count_rows(connection),
        )


def _count_rows(connection: sqlite3.Connection) -> dict[str, int]:
    """Counts the rows of ordinary tables. The shadow tables of indexes are derived from them."""
    names = connection.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT GLOB 'sqlite_*'"
    )
    return {
        name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for (name,) in sorted(names.fetchall())
    }


def _verify_file(path: Path, name: str, file: BackupFile, kind: DatabaseKind | None) -> None:
    """`kind` is None for the control database and the audit log."""
    if not path.is_file() or path.is_symlink():
        raise StorageError(f"the backup is incomplete: {name} is missing")
    if path.stat().st_size != file.size_bytes or _digest(path) != file.sha256:
        raise StorageError(f"the backup is damaged: {name} differs from what was written")
    if fault := library_check.find_fault(path):
        raise StorageError(f"the backup is damaged: {name} {fault}")
    with closing(library_check.connect_immutable(path)) as connection:
        if schema_version(connection) != file.schema or _count_rows(connection) != file.rows:
            raise StorageError(f"the backup is damaged: {name} does not have the rows listed in the manifest")
        if foreign := library_check.find_foreign_object(connection, kind, file.schema):
            raise StorageError(
                f"the backup was changed: {name} contains the {foreign}, which Florilegium did not create; remove it, "
                "or use another backup"
            )


def _verify_user(root: DataRoot, user_id: str, user: BackupUser) -> None:
    paths = _paths(root, user_id)
    for kind, file in user.files.items():
        _require_supported(f"{kind} libraries", file.schema, SCHEMAS[kind].newest_version)
        _verify_file(paths[kind], f"{kind}.db of {user.name!r}", file, kind)


def _require_supported(name: str, schema: int, newest: int) -> None:
    if schema > newest:
        raise StorageError(
            f"the backup contains {name} with schema {schema}, written by a newer version of Florilegium; "
            f"this version supports schemas up to {newest}: upgrade Florilegium"
        )


# -- files -------------------------------------------------------------------------------------------------------------


def _paths(root: DataRoot, user_id: str) -> dict[DatabaseKind, Path]:
    """Paths are derived from the user id and never read from a manifest, so none can point outside the directory."""
    paths = root.paths_of(UserId(user_id))
    return {kind: getattr(paths, kind) for kind in DATABASE_KINDS}


def _digest(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _require_empty(folder: Path, name: str) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise Conflict(f"{name} is not empty; choose another directory or move its files")


def _read_manifest(folder: Path) -> BackupManifest:
    path = folder / MANIFEST
    if not path.is_file():
        missing = f"it has no {MANIFEST}" if folder.is_dir() else "there is no such folder"
        raise StorageError(f"{folder} is not a backup: {missing}; expected a folder that `florilegium backup` wrote")
    if path.stat().st_size > _MANIFEST_MAX_BYTES:
        raise StorageError(f"the backup cannot be read: its manifest is larger than {_MANIFEST_MAX_BYTES} bytes")
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=BackupManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StorageError("the backup is damaged: its manifest cannot be read") from error
    if manifest.format != FORMAT or manifest.format_version > FORMAT_VERSION:
        raise StorageError("the backup was written by a newer version of Florilegium: upgrade Florilegium")
    return manifest


@contextmanager
def _translated_errors(action: str) -> Iterator[None]:
    try:
        yield
    except DATABASE_ERRORS as error:
        raise StorageError(f"{action}: {translate(error, 'a library', BUSY_TIMEOUT_MS).message}") from error
    except OSError as error:
        raise StorageError(f"{action}: {error.strerror or 'disk error'}") from error
