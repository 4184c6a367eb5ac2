"""One user's library in PostgreSQL: the collections in its schema, on behalf of one client."""

from functools import partial
from typing import Any

from msgspec.structs import replace

from config.errors import NotFound
from sources.drafts import CharacterDraft
from sources.installed import ITEM_KINDS
from sources.query import ParsedQuery
from sources.records import OBSERVATION, Character
from sources.storage.collections.followed_files import StoredFollowedFiles
from sources.storage.collections.items import StoredAgents, StoredBookmarks
from sources.storage.collections.searchable import SearchSettings
from sources.storage.contract import Chats, Corpus, ItemCollection, LibraryUsage
from sources.storage.postgres.collections import (
    PostgresChats,
    PostgresItems,
    PostgresMedia,
    PostgresNotes,
    PostgresObservations,
    PostgresPrompts,
)
from sources.storage.postgres.database import PostgresDatabase
from sources.storage.postgres.search.statistics import EntryStatistics
from sources.storage.redaction import redact_for_agents
from sources.storage.tables.kind_tables import PLAIN_TABLES


class PostgresLibrary:
    """Implements `Library` of the storage contract."""

    def __init__(
        self,
        database: PostgresDatabase,
        settings: SearchSettings,
        client_id: str,
        *,
        is_agent: bool,
        sources: frozenset[str] | None = None,
    ) -> None:
        self._database = database
        self._settings = settings if sources is None else replace(settings, sources=sources)
        self._client_id = client_id
        self._is_agent = is_agent
        self._sources = sources

    @property
    def notes(self) -> PostgresNotes:
        self._require_source("notes")
        return PostgresNotes(self._database, self._settings, self._client_id)

    @property
    def media(self) -> PostgresMedia:
        self._require_source("media")
        return PostgresMedia(self._database, self._settings, self._client_id)

    @property
    def chats(self) -> Chats:
        self._require_source("chats")
        chats = PostgresChats(self._database, self._settings, self._client_id, is_agent=self._is_agent)
        return redact_for_agents(chats) if self._is_agent else chats

    @property
    def characters(self) -> PostgresItems[Character, CharacterDraft, int]:
        return self._items("characters")

    def collection(self, source: str) -> ItemCollection[Any, Any, Any]:
        if source in PLAIN_TABLES:
            return self._items(source)
        if source not in ITEM_KINDS and source != OBSERVATION.source:
            raise NotFound("source", source)
        built_in: ItemCollection[Any, Any, Any] = getattr(self, source)
        return built_in

    def _items(self, source: str) -> PostgresItems[Any, Any, Any]:
        self._require_source(source)
        return PostgresItems(source, self._database, self._settings, self._client_id)

    @property
    def prompts(self) -> PostgresPrompts:
        self._require_source("prompts")
        return PostgresPrompts(self._database, self._settings, self._client_id)

    @property
    def observations(self) -> PostgresObservations:
        self._require_source("chats")
        return PostgresObservations(self._database, self._settings, self._client_id)

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

    async def corpus(self, query: ParsedQuery, deadline_ms: int) -> Corpus:
        statistics = EntryStatistics(self._database.counts, self._sources)
        return await self._database.read("library", partial(statistics.corpus, query), deadline_ms)

    async def usage(self) -> LibraryUsage:
        return await self._database.quota.usage()

    async def require_room(self) -> None:
        async with self._database.quota.room(1):
            pass

    def _require_source(self, name: str) -> None:
        """Raises NotFound if the caller's credential is restricted to other sources."""
        if self._sources is not None and name not in self._sources:
            raise NotFound("source", name)
