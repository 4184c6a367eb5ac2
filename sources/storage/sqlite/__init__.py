"""The SQLite engine: implements the storage contract with three files per user and FTS5 full-text search."""

from sources.storage.sqlite.connection.pool import SqliteLibraries

__all__ = ["SqliteLibraries"]
