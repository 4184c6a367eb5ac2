"""What SQLite reports, as our own errors: each kind once, and none tells a path or a statement."""

import sqlite3

import pytest

from config.errors import DiskFull, FlorilegiumError, SourceTimeout, StorageError, Unavailable
from sources.storage.sqlite.connection.errors import translate

CODES = {
    sqlite3.SQLITE_BUSY: Unavailable,
    sqlite3.SQLITE_BUSY_SNAPSHOT: Unavailable,
    sqlite3.SQLITE_LOCKED: Unavailable,
    sqlite3.SQLITE_INTERRUPT: SourceTimeout,
    sqlite3.SQLITE_FULL: DiskFull,
    sqlite3.SQLITE_IOERR_WRITE: DiskFull,
    sqlite3.SQLITE_IOERR_READ: StorageError,
    sqlite3.SQLITE_READONLY: StorageError,
    sqlite3.SQLITE_READONLY_DIRECTORY: StorageError,
    sqlite3.SQLITE_CORRUPT: StorageError,
    sqlite3.SQLITE_CORRUPT_VTAB: StorageError,
    sqlite3.SQLITE_NOTADB: StorageError,
    sqlite3.SQLITE_CANTOPEN: StorageError,
    sqlite3.SQLITE_NOMEM: StorageError,
    sqlite3.SQLITE_ERROR: StorageError,
}


@pytest.mark.parametrize(("code", "expected"), CODES.items())
def test_every_code_has_its_error_and_a_sentence_of_our_own(code: int, expected: type[FlorilegiumError]) -> None:
    error = sqlite3.OperationalError("no such table: /secret/path.db SELECT")
    error.sqlite_errorcode = code
    told = translate(error, "notes", 250)
    assert type(told) is expected
    assert "secret" not in told.message
    assert "SELECT" not in told.message


def test_an_error_of_pythons_module_is_translated_too() -> None:
    told = translate(sqlite3.ProgrammingError("Cannot operate on a closed database."), "notes", 250)
    assert (type(told), told.message) == (StorageError, "the library cannot be used")


def test_a_caller_let_go_at_the_deadline_hears_which_source_was_late() -> None:
    told = translate(TimeoutError(), "notes", 250)
    assert isinstance(told, SourceTimeout)
    assert (told.source, told.deadline_ms, told.status) == ("notes", 250, 503)
    assert told.data == {"source": "notes", "deadline_ms": 250}
