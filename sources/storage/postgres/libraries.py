"""The libraries of all users in one PostgreSQL database."""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial

from auth.context import RequestContext
from auth.postgres_control import CONTROL_SCHEMA_NAME, migrate_control
from auth.quotas import Quotas, apply_overrides
from config.errors import Overloaded, Unavailable
from config.paths import UserId
from config.postgres.connection import Transaction
from config.postgres.errors import postgres_errors
from config.settings import Settings
from config.times import steady_time
from sources import records
from sources.drafts import ConversationDraft
from sources.query import ParsedQuery
from sources.semantic.model import ModelInfo
from sources.semantic.service import SemanticService
from sources.storage.collections.chats import Chats, exact_hits, message_hits
from sources.storage.collections.collection import IdT, SearchWork, StorageSettings, StoredCollection
from sources.storage.collections.library import StoredLibrary, collection_classes
from sources.storage.contract import Corpus, EmbeddingState, ExactSearch, LibrariesState, Library, MessageSearch, Search
from sources.storage.embedding import EmbeddedBatch, EmbeddingScheduler, embed_batch
from sources.storage.job_queue import LIBRARY_QUEUE_MAX, JobGroup, JobQueue, charged_to, job_group
from sources.storage.postgres.connection import WRITES, JobThreads, LibraryConnection, NoLibrary
from sources.storage.postgres.database import DatabaseOptions, PostgresDatabase, PostgresOptions
from sources.storage.postgres.index.entries import ENTRY_KINDS
from sources.storage.postgres.index.index_update import check_index, reindex_library
from sources.storage.postgres.schema import LibrarySchemas
from sources.storage.postgres.search import exact, substring
from sources.storage.postgres.search.meaning import LibraryQueryVector
from sources.storage.postgres.search.statistics import SEARCHES, EntryStatistics
from sources.storage.postgres.search.tsquery_engine import TARGETS
from sources.storage.postgres.vectors.library_vectors import EmbeddingTakeover, LibraryVectors
from sources.storage.postgres.vectors.vector_tables import KnownExtension, searched_model
from sources.storage.search.engine import QueryVector
from sources.storage.search.text_search import TextSearch
from sources.storage.search.vocabulary import SEARCH_VOCABULARY_MIB, VocabularyMemory
from sources.storage.shared_part import shared_part
from sources.storage.tables.item_table import DraftT, RecordT
from sources.storage.tables.sql import SqlConnection

# -- collections -------------------------------------------------------------------------------------------------------
# The collections of a library in PostgreSQL, with their searches.


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
            if kind.is_counted and corrected is not None:
                self._entries.read_ahead(connection, corrected)
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


class PostgresChats(PostgresCollection[records.Conversation, ConversationDraft, str], Chats):
    human_only_target = TARGETS["human_only"]

    async def find_messages(self, search: MessageSearch) -> records.MessageHits:
        """If all messages of a large library were searched, an index is built for later calls."""

        def work(connection: LibraryConnection) -> tuple[records.MessageHits, bool]:
            rowids, is_exhausted = substring.find(connection, search, is_agent=self._is_agent)
            return message_hits(connection, rowids), is_exhausted

        hits, is_exhausted = await self._library.read(self.source, work, search.deadline_ms)
        if is_exhausted and search.text and search.conversation_id is None:
            self._library.trigram_index.start(self._settings.scanned_rows_max)
        return hits

    async def match_messages(self, search: ExactSearch) -> records.ExactHits:
        def work(connection: LibraryConnection) -> records.ExactHits:
            ranked_rows_max = self._settings.ranked_rows_max
            matches, is_complete = exact.find(connection, search, ranked_rows_max, is_agent=self._is_agent)
            return exact_hits(connection, matches, is_complete=is_complete)

        return await self._library.read(self.source, work, search.deadline_ms)

    async def change_token(self) -> str:
        def work(connection: SqlConnection) -> str:
            [writes] = connection.execute("SELECT value FROM state WHERE name = ?", (WRITES,)).fetchone()
            return str(writes)

        return await self._read(work)


# -- libraries ---------------------------------------------------------------------------------------------------------


class PostgresLibrary(StoredLibrary):
    collections = collection_classes(PostgresCollection, PostgresChats)

    def __init__(self, database: PostgresDatabase, settings: StorageSettings, context: RequestContext) -> None:
        super().__init__(database, database, database.quota, settings, context)

    async def corpus(self, query: ParsedQuery, deadline_ms: int) -> Corpus:
        statistics = EntryStatistics(self._database.counts, self._sources)
        corpus: Corpus = await self._database.read("library", partial(statistics.corpus, query), deadline_ms)
        return corpus


# A library that is open takes a few kilobytes: its tenant and its quota.
_OPEN_MAX = 10_000
# Whose jobs those of the server itself are.
_NO_USER = UserId("")
# The sources of a search share a job.
_JOBS_PER_CALL = 1
# How long deleting a library waits for the calls that use it.
_REMOVE_WAIT_S = 10.0
_REMOVE_POLL_S = 0.05
# How long a process waits for another that creates the tables.
_PREPARE_MAX_MS = 60_000


class PostgresLibraries:
    """The tables are created on first use. With a semantic service, the text of libraries is
    embedded while they are in use; a command that runs only for a moment sets `embeds_in_background` to false."""

    def __init__(
        self,
        options: PostgresOptions,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        steady_clock: Callable[[], float] = steady_time,
        semantic: SemanticService | None = None,
        quotas: Quotas | None = None,
        *,
        schemas: LibrarySchemas | None = None,
        embeds_in_background: bool = True,
    ) -> None:
        # The queue may run twice as many jobs as it has slots, and one in the background.
        jobs = JobQueue(max(1, (options.connections - 1) // 2))
        self._threads = JobThreads(options, jobs, options.connections, LIBRARY_QUEUE_MAX)
        self._options = DatabaseOptions(
            threads=self._threads,
            schemas=schemas or LibrarySchemas(has_owners=quotas is not None),
            prepare=self._prepare,
            deadline_ms=settings.library_deadline_ms,
            connection=options,
            vocabularies=VocabularyMemory(SEARCH_VOCABULARY_MIB * 1024 * 1024),
            extension=KnownExtension(),
            process_id=secrets.token_hex(8),
            quota=apply_overrides(settings),
        )
        self._settings = StorageSettings.of(settings, clock, steady_clock, semantic)
        self._hnsw_min_passages = settings.fixed.postgres_hnsw_min_passages
        self._embeds_in_background = embeds_in_background
        self._embedding: EmbeddingScheduler | None = None
        self._takeover: EmbeddingTakeover | None = None
        if semantic is not None:
            self._embedding = EmbeddingScheduler(semantic, partial(self._embed_next, semantic))
            if semantic.model is not None and embeds_in_background:
                control = PostgresDatabase(_NO_USER, self._options)
                self._takeover = EmbeddingTakeover(self._embedding, control, self._end_lease)
        # Without them, the quotas of the settings apply to every user.
        self._quotas = quotas
        self._wait_max_s = settings.fixed.library_wait_max_ms / 1000
        # Least recently used first.
        self._open: OrderedDict[UserId, PostgresDatabase] = OrderedDict()
        self._preparing = asyncio.Lock()
        self._is_prepared = False
        # Set when the removal has ended.
        self._removals: dict[UserId, asyncio.Event] = {}

    @asynccontextmanager
    async def library(self, context: RequestContext) -> AsyncIterator[Library]:
        async with self._lease(context.user_id) as database:
            library = PostgresLibrary(database, self._settings, context)
            try:
                # Jobs in a library of someone else count for the caller.
                with nullcontext() if context.library is None else charged_to(context.principal.user_id):
                    yield shared_part(library, context)
            finally:
                if self._embeds_in_background:
                    self._wake(context.user_id, has_new_text=database.has_new_writes())

    @asynccontextmanager
    async def _lease(self, user_id: UserId) -> AsyncIterator[PostgresDatabase]:
        """While it lasts, the library is not removed."""
        limits = await self._quotas.limits(user_id) if self._quotas is not None else self._options.quota
        database = await self._database(user_id)
        if limits != database.quota.limits:
            database.quota.change_limits(limits)
            if self._embeds_in_background:
                # There may be room for text that did not fit.
                self._wake(user_id, has_new_text=True)
        database.lease_count += 1
        try:
            yield database
        finally:
            database.lease_count -= 1

    def require_capacity(self, user_id: UserId) -> None:
        wait_s = self._threads.jobs.expected_wait_s(user_id, _JOBS_PER_CALL)
        if wait_s > self._wait_max_s:
            raise Overloaded.until_served(wait_s - self._wait_max_s)

    def state(self) -> LibrariesState:
        return LibrariesState(
            open=len(self._open),
            open_max=_OPEN_MAX,
            closing=0,
            queue=self._threads.jobs.state(),
            embedding=self._embedding.state() if self._embedding is not None else EmbeddingState(),
        )

    async def reindex(self, user_id: UserId) -> dict[str, int]:
        """Builds the full-text index of a user again. Returns the number of entries by collection."""
        return await reindex_library(await self._database(user_id))

    async def check_index(self, user_id: UserId) -> dict[str, int]:
        """Reads every text of a user. Returns how much of the full-text index does not match, by kind of fault."""
        database = await self._database(user_id)
        return await check_index(database) if await database.exists() else {}

    async def embed(self, user_id: UserId) -> str | None:
        """Also waits for the other users who have their turns meanwhile."""
        if self._embedding is None:
            return None
        self._wake(user_id, has_new_text=True)
        await self._embedding.wait_until_idle()
        return (await self._database(user_id)).quota.embedding_stop

    async def stored_bytes(self, user_ids: Sequence[UserId]) -> Mapping[UserId, int]:
        used = dict.fromkeys(user_ids, 0)
        # As maintenance, which only finds libraries: opening one would begin to update its index.
        with job_group(JobGroup(is_maintenance=True)):
            for user_id in user_ids:
                with suppress(NoLibrary):
                    used[user_id] = await PostgresDatabase(user_id, self._options).used_bytes()
        return used

    async def remove(self, user_id: UserId) -> None:
        """Deletes the library of a user. Calls that arrive meanwhile wait, and find an empty library."""
        due = time.monotonic() + _REMOVE_WAIT_S
        database = await self._database(user_id)
        while database.lease_count or user_id in self._removals:
            if time.monotonic() >= due:
                raise Unavailable("the library is in use; try again in a moment")
            await asyncio.sleep(_REMOVE_POLL_S)
        self._removals[user_id] = asyncio.Event()
        try:
            await self._prepare()
            await database.remove()
        finally:
            self._removals.pop(user_id).set()

    async def close(self) -> None:
        """Running calls are stopped and no new ones are started."""
        for database in self._open.values():
            await database.stop_background_work()
        if self._takeover is not None:
            await self._takeover.close()
        if self._embedding is not None:
            await self._embedding.close()
        await self._threads.close()

    def _wake(self, user_id: UserId, *, has_new_text: bool) -> None:
        if self._embedding is not None:
            self._embedding.wake(user_id, has_new_text=has_new_text)
        if self._takeover is not None and has_new_text:
            self._takeover.notify()

    async def _end_lease(self, user_id: UserId, process_id: str) -> None:
        await LibraryVectors(await self._database(user_id), self._hnsw_min_passages).end_lease(process_id)

    async def _embed_next(self, semantic: SemanticService, user_id: UserId) -> EmbeddedBatch:
        async with self._lease(user_id) as database:
            turn = await embed_batch(LibraryVectors(database, self._hnsw_min_passages), semantic)
            database.quota.embedding_stop = turn.stop
            return turn

    async def _database(self, user_id: UserId) -> PostgresDatabase:
        while user_id in self._removals:
            await self._removals[user_id].wait()
        database = self._open.get(user_id)
        if database is None:
            if len(self._open) >= _OPEN_MAX:
                idle = next((user_id for user_id, database in self._open.items() if not database.lease_count), None)
                if idle is None:
                    raise Unavailable(f"the libraries of {_OPEN_MAX} users are in use; try again in a moment")
                del self._open[idle]
            database = self._open[user_id] = PostgresDatabase(user_id, self._options)
        self._open.move_to_end(user_id)
        return database

    async def _prepare(self) -> None:
        """Creates the tables, or migrates them to this version."""
        if self._is_prepared:
            return
        async with self._preparing:
            if not self._is_prepared:
                await migrate_control(self._threads)
                preparing = Transaction(schema=CONTROL_SCHEMA_NAME, lock_timeout_ms=_PREPARE_MAX_MS)
                with postgres_errors():
                    await self._threads.run(preparing, self._options.schemas.prepare)
                self._is_prepared = True
