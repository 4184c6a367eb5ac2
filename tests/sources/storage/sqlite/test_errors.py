"""Translation of SQLite errors, without paths or statements in the message."""

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
def test_every_sqlite_code_is_translated_without_details(code: int, expected: type[FlorilegiumError]) -> None:
    error = sqlite3.OperationalError("no such table: /secret/path.db SELECT")
    error.sqlite_errorcode = code
    translated = translate(error, "notes", 250)
    assert type(translated) is expected
    assert "secret" not in translated.message
    assert "SELECT" not in translated.message


def test_error_without_sqlite_code_is_translated() -> None:
    translated = translate(sqlite3.ProgrammingError("Cannot operate on a closed database."), "notes", 250)
    assert (type(translated), translated.message) == (StorageError, "the library cannot be used")


def test_timeout_names_the_source_and_its_deadline() -> None:
    translated = translate(TimeoutError(), "notes", 250)
    assert isinstance(translated, SourceTimeout)
    assert (translated.source, translated.deadline_ms, translated.status) == ("notes", 250, 503)
    assert translated.data == {"source": "notes", "deadline_ms": 250}
