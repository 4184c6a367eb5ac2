"""Import positions, stored next to the items that were imported, and leases on reading what they belong to."""

import time

from sources.storage.collections.collection import UserDatabase
from sources.storage.tables import validation
from sources.storage.tables.connection import SqlConnection
from sources.storage.tables.indexes import NOTES_INDEX

_SOURCE = "bookmarks"
# The table `state` also holds values of the library itself.
_PREFIX = "bookmark:"
_LEASE_PREFIX = "import lease:"
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

    async def claim(self, name: str, owner: str, lifetime_s: float, *, instead_of: str = "") -> str:
        key = _LEASE_PREFIX + validation.required_short_text(self._limits, "name", name)

        def work(connection: SqlConnection) -> str:
            # The transaction locks the library, so that two processes never both find the lease free.
            row = connection.execute("SELECT value FROM state WHERE name = ?", (key,)).fetchone()
            end, _, holder = row[0].partition(" ") if row else ("0", "", "")
            if holder not in (owner, instead_of) and float(end) > time.time():
                return holder
            connection.execute(_SAVE, (key, f"{time.time() + lifetime_s:.3f} {owner}"))
            return owner

        return await self._database.write(_SOURCE, NOTES_INDEX, work)

    async def release(self, name: str, owner: str) -> None:
        def work(connection: SqlConnection) -> None:
            row = connection.execute("SELECT value FROM state WHERE name = ?", (_LEASE_PREFIX + name,)).fetchone()
            if row and row[0].partition(" ")[2] == owner:
                connection.execute("DELETE FROM state WHERE name = ?", (_LEASE_PREFIX + name,))

        await self._database.write(_SOURCE, NOTES_INDEX, work)
