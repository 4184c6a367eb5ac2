"""Import positions, stored next to the items that were imported."""

from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.schema.chacha import NOTES_INDEX
from sources.storage.sqlite.write import validation

_SOURCE = "bookmarks"
# The table `state` also holds values of the library itself.
_PREFIX = "bookmark:"


class SqliteBookmarks:
    def __init__(self, database: Database, limits: validation.FieldLimits) -> None:
        self._database = database
        self._limits = limits

    async def get(self, name: str) -> str | None:
        def work(connection: JobConnection) -> str | None:
            row = connection.execute("SELECT value FROM state WHERE name = ?", (_PREFIX + name,)).fetchone()
            return row[0] if row else None

        return await self._database.read(_SOURCE, work)

    async def set(self, name: str, text: str) -> None:
        key = _PREFIX + validation.required_short_text(self._limits, "name", name)
        value = validation.long_text(self._limits, "text", text)

        def work(connection: JobConnection) -> None:
            connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))

        await self._database.write(_SOURCE, NOTES_INDEX, work)
