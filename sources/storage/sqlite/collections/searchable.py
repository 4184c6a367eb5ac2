"""The search of the SQLite collections, in one of a user's files."""

from typing import TypeVar

from sources.semantic.model import ModelInfo
from sources.semantic.service import SemanticService
from sources.storage.collections.collection import IdT
from sources.storage.collections.searchable import SearchableCollection, SearchSettings
from sources.storage.sqlite.connection.connection import Work
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.index.statistics import CorpusStatistics
from sources.storage.sqlite.index.word_count import count_words
from sources.storage.sqlite.search.meaning import QueryMeaning
from sources.storage.sqlite.vectors.vector_memory import VectorMemory
from sources.storage.sqlite.vectors.vector_tables import vector_tables
from sources.storage.tables.item_table import DraftT, RecordT

T = TypeVar("T")


class SqliteSearchSettings(SearchSettings, frozen=True, kw_only=True):
    vector_memory: VectorMemory


class SqliteCollection(SearchableCollection[RecordT, DraftT, IdT]):
    """A collection in one of the user's files, with its search."""

    def __init__(self, database: Database, settings: SqliteSearchSettings, client_id: str) -> None:
        super().__init__(database, settings, client_id)
        self._file = database
        self._search_settings = settings
        self._vector_memory = settings.vector_memory

    async def _read_file(self, work: Work[T], deadline_ms: int | None = None) -> T:
        return await self._file.read(self.source, work, deadline_ms)

    @property
    def _statistics(self) -> CorpusStatistics:
        return self._file.statistics(self._search_settings.sources)

    async def _query_vector(self, semantic: SemanticService, current: ModelInfo, text: str) -> QueryMeaning:
        database = self._file
        self._vector_memory.require_usable()
        model = await self._vector_model(semantic, current)
        vector = await semantic.embed_query(text, model.id)
        tables = vector_tables(database.kind)
        stop = database.quota.embedding_stop
        return QueryMeaning(vector, model, self._vector_memory, database, tables, stop)

    async def _vector_model(self, semantic: SemanticService, current: ModelInfo) -> ModelInfo:
        database = self._file
        if database.vector_model is None:
            tables = vector_tables(database.kind)
            previous = await self._file.read(
                self.source, lambda connection: tables.previous_model(connection, current.id)
            )
            known = semantic.model_for(previous) if previous is not None else None
            database.vector_model = known.id if known is not None else current.id
        return semantic.model_for(database.vector_model) or current

    async def words(self) -> int:
        return await self._read_file(lambda connection: count_words(connection, self.target.index))
