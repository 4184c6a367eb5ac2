"""A library in SQLite files, and its collections: reading, writing and searching each source."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from auth.context import RequestContext
from config.errors import SourceTimeout
from config.paths import DataRoot, UserId
from sources import records
from sources.drafts import ConversationDraft
from sources.query import ParsedQuery
from sources.semantic.model import ModelInfo
from sources.semantic.service import SemanticService
from sources.storage.collections import collection
from sources.storage.collections.chats import Chats, exact_hits, message_hits
from sources.storage.collections.library import StoredLibrary, collection_classes
from sources.storage.contract import Corpus, ExactSearch, MessageSearch
from sources.storage.quota import UserQuota
from sources.storage.search.text_search import TextSearch
from sources.storage.sqlite.connection.connection import JobConnection, Work
from sources.storage.sqlite.connection.database import Database, FileMeter, LibraryReader
from sources.storage.sqlite.connection.open import DatabaseFile, SqliteOptions
from sources.storage.sqlite.index.message_index import IndexBuilder, MessageIndex
from sources.storage.sqlite.index.statistics import count_words
from sources.storage.sqlite.schema.tables import CHACHA, MEDIA, PROMPTS
from sources.storage.sqlite.search import exact, substring
from sources.storage.sqlite.search.exact import EXACT_INDEX, HUMAN_ONLY_EXACT_INDEX, FullScan
from sources.storage.sqlite.search.fts5_engine import TARGETS, QueryMeaning
from sources.storage.sqlite.search.substring import SUBSTRING_INDEX
from sources.storage.sqlite.vectors.vector_tables import VectorMemory, vector_tables
from sources.storage.tables import sql
from sources.storage.tables.item_table import DraftT, RecordT, WriteContext

T = TypeVar("T")


class SqliteSettings(collection.StorageSettings, frozen=True, kw_only=True):
    vector_memory: VectorMemory


class SqliteCollection(collection.StoredCollection[RecordT, DraftT, collection.IdT]):
    """A collection in one of the user's files, with its search."""

    def __init__(
        self, source: str, databases: "UserDatabases", settings: SqliteSettings, client_id: str, *, is_agent: bool
    ) -> None:
        self._file = databases.by_source.get(source, databases.chacha)
        super().__init__(source, self._file, settings, client_id, is_agent=is_agent)
        self.target = TARGETS[source]
        self._statistics = self._counts = databases.reader.statistics(settings.sources)
        self._vector_memory = settings.vector_memory
        self._index_builder = databases.index_builder

    async def _read_file(self, work: Work[T], deadline_ms: int | None = None) -> T:
        return await self._file.read(self.source, work, deadline_ms)

    def _correct(self, connection: sql.SqlConnection, text_search: TextSearch) -> ParsedQuery | None:
        """Once for all sources of a call: near words are those of the library."""
        assert isinstance(connection, JobConnection)
        query, known = text_search.search.query, self._counts.corrected(connection, text_search.target.index)
        if query not in known:
            known[query] = super()._correct(connection, text_search)
        return known[query]

    async def _query_vector(self, semantic: SemanticService, current: ModelInfo, text: str) -> QueryMeaning:
        database = self._file
        self._vector_memory.require_usable()
        tables = vector_tables(database.kind)
        if database.vector_model is None:
            choices = [model.id for model in semantic.choices]
            searched = await database.read(self.source, lambda connection: tables.searched_model(connection, choices))
            known = semantic.model_for(searched) if searched is not None else None
            database.vector_model = known.id if known is not None else current.id
        model = semantic.model_for(database.vector_model) or current
        vector = await semantic.embed_query(text, model.id)
        stop = database.quota.embedding_stop
        return QueryMeaning(vector, model, self._vector_memory, database, tables, stop)

    async def words(self) -> int:
        return await self._read_file(lambda connection: count_words(connection, self.target.index))


# -- chats -------------------------------------------------------------------------------------------------------------
# The searches in conversations. For an agent, none of them reads the text of a human-only message.

_ID_MAX_CHARS = 128
# The part of a deadline that is left to read the rows that a scan found.
_READING_SHARE = 0.1


class SqliteChats(SqliteCollection[records.Conversation, ConversationDraft, str], Chats):
    human_only_target = TARGETS["human_only"]

    async def find_messages(self, search: MessageSearch) -> records.MessageHits:
        """If the newest messages are not enough, an index is built for later calls, and this call scans all messages
        until its deadline."""
        due = time.monotonic() + search.deadline_ms / 1000

        def work(connection: JobConnection) -> records.MessageHits:
            matches = substring.find(connection, search, self._settings.scanned_rows_max, is_agent=self._is_agent)
            return message_hits(connection, matches.rowids, is_complete=matches.is_complete)

        hits = await self._read_file(work, search.deadline_ms)
        if hits.is_complete:
            return hits
        self._index_builder.start(SUBSTRING_INDEX)
        return await self._scan_messages(search, hits, due)

    async def _scan_messages(
        self, search: MessageSearch, newest: records.MessageHits, due: float
    ) -> records.MessageHits:
        """Scans in short jobs, so that other reads of the library can run between them. Returns what was found until
        shortly before `due`, or `newest` if not even that could be read."""
        scan = FullScan(search, self._settings.scanned_rows_max, newest, is_agent=self._is_agent)
        end = due - search.deadline_ms / 1000 * _READING_SHARE
        try:
            while not scan.is_complete and time.monotonic() < end:
                await self._read_file(scan.step, _remaining_ms(due))
            found = scan.matches()
            return await self._read_file(
                lambda connection: message_hits(connection, found.rowids, is_complete=found.is_complete),
                _remaining_ms(due),
            )
        except SourceTimeout:
            return newest

    async def match_messages(self, search: ExactSearch) -> records.ExactHits:
        """The first call builds the index. In a large library it can return the newest messages before all of them are
        indexed."""
        hits = await self._read_file(lambda connection: self._match_messages(connection, search), search.deadline_ms)
        if hits is not None and hits.is_complete:
            return hits
        for index in self._exact_indexes:
            self._index_builder.start(index, self._settings.scanned_rows_max)
        is_built = [
            await self._index_builder.wait_until_usable(index, search.deadline_ms / 1000)
            for index in self._exact_indexes
        ]
        if any(is_built):
            hits = await self._read_file(
                lambda connection: self._match_messages(connection, search), search.deadline_ms
            )
        return hits or records.ExactHits(hits=(), is_complete=False)

    def _find_conversations(self, connection: sql.SqlConnection, listed: sql.SqlFilter, folded: str) -> Sequence[int]:
        in_title = sql.contains_ignoring_case("title", folded)
        can_be_in_id = folded.isascii() and len(folded) <= _ID_MAX_CHARS
        condition = listed & (sql.either(in_title, sql.contains_ascii("uuid", folded)) if can_be_in_id else in_title)
        # With an index, SQLite would read all rows in the order of their age, each from a different page.
        rows = f"SELECT id FROM conversations NOT INDEXED WHERE deleted = 0{condition.sql}"
        statement = f"{rows} ORDER BY last_modified DESC, id DESC"
        return [rowid for (rowid,) in connection.execute(statement, condition.parameters)]

    async def change_token(self) -> str:
        """Versions of a file can be compared only on the connection that read them."""
        return await self._read_file(lambda connection: f"{connection.id}-{connection.data_version('chacha')}")

    async def _remove(self, work: Callable[[sql.SqlConnection, WriteContext], T], extra_ms: int = 0) -> T:
        """Also updates the indexes that are built on demand, in the same transaction."""

        def work_and_update_indexes(connection: sql.SqlConnection, context: WriteContext) -> T:
            result = work(connection, context)
            assert isinstance(connection, JobConnection)
            SUBSTRING_INDEX.apply_changes(connection)
            EXACT_INDEX.apply_changes(connection)
            HUMAN_ONLY_EXACT_INDEX.apply_changes(connection)
            return result

        return await super()._remove(work_and_update_indexes, extra_ms)

    @property
    def _exact_indexes(self) -> tuple[MessageIndex, ...]:
        return (EXACT_INDEX,) if self._is_agent else (EXACT_INDEX, HUMAN_ONLY_EXACT_INDEX)

    def _match_messages(self, connection: JobConnection, search: ExactSearch) -> records.ExactHits | None:
        """Returns None if an index does not exist yet."""
        indexes = self._exact_indexes if collection.has_human_only_messages(connection) else (EXACT_INDEX,)
        is_complete = True
        for index in indexes:
            progress = index.progress(connection)
            if progress is None:
                return None
            is_complete = is_complete and progress.is_complete
        matches = exact.find(connection, search, self._settings.ranked_rows_max, indexes)
        return exact_hits(connection, matches, is_complete=is_complete)


def _remaining_ms(due: float) -> int:
    return max(1, int((due - time.monotonic()) * 1000))


# -- library -----------------------------------------------------------------------------------------------------------
# One user's library: three files, and the collections in them on behalf of one client.


class UserDatabases:
    """The open files of one user. `lease_count` is the number of calls that are using them."""

    def __init__(self, data_root: DataRoot, user_id: UserId, options: SqliteOptions) -> None:
        self.user_id = user_id
        self.lease_count = 0
        files = [DatabaseFile(schema, data_root, user_id) for schema in (CHACHA, MEDIA, PROMPTS)]
        self.reader = LibraryReader(files, options)
        self.chacha, self.media, self.prompts = (Database(file, options, self.reader) for file in files)
        # Those that have a file of their own.
        self.by_source = {"media": self.media, "prompts": self.prompts}
        self.quota = UserQuota(FileMeter(self.all), options.quota)
        for database in self.all:
            database.quota = self.quota
        self.index_builder = IndexBuilder(self.chacha, sql.CHATS_INDEX)
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
        await asyncio.gather(*(database.stop_updating() for database in self.all))
        await self.reader.close()
        await asyncio.gather(*(database.close_writer() for database in self.all))


class SqliteLibrary(StoredLibrary):
    collections = collection_classes(SqliteCollection, SqliteChats)

    def __init__(self, databases: UserDatabases, settings: SqliteSettings, context: RequestContext) -> None:
        super().__init__(databases, databases.chacha, databases.quota, settings, context)
        self._databases = databases

    async def corpus(self, query: ParsedQuery, deadline_ms: int) -> Corpus:
        statistics = self._databases.reader.statistics(self._sources)
        return await self._databases.chacha.read("chacha", partial(statistics.corpus, query), deadline_ms)
