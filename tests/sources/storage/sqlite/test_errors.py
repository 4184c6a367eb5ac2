"""What SQLite reports, as our own errors: each kind once, and none tells a path or a statement."""

import sqlite3

import pytest

from config.errors import DiskFull, FlorilegiumError, SourceTimeout, StorageError, Unavailable
from sources.storage.sqlite.errors import translated

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
    with pytest.raises(expected) as raised, translated("notes", 250):
        raise error
    assert type(raised.value) is expected
    assert "secret" not in raised.value.message
    assert "SELECT" not in raised.value.message


def test_an_error_of_pythons_module_is_translated_too() -> None:
    with pytest.raises(StorageError, match="the library cannot be used"), translated("notes", 250):
        raise sqlite3.ProgrammingError("Cannot operate on a closed database.")


def test_a_caller_let_go_at_the_deadline_hears_which_source_was_late() -> None:
    with pytest.raises(SourceTimeout) as raised, translated("notes", 250):
        raise TimeoutError
    assert (raised.value.source, raised.value.deadline_ms, raised.value.status) == ("notes", 250, 503)
    assert raised.value.data == {"source": "notes", "deadline_ms": 250}
