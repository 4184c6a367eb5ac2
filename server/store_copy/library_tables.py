"""Which tables of a library are copied. Full-text indexes and embeddings are computed again by the target."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence

from config.paths import DatabaseKind
from server.store_copy.tables import Row, SqliteTables

# Tables that others refer to come first.
FILE_TABLES: dict[DatabaseKind, tuple[str, ...]] = {
    "media": ("media", "media_tags", "texts", "chunks", "segments"),
    "chacha": (
        *("notes", "notes_tags", "note_images", "characters", "characters_tags"),
        *("conversations", "conversations_tags", "messages", "namespaces"),
        *("observations", "observations_tags", "observations_values"),
        *("agents", "followed_files", "followed_items"),
    ),
    "prompts": ("prompts", "prompts_tags"),
}
LIBRARY_TABLES = tuple(name for names in FILE_TABLES.values() for name in names)
# The tables whose ids SQLite never uses again. PostgreSQL keeps the last ids of all tables.
TABLES_WITH_LAST_ID: dict[str, DatabaseKind] = {"media": "media", "characters": "chacha", "prompts": "prompts"}
_KIND_OF_TABLE = {name: kind for kind, names in FILE_TABLES.items() for name in names}


class LibraryFiles:
    """The tables of a user's files as one set. Files that do not exist have no rows."""

    def __init__(self, connections: Mapping[DatabaseKind, sqlite3.Connection]) -> None:
        self._files = {kind: SqliteTables(connection) for kind, connection in connections.items()}

    def columns(self, table: str) -> tuple[str, ...]:
        file = self._files.get(_KIND_OF_TABLE[table])
        return file.columns(table) if file else ()

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        file = self._files.get(_KIND_OF_TABLE[table])
        return file.rows(table, columns) if file else iter(())

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        self._files[_KIND_OF_TABLE[table]].insert(table, columns, rows)

    def clear(self, table: str) -> None:
        self._files[_KIND_OF_TABLE[table]].clear(table)
