"""The library of one user in PostgreSQL, read and written in jobs."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

from loguru import logger
from msgspec import Struct
from msgspec.structs import asdict

from auth.postgres_control import CONTROL_SCHEMA_NAME
from auth.quotas import UserLimits
from config.errors import FlorilegiumError
from config.paths import UserId
from config.postgres.connection import ConnectionOptions, StatementInterrupted, Transaction, run_outside_transaction
from config.tracing import span
from sources.installed import ITEM_KINDS
from sources.storage.collections.collection import SearchWork
from sources.storage.job_queue import CURRENT_GROUP, JobGroup, JobLane, JointRead, JointReads, RunAlone, job_group
from sources.storage.postgres.connection import (
    JobThreads,
    LibraryConnection,
    LibraryRemoved,
    LibraryTransaction,
    LibraryWork,
    NoLibrary,
    TransactionMode,
    job_errors,
    translate,
)
from sources.storage.postgres.index.index_update import IndexUpdate, index_changes, is_outdated
from sources.storage.postgres.schema import LibrarySchemas
from sources.storage.postgres.search.meaning import CoverageMemory
from sources.storage.postgres.search.statistics import IndexCounts
from sources.storage.postgres.search.substring import TrigramIndexBuilder
from sources.storage.postgres.tables import TENANT_TABLES
from sources.storage.postgres.vectors.vector_tables import (
    KnownExtension,
    VectorExtension,
    count_passages,
    prepare_vectors,
    require_extension,
)
from sources.storage.quota import UserQuota
from sources.storage.search.vocabulary import VocabularyMemory
from sources.storage.tables.sql import TextIndex

# -- usage -------------------------------------------------------------------------------------------------------------
# Measures what a user stores.

_SOURCE = "library"
# Rows as they are stored: compressed, without indexes.
_USED_BYTES = "SELECT CAST(coalesce(sum(pg_column_size(r.*)), 0) AS BIGINT) AS number FROM {} r"
_ITEMS = "SELECT count(*) AS number FROM {} WHERE deleted = 0"
# Measuring reads all rows. Between two measurements, a write is assumed to add as much as those before.
_MEASURED_FOR_S = 10.0
_MEASURED_FOR_WRITES = 20


T = TypeVar("T")

# Jobs of one user that may read at the same time.
_READERS = 3
_MIGRATION_MAX_S = 600.0
# Storing a batch of vectors takes milliseconds. Queuing all rows after a change of the model takes seconds.
_VECTORS_MAX_MS = 120_000


class PostgresOptions(ConnectionOptions, frozen=True, kw_only=True):
    """`connections` is the number of threads, each of which uses at most one connection."""

    connections: int = 9
    lock_timeout_ms: int = 2_000
    idle_timeout_ms: int = 10_000


class DatabaseOptions(Struct, frozen=True, kw_only=True):
    """Options that all libraries share. `prepare` is awaited before a library is looked up."""

    threads: JobThreads
    schemas: LibrarySchemas
    prepare: Callable[[], Awaitable[None]]
    deadline_ms: int
    connection: PostgresOptions
    vocabularies: VocabularyMemory
    extension: KnownExtension
    # Identifies this process in leases.
    process_id: str
    quota: UserLimits


class PostgresDatabase:
    """Implements `UserDatabase` and `UsageMeter`. `lease_count` is the number of calls that are using the library."""

    def __init__(self, user_id: UserId, options: DatabaseOptions) -> None:
        self.user_id = user_id
        self.lease_count = 0
        self._options = options
        self._tenant: str | None = None
        self._was_removed = False
        self._readers = [JobLane() for _ in range(_READERS)]
        self._background_reader = JobLane()
        self._writer = JobLane()
        self._joint_reads = JointReads(self._run_joint_read)
        self._opening = asyncio.Lock()
        # When the used bytes were measured, the number of writes since, and what a write added on average before.
        self._bytes, self._measured_at, self._writes, self._bytes_per_write = 0, float("-inf"), 0, 0
        self.quota = UserQuota(self, options.quota)
        self.counts = IndexCounts(options.vocabularies)
        self.coverage: CoverageMemory = {}
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
            group = CURRENT_GROUP.get()
            if group is not None and group.call is not None:
                with suppress(RunAlone):
                    try:
                        return await self._joint_reads.read(group.call, work, deadline_ms / 1000)
                    except job_errors() as error:
                        raise translate(error, source, deadline_ms) from error
            return await self._run(source, work, deadline_ms, "read")

    async def _run_joint_read(self, joint: JointRead) -> None:
        """Its parts are repeated as jobs of their own, not the job. A library that exists is opened in the same
        transaction."""
        tenant, counts, has_ended = self._tenant, self.counts.newest, asyncio.Event()
        state = counts.state if counts is not None else None
        searches = [part.work for part in joint.parts if isinstance(part.work, SearchWork)]

        def work(connection: LibraryConnection) -> None:
            if connection.is_unchanged:
                connection.index_state = state
            if searches:
                cast("Any", searches[0].collection).read_ahead(connection, searches)
            joint.work(connection)
            # Before the commit, which a transaction that reads does not need.
            joint.pass_on_soon()

        run: LibraryWork[None] = work
        if tenant is None:
            await self._options.prepare()
            run = partial(self._find_and_run, work)
            self.index_update.start(after=has_ended)
        transaction = partial(self._transaction, "read", tenant, known_version=state.version if state else "")
        limit_s = max([part.limit_s for part in joint.parts])
        try:
            await self._options.threads.run_job(
                self.user_id, self._reader(), run, limit_s, transaction, gives_up=False, is_repeatable=False
            )
        except (FlorilegiumError, StatementInterrupted):
            if any(part.started_at is not None for part in joint.parts):
                raise
            raise RunAlone from None
        except job_errors():
            # The transaction has failed: the read that was running is run again, too.
            raise RunAlone from None
        finally:
            has_ended.set()

    def _find_and_run(self, work: LibraryWork[None], connection: LibraryConnection) -> None:
        schemas = self._options.schemas
        tenant, _ = schemas.find(self.user_id, connection)
        if tenant is None:
            raise RunAlone
        connection.enter_library(tenant, has_role=schemas.has_role)
        self._tenant = tenant
        work(connection)
        # A search has read the state of the index, which saves a transaction for it.
        self.index_update.is_current = connection.index_state is not None and not is_outdated(connection)

    def _reader(self) -> JobLane:
        """Background jobs pause, so that no call may have to wait for one of them."""
        group = CURRENT_GROUP.get()
        if group is not None and group.is_background:
            return self._background_reader
        return min(self._readers, key=lambda reader: reader.is_busy + reader.waiting)

    @property
    def is_open(self) -> bool:
        return self._tenant is not None

    async def write(self, source: str, index: TextIndex, work: LibraryWork[T], extra_ms: int = 0) -> T:
        """Runs the work in one transaction and indexes the rows that it wrote. `extra_ms` extends the deadline of the
        settings for a write that is known to be large."""
        self._writes += 1
        self._has_new_writes = True

        def work_and_index(connection: LibraryConnection) -> T:
            result = work(connection)
            index_changes(connection, connection.changes)
            return result

        deadline_ms = self._options.deadline_ms + extra_ms
        with span("storage write", {"florilegium.source": source}):
            return await self._run(source, work_and_index, deadline_ms, "write")

    async def write_vectors(self, source: str, work: LibraryWork[T]) -> T:
        """Runs work that changes vectors or leases only, while no text changes."""
        return await self._run(source, work, _VECTORS_MAX_MS, "vectors")

    def has_new_writes(self) -> bool:
        is_new, self._has_new_writes = self._has_new_writes, False
        return is_new

    async def estimated_bytes(self) -> int:
        is_recent = time.monotonic() - self._measured_at < _MEASURED_FOR_S
        if not is_recent or self._writes >= _MEASURED_FOR_WRITES:
            return await self.used_bytes()
        return self._bytes + self._writes * self._bytes_per_write

    async def used_bytes(self) -> int:
        has_vectors, before = isinstance(self._options.extension.found, VectorExtension), self._bytes
        self._bytes = await self._sum(_USED_BYTES, [name for name in TENANT_TABLES if has_vectors or name != "vectors"])
        if self._writes:
            self._bytes_per_write = max(0, self._bytes - before) // self._writes
        self._measured_at, self._writes = time.monotonic(), 0
        return self._bytes

    async def count_items(self) -> int:
        return await self._sum(_ITEMS, [kind.table for kind in ITEM_KINDS.values()])

    async def count_passages(self) -> int:
        return await self.read(_SOURCE, count_passages)

    async def _sum(self, select: str, tables: Iterable[str]) -> int:
        numbers = " UNION ALL ".join(map(select.format, tables))
        sql = f"SELECT CAST(sum(number) AS BIGINT) FROM ({numbers}) AS numbers"
        return await self.read(_SOURCE, lambda connection: int(connection.execute(sql).fetchall()[0][0]))

    async def vector_extension(self) -> VectorExtension:
        known = self._options.extension
        if not known.is_current:
            await self._options.prepare()
            # Known after the commit: a write that saw the extension earlier would use a table that does not exist yet.
            known.found = await self.run_control("embeddings", prepare_vectors)
            known.checked_at = time.monotonic()
        return require_extension(known.found)

    async def exists(self) -> bool:
        """Whether the user has a library. Reading or writing creates it otherwise."""
        await self._options.prepare()
        return any(await self.run_control("library", partial(self._options.schemas.find, self.user_id)))

    async def stop_background_work(self) -> None:
        """Builds of indexes must have been stopped."""
        await self.trigram_index.close()
        await self.index_update.close()

    async def remove(self) -> None:
        # It would create the library again.
        await self.index_update.close()
        indexes = await self.run_control("library", partial(self._options.schemas.remove, self.user_id))
        self._forget_tenant()
        if indexes and not await self.run_outside_transaction(indexes):
            logger.warning("The indexes of a library that was removed could not be dropped: they are empty")

    async def run_outside_transaction(self, statements: Iterable[str]) -> bool:
        """Creates or drops indexes CONCURRENTLY, while others read and write. An interrupted build leaves an invalid
        index, which PostgreSQL does not use; it is dropped before the next attempt."""
        return await run_outside_transaction(self._options.connection, statements)

    async def _run(self, source: str, work: LibraryWork[T], deadline_ms: int, mode: TransactionMode) -> T:
        """The first use of a library creates it, except by maintenance. After a removal, background work does not
        create it again, because it may have begun before."""
        is_known = self._tenant is not None
        group = CURRENT_GROUP.get()
        is_late = group is not None and (group.is_maintenance or (group.is_background and self._was_removed))
        if self._tenant is None and (is_late or mode == "vectors"):
            await self._options.prepare()
            self._tenant, _ = await self.run_control(source, partial(self._options.schemas.find, self.user_id))
            if self._tenant is None:
                raise NoLibrary("the library was removed")
        tenant = self._tenant or await self._open(source)
        try:
            return await self._options.threads.run_job(
                self.user_id,
                self._reader() if mode == "read" else self._writer,
                work,
                deadline_ms / 1000,
                partial(self._transaction, mode, tenant),
                gives_up=mode == "read",
            )
        except job_errors() as error:
            if not is_known or not isinstance(error, LibraryRemoved):
                raise translate(error, source, deadline_ms) from error
        self._forget_tenant()
        return await self._run(source, work, deadline_ms, mode)

    def _forget_tenant(self) -> None:
        self._tenant, self._was_removed = None, True
        # They are kept by the number of writes, which starts from 0 again in a new library.
        self.counts.forget()

    def _transaction(
        self, mode: TransactionMode, tenant: str | None, remaining_ms: int, *, known_version: str = ""
    ) -> Transaction:
        """Without a tenant, it begins in the control data, where it is looked up."""
        options = self._options.connection
        transaction = Transaction(
            schema=CONTROL_SCHEMA_NAME,
            is_read_only=mode == "read",
            statement_timeout_ms=remaining_ms,
            lock_timeout_ms=options.lock_timeout_ms,
            idle_timeout_ms=options.idle_timeout_ms,
        )
        if tenant is None:
            return transaction
        has_role = self._options.schemas.has_role
        limits = {**asdict(transaction), "schema": ""}
        return LibraryTransaction(**limits, tenant=tenant, mode=mode, has_role=has_role, known_version=known_version)

    async def _open(self, source: str) -> str:
        async with self._opening:
            if self._tenant is not None:
                return self._tenant
            await self._options.prepare()
            # Not in the background, even if it begins there: a call may have to wait for it.
            group = CURRENT_GROUP.get()
            with job_group((group and group.call) or JobGroup()):
                find_or_create = partial(self._options.schemas.open, self.user_id)
                self._tenant, is_new = tenant, _ = await self.run_control(source, find_or_create)
            if not is_new:
                self.index_update.start()
            return tenant

    async def run_control(self, source: str, work: LibraryWork[T]) -> T:
        """Runs work on the table that maps users to tenants."""

        def transaction(remaining_ms: int) -> Transaction:
            return Transaction(schema=CONTROL_SCHEMA_NAME, lock_timeout_ms=remaining_ms)

        try:
            return await self._options.threads.run_job(
                self.user_id, self._writer, work, _MIGRATION_MAX_S, transaction, gives_up=False
            )
        except job_errors() as error:
            raise translate(error, source, self._options.deadline_ms) from error
