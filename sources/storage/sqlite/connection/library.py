"""One user's library: three files, and the collections in them on behalf of one client."""

import asyncio
from typing import Any

from msgspec.structs import replace

from config.errors import NotFound
from config.paths import DataRoot, UserId
from sources.drafts import CharacterDraft
from sources.installed import ITEM_KINDS
from sources.query import ParsedQuery
from sources.records import OBSERVATION, Character
from sources.storage.collections.followed_files import StoredFollowedFiles
from sources.storage.collections.items import StoredAgents, StoredBookmarks
from sources.storage.contract import Chats, Corpus, ItemCollection, LibraryUsage
from sources.storage.quota import UserQuota
from sources.storage.redaction import redact_for_agents
from sources.storage.sqlite.collections import (
    SqliteChats,
    SqliteItems,
    SqliteMedia,
    SqliteNotes,
    SqliteObservations,
    SqlitePrompts,
    SqliteSearchSettings,
)
from sources.storage.sqlite.connection.database import Database, FileMeter
from sources.storage.sqlite.connection.open import DatabaseFile, SqliteOptions
from sources.storage.sqlite.index.message_index import IndexBuilder
from sources.storage.sqlite.index.text_index import LibraryIndexes
from sources.storage.sqlite.schema.tables import CHACHA, MEDIA, PROMPTS
from sources.storage.tables.kind_tables import PLAIN_TABLES
from sources.storage.tables.sql import CHATS_INDEX


class UserDatabases:
    """The open files of one user. `lease_count` is the number of calls that are using them."""

    def __init__(self, data_root: DataRoot, user_id: UserId, options: SqliteOptions) -> None:
        self.user_id = user_id
        self.lease_count = 0
        chacha, media, prompts = (DatabaseFile(schema, data_root, user_id) for schema in (CHACHA, MEDIA, PROMPTS))
        self.indexes = LibraryIndexes(options.vocabularies)
        self.chacha = Database(chacha, options, self.indexes, (media, prompts))
        self.media = Database(media, options, self.indexes, (chacha, prompts))
        self.prompts = Database(prompts, options, self.indexes, (chacha, media))
        self.quota = UserQuota(FileMeter(self.all), options.quota)
        for database in self.all:
            database.quota = self.quota
        self.index_builder = IndexBuilder(self.chacha, CHATS_INDEX)
        self._known_writes = 0

    @property
    def all(self) -> tuple[Database, Database, Database]:
        return self.chacha, self.media, self.prompts

    def has_new_writes(self) -> bool:
        """Whether there were writes since the last call."""
        writes = self.chacha.writes + self.media.writes + self.prompts.writes
        is_new, self._known_writes = writes != self._known_writes, writes
        return is_new

    async def close(self) -> None:
        """Closes the writers last, because the last connection to a file removes its write-ahead log."""
        await self.index_builder.close()
        await asyncio.gather(*(database.close_reader() for database in self.all))
        await asyncio.gather(*(database.close_writer() for database in self.all))


class SqliteLibrary:
    """Implements `Library` of the storage contract."""

    def __init__(
        self,
        databases: UserDatabases,
        settings: SqliteSearchSettings,
        client_id: str,
        *,
        is_agent: bool,
        sources: frozenset[str] | None = None,
    ) -> None:
        self._databases = databases
        self._settings = settings if sources is None else replace(settings, sources=sources)
        self._client_id = client_id
        self._is_agent = is_agent
        self._sources = sources

    @property
    def notes(self) -> SqliteNotes:
        self._require_source("notes")
        return SqliteNotes(self._databases.chacha, self._settings, self._client_id)

    @property
    def media(self) -> SqliteMedia:
        self._require_source("media")
        return SqliteMedia(self._databases.media, self._settings, self._client_id)

    @property
    def chats(self) -> Chats:
        self._require_source("chats")
        chats = SqliteChats(
            self._databases.chacha,
            self._settings,
            self._client_id,
            self._databases.index_builder,
            is_agent=self._is_agent,
        )
        return redact_for_agents(chats) if self._is_agent else chats

    @property
    def characters(self) -> SqliteItems[Character, CharacterDraft, int]:
        return self._items("characters")

    def collection(self, source: str) -> ItemCollection[Any, Any, Any]:
        if source in PLAIN_TABLES:
            return self._items(source)
        if source not in ITEM_KINDS and source != OBSERVATION.source:
            raise NotFound("source", source)
        built_in: ItemCollection[Any, Any, Any] = getattr(self, source)
        return built_in

    def _items(self, source: str) -> SqliteItems[Any, Any, Any]:
        self._require_source(source)
        return SqliteItems(source, self._databases.chacha, self._settings, self._client_id)

    @property
    def prompts(self) -> SqlitePrompts:
        self._require_source("prompts")
        return SqlitePrompts(self._databases.prompts, self._settings, self._client_id)

    @property
    def observations(self) -> SqliteObservations:
        self._require_source("chats")
        return SqliteObservations(self._databases.chacha, self._settings, self._client_id)

    @property
    def agents(self) -> StoredAgents:
        self._require_source("chats")
        return StoredAgents(self._databases.chacha, self._settings.limits)

    @property
    def bookmarks(self) -> StoredBookmarks:
        return StoredBookmarks(self._databases.chacha, self._settings.limits)

    @property
    def followed_files(self) -> StoredFollowedFiles:
        return StoredFollowedFiles(self._databases.chacha)

    async def corpus(self, query: ParsedQuery, deadline_ms: int) -> Corpus:
        return await self._databases.chacha.corpus(query, deadline_ms, self._sources)

    async def usage(self) -> LibraryUsage:
        return await self._databases.quota.usage()

    async def require_room(self) -> None:
        async with self._databases.quota.room(1):
            pass

    def _require_source(self, name: str) -> None:
        """Raises NotFound if the caller's credential is restricted to other sources. What agents on the bus write and
        what sessions learned are conversations too."""
        if self._sources is not None and name not in self._sources:
            raise NotFound("source", name)
