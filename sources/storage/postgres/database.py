"""The library of one user in PostgreSQL: one schema, read and written in jobs."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from msgspec import Struct

from auth.postgres_control import CONTROL_SCHEMA_NAME
from config.paths import UserId
from config.postgres.connection import Transaction
from config.tracing import span
from sources.installed import ITEM_KINDS
from sources.storage.job_queue import JobGroup, JobLane, current_call, current_job_group, job_group
from sources.storage.postgres.connection import (
    LibraryConnection,
    LibraryWork,
    VectorTransaction,
    WriteTransaction,
    is_removed_library,
    job_errors,
    translate,
)
from sources.storage.postgres.index.entries import known_index_state
from sources.storage.postgres.index.index_update import IndexUpdate, index_changes, is_outdated
from sources.storage.postgres.index.trigram_index import TrigramIndexBuilder
from sources.storage.postgres.jobs import IndexBuilds, JobThreads
from sources.storage.postgres.joint_read import JointReads, RunAlone
from sources.storage.postgres.schema import LibrarySchema, LibrarySchemas
from sources.storage.postgres.search.statistics import IndexCounts
from sources.storage.postgres.vectors.changed_rows import CoverageMemory
from sources.storage.postgres.vectors.vector_tables import VectorExtension, VectorExtensionMemory, count_passages
from sources.storage.quota import QuotaLimits, UserQuota
from sources.storage.search.vocabulary import VocabularyMemory
from sources.storage.tables.sql import TextIndex

# -- usage -------------------------------------------------------------------------------------------------------------
# Measures what a user stores in a schema.

_SOURCE = "library"
_ITEM_TABLES = tuple(kind.table for kind in ITEM_KINDS.values())
# With indexes and the tables for long texts, which count as relations of their own.
_USED_BYTES = """
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = ? AND c.relkind = 'r'
"""
_USED_BYTES_OF_USERS = """
    SELECT l.user_id, CAST(sum(pg_total_relation_size(c.oid)) AS BIGINT)
    FROM libraries l JOIN pg_catalog.pg_namespace n ON n.nspname = l.schema_name
    JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relkind = 'r'
    WHERE l.user_id = ANY (CAST(? AS TEXT[])) GROUP BY l.user_id
"""
# Measuring takes some milliseconds. Between two measurements a library grows by what is written meanwhile, also by
# other processes.
_MEASURED_FOR_S = 10.0
_MEASURED_FOR_WRITES = 20


class SchemaMeter:
    """Implements `UsageMeter`."""

    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database
        self._bytes = 0
        self._measured_at = float("-inf")
        self._writes = 0

    def add_write(self) -> None:
        self._writes += 1

    async def estimated_bytes(self) -> int:
        is_recent = time.monotonic() - self._measured_at < _MEASURED_FOR_S
        return self._bytes if is_recent and self._writes < _MEASURED_FOR_WRITES else await self.used_bytes()

    async def used_bytes(self) -> int:
        def measure(connection: LibraryConnection) -> int:
            [used] = connection.execute(_USED_BYTES, (connection.schema,)).fetchall()[0]
            return int(used)

        self._bytes = await self._database.read(_SOURCE, measure)
        self._measured_at, self._writes = time.monotonic(), 0
        return self._bytes

    async def count_items(self) -> int:
        counts = " UNION ALL ".join(f"SELECT count(*) AS items FROM {name} WHERE deleted = 0" for name in _ITEM_TABLES)

        def count(connection: LibraryConnection) -> int:
            [items] = connection.execute(f"SELECT CAST(sum(items) AS BIGINT) FROM ({counts}) counts").fetchall()[0]
            return int(items)

        return await self._database.read(_SOURCE, count)

    async def count_passages(self) -> int:
        return await self._database.read(_SOURCE, count_passages)


def stored_bytes(user_ids: Sequence[UserId], connection: LibraryConnection) -> dict[UserId, int]:
    """Runs in a transaction of the control data."""
    rows = connection.execute(_USED_BYTES_OF_USERS, (list(user_ids),)).fetchall()
    return dict.fromkeys(user_ids, 0) | dict(rows)


T = TypeVar("T")

# Jobs of one user that may read at the same time: a search of all sources has as many on SQLite.
_READERS = 3
_MIGRATION_MAX_S = 600.0
# Storing a batch of vectors takes milliseconds. Queuing all rows after a change of the model takes seconds.
_VECTORS_MAX_MS = 120_000


class DatabaseOptions(Struct, frozen=True, kw_only=True):
    """Options that all libraries share. `prepare` is awaited before a library is looked up."""

    threads: JobThreads
    schemas: LibrarySchemas
    prepare: Callable[[], Awaitable[None]]
    deadline_ms: int
    statement_timeout_ms: int
    lock_timeout_ms: int
    idle_timeout_ms: int
    vocabularies: VocabularyMemory
    extension: VectorExtensionMemory
    index_builds: IndexBuilds
    # Identifies this process in leases.
    process_id: str
    quota: QuotaLimits = QuotaLimits()


class PostgresDatabase:
    """Implements `UserDatabase`. `lease_count` is the number of calls that are using the library."""

    def __init__(self, user_id: UserId, options: DatabaseOptions) -> None:
        self.user_id = user_id
        self.lease_count = 0
        self._options = options
        self._schema: LibrarySchema | None = None
        self._readers = [JobLane() for _ in range(_READERS)]
        self._background_reader = JobLane()
        self._writer = JobLane()
        self._joint_reads = JointReads(self._run_joint_job)
        self._opening: asyncio.Task[LibrarySchema] | None = None
        self._meter = SchemaMeter(self)
        self.quota = UserQuota(self._meter, options.quota)
        self.counts = IndexCounts(options.vocabularies)
        self.coverage = CoverageMemory()
        self.index_builds = options.index_builds
        self.trigram_index = TrigramIndexBuilder(self)
        self.index_update = IndexUpdate(self)
        self.process_id = options.process_id
        # The model whose vectors are searched, once they are those of the configured model.
        self.vector_model: str | None = None
        self._has_new_writes = False

    async def read(self, source: str, work: LibraryWork[T], deadline_ms: int | None = None) -> T:
        """Runs the work on one snapshot of the library. Without a deadline, that of the settings applies. Time in the
        job queue does not count."""
        deadline_ms = self._options.deadline_ms if deadline_ms is None else deadline_ms
        with span("storage read", {"florilegium.source": source}):
            call = current_call()
            if call is not None:
                with suppress(RunAlone):
                    # Runs the work together with other reads of the call, or raises RunAlone.
                    try:
                        return await self._joint_reads.read(call, work, deadline_ms / 1000)
                    except job_errors() as error:
                        raise translate(
                            error, source, deadline_ms, self._statement_timeout_ms(Transaction, deadline_ms)
                        ) from error
            return await self._run(source, None, work, deadline_ms, Transaction)

    async def _run_joint_job(self, work: LibraryWork[None], limit_s: float) -> None:
        """Its parts are repeated as jobs of their own, not the job. A library that exists is opened in the same
        transaction."""
        schema, has_ended = self._schema, asyncio.Event()
        if schema is None:
            await self._options.prepare()
            work = partial(self._find_and_run, work)
            self.index_update.start(after=has_ended)
        transaction = partial(self._transaction, Transaction, CONTROL_SCHEMA_NAME if schema is None else schema.name)
        try:
            await self._options.threads.run(
                self.user_id, self._reader(), work, limit_s, transaction, gives_up=False, is_repeatable=False
            )
        finally:
            has_ended.set()

    def _find_and_run(self, work: LibraryWork[None], connection: LibraryConnection) -> None:
        schema = self._options.schemas.find(self.user_id, connection)
        if schema is None or not self._options.schemas.is_current(schema):
            raise RunAlone
        self._schema, connection.schema = schema, schema.name
        work(connection)
        # A search has read the state of the index, which saves a transaction for it.
        self.index_update.is_current = known_index_state(connection) is not None and not is_outdated(connection)

    def _reader(self) -> JobLane:
        """Background jobs pause, so that no call may have to wait for one of them."""
        group = current_job_group()
        if group is not None and group.is_background:
            return self._background_reader
        return min(self._readers, key=lambda reader: reader.is_busy + reader.waiting)

    @property
    def is_open(self) -> bool:
        """Whether the schema of the library is known."""
        return self._schema is not None

    async def write(self, source: str, index: TextIndex, work: LibraryWork[T], extra_ms: int = 0) -> T:
        """Runs the work in one transaction and indexes the rows that it wrote. `extra_ms` extends the deadline of the
        settings for a write that is known to be large."""
        self._meter.add_write()
        self._has_new_writes = True

        def work_and_index(connection: LibraryConnection) -> T:
            result = work(connection)
            index_changes(connection, connection.changes)
            return result

        deadline_ms = self._options.deadline_ms + extra_ms
        with span("storage write", {"florilegium.source": source}):
            return await self._run(source, self._writer, work_and_index, deadline_ms, WriteTransaction)

    async def write_vectors(self, source: str, work: LibraryWork[T]) -> T:
        """Runs work that changes vectors or leases only, while no text changes."""
        return await self._run(source, self._writer, work, _VECTORS_MAX_MS, VectorTransaction)

    def has_new_writes(self) -> bool:
        """Whether there were writes since the last call."""
        is_new, self._has_new_writes = self._has_new_writes, False
        return is_new

    async def vector_extension(self) -> VectorExtension:
        """Raises SemanticUnavailable if the server has no pgvector."""
        if not self._options.extension.is_known:
            await self._options.prepare()
            await self.run_control("embeddings", self._options.extension.check)
        return self._options.extension.require()

    async def exists(self) -> bool:
        """Whether the user has a library. Reading or writing creates it otherwise."""
        return await self.run_control("library", partial(self._options.schemas.find, self.user_id)) is not None

    async def schema_name(self) -> str:
        schema = self._schema or await self._open("library")
        return schema.name

    async def stop_background_work(self) -> None:
        """Builds of indexes must have been stopped."""
        await self.trigram_index.close()
        await self.index_update.close()

    async def remove(self) -> None:
        # It would create the library again.
        await self.index_update.close()
        await self.run_control("library", partial(self._options.schemas.remove, self.user_id))
        self._schema = None

    async def _run(
        self, source: str, lane: JobLane | None, work: LibraryWork[T], deadline_ms: int, kind: type[Transaction]
    ) -> T:
        """Without a lane, a reader is chosen when the library is open. A library that another process has removed is
        created again. Plain transactions only read."""
        is_known, is_read_only = self._schema is not None, kind is Transaction
        schema = self._schema or await self._open(source)
        transaction = partial(self._transaction, kind, schema.name)
        try:
            return await self._options.threads.run(
                self.user_id, lane or self._reader(), work, deadline_ms / 1000, transaction, gives_up=is_read_only
            )
        except job_errors() as error:
            if not is_known or not is_removed_library(error):
                raise translate(error, source, deadline_ms, self._statement_timeout_ms(kind, deadline_ms)) from error
        self._schema = None
        return await self._run(source, lane, work, deadline_ms, kind)

    def _transaction(self, kind: type[Transaction], schema: str, remaining_ms: int) -> Transaction:
        options = self._options
        return kind(
            schema=schema,
            is_read_only=kind is Transaction,
            statement_timeout_ms=self._statement_timeout_ms(kind, remaining_ms) or remaining_ms,
            lock_timeout_ms=options.lock_timeout_ms,
            idle_timeout_ms=options.idle_timeout_ms,
        )

    def _statement_timeout_ms(self, kind: type[Transaction], remaining_ms: int) -> int | None:
        """Returns the limit of one statement, if it is less than the remaining time of the call. Work on vectors is in
        the background and has no other limit than its deadline."""
        limit_ms = self._options.statement_timeout_ms if kind is not VectorTransaction else 0
        return limit_ms if 0 < limit_ms < remaining_ms else None

    async def _open(self, source: str) -> LibrarySchema:
        """Concurrent callers share one attempt, which continues if they are cancelled."""
        if self._opening is None:
            # Not in the background, even if it begins there: a call may have to wait for it.
            with job_group(current_call() or JobGroup()):
                self._opening = asyncio.create_task(self._find_schema(source))

            def end_opening(task: asyncio.Task[LibrarySchema]) -> None:
                self._opening = None
                if not task.cancelled():
                    task.exception()  # the caller may have been cancelled

            self._opening.add_done_callback(end_opening)
        return await asyncio.shield(self._opening)

    async def _find_schema(self, source: str) -> LibrarySchema:
        await self._options.prepare()
        schema = await self.run_control(source, partial(self._options.schemas.find, self.user_id))
        is_new = schema is None
        if schema is None:
            schema = await self.run_control(source, partial(self._options.schemas.create, self.user_id))
        # Each migration is a transaction of its own, and another process may run one of them meanwhile.
        while not self._options.schemas.is_current(schema):
            schema = await self.run_control(source, partial(self._options.schemas.migrate, self.user_id))
        self._schema = schema
        if not is_new:
            self.index_update.start()
        return schema

    async def run_control(self, source: str, work: LibraryWork[T]) -> T:
        """Runs work on the table that maps users to schemas."""

        def transaction(remaining_ms: int) -> Transaction:
            return Transaction(schema=CONTROL_SCHEMA_NAME, lock_timeout_ms=remaining_ms)

        try:
            return await self._options.threads.run(
                self.user_id, self._writer, work, _MIGRATION_MAX_S, transaction, gives_up=False
            )
        except job_errors() as error:
            raise translate(error, source, self._options.deadline_ms) from error
