"""The Unix socket of a data directory, through which commands hand their work to the server that holds its lock.

A caller on this socket has the rights of a command on the files, and needs no credential. So the socket can be reached
only by accounts that have these rights anyway: the one that the server runs as, the owner of the directory, and root.
The file's mode says so, and both sides ask the kernel who the other is. A client of a TCP port never gets there: the
rights belong to the kind of the connection, and not to anything that it sends.
"""

import os
import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from loguru import logger

from server.directory_lock import LockOwner, read_owner

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
_PAUSE_S = 0.1
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
        time.sleep(_PAUSE_S)
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
