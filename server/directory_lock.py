"""One process per data directory: a lock that names its owner.

The operating system releases the lock when the process ends, however it ends. Commands that only read, and those that
change users and keys, do not take it: the control database is made for several processes.
"""

import fcntl
import os
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, structs

from config.errors import StorageError

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
    def is_long_running(self) -> bool:
        return self.command in ("serve", "stdio")

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
        descriptor = os.open(root / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, _FILE_MODE)
    except OSError as error:
        raise StorageError(f"the data directory cannot be locked: {error.strerror}") from error
    waits_until = time.monotonic() + _WAIT_S
    while not _try_lock(descriptor):
        owner = _read_owner(descriptor)
        if use == "writer" and sqlite3.sqlite_version_info >= WAL_RESET_FIXED:
            os.close(descriptor)
            return None
        if (owner is not None and owner.is_long_running) or time.monotonic() > waits_until:
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
