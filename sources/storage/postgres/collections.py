"""The collections of a library in PostgreSQL, with their searches."""

from collections.abc import Mapping, Sequence
from typing import Any

from sources import records
from sources.drafts import ConversationDraft, MediaDraft, NoteDraft, ObservationDraft, PromptDraft
from sources.query import ParsedQuery
from sources.semantic.model import ModelInfo
from sources.semantic.service import SemanticService
from sources.storage.collections import items
from sources.storage.collections.chats import Chats, exact_hits, message_hits
from sources.storage.collections.collection import IdT, ItemCollection, SearchWork, StorageSettings, StoredCollection
from sources.storage.contract import ExactSearch, MessageSearch, Search
from sources.storage.postgres.connection import WRITES, LibraryConnection
from sources.storage.postgres.database import PostgresDatabase
from sources.storage.postgres.index.entries import ENTRY_KINDS
from sources.storage.postgres.search import exact, substring
from sources.storage.postgres.search.meaning import LibraryQueryVector
from sources.storage.postgres.search.statistics import HAS_CANDIDATES, SEARCHES, EntryStatistics
from sources.storage.postgres.search.tsquery_engine import TARGETS
from sources.storage.postgres.vectors.vector_tables import searched_model
from sources.storage.search.engine import QueryVector
from sources.storage.search.text_search import TextSearch
from sources.storage.tables.item_table import DraftT, RecordT
from sources.storage.tables.kind_tables import PLAIN_TABLES
from sources.storage.tables.sql import SqlConnection


class PostgresCollection(StoredCollection[RecordT, DraftT, IdT]):
    def __init__(
        self, source: str, database: PostgresDatabase, settings: StorageSettings, client_id: str, *, is_agent: bool
    ) -> None:
        super().__init__(source, database, settings, client_id, is_agent=is_agent)
        self.target = TARGETS[source]
        self._library = database
        self._statistics = self._entries = EntryStatistics(database.counts, settings.sources)

    def run_search(
        self, connection: SqlConnection, search: Search, meaning: QueryVector | records.SemanticStatus
    ) -> records.HitPage:
        self.read_ahead(connection, [SearchWork(self, search, meaning)])
        return super().run_search(connection, search, meaning)

    def read_ahead(self, connection: SqlConnection, searches: Sequence[SearchWork]) -> None:
        """Reads what the searches of a call begin with, once in a transaction."""
        assert isinstance(connection, LibraryConnection)
        if SEARCHES not in connection.known:
            connection.known[SEARCHES] = searches
            self._entries.read_ahead(connection)

    def _correct(self, connection: SqlConnection, text_search: TextSearch) -> ParsedQuery | None:
        """Once for all sources of a call: near words are those of the library, unless a kind is not counted in it."""
        assert isinstance(connection, LibraryConnection)
        kind, known = ENTRY_KINDS[text_search.target.index.table], connection.known
        key = ("corrected", None if kind.is_counted else kind.index, text_search.search.query)
        if key not in known:
            known[key] = corrected = super()._correct(connection, text_search)
            if kind.is_counted and (corrected is not None or HAS_CANDIDATES not in known):
                self._entries.read_ahead(connection, corrected, is_corrected=True)
        result: ParsedQuery | None = known[key]
        return result

    async def _query_vector(self, semantic: SemanticService, current: ModelInfo, text: str) -> LibraryQueryVector:
        library = self._library
        extension = await library.vector_extension()
        model = await self._vector_model(semantic, current)
        vector = await semantic.embed_query(text, model.id)
        return LibraryQueryVector(vector, model, extension, library.coverage, library.quota.embedding_stop)

    async def _vector_model(self, semantic: SemanticService, current: ModelInfo) -> ModelInfo:
        """Vectors of the previous model may disappear at any time, because another process can drop them."""
        library = self._library
        if library.vector_model == current.id and len(semantic.choices) == 1:
            return current
        choices = [model.id for model in semantic.choices]
        searched = await library.read(self.source, lambda connection: searched_model(connection, choices))
        if searched is None or searched == current.id:
            library.vector_model = current.id
            return current
        return semantic.model_for(searched) or current

    async def words(self) -> int:
        """Counts the words of all texts, without those of titles."""
        sql = "SELECT coalesce(sum(words), 0) FROM index_entries WHERE kind = ?"
        parameters = (ENTRY_KINDS[self.target.index.table].number,)
        return await self._read(lambda connection: int(connection.execute(sql, parameters).fetchone()[0]))


class PostgresNotes(PostgresCollection[records.Note, NoteDraft, str], items.Notes):
    pass


class PostgresMedia(PostgresCollection[records.MediaItem, MediaDraft, int], items.Media):
    pass


class PostgresPrompts(PostgresCollection[records.SavedPrompt, PromptDraft, int], items.Prompts):
    pass


class PostgresObservations(PostgresCollection[records.Observation, ObservationDraft, str], items.Observations):
    pass


class PostgresItems(PostgresCollection[RecordT, DraftT, IdT], ItemCollection[RecordT, DraftT, IdT]):
    """The items of a kind that needs no more than its declaration."""


class PostgresChats(PostgresCollection[records.Conversation, ConversationDraft, str], Chats):
    human_only_target = TARGETS["human_only"]

    async def find_messages(self, search: MessageSearch) -> records.MessageHits:
        """If all messages of a large library were searched, an index is built for later calls."""

        def work(connection: SqlConnection) -> tuple[records.MessageHits, bool]:
            assert isinstance(connection, LibraryConnection)
            found = substring.find(connection, search, is_agent=self._is_agent)
            return message_hits(connection, found.rowids), found.is_exhausted

        hits, is_exhausted = await self._read(work, search.deadline_ms)
        if is_exhausted and search.text and search.conversation_id is None:
            self._library.trigram_index.start(self._settings.scanned_rows_max)
        return hits

    async def match_messages(self, search: ExactSearch) -> records.ExactHits:
        def work(connection: SqlConnection) -> records.ExactHits:
            assert isinstance(connection, LibraryConnection)
            ranked_rows_max = self._settings.ranked_rows_max
            matches, is_complete = exact.find(connection, search, ranked_rows_max, is_agent=self._is_agent)
            return exact_hits(connection, matches, is_complete=is_complete)

        return await self._read(work, search.deadline_ms)

    async def change_token(self) -> str:
        def work(connection: SqlConnection) -> str:
            [writes] = connection.execute("SELECT value FROM state WHERE name = ?", (WRITES,)).fetchone()
            return str(writes)

        return await self._read(work)


# By source.
COLLECTIONS: Mapping[str, type[PostgresCollection[Any, Any, Any]]] = {
    **dict.fromkeys(PLAIN_TABLES, PostgresItems),
    "notes": PostgresNotes,
    "media": PostgresMedia,
    "chats": PostgresChats,
    "prompts": PostgresPrompts,
    "observations": PostgresObservations,
}
