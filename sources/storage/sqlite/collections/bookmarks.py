"""How far things outside the library were read, beside the items that came from them."""

from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.schema.chacha import NOTES_INDEX
from sources.storage.sqlite.write import validation

_SOURCE = "bookmarks"
# The table of states holds the library's own as well.
_PREFIX = "bookmark:"


class SqliteBookmarks:
    def __init__(self, database: Database, limits: validation.Limits) -> None:
        self._database = database
        self._limits = limits

    async def get(self, name: str) -> str | None:
        def work(connection: JobConnection) -> str | None:
            found = connection.execute("SELECT value FROM state WHERE name = ?", (_PREFIX + name,)).fetchone()
            return found[0] if found else None

        return await self._database.read(_SOURCE, work)

    async def set(self, name: str, text: str) -> None:
        row = (_PREFIX + validation.name(self._limits, "name", name), validation.text(self._limits, "text", text))

        def work(connection: JobConnection) -> None:
            connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", row)

        await self._database.write(_SOURCE, NOTES_INDEX, work)
