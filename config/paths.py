"""The paths of users' files. This is the only module that turns a user id into a path.

It rejects invalid user ids. Below the data root it also rejects symbolic links, files with several hard links and
special files, so that nothing outside the root can be opened.
"""

import base64
import errno
import os
import re
import shlex
import shutil
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal, NewType, get_args
from uuid import uuid4

from msgspec import Struct

from config.errors import NotFound, StorageError

UserId = NewType("UserId", str)
DatabaseKind = Literal["media", "chacha", "prompts"]
DATABASE_KINDS: tuple[DatabaseKind, ...] = get_args(DatabaseKind)

_USER_ID = re.compile(r"u_[a-z2-7]{26}\Z")
_CONTROL = "control.db"
_AUDIT = "audit.db"
_USERS = "users"
# The end of the name of a directory that is about to be replaced.
_SET_ASIDE = ".replaced"
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600
# A block, so that a full disk is noticed even if the file system has room for an empty file.
_PROBE_BYTES = 4096

# SQLite's POSIX locks belong to the process: closing any descriptor of a file drops all of them. Therefore an existing
# file is never opened here, and a new file's path is not returned before its first descriptor is closed.
_CREATING = threading.Lock()


class DatabasePaths(Struct, frozen=True):
    """The three database files of one user."""

    media: Path
    chacha: Path
    prompts: Path


def stored_bytes(paths: Iterable[Path]) -> int:
    """Returns the size of database files and their write-ahead logs, without opening them."""
    # As texts: a path that is built from another costs more than the system call.
    return sum(_size(path) + _size(f"{path}-wal") for path in map(str, paths))


def stored_bytes_of_user(paths: DatabasePaths) -> int:
    return stored_bytes((paths.media, paths.chacha, paths.prompts))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - see above
    except OSError:
        return 0


def new_user_id() -> UserId:
    """Returns 128 random bits in lower-case base32, which is safe on case-insensitive file systems."""
    return UserId("u_" + base64.b32encode(os.urandom(16)).decode().rstrip("=").lower())


def is_user_id(text: str) -> bool:
    return bool(_USER_ID.match(text))


class DataRoot:
    """The data directory: `control.db` and `users/<two characters>/<user id>/{media,chacha,prompts}.db`."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    @property
    def control_path(self) -> Path:
        return self.root / _CONTROL

    @property
    def audit_path(self) -> Path:
        return self.root / _AUDIT

    def paths_of(self, user_id: UserId) -> DatabasePaths:
        """Returns the paths of the user's databases, whether or not they exist."""
        return _database_paths(self.root, user_id)

    def prepare(self) -> None:
        """Creates the root and an empty control database, readable by this account only.

        An existing root keeps its mode: it may be a mounted volume, or be used by other programs.
        """
        try:
            for directory in (*reversed(self.root.parents), self.root):
                directory.mkdir(_DIRECTORY_MODE, exist_ok=True)
            with _open_directory(self.root, ()) as root:
                os.close(_ensure_directory(root, _USERS))
                _ensure_file(root, _CONTROL)
        except OSError as error:
            raise StorageError(root_advice(self.root, error)) from error
        # SQLite creates journals next to its databases, so writable files in a read-only directory are not enough.
        if not os.access(self.root, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise StorageError(root_advice(self.root, PermissionError()))

    def check_writable(self) -> None:
        """Writes a small file and removes it. Raises StorageError if that fails, for example on a full disk."""
        self.prepare()
        try:
            with tempfile.TemporaryFile(dir=self.root) as file:
                file.write(bytes(_PROBE_BYTES))
                file.flush()
        except OSError as error:
            raise StorageError(f"the data directory cannot be written: {_cause(error)}") from error

    def has_control(self) -> bool:
        """Whether the control database exists. Raises StorageError if this account may not look, as in the directory of
        a service."""
        try:
            return self.control_path.exists()
        except OSError as error:
            raise StorageError(root_advice(self.root, error)) from error

    def require_control(self) -> None:
        """Raises if users have directories but the control database is missing or empty.

        A new control database would make all of these libraries unreachable.
        """
        try:
            if self.has_control() and self.control_path.stat().st_size:
                return
            if not any(_USER_ID.match(path.name) for path in (self.root / _USERS).glob("*/u_*")):
                return
        except OSError as error:
            raise StorageError(root_advice(self.root, error)) from error
        raise StorageError(
            f"{_CONTROL} is missing from the data directory {self.root}, which contains libraries: it was lost, or a "
            f"restore did not finish; copy {_CONTROL} from a backup, or restore a backup into another directory"
        )

    def has_content(self, user_id: UserId, kind: DatabaseKind) -> bool:
        """Whether a database file exists and is not empty. Raises StorageError if that cannot be found out."""
        path: Path = getattr(self.paths_of(user_id), kind)
        with _storage_errors(), suppress(FileNotFoundError):
            return path.stat().st_size > 0
        return False

    def prepare_user(self, user_id: UserId) -> DatabasePaths:
        """Creates the user's directory, readable by this account only, and returns the paths of its databases."""
        paths = self.paths_of(user_id)
        with _storage_errors(), _create_and_open(self.root, _path_parts(user_id)):
            return paths

    def ensure_database(self, user_id: UserId, kind: DatabaseKind) -> Path:
        """Returns the path of a database file, creating it empty and private if necessary."""
        path: Path = getattr(self.paths_of(user_id), kind)
        with _storage_errors(), _create_and_open(self.root, _path_parts(user_id)) as home:
            _ensure_file(home, path.name)
        return path

    def move_user(self, source: UserId, target: UserId) -> None:
        """Gives the directory of a user to another, whose own is deleted. Neither may be open.

        A crash leaves one of three states: nothing has moved; the target's directory is set aside, which
        `undo_moves` reverts; or the move is done and the directory that was set aside is left, which it deletes.
        """
        old, new = (self.root.joinpath(*_path_parts(user_id)) for user_id in (source, target))
        aside = new.with_name(new.name + _SET_ASIDE)
        with _storage_errors():
            if not old.is_dir() or old.is_symlink():
                raise StorageError("the library to take over does not exist")
            os.close(_create_directories(self.root, _path_parts(target)))
            new.rename(aside)
            old.rename(new)
            for directory in {old.parent, new.parent}:
                sync_directory(directory)
            shutil.rmtree(aside)

    def is_moved(self, source: UserId, target: UserId) -> bool:
        """Whether the directory of one user has been given to another, which the control database may not show yet."""
        old, new = (self.root.joinpath(*_path_parts(user_id)) for user_id in (source, target))
        return new.is_dir() and not old.exists()

    def undo_moves(self) -> None:
        """Ends what a killed process left of `move_user`."""
        for aside in (self.root / _USERS).glob(f"*/u_*{_SET_ASIDE}"):
            moved = aside.with_name(aside.name.removesuffix(_SET_ASIDE))
            with suppress(OSError):
                if moved.exists():
                    shutil.rmtree(aside)
                else:
                    aside.rename(moved)

    def remove_user(self, user_id: UserId) -> None:
        """Deletes the user's directory with its content, if it exists. Links inside are deleted, not followed."""
        *parents, name = _path_parts(user_id)
        if not os.path.lexists(self.root.joinpath(*parents, name)):
            return
        with _storage_errors(), _open_directory(self.root, parents) as shard:
            shutil.rmtree(name, dir_fd=shard)
        # Also removes the shard directory, unless it contains other users.
        with suppress(OSError), _open_directory(self.root, parents[:-1]) as users:
            os.rmdir(parents[-1], dir_fd=users)


# Every call of a user asks for them, and building a path takes longer than looking it up.
@lru_cache(maxsize=1024)
def _database_paths(root: Path, user_id: UserId) -> DatabasePaths:
    home = root.joinpath(*_path_parts(user_id))
    return DatabasePaths(home / "media.db", home / "chacha.db", home / "prompts.db")


def _path_parts(user_id: UserId) -> tuple[str, str, str]:
    """Returns the directories from the root to the user's. Sharding by two characters keeps directories small."""
    if not _USER_ID.match(user_id):
        raise NotFound("user", "(not a user id)")
    return (_USERS, user_id[2:4], user_id)


@contextmanager
def _open_directory(root: Path, parts: Sequence[str]) -> Iterator[int]:
    """Opens a directory below the root. The root itself may be a symbolic link, directories below it may not."""
    with ExitStack() as descriptors:
        current = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        descriptors.callback(os.close, current)
        for name in parts:
            current = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=current)
            descriptors.callback(os.close, current)
        yield current


@contextmanager
def _create_and_open(root: Path, parts: Sequence[str]) -> Iterator[int]:
    """Like `_open_directory`, but creates missing directories."""
    try:
        directory = _create_directories(root, parts)
    except FileNotFoundError:  # purging another user removed the empty shard directory meanwhile
        directory = _create_directories(root, parts)
    try:
        yield directory
    finally:
        os.close(directory)


def _create_directories(root: Path, parts: Sequence[str]) -> int:
    """Returns a descriptor of the last directory."""
    current = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for name in parts:
        parent = current
        try:
            current = _ensure_directory(parent, name)
        finally:
            os.close(parent)
    return current


def _ensure_directory(parent: int, name: str) -> int:
    """Creates a private directory, or removes the permissions of others from an existing one. Returns its
    descriptor."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        descriptor = os.open(name, flags, dir_fd=parent)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(name, _DIRECTORY_MODE, dir_fd=parent)
        descriptor = os.open(name, flags, dir_fd=parent)
        inherit_owner(descriptor, parent)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != _DIRECTORY_MODE:
            with suppress(PermissionError):  # file systems without modes, where the mount options apply
                os.fchmod(descriptor, _DIRECTORY_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _ensure_file(parent: int, name: str) -> None:
    """Creates a private empty file, or checks that the existing file is regular and has one hard link."""
    with _CREATING:
        try:
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _FILE_MODE, dir_fd=parent)
        except FileExistsError:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise StorageError("a database in the data directory is not a regular file; remove it") from None
            if status.st_nlink != 1:
                # The other name may belong to another user or be outside the root, and SQLite corrupts files with two
                # names.
                raise StorageError("a database has a second hard link; copy the file instead of linking it") from None
        else:
            inherit_owner(descriptor, parent)
            os.close(descriptor)


def inherit_owner(descriptor: int, directory: int | Path) -> None:
    """Gives what root has created to the owner of the directory, as SQLite does with its logs. Otherwise a command that
    root runs would lock out the server, which has an account of its own."""
    if os.geteuid() == 0:
        with suppress(OSError):
            owner = os.stat(directory)  # noqa: PTH116 - or a descriptor
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Converts OSError to StorageError, with the cause but without the path."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"the user's files cannot be accessed: {_cause(error)}") from error


def _cause(error: OSError) -> str:
    # O_NOFOLLOW fails with ELOOP or ENOTDIR; shutil.rmtree rejects a link with an error without errno.
    if error.strerror is None or error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "expected a directory, found a link or a file"
    return error.strerror.lower()


def is_read_only(path: Path) -> bool:
    """Whether the file system of a path is mounted read-only. A system that had to report disk errors often does so."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def root_advice(root: Path, error: OSError) -> str:
    """Describes an error for the operator at start-up, with the path and a command that fixes permissions."""
    if not isinstance(error, PermissionError):
        return f"the data directory {root} cannot be used: {_cause(error)}; set data_dir to another directory"
    if is_read_only(root):
        return (
            f"the data directory {root} is on a read-only file system; make it writable, or set data_dir to another "
            "directory"
        )
    with suppress(OSError):
        owner = root.stat().st_uid
        if owner not in (0, os.geteuid()):
            return (
                f"the data directory {root} belongs to uid {owner}, and uid {os.geteuid()} may not use it; run this as "
                f"its owner, with `sudo -u '#{owner}'`, or set data_dir to another directory"
            )
    quoted = shlex.quote(str(root))
    return (
        f"the data directory {root} is not writable by uid {os.geteuid()}; as root, run "
        f"`mkdir -p {quoted} && chown -R {os.geteuid()} {quoted}`, or set data_dir to another directory"
    )


# -- file copies -------------------------------------------------------------------------------------------------------
# Copies of one database file while it is in use, and the copies that are kept before its schema is migrated.


def copy_database(connection: sqlite3.Connection, path: Path) -> None:
    """Writes what a connection sees to a new file and flushes it to disk."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, _FILE_MODE))
    with closing(sqlite3.connect(path, isolation_level=None)) as target:
        connection.backup(target)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_aside(path: Path) -> Path | None:
    """Renames a database that is not in use, with its write-ahead log, so that another can take its place. Returns the
    new path, or None if there is no such file."""
    if not path.exists():
        # A log without its database would be applied to the file that takes its place.
        for suffix in ("-wal", "-shm"):
            _rename_if_present(path.with_name(path.name + suffix), path.with_name(f"{path.name}.lost{suffix}"))
        return None
    aside = path.with_name(f"{path.name}.replaced-{time.time_ns() // 1_000_000}")
    for suffix in ("", "-wal", "-shm"):
        _rename_if_present(path.with_name(path.name + suffix), aside.with_name(aside.name + suffix))
    return aside


def sync_directory(directory: Path) -> None:
    """Makes renames in the directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename_if_present(path: Path, target: Path) -> None:
    with suppress(FileNotFoundError):
        path.rename(target)


def save_copy_before_migration(connection: sqlite3.Connection, path: Path, schema: int, copies_max: int) -> None:
    """Saves the file as `<name>.schema-<number>` next to it and deletes all but the newest `copies_max` copies. Raises
    `StorageError` if no copy can be made, so that the file is not migrated."""
    if not copies_max:
        return
    unfinished = path.with_name(f"{path.name}.{uuid4().hex}.unfinished")
    try:
        copy_database(connection, unfinished)
        unfinished.replace(path.with_name(f"{path.name}.schema-{schema}"))
        for old in copies_before_migration(path)[copies_max:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or "disk error"
        raise StorageError(f"the database was not upgraded because it could not be copied first: {reason}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def copies_before_migration(path: Path) -> list[Path]:
    """Returns the copies of a file, newest schema first."""
    name = re.compile(re.escape(path.name) + r"\.schema-(\d{1,9})")
    copies = [(int(match[1]), other) for other in path.parent.iterdir() if (match := name.fullmatch(other.name))]
    return [copy for _, copy in sorted(copies, reverse=True)]
