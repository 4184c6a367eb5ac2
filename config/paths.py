"""Where a user's files are: the one place that turns a user id into paths.

It refuses every text that is not a user id, and below the data root every symbolic link, second hard link and
special file, so that nothing outside the root can be opened through it.
"""

import base64
import errno
import os
import re
import shlex
import shutil
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal, NewType

from msgspec import Struct

from config.errors import NotFound, StorageError

UserId = NewType("UserId", str)
DatabaseKind = Literal["media", "chacha", "prompts"]

_USER_ID = re.compile(r"u_[a-z2-7]{26}\Z")
_CONTROL = "control.db"
_USERS = "users"
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600

# SQLite's POSIX locks belong to the process: closing any descriptor of a file drops them all. So a file that
# exists is never opened here, and nobody is told of a new one before its first descriptor is closed.
_CREATING = threading.Lock()


class DatabasePaths(Struct, frozen=True):
    """The three database files of one user."""

    media: Path
    chacha: Path
    prompts: Path


def new_user_id() -> UserId:
    """128 random bits in lower-case base32: collision-free, and safe on case-blind file systems."""
    return UserId("u_" + base64.b32encode(os.urandom(16)).decode().rstrip("=").lower())


class DataRoot:
    """The data directory: `control.db` and `users/<two characters>/<user id>/{media,chacha,prompts}.db`."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    @property
    def control_path(self) -> Path:
        return self.root / _CONTROL

    def paths_of(self, user_id: UserId) -> DatabasePaths:
        """Where the user's databases are, whether or not they exist."""
        home = self.root.joinpath(*_steps(user_id))
        return DatabasePaths(home / "media.db", home / "chacha.db", home / "prompts.db")

    def prepare(self) -> None:
        """Make the root, private to this account, with an empty control database that only it can read.

        A root that exists keeps its mode: it may be a mounted volume, or serve other programs too.
        """
        try:
            for directory in (*reversed(self.root.parents), self.root):
                directory.mkdir(_DIRECTORY_MODE, exist_ok=True)
            with _opened(self.root, ()) as root:
                _make_directory(root, _USERS)
                _make_file(root, _CONTROL)
        except OSError as error:
            raise StorageError(_advice(self.root, error)) from error
        # SQLite writes journals beside its databases, so existing files in a directory closed to us are no use.
        if not os.access(self.root, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise StorageError(_advice(self.root, PermissionError()))

    def prepare_user(self, user_id: UserId) -> DatabasePaths:
        """Make the user's directory, private to this account, and say where its databases belong."""
        paths = self.paths_of(user_id)
        with _storage_errors(), _made(self.root, _steps(user_id)):
            return paths

    def ensure_database(self, user_id: UserId, kind: DatabaseKind) -> Path:
        """The path of a database that is a regular file inside the root, made empty and private if absent."""
        path: Path = getattr(self.paths_of(user_id), kind)
        with _storage_errors(), _made(self.root, _steps(user_id)) as home:
            _make_file(home, path.name)
        return path

    def remove_user(self, user_id: UserId) -> None:
        """Delete the user's directory, if any, and all in it; a link inside is deleted, never followed."""
        *above, name = _steps(user_id)
        if not os.path.lexists(self.root.joinpath(*above, name)):
            return
        with _storage_errors(), _opened(self.root, above) as shard:
            shutil.rmtree(name, dir_fd=shard)
        # Two characters of the id are left of it, unless another user has them too.
        with suppress(OSError), _opened(self.root, above[:-1]) as users:
            os.rmdir(above[-1], dir_fd=users)


def _steps(user_id: UserId) -> tuple[str, str, str]:
    """The directories from the root down to the user's. Two characters of 32 keep any one of them small."""
    if not _USER_ID.match(user_id):
        raise NotFound("user", "(not a user id)")
    return (_USERS, user_id[2:4], user_id)


@contextmanager
def _opened(root: Path, steps: Sequence[str]) -> Iterator[int]:
    """A descriptor of a directory under the root. The root itself may be a link; no step below it may."""
    with ExitStack() as descriptors:
        here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        descriptors.callback(os.close, here)
        for name in steps:
            here = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            descriptors.callback(os.close, here)
        yield here


@contextmanager
def _made(root: Path, steps: Sequence[str]) -> Iterator[int]:
    """As `_opened`, making what is missing."""
    try:
        _make_steps(root, steps)
    except FileNotFoundError:  # the purge of a neighbour took away a directory that was empty; it will not again
        _make_steps(root, steps)
    with _opened(root, steps) as here:
        yield here


def _make_steps(root: Path, steps: Sequence[str]) -> None:
    for depth, name in enumerate(steps):
        with _opened(root, steps[:depth]) as parent:
            _make_directory(parent, name)


def _make_directory(parent: int, name: str) -> None:
    """Create it private; one that is there and open to others, say from a backup, is closed to them."""
    with suppress(FileExistsError):
        os.mkdir(name, _DIRECTORY_MODE, dir_fd=parent)
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != _DIRECTORY_MODE:
            with suppress(PermissionError):  # shares mounted without modes: their mount options decide
                os.fchmod(descriptor, _DIRECTORY_MODE)
    finally:
        os.close(descriptor)


def _make_file(parent: int, name: str) -> None:
    """Create it private and empty, or make sure that what is there is a regular file with this name only."""
    with _CREATING:
        try:
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _FILE_MODE, dir_fd=parent)
        except FileExistsError:
            _require_plain_file(os.stat(name, dir_fd=parent, follow_symlinks=False))
        else:
            os.close(descriptor)


def _require_plain_file(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise StorageError("a database is not a regular file; move what stands in its place out of the data directory")
    if found.st_nlink != 1:
        # The other name can be another user's or outside the root, and SQLite corrupts what two names reach.
        raise StorageError("a database has a second hard link; copy the file instead of linking it")


@contextmanager
def _storage_errors() -> Iterator[None]:
    """What the system refuses, as a sentence for a stranger: the cause, without the path."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"the user's files cannot be used: {_cause(error)}") from error


def _cause(error: OSError) -> str:
    # O_NOFOLLOW answers ELOOP or ENOTDIR; shutil.rmtree refuses a link with an error that has no number.
    if error.strerror is None or error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a link or a file stands where a directory belongs"
    return error.strerror.lower()


def _advice(root: Path, error: OSError) -> str:
    """The same for the operator at start-up, who needs the path, the account and the command that helps."""
    if not isinstance(error, PermissionError):
        return f"the data directory {root} cannot be used: {_cause(error)}; choose another with data_dir"
    quoted = shlex.quote(str(root))
    return (
        f"the data directory {root} cannot be written by uid {os.geteuid()}; run, as root, "
        f"`mkdir -p {quoted} && chown -R {os.geteuid()} {quoted}`, or choose another with data_dir"
    )
