"""One user's library: three files, and the collections in them as one client uses them."""

from functools import partial

from config.paths import DataRoot, UserId
from sources.query import ParsedQuery
from sources.storage.contract import Chats, Corpus
from sources.storage.redaction import redact_for_agents
from sources.storage.sqlite.collections.bookmarks import SqliteBookmarks
from sources.storage.sqlite.collections.characters import SqliteCharacters
from sources.storage.sqlite.collections.chats import SqliteChats
from sources.storage.sqlite.collections.collection import CollectionSettings
from sources.storage.sqlite.collections.media import SqliteMedia
from sources.storage.sqlite.collections.notes import SqliteNotes
from sources.storage.sqlite.collections.observations import SqliteObservations
from sources.storage.sqlite.collections.prompts import SqlitePrompts
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.connection.open import Engine, File
from sources.storage.sqlite.index.index_builder import IndexMaker
from sources.storage.sqlite.schema.chacha import CHACHA, CHATS_INDEX
from sources.storage.sqlite.schema.media import MEDIA
from sources.storage.sqlite.schema.prompts import PROMPTS


class Shelf:
    """One user's files, and how many calls are using them."""

    def __init__(self, data_root: DataRoot, user_id: UserId, engine: Engine) -> None:
        self.users = 0
        chacha, media, prompts = (
            File(blueprint, partial(data_root.ensure_database, user_id, blueprint.kind))
            for blueprint in (CHACHA, MEDIA, PROMPTS)
        )
        self.chacha = Database(chacha, engine, (media, prompts))
        self.media = Database(media, engine, (chacha, prompts))
        self.prompts = Database(prompts, engine, (chacha, media))
        self.maker = IndexMaker(self.chacha, CHATS_INDEX)

    @property
    def files(self) -> tuple[Database, Database, Database]:
        return self.chacha, self.media, self.prompts

    async def close(self) -> None:
        """The writers last: whoever closes a file last tidies up its log."""
        await self.maker.close()
        for database in self.files:
            await database.close_reader()
        for database in self.files:
            await database.close_writer()


class SqliteLibrary:
    """The five collections, and what was learned."""

    def __init__(self, shelf: Shelf, settings: CollectionSettings, client_id: str, *, is_agent: bool) -> None:
        self._shelf = shelf
        self._settings = settings
        self._client_id = client_id
        self._is_agent = is_agent

    @property
    def notes(self) -> SqliteNotes:
        return SqliteNotes(self._shelf.chacha, self._settings, self._client_id)

    @property
    def media(self) -> SqliteMedia:
        return SqliteMedia(self._shelf.media, self._settings, self._client_id)

    @property
    def chats(self) -> Chats:
        chats = SqliteChats(self._shelf.chacha, self._settings, self._client_id, self._shelf.maker)
        return redact_for_agents(chats) if self._is_agent else chats

    @property
    def characters(self) -> SqliteCharacters:
        return SqliteCharacters(self._shelf.chacha, self._settings, self._client_id)

    @property
    def prompts(self) -> SqlitePrompts:
        return SqlitePrompts(self._shelf.prompts, self._settings, self._client_id)

    @property
    def observations(self) -> SqliteObservations:
        return SqliteObservations(self._shelf.chacha, self._settings, self._client_id)

    @property
    def bookmarks(self) -> SqliteBookmarks:
        return SqliteBookmarks(self._shelf.chacha, self._settings.limits)

    async def corpus(self, query: ParsedQuery, deadline_ms: int) -> Corpus:
        return await self._shelf.chacha.corpus(query, deadline_ms)
