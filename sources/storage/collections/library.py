"""One user's library on behalf of one client, on any engine."""

from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from config.errors import NotFound
from sources.drafts import CharacterDraft
from sources.installed import ITEM_KINDS
from sources.records import OBSERVATION, Character
from sources.storage import contract
from sources.storage.collections.collection import SearchSettings, UserDatabase
from sources.storage.collections.followed_files import StoredFollowedFiles
from sources.storage.collections.items import StoredAgents, StoredBookmarks
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

    def collection(self, source: str) -> contract.ItemCollection[Any, Any, Any]:
        if source in PLAIN_TABLES:
            self._require_source(source)
            items: contract.ItemCollection[Any, Any, Any] = self._open(source)
            return items
        if source not in ITEM_KINDS and source != OBSERVATION.source:
            raise NotFound("source", source)
        built_in: contract.ItemCollection[Any, Any, Any] = getattr(self, source)
        return built_in

    @property
    def notes(self) -> contract.Notes:
        self._require_source("notes")
        notes: contract.Notes = self._open("notes")
        return notes

    @property
    def media(self) -> contract.Media:
        self._require_source("media")
        media: contract.Media = self._open("media")
        return media

    @property
    def chats(self) -> contract.Chats:
        self._require_source("chats")
        chats: contract.Chats = self._open("chats")
        return chats

    @property
    def characters(self) -> contract.ItemCollection[Character, CharacterDraft, int]:
        return self.collection("characters")

    @property
    def prompts(self) -> contract.Prompts:
        self._require_source("prompts")
        prompts: contract.Prompts = self._open("prompts")
        return prompts

    @property
    def observations(self) -> contract.Observations:
        # What sessions learned and what agents on the bus write are conversations too.
        self._require_source("chats")
        observations: contract.Observations = self._open(OBSERVATION.source)
        return observations

    @property
    def agents(self) -> contract.Agents:
        self._require_source("chats")
        return StoredAgents(self._tables, self._settings.limits)

    @property
    def bookmarks(self) -> contract.Bookmarks:
        return StoredBookmarks(self._tables, self._settings.limits)

    @property
    def followed_files(self) -> contract.FollowedFiles:
        return StoredFollowedFiles(self._tables)

    async def usage(self) -> contract.LibraryUsage:
        return await self._quota.usage()

    async def require_room(self) -> None:
        async with self._quota.room(1):
            pass

    def _require_source(self, name: str) -> None:
        """Raises NotFound if the caller's credential is restricted to other sources."""
        if self._sources is not None and name not in self._sources:
            raise NotFound("source", name)
