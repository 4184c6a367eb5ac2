"""One user's library on behalf of one client, on any engine."""

from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from config.errors import NotFound
from sources.drafts import CharacterDraft
from sources.installed import ITEM_KINDS
from sources.records import OBSERVATION, Character
from sources.storage.collections import items
from sources.storage.collections.chats import Chats
from sources.storage.collections.collection import ItemCollection, SearchSettings, UserDatabase
from sources.storage.collections.followed_files import FollowedFiles
from sources.storage.contract import LibraryUsage
from sources.storage.quota import UserQuota
from sources.storage.tables.kind_tables import PLAIN_TABLES

SettingsT = TypeVar("SettingsT", bound=SearchSettings)


class StoredLibrary(Generic[SettingsT]):
    """Implements `Library` of the storage contract, except for `corpus`. `database` has what is not an item."""

    def __init__(
        self,
        database: UserDatabase,
        quota: UserQuota,
        settings: SettingsT,
        client_id: str,
        *,
        is_agent: bool,
        sources: frozenset[str] | None,
    ) -> None:
        self._tables = database
        self._quota = quota
        self._settings = settings if sources is None else replace(settings, sources=sources)
        self._client_id = client_id
        self._is_agent = is_agent
        self._sources = sources

    def _open(self, source: str) -> Any:
        """Returns the collection of a source, or the observations, in the classes of the engine."""
        raise NotImplementedError

    def collection(self, source: str) -> Any:
        if source in PLAIN_TABLES:
            self._require_source(source)
            return self._open(source)
        if source not in ITEM_KINDS and source != OBSERVATION.source:
            raise NotFound("source", source)
        return getattr(self, source)

    @property
    def notes(self) -> items.Notes:
        self._require_source("notes")
        notes: items.Notes = self._open("notes")
        return notes

    @property
    def media(self) -> items.Media:
        self._require_source("media")
        media: items.Media = self._open("media")
        return media

    @property
    def chats(self) -> Chats:
        self._require_source("chats")
        chats: Chats = self._open("chats")
        return chats

    @property
    def characters(self) -> ItemCollection[Character, CharacterDraft, int]:
        characters: ItemCollection[Character, CharacterDraft, int] = self.collection("characters")
        return characters

    @property
    def prompts(self) -> items.Prompts:
        self._require_source("prompts")
        prompts: items.Prompts = self._open("prompts")
        return prompts

    @property
    def observations(self) -> items.Observations:
        # What sessions learned and what agents on the bus write are conversations too.
        self._require_source("chats")
        observations: items.Observations = self._open(OBSERVATION.source)
        return observations

    @property
    def agents(self) -> items.Agents:
        self._require_source("chats")
        return items.Agents(self._tables, self._settings.limits)

    @property
    def bookmarks(self) -> items.Bookmarks:
        return items.Bookmarks(self._tables, self._settings.limits)

    @property
    def followed_files(self) -> FollowedFiles:
        return FollowedFiles(self._tables)

    async def usage(self) -> LibraryUsage:
        return await self._quota.usage()

    async def require_room(self) -> None:
        async with self._quota.room(1):
            pass

    def _require_source(self, name: str) -> None:
        """Raises NotFound if the caller's credential is restricted to other sources."""
        if self._sources is not None and name not in self._sources:
            raise NotFound("source", name)
