"""Translation of SQLite errors, without paths or statements in the message."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from config.errors import DiskFull, FlorilegiumError, SourceTimeout, StorageError, Unavailable
from sources.storage.sqlite.connection.errors import translate
from tests.cases import each_case

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


@each_case(("code", "expected"), CODES.items())
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


def test_message_that_is_not_utf8_means_damage(tmp_path: Path) -> None:
    """Python's module raises UnicodeDecodeError in place of its own error."""
    path = tmp_path / "library.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")
    path.write_bytes(path.read_bytes().replace(b"TABLE notes", b"T\xffBLE notes"))
    with closing(sqlite3.connect(path)) as connection, pytest.raises(UnicodeDecodeError) as raised:
        connection.execute("SELECT * FROM notes")
    assert "damaged" in translate(raised.value, "notes", 250).message


def test_timeout_names_the_source_and_its_deadline() -> None:
    translated = translate(TimeoutError(), "notes", 250)
    assert isinstance(translated, SourceTimeout)
    assert (translated.source, translated.deadline_ms, translated.status) == ("notes", 250, 503)
    assert translated.data == {"source": "notes", "deadline_ms": 250}
