"""What SQLite reports, as errors of our own tree. Sentences for a stranger: no path and no SQL is in them."""

import errno
import os
import sqlite3

from config.errors import DiskFull, FlorilegiumError, SourceTimeout, StorageError, Unavailable

_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_UNKNOWN = "the library cannot be used"
_SENTENCES = {
    sqlite3.SQLITE_READONLY: "the library cannot be written: its file or directory is read-only; nothing was written",
    sqlite3.SQLITE_IOERR: "the disk that holds the library reports an error; nothing was written",
    sqlite3.SQLITE_CORRUPT: "the library is damaged; restore it from a backup",
    sqlite3.SQLITE_NOTADB: "the library is not an SQLite file; restore it from a backup",
    sqlite3.SQLITE_CANTOPEN: "the library cannot be opened; check the permissions of the data directory",
    sqlite3.SQLITE_PERM: "the library cannot be opened; check the permissions of the data directory",
    sqlite3.SQLITE_NOMEM: "there is not enough memory to use the library",
    sqlite3.SQLITE_TOOBIG: "a text is larger than the library can hold; nothing was written",
}
# A write that meets the end of the disk fails as FULL, or as one of these when the system refuses it first (a quota,
# a file size limit).
_NO_ROOM = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}


class Interrupted(sqlite3.OperationalError):
    """A job that was stopped before one of its statements: what SQLite says of one stopped within a statement."""

    sqlite_errorcode = sqlite3.SQLITE_INTERRUPT


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds a lock, so that the same job may succeed in a moment."""
    return _code(error) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def is_unwritable(error: sqlite3.Error) -> bool:
    """Whether a file could not be opened as SQLite likes to: with room for its log beside it."""
    return _code(error) & 0xFF in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}


def is_damage(error: sqlite3.Error) -> bool:
    """Whether a file cannot be read at all, today or tomorrow."""
    return _code(error) & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR}


def out_of_descriptors() -> Unavailable:
    return Unavailable("too many files are open; try again in a moment")


def descriptors_are_used_up(error: BaseException | None) -> bool:
    """Whether `error` says so or, where SQLite only says that it cannot open a file, a try of our own does."""
    if isinstance(error, OSError):
        return error.errno in _OUT_OF_DESCRIPTORS
    if not isinstance(error, sqlite3.Error) or _code(error) & 0xFF != sqlite3.SQLITE_CANTOPEN:
        return False
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as refused:
        return refused.errno in _OUT_OF_DESCRIPTORS
    return False


def translate(error: sqlite3.Error | TimeoutError, source: str, deadline_ms: int) -> FlorilegiumError:
    """What became of one read or write of `source`, which had `deadline_ms` to finish."""
    if isinstance(error, TimeoutError):
        return SourceTimeout(source, deadline_ms)
    code = _code(error)
    primary = code & 0xFF
    if primary == sqlite3.SQLITE_INTERRUPT:
        return SourceTimeout(source, deadline_ms)
    if is_busy(error):
        return Unavailable(f"{source} is locked by another process; try again in a moment")
    if code in _NO_ROOM or primary == sqlite3.SQLITE_FULL:
        return DiskFull()
    if descriptors_are_used_up(error):
        return out_of_descriptors()
    return StorageError(_SENTENCES.get(primary, _UNKNOWN))


def _code(error: sqlite3.Error) -> int:
    """SQLite's extended result code; 0 for errors that Python's module raises by itself."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code
