"""Errors of SQLite, and texts that it cannot have stored."""

import sqlite3

# SQLite quotes a damaged schema in its message. If that is not UTF-8, Python's module fails to decode it and raises a
# UnicodeDecodeError in place of its own error.
DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
# Python's module has no code for a text that is not UTF-8.
_UNDECODABLE = "Could not decode to UTF-8"


def result_code(error: BaseException) -> int:
    """Returns SQLite's extended result code, or 0 for an error that Python's module raised itself."""
    if isinstance(error, UnicodeDecodeError):
        return sqlite3.SQLITE_CORRUPT
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code


def is_undecodable_text(error: sqlite3.Error) -> bool:
    """Whether a statement read a text that is not UTF-8, which only a damaged file has."""
    return str(error).startswith(_UNDECODABLE)


def replace_undecodable(raw: bytes) -> str:
    """The `text_factory` of connections that read such texts."""
    return raw.decode("utf-8", "replace")
