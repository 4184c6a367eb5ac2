"""One process per data directory: a lock that names its owner, and a socket on which commands reach it.

The operating system releases the lock when the process ends, however it ends. Commands that only read, and those that
change users and keys, do not take it: the control database is made for several processes.
"""

import fcntl
import os
import shutil
import socket
import sqlite3
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec
from loguru import logger
from msgspec import Struct, structs

from config.errors import StorageError
from config.paths import inherit_owner

LOCK_FILE = "florilegium.lock"
# sqlite.org/wal.html, "the WAL-reset bug": before this version, two writing processes can corrupt a database.
WAL_RESET_FIXED = (3, 51, 3)
# A command that writes a single item is waited for; a server is not.
_WAIT_S = 5.0
_PAUSE_S = 0.05
_READS = 5
_FILE_MODE = 0o600
_OWNER_MAX_BYTES = 4096

# server: must be alone with other servers. writer: may share the directory if SQLite is recent enough. maintenance:
# replaces files, so it must be alone.
Use = Literal["server", "writer", "maintenance"]


class DirectoryInUse(StorageError):
    """Another process holds the lock."""


class LockOwner(Struct, frozen=True):
    """The process that holds the lock. What has a default is set by a server that accepts connections: its address on
    this machine, the one that clients use, its local socket (relative to the directory, or absolute), and whether its
    callers need a credential."""

    command: str
    pid: int
    host: str
    since: str
    url: str = ""
    base_url: str = ""
    socket: str = ""
    needs_auth: bool = False

    @property
    def is_starting(self) -> bool:
        """Whether a server on this machine does not accept connections yet."""
        if self.command != "serve" or self.url or self.host != socket.gethostname():
            return False
        with suppress(OSError):
            os.kill(self.pid, 0)
            return True
        return False

    def __str__(self) -> str:
        return f"`florilegium {self.command}` (pid {self.pid} on {self.host}, since {self.since})"


class DirectoryLock:
    """A lock that this process holds."""

    def __init__(self, descriptor: int, owner: LockOwner) -> None:
        self._descriptor = descriptor
        self._owner = owner
        self._write(msgspec.json.encode(owner))

    def publish(self, url: str, base_url: str, socket: str, needs_auth: bool) -> None:
        """Adds where the server is, for commands that hand their work to it or are refused because of it."""
        self._owner = structs.replace(self._owner, url=url, base_url=base_url, socket=socket, needs_auth=needs_auth)
        self._write(msgspec.json.encode(self._owner))

    def release(self) -> None:
        self._write(b"")
        os.close(self._descriptor)

    def _write(self, content: bytes) -> None:
        """The lock holds even if the disk is too full to say who has it. A reader sees the old record, the new one, or
        neither, which it reads again: one write, and the end of a longer record is cut off after it."""
        with suppress(OSError):
            os.pwrite(self._descriptor, content, 0)
            os.ftruncate(self._descriptor, len(content))


@contextmanager
def locked_directory(root: Path, command: str, use: Use) -> Iterator[DirectoryLock | None]:
    """Holds the lock of an existing data directory. Yields None if another process has it and both may write."""
    lock = _acquire(root, command, use)
    try:
        yield lock
    finally:
        if lock is not None:
            lock.release()


def _acquire(root: Path, command: str, use: Use) -> DirectoryLock | None:
    # The file is truncated later, so a link that someone put there is not followed.
    try:
        flags = os.O_RDWR | os.O_NOFOLLOW
        try:
            descriptor = os.open(root / LOCK_FILE, flags | os.O_CREAT | os.O_EXCL, _FILE_MODE)
            inherit_owner(descriptor, root)
        except FileExistsError:
            descriptor = os.open(root / LOCK_FILE, flags)
    except OSError as error:
        advice = "; its owner must be the account that runs the server" if isinstance(error, PermissionError) else ""
        raise StorageError(f"{root / LOCK_FILE} cannot be locked: {error.strerror}{advice}") from error
    waits_until = time.monotonic() + _WAIT_S
    while not _try_lock(descriptor):
        owner = _read_owner(descriptor)
        if use == "writer" and sqlite3.sqlite_version_info >= WAL_RESET_FIXED:
            os.close(descriptor)
            return None
        if (owner is not None and owner.command in ("serve", "stdio")) or time.monotonic() > waits_until:
            os.close(descriptor)
            raise DirectoryInUse(_refusal(root, owner, use))
        time.sleep(_PAUSE_S)
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return DirectoryLock(descriptor, LockOwner(command, os.getpid(), socket.gethostname(), since))


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_owner(descriptor: int) -> LockOwner | None:
    """Returns None while the owner is writing its description, or if it could not."""
    try:
        return msgspec.json.decode(os.pread(descriptor, _OWNER_MAX_BYTES, 0), type=LockOwner)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def read_owner(root: Path) -> LockOwner | None:
    """Returns the last process that described itself in the lock file, which may have been killed since. Returns None
    if there is none, or if another account wrote the file."""
    try:
        descriptor = os.open(root / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_uid not in (0, os.geteuid(), root.stat().st_uid):
            return None
        for _ in range(_READS):
            owner = _read_owner(descriptor)
            if owner is not None or not os.fstat(descriptor).st_size:
                return owner
            time.sleep(_PAUSE_S)  # it is being written
        return None
    finally:
        os.close(descriptor)


def _refusal(root: Path, owner: LockOwner | None, use: Use) -> str:
    in_use = f"the data directory {root} is in use by {owner or 'another process'}"
    if use == "server":
        return f"{in_use}; stop it, or set data_dir to another directory"
    if use == "maintenance":
        return f"{in_use}; stop it first"
    version, fixed = sqlite3.sqlite_version, ".".join(map(str, WAL_RESET_FIXED))
    reason = f"and SQLite {version}, unlike {fixed}, can corrupt a database that two processes write"
    if owner is not None and owner.url:
        return (
            f"{in_use}, {reason}; write through that server at {owner.url} (`florilegium stdio --remote "
            f"{owner.url}/mcp`, or the REST API described at {owner.url}/docs), or stop it"
        )
    return f"{in_use}, {reason}; stop it, or run `florilegium serve` and connect every client to it"


# -- socket ------------------------------------------------------------------------------------------------------------
# The Unix socket of a data directory, through which commands hand their work to the server that holds its lock.
#
# A caller on this socket has the rights of a command on the files, and needs no credential. So the socket can be
# reached only by accounts that have these rights anyway: the one that the server runs as, the owner of the directory,
# and root. The file's mode says so, and both sides ask the kernel who the other is. A client of a TCP port never gets
# there: the rights belong to the kind of the connection, and not to anything that it sends.

SOCKET_FILE = "florilegium.sock"
# Names the user whose library a request on this socket is about, percent-encoded. Ignored on other connections.
USER_HEADER = "X-Florilegium-User"
# No execution, and nothing for others: mode 0600.
_UMASK = 0o177
# sun_path has 104 bytes on macOS and 108 on Linux, with the NUL at its end.
_PATH_MAX_BYTES = 103
_CONNECT_TIMEOUT_S = 5.0
# How long a command waits for a server that is starting.
_START_MAX_S = 10.0
_START_PAUSE_S = 0.1
# struct ucred of unix(7): pid, uid, gid.
_UCRED = struct.Struct("iII")


@contextmanager
def bind_local_socket(root: Path) -> Iterator[socket.socket | None]:
    """Yields a socket that is bound and does not listen yet. Only the process with the lock of the directory may do
    this, and before it starts threads, because the umask belongs to the process.

    Yields None, with a warning, if no socket can be created: the server works without it.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path, private_directory = root.absolute() / SOCKET_FILE, None
    try:
        try:
            _bind(listener, path)
        except OSError:
            # The path is too long for a socket, or the file system has none. The owner's record says where it is.
            private_directory = tempfile.mkdtemp(prefix="florilegium-")
            path = Path(private_directory) / SOCKET_FILE
            _bind(listener, path)
    except OSError as error:
        logger.warning("Commands cannot use this server, because it has no local socket: {}", error.strerror or error)
        listener.close()
        yield None
        return
    try:
        yield listener
    finally:
        listener.close()
        with suppress(OSError):
            path.unlink()
        if private_directory is not None:
            shutil.rmtree(private_directory, ignore_errors=True)


def _bind(listener: socket.socket, path: Path) -> None:
    if len(os.fsencode(path)) > _PATH_MAX_BYTES:
        raise OSError("the path is too long")
    # Left by a server that was killed, or a link that someone put there: neither is followed.
    with suppress(FileNotFoundError):
        path.unlink()
    before = os.umask(_UMASK)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)


def connect_to_running_server(root: Path) -> tuple[socket.socket, LockOwner] | None:
    """Returns a connection to the server of a data directory on this machine, or None if none answers there.

    A record or a socket that another account put there is not used: what a command sends could be secret.
    """
    owner, waits_until = read_owner(root), time.monotonic() + _START_MAX_S
    while owner is not None and owner.is_starting and time.monotonic() < waits_until:
        time.sleep(_START_PAUSE_S)
        owner = read_owner(root)
    if owner is None or not owner.socket or owner.host != socket.gethostname():
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_CONNECT_TIMEOUT_S)
    try:
        connection.connect(str(root.absolute() / owner.socket))  # an absolute path replaces the root
        if is_trusted_peer(connection, root):
            return connection, owner
    # Refused: the server was killed, and its record is stale.
    except OSError:
        pass
    connection.close()
    return None


def is_trusted_peer(connection: socket.socket, root: Path) -> bool:
    """Whether the process at the other end belongs to this account, the owner of the directory, or root. Systems
    without SO_PEERCRED have only the mode of the file."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    try:
        _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _UCRED.size))
        return uid in (0, os.geteuid(), root.stat().st_uid)
    except OSError:
        return False
