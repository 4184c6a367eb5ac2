"""The embedded engine: three SQLite files per user, searched with FTS5, behind the storage contract."""

from sources.storage.sqlite.connection.pool import SqliteLibraries

__all__ = ["SqliteLibraries"]
