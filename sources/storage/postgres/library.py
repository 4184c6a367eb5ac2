"""One user's library in PostgreSQL: the collections in its schema, on behalf of one client."""

from typing import cast

from config.errors import NotFound
from sources.storage.collections.agents import StoredAgents
from sources.storage.collections.bookmarks import StoredBookmarks
from sources.storage.collections.characters import StoredCharacters
from sources.storage.collections.chats import StoredChats
from sources.storage.collections.collection import StorageSettings
from sources.storage.collections.followed_files import StoredFollowedFiles
from sources.storage.collections.media import StoredMedia
from sources.storage.collections.notes import StoredNotes
from sources.storage.collections.observations import StoredObservations
from sources.storage.collections.prompts import StoredPrompts
from sources.storage.contract import Chats, LibraryUsage
from sources.storage.postgres.connection import WRITES
from sources.storage.postgres.database import PostgresDatabase
from sources.storage.redaction import redact_for_agents
from sources.storage.tables.connection import SqlConnection


class PostgresChats(StoredChats):
    async def change_token(self) -> str:
        def work(connection: SqlConnection) -> str:
            [writes] = connection.execute("SELECT value FROM state WHERE name = ?", (WRITES,)).fetchone()
            return str(writes)

        return await self._read(work)


class PostgresLibrary:
    """Implements `Library` of the storage contract, except for searches."""

    def __init__(
        self,
        database: PostgresDatabase,
        settings: StorageSettings,
        client_id: str,
        *,
        is_agent: bool,
        sources: frozenset[str] | None = None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._client_id = client_id
        self._is_agent = is_agent
        self._sources = sources

    @property
    def notes(self) -> StoredNotes:
        self._require_source("notes")
        return StoredNotes(self._database, self._settings, self._client_id)

    @property
    def media(self) -> StoredMedia:
        self._require_source("media")
        return StoredMedia(self._database, self._settings, self._client_id)

    @property
    def chats(self) -> Chats:
        self._require_source("chats")
        chats = PostgresChats(self._database, self._settings, self._client_id, is_agent=self._is_agent)
        # It has all methods but the searches.
        return redact_for_agents(cast("Chats", chats)) if self._is_agent else cast("Chats", chats)

    @property
    def characters(self) -> StoredCharacters:
        self._require_source("characters")
        return StoredCharacters(self._database, self._settings, self._client_id)

    @property
    def prompts(self) -> StoredPrompts:
        self._require_source("prompts")
        return StoredPrompts(self._database, self._settings, self._client_id)

    @property
    def observations(self) -> StoredObservations:
        self._require_source("chats")
        return StoredObservations(self._database, self._settings, self._client_id)

    @property
    def agents(self) -> StoredAgents:
        self._require_source("chats")
        return StoredAgents(self._database, self._settings.limits)

    @property
    def bookmarks(self) -> StoredBookmarks:
        return StoredBookmarks(self._database, self._settings.limits)

    @property
    def followed_files(self) -> StoredFollowedFiles:
        return StoredFollowedFiles(self._database)

    async def usage(self) -> LibraryUsage:
        return await self._database.quota.usage()

    async def require_room(self) -> None:
        async with self._database.quota.room(1):
            pass

    def _require_source(self, name: str) -> None:
        """Raises NotFound if the caller's credential is restricted to other sources."""
        if self._sources is not None and name not in self._sources:
            raise NotFound("source", name)
