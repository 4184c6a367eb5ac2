"""The audit log: who signed in, which client read which item, and changes of users, keys and connections.

It is a database of its own (`audit.db`), or a table of PostgreSQL, so that recording a read never waits for a change of
users or keys. `record` only adds an event to a queue. A thread writes security events at once, and reads in batches: if
the process is killed, the reads of the last second are lost.
"""

import asyncio
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from loguru import logger
from msgspec import Struct, structs

from auth.context import Principal
from auth.control_database import ControlConnection
from auth.postgres_control import CONTROL_SCHEMA_NAME, EVENT_STATEMENTS
from auth.sqlite_control import ensure_private_file, storage_errors
from config.errors import StorageError
from config.paths import UserId
from config.postgres.connection import (
    ConnectionOptions,
    ConnectionThreads,
    PostgresConnection,
    StatementInterrupted,
    Transaction,
)
from config.postgres.errors import postgres_errors
from config.settings import Settings

READ_ACTION = "read"
# A backup that the operator, or a script, made.
BACKUP_ACTION = "backup"
BACKUP_FAILED_ACTION = "backup.failed"

AUDIT_SCHEMA = 1
_DDL = (
    # AUTOINCREMENT: the ids of deleted events are not used again.
    EVENT_STATEMENTS[0].replace("PRIMARY KEY", "PRIMARY KEY AUTOINCREMENT"),
    *EVENT_STATEMENTS[1:],
    f"PRAGMA user_version = {AUDIT_SCHEMA}",
)
_BUSY_TIMEOUT_S = 5.0
# What errors call the file.
_FILE = "the audit log"
_TEXT_MAX_CHARS = 500
_DAY_S = 86_400.0
_RETENTION_CHECK_S = 3600.0
# Deleted at a time, so that other processes do not wait long for the lock.
DELETE_ROWS = 1_000
_RETRY_S = 5.0


class AuditEvent(Struct, frozen=True, kw_only=True):
    """`user_id` is the user whose account or items are concerned, `client` the client or person that acted, `target`
    what was read or changed. `count` is above 1 for reads that were repeated within one batch, and for rejected
    credentials that were counted."""

    time: float
    action: str
    user_id: str
    client: str = ""
    target: str = ""
    address: str = ""
    detail: str = ""
    count: int = 1
    id: int = 0


_EVENT_COLUMNS = ("id", *(name for name in AuditEvent.__struct_fields__ if name != "id"))


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Conditions on events; those that are not set match all. `before` is the id of the last event of a page."""

    user_id: str | None = None
    actions: tuple[str, ...] = ()
    excluded_actions: tuple[str, ...] = ()
    target: str | None = None
    since: float | None = None
    before: int | None = None


def insert_events(connection: ControlConnection, events: Iterable[AuditEvent]) -> None:
    """Must be called in a transaction that has locked the table."""
    [last_id] = connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()
    rows = []
    for event in events:
        # Users see the ids of their own events. As times, these do not tell how many events others had.
        last_id = max(round(event.time * 1e6), last_id + 1)
        rows.append((last_id, *(getattr(event, name) for name in _EVENT_COLUMNS[1:])))
    sql = f"INSERT INTO events ({', '.join(_EVENT_COLUMNS)}) VALUES ({', '.join('?' * len(_EVENT_COLUMNS))})"  # noqa: S608
    connection.executemany(sql, rows)


def select_events(connection: ControlConnection, where: AuditFilter, limit: int) -> list[AuditEvent]:
    conditions, condition_values = ["TRUE"], list[object]()
    for condition_sql, value in (
        ("user_id = ?", where.user_id),
        ("target = ?", where.target),
        ("time >= ?", where.since),
        ("id < ?", where.before),
    ):
        if value is not None:
            conditions.append(condition_sql)
            condition_values.append(value)
    for condition_sql, actions in (("action IN", where.actions), ("action NOT IN", where.excluded_actions)):
        if actions:
            conditions.append(f"{condition_sql} ({', '.join('?' * len(actions))})")
            condition_values += actions
    columns, condition = ", ".join(_EVENT_COLUMNS), " AND ".join(conditions)
    sql = f"SELECT {columns} FROM events WHERE {condition} ORDER BY id DESC LIMIT ?"  # noqa: S608 - constants only
    rows = connection.execute(sql, (*condition_values, limit)).fetchall()
    return [AuditEvent(**dict(zip(_EVENT_COLUMNS, row, strict=True))) for row in rows]


def delete_events(connection: ControlConnection, condition: str, values: Sequence[object]) -> int:
    """Deletes at most `DELETE_ROWS` of the events that meet the condition, and returns how many."""
    rows = f"SELECT id FROM events WHERE {condition} LIMIT {DELETE_ROWS}"  # noqa: S608 - constants only
    return connection.execute(f"DELETE FROM events WHERE id IN ({rows})", values).rowcount  # noqa: S608 - as above


class AuditLog(ABC):
    """Where events are stored. Several processes may write: servers, and commands that change users and keys."""

    @abstractmethod
    def append(self, events: Iterable[AuditEvent]) -> None: ...

    @abstractmethod
    def select(self, where: AuditFilter, limit: int) -> list[AuditEvent]:
        """Returns the newest events first."""

    def delete_before(self, time_s: float) -> int:
        """Deletes older events. Returns how many."""
        return self._delete_all("time < ?", time_s)

    def delete_reads(self, user_id: UserId) -> int:
        """Deletes what says which items a user had. Security events are kept until they are too old."""
        return self._delete_all("user_id = ? AND action = ?", user_id, READ_ACTION)

    def _delete_all(self, condition: str, *values: object) -> int:
        deleted = 0
        while True:
            count = self._delete(condition, values)
            deleted += count
            if count < DELETE_ROWS:
                return deleted

    @abstractmethod
    def _delete(self, condition: str, values: Sequence[object]) -> int:
        """Deletes at most `DELETE_ROWS` events, in one transaction."""

    @abstractmethod
    def close(self) -> None: ...


class AuditFile(AuditLog):
    """The log as a database file, which is only open while it is used."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, events: Iterable[AuditEvent]) -> None:
        with storage_errors(_FILE), closing(self._connect()) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            insert_events(connection, events)

    def select(self, where: AuditFilter, limit: int) -> list[AuditEvent]:
        if not self._path.exists():
            return []
        with storage_errors(_FILE), closing(self._connect()) as connection:
            return select_events(connection, where, limit)

    def close(self) -> None:
        pass

    def _delete(self, condition: str, values: Sequence[object]) -> int:
        # The file is empty if the disk was full when its tables should have been created.
        if not self._path.exists() or not self._path.stat().st_size:
            return 0
        with storage_errors(_FILE), closing(self._connect()) as connection:
            connection.execute("PRAGMA secure_delete = ON")
            # On a full disk there may be no space for a journal. Deleting overwrites pages that exist.
            connection.execute("PRAGMA journal_mode = MEMORY")
            with connection:
                return delete_events(connection, condition, values)

    def _connect(self) -> sqlite3.Connection:
        ensure_private_file(self._path)
        connection = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S)
        try:
            [version] = connection.execute("PRAGMA user_version").fetchone()
            if version > AUDIT_SCHEMA:
                raise StorageError("the audit log was written by a newer version of Florilegium: upgrade Florilegium")
            if version == 0:
                # Creates the tables unless another process did so in the meantime.
                connection.execute("BEGIN IMMEDIATE")
                with connection:
                    [tables_version] = connection.execute("PRAGMA user_version").fetchone()
                    for statement in _DDL if tables_version == 0 else ():
                        connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection


# How long reads wait to be written together. Other events are written at once.
_FLUSH_S = 1.0
# Events that wait to be written, for example while the disk hangs. Further reads are only counted.
_QUEUE_MAX = 10_000


class Audit:
    """Records events for a running server."""

    def __init__(
        self,
        log: AuditLog,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        *,
        flush_s: float = _FLUSH_S,
        queue_max: int = _QUEUE_MAX,
    ) -> None:
        self.log = log
        self._flush_s = flush_s
        self._queue_max = queue_max
        self._settings = settings
        self._clock = clock
        self._pending: deque[AuditEvent] = deque()
        self._dropped = 0
        self._has_pending = threading.Event()
        self._is_urgent = threading.Event()
        self._is_closed = False
        # Security events by action, since the start of the process.
        self.events: Counter[str] = Counter()
        # Only one thread writes at a time, so that events stay in order.
        self._writing = threading.Lock()
        self._writer: threading.Thread | None = None
        self._next_cleanup_at = 0.0

    def record(
        self,
        action: str,
        user_id: str,
        *,
        client: str = "",
        target: str = "",
        address: str = "",
        detail: str = "",
        count: int = 1,
    ) -> None:
        """Records a security event, which is written at once. Never raises."""
        self.events[action] += count
        event = AuditEvent(
            time=self._clock(),
            action=action,
            user_id=user_id,
            client=_short(client),
            target=_short(target),
            address=_short(address),
            detail=_short(detail),
            count=count,
        )
        # Reads must not displace it.
        self._add(event, 2 * self._queue_max)
        self._is_urgent.set()

    def record_read(self, principal: Principal, uri: str, owner_id: UserId | None = None) -> None:
        """Records that a client read an item, for the owner of the item. The detail names the reader, if that is
        someone else. Written with the next batch."""
        if self._settings.audit_reads:
            who, what, now = _short(principal.client_id), _short(uri), self._clock()
            owner_id = owner_id or principal.user_id
            reader = "" if owner_id == principal.user_id else _short(principal.user_name)
            event = AuditEvent(time=now, action=READ_ACTION, user_id=owner_id, client=who, target=what, detail=reader)
            self._add(event, self._queue_max)

    async def select(self, where: AuditFilter, limit: int) -> list[AuditEvent]:
        """Returns the newest events first, including those that were recorded just now."""
        return await asyncio.to_thread(lambda: (self._write_pending(), self.log.select(where, limit))[1])

    async def delete_reads(self, user_id: UserId) -> None:
        await asyncio.to_thread(lambda: (self._write_pending(), self.log.delete_reads(user_id)))

    async def close(self) -> None:
        """Writes what is pending."""
        self._is_closed = True
        self._is_urgent.set()
        self._has_pending.set()
        if self._writer is not None:
            await asyncio.to_thread(self._writer.join)
        await asyncio.to_thread(self._write_pending)
        await asyncio.to_thread(self.log.close)

    def _add(self, event: AuditEvent, queue_max: int) -> None:
        if len(self._pending) >= queue_max:
            self._dropped += 1
            return
        self._pending.append(event)
        if self._writer is None and not self._is_closed:
            self._writer = threading.Thread(target=self._run, name="audit", daemon=True)
            self._writer.start()
        if not self._has_pending.is_set():
            self._has_pending.set()

    def _run(self) -> None:
        while not self._is_closed:
            self._has_pending.wait()
            self._is_urgent.wait(self._flush_s)
            is_written = self._write_pending()
            now = self._clock()
            if self._settings.audit_retention_days and now >= self._next_cleanup_at:
                self._next_cleanup_at = now + _RETENTION_CHECK_S
                try:
                    self.log.delete_before(now - self._settings.audit_retention_days * _DAY_S)
                except StorageError as error:
                    logger.warning("cannot delete old events from the audit log: {}", error.message)
            if not is_written and not self._is_closed:
                self._is_urgent.clear()
                self._is_urgent.wait(_RETRY_S)

    def _write_pending(self) -> bool:
        """Writes all pending events. If that fails, they are kept for the next attempt."""
        with self._writing:
            self._has_pending.clear()
            self._is_urgent.clear()
            # Others append meanwhile, so the queue is not replaced but emptied.
            events = [self._pending.popleft() for _ in range(len(self._pending))]
            dropped, self._dropped = self._dropped, 0
            if dropped:
                events.append(AuditEvent(time=self._clock(), action="audit.dropped", user_id="", count=dropped))
            if not events:
                return True
            try:
                # Combines reads of the same item by the same client. A client that reads an item in pages has one
                # entry.
                combined: dict[tuple[str, ...] | int, AuditEvent] = {}
                for number, event in enumerate(events):
                    is_read = event.action == READ_ACTION
                    key = (event.user_id, event.client, event.target, event.detail) if is_read else number
                    before = combined.get(key)
                    combined[key] = (
                        event if before is None else structs.replace(before, count=before.count + event.count)
                    )
                self.log.append(list(combined.values()))
            except StorageError as error:
                logger.warning("cannot write {} events to the audit log: {}", len(events), error.message)
                self._pending.extendleft(reversed(events))
                self._has_pending.set()
                return False
            return True


def _short(text: str) -> str:
    """Truncates a text, and replaces what cannot be stored or would change how a terminal shows it."""
    text = text[:_TEXT_MAX_CHARS]
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


T = TypeVar("T")

_TIMEOUT_MS = 5_000
_TRANSACTION = Transaction(
    schema=CONTROL_SCHEMA_NAME,
    statement_timeout_ms=_TIMEOUT_MS,
    lock_timeout_ms=_TIMEOUT_MS,
    idle_timeout_ms=2 * _TIMEOUT_MS,
)
# Writers take turns, because each id must be greater than all others. Readers do not wait.
_LOCK = "SELECT pg_advisory_xact_lock(7305126185)"


class PostgresAuditLog(AuditLog):
    """Has one connection, which is opened on first use. The tables must exist: a registry creates them."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._threads = ConnectionThreads(options, 1, "audit-log")

    def append(self, events: Iterable[AuditEvent]) -> None:
        def work(connection: PostgresConnection) -> None:
            connection.execute(_LOCK)
            insert_events(connection, events)

        self._run(work)

    def select(self, where: AuditFilter, limit: int) -> list[AuditEvent]:
        return self._run(lambda connection: select_events(connection, where, limit))

    def close(self) -> None:
        self._threads.close_now()

    def _delete(self, condition: str, values: Sequence[object]) -> int:
        return self._run(lambda connection: delete_events(connection, condition, values))

    def _run(self, work: Callable[[PostgresConnection], T]) -> T:
        with postgres_errors():
            try:
                return self._threads.submit(_TRANSACTION, work).result()
            except StatementInterrupted:
                raise StorageError("the audit log did not respond in time") from None
