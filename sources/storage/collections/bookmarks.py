"""Import positions, stored next to the items that were imported."""

from sources.storage.collections.collection import UserDatabase
from sources.storage.tables import validation
from sources.storage.tables.connection import SqlConnection
from sources.storage.tables.indexes import NOTES_INDEX

_SOURCE = "bookmarks"
# The table `state` also holds values of the library itself.
_PREFIX = "bookmark:"
_SAVE = "INSERT INTO state (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


class StoredBookmarks:
    def __init__(self, database: UserDatabase, limits: validation.FieldLimits) -> None:
        self._database = database
        self._limits = limits

    async def get(self, name: str) -> str | None:
        if not validation.is_storable(name):
            return None

        def work(connection: SqlConnection) -> str | None:
            row = connection.execute("SELECT value FROM state WHERE name = ?", (_PREFIX + name,)).fetchone()
            return row[0] if row else None

        return await self._database.read(_SOURCE, work)

    async def set(self, name: str, text: str) -> None:
        key = _PREFIX + validation.required_short_text(self._limits, "name", name)
        value = validation.long_text(self._limits, "text", text)

        def work(connection: SqlConnection) -> None:
            connection.execute(_SAVE, (key, value))

        await self._database.write(_SOURCE, NOTES_INDEX, work)
