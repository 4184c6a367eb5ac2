"""Reads all files of one user as of one moment, while others keep writing.

Their writers are locked for a few milliseconds while a read transaction is started on each file.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from config.paths import DATABASE_KINDS, DatabaseKind, DataRoot, UserId

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
