"""Which database files each user has, recorded in the control database.

Without the record, a lost or truncated file would look like one that was never created: the user would see an
empty library, write into it, and the next backup would replace the good one.
"""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock

from msgspec import Struct

from auth.sqlite_control import CONTROL_LOCK, storage_errors
from config.errors import Conflict
from config.paths import DATABASE_KINDS, DatabaseKind, DataRoot, UserId

NO_OWNER = "the user of this library was disabled or deleted"
# Long, because the caller of a library has a deadline of its own.
_BUSY_TIMEOUT_S = 10.0
_HAS_ACCESS = "SELECT 1 FROM users WHERE id = ? AND disabled_at IS NULL"
_HAS_COLUMN = "SELECT 1 FROM pragma_table_info('users') WHERE name = 'files'"


def recorded_files(control_path: Path, user_id: UserId) -> frozenset[str]:
    """Returns the kinds of files that the user must have. Versions before 0.1.0 recorded none."""
    with CONTROL_LOCK, _open(control_path) as control:
        if control is None or not control.execute(_HAS_COLUMN).fetchone():
            return frozenset()
        row = control.execute("SELECT files FROM users WHERE id = ?", (user_id,)).fetchone()
    return frozenset((row[0] or "").split()) if row else frozenset()


def require_owner(control_path: Path, user_id: UserId) -> None:
    """Raises Conflict for a user who was deleted or disabled, before a file of the user is created. A call that began
    before that, such as a long upload, must not create a deleted library again."""
    with CONTROL_LOCK, _open(control_path) as control:
        if control and not control.execute(_HAS_ACCESS, (user_id,)).fetchone():
            raise Conflict(NO_OWNER)


class _Record(Struct, eq=False):
    """A file to record, and when that is done."""

    user_id: UserId
    kind: DatabaseKind
    done: Future[None]


# What threads of this process have to record, by control database.
_waiting: dict[Path, list[_Record]] = {}
# The first protects the lists; the second lets one thread write, for all that wait.
_guard, _writing = Lock(), Lock()


def record_file(control_path: Path, user_id: UserId, kind: DatabaseKind) -> None:
    """Records a file after its schema was created. Two files of a user may be created at the same time.

    Each transaction flushes the disk several times. What threads have to record meanwhile shares the next one, so that
    many new users do not wait for each other on a slow disk.
    """
    record = _Record(user_id, kind, Future())
    with _guard:
        _waiting.setdefault(control_path, []).append(record)
    with _writing:
        with _guard:
            records = _waiting.pop(control_path, [])
        if records:
            try:
                with CONTROL_LOCK, _open(control_path) as control:
                    if control:
                        control.execute("BEGIN IMMEDIATE")
                        control.executemany(
                            "UPDATE users SET files = trim(coalesce(files, '') || ' ' || ?1) "
                            "WHERE id = ?2 AND ' ' || coalesce(files, '') || ' ' NOT LIKE '% ' || ?1 || ' %'",
                            [(record.kind, record.user_id) for record in records],
                        )
                        control.execute("COMMIT")
            except BaseException as error:
                for record in records:
                    record.done.set_exception(error)
                raise
            for record in records:
                record.done.set_result(None)
    record.done.result()


def forget_file(control_path: Path, user_id: UserId, kind: DatabaseKind) -> None:
    """Lets the user start with an empty file of this kind."""
    with CONTROL_LOCK, _open(control_path) as control:
        if control:
            control.execute(
                "UPDATE users SET files = trim(replace(' ' || files || ' ', ' ' || ?1 || ' ', ' ')) WHERE id = ?2",
                (kind, user_id),
            )


def record_existing_files(data_root: DataRoot, control: sqlite3.Connection) -> None:
    """Records the files of users from versions that did not record them."""
    for (user_id,) in control.execute("SELECT id FROM users WHERE files IS NULL").fetchall():
        kinds = [kind for kind in DATABASE_KINDS if data_root.has_content(user_id, kind)]
        control.execute("UPDATE users SET files = ? WHERE id = ? AND files IS NULL", (" ".join(kinds), user_id))


@contextmanager
def _open(control_path: Path) -> Iterator[sqlite3.Connection | None]:
    """Yields None if libraries are used without a registry, as by some tools and tests."""
    if not control_path.exists() or not control_path.stat().st_size:
        yield None
        return
    uri = f"{control_path.absolute().as_uri()}?mode=rw"
    with (
        storage_errors(),
        closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)) as control,
    ):
        control.execute("PRAGMA synchronous = FULL")
        yield control
