"""The vectors in one file: which rows have them, which still need them, and of which model they are.

The vectors of a kind are in `<name>_vectors`. The rows that need new ones are in `<name>_vectors_queue`. These tables
and their triggers are created when a model is first used. From then on the vectors are always consistent with the rows:
a change of its text removes those of a row in its own transaction, and adds the row to the queue. New ones are made
later, newest rows first, in batches. The progress is stored in the file, so an interrupted run continues where it
stopped.

After a change of the model, the vectors of the previous one stay until all rows have new ones.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from config.paths import DatabaseKind
from sources.records import SemanticStatus
from sources.semantic.model import SemanticUnavailable
from sources.storage.embedding import BATCH_CHARS, BATCH_ROWS, Passage, PassageBatch, TextSample, VectorCoverage
from sources.storage.search.engine import CountRows
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.tables.dialect import SQLITE
from sources.storage.tables.sql import CHUNK_BITS, json_array
from sources.storage.vector_kinds import (
    ChunkVectors,
    ItemVectors,
    MessageVectors,
    TitleVectors,
    VectorKind,
    kinds_of,
    sample_texts,
)

if TYPE_CHECKING:
    from sources.storage.sqlite.vectors.vector_matrix import VectorMatrix

# Tables and triggers of another version are dropped and created again.
_VERSION = "1"
_STATE_NAME = "vectors"
# Vectors of an old model that are deleted in one transaction.
_DROPPED_ROWS = 2_000


class VectorState(Struct, frozen=True):
    """The model of a file, and how far its rows are embedded. By kind, rows up to the rowid in `unfinished` may lack
    vectors; those with greater rowids have them or are in the queue."""

    version: str
    model: str
    unfinished: Mapping[str, int]


class FileBatch(PassageBatch, frozen=True, kw_only=True):
    """Rows of one kind, by their rowids. Rows up to `rest` remain; None if the rows are from the queue."""

    kind: VectorKind
    rest: int | None = None

    def only(self, rows: tuple[int, ...]) -> Self:
        rest = None if self.rest is None else rows[-1] - 1
        return replace(super().only(rows), rest=rest)


class VectorTables(Struct, frozen=True):
    """The vectors in a file with these kinds. Each method runs in the transaction of the connection it is given."""

    file: DatabaseKind
    kinds: tuple[VectorKind, ...]

    def state(self, connection: sqlite3.Connection) -> VectorState | None:
        """Returns None if the file has no vectors, or those of another version."""
        sql = f"SELECT value FROM {self._schema(connection)}.state WHERE name = ?"
        row = connection.execute(sql, (_STATE_NAME,)).fetchone()
        state = msgspec.json.decode(row[0], type=VectorState) if row else None
        return state if state is not None and state.version == _VERSION else None

    def create(self, connection: sqlite3.Connection, model: str) -> VectorState:
        """Creates the tables and triggers unless they exist. If the vectors are of another model, new ones are made for
        all rows."""
        state = self.state(connection)
        if state is None:
            self.drop(connection)
            connection.execute(
                "CREATE TABLE vector_models (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT"
            )
            for statement in self._ddl():
                connection.execute(statement)
        if state is None or state.model != model:
            connection.execute("INSERT OR IGNORE INTO vector_models (name) VALUES (?)", (model,))
            state = self._start_over(connection, model)
        return state

    def add_kind(self, connection: sqlite3.Connection, kind: VectorKind) -> None:
        """Creates the tables and triggers of one kind again, if the file has vectors."""
        state = self.state(connection)
        if state is None:
            return
        objects = connection.execute(
            "SELECT type, name FROM sqlite_schema WHERE (type = 'trigger' AND name GLOB ?) OR name IN (?, ?)",
            (f"{kind.vectors}_*", kind.vectors, kind.queue),
        )
        for object_type, name in objects.fetchall():
            connection.execute(f"DROP {object_type} {name}")
        for statement in vector_ddl(kind):
            connection.execute(statement)
        [last] = connection.execute(f"SELECT coalesce(max(id), 0) FROM {kind.table}").fetchone()
        self._save(connection, replace(state, unfinished={**state.unfinished, kind.name: last}))

    def drop(self, connection: sqlite3.Connection) -> None:
        """Removes the tables and triggers, also those of another version."""
        connection.execute("DELETE FROM state WHERE name = ?", (_STATE_NAME,))
        objects = connection.execute(
            "SELECT type, name FROM sqlite_schema WHERE type = 'trigger' AND name GLOB '*_vectors_*' UNION ALL "
            "SELECT type, name FROM sqlite_schema WHERE type = 'table' "
            "AND (name = 'vector_models' OR name GLOB '*_vectors' OR name GLOB '*_vectors_queue')"
        )
        for kind, name in objects.fetchall():
            connection.execute(f"DROP {kind} {name}")

    # Making vectors

    def next_batch(self, connection: sqlite3.Connection, model: str, *, has_context: bool) -> FileBatch | None:
        """Returns rows that need vectors: changed and new ones, then the others from the newest to the oldest. None if
        all have them. Requires the state to be of this model."""
        state = self.state(connection)
        assert state is not None
        for kind in self.kinds:
            rowids = _first_column(connection, f"SELECT id FROM {kind.queue} ORDER BY id DESC LIMIT ?", BATCH_ROWS)
            if rowids:
                batch, _ = self._take(connection, kind, rowids, has_context=has_context)
                return batch
        # Kinds with few rows are finished first.
        for kind in sorted(self.kinds, key=lambda kind: state.unfinished.get(kind.name, 0)):
            last = state.unfinished.get(kind.name, 0)
            if last:
                number = self.model_number(connection, model)
                has_vectors = f"SELECT 1 FROM {kind.vectors} v WHERE v.item = r.id AND v.model = ?"
                unfinished = _first_column(
                    connection,
                    f"{rowids_sql(kind)} AND NOT EXISTS ({has_vectors}) ORDER BY r.id DESC LIMIT ?",
                    last,
                    number,
                    BATCH_ROWS,
                )
                batch, is_whole = self._take(connection, kind, unfinished, has_context=has_context)
                is_last = is_whole and len(unfinished) < BATCH_ROWS
                return replace(batch, rest=0 if is_last else batch.rows[-1] - 1)
        return None

    def save(
        self,
        connection: sqlite3.Connection,
        model: str,
        batch: FileBatch,
        vectors: Sequence[bytes],
        *,
        has_context: bool,
    ) -> int:
        """Stores the vectors of the rows that did not change since the batch was read. Returns their number."""
        state, kind = self.state(connection), batch.kind
        if state is None or state.model != model:
            return 0
        number = self.model_number(connection, model)
        current = dict(kind.passages(connection, SQLITE, batch.rows, has_context=has_context))
        remaining, saved = iter(vectors), 0
        for rowid, passages in batch.passages.items():
            own = [next(remaining) for _ in passages]
            if list(passages) != current.get(rowid):
                continue  # its trigger added it to the queue
            connection.execute(f"DELETE FROM {kind.vectors} WHERE item = ? AND model = ?", (rowid, number))
            connection.executemany(
                f"INSERT INTO {kind.vectors} (model, item, start, end, vector) VALUES (?, ?, ?, ?, ?)",
                [(number, rowid, one.start, one.end, vector) for one, vector in zip(passages, own, strict=True)],
            )
            saved += len(own)
        unchanged = [rowid for rowid in batch.rows if list(batch.passages.get(rowid, ())) == current.get(rowid, [])]
        connection.execute(
            f"DELETE FROM {kind.queue} WHERE id IN (SELECT value FROM json_each(?))", (json_array(unchanged),)
        )
        if batch.rest is not None:
            rest = min(batch.rest, state.unfinished.get(kind.name, 0))
            self._save(connection, replace(state, unfinished={**state.unfinished, kind.name: rest}))
        return saved

    def has_old_models(self, connection: sqlite3.Connection) -> bool:
        return len(connection.execute(f"SELECT 1 FROM {self._schema(connection)}.vector_models LIMIT 2").fetchall()) > 1

    def drop_old_vectors(self, connection: sqlite3.Connection) -> bool:
        """Deletes one batch of the vectors of other models. Returns whether there may be more."""
        state = self.state(connection)
        if state is None:
            return False
        number = self.model_number(connection, state.model)
        for kind in self.kinds:
            old = f"SELECT id FROM {kind.vectors} WHERE model <> ? LIMIT ?"
            if connection.execute(f"DELETE FROM {kind.vectors} WHERE id IN ({old})", (number, _DROPPED_ROWS)).rowcount:
                return True
        connection.execute("DELETE FROM vector_models WHERE number <> ?", (number,))
        return False

    # What there is

    def is_complete(self, connection: sqlite3.Connection, state: VectorState) -> bool:
        return not any(state.unfinished.values()) and not any(
            connection.execute(f"SELECT 1 FROM {kind.queue} LIMIT 1").fetchone() for kind in self.kinds
        )

    def searched_model(self, connection: sqlite3.Connection, choices: Collection[str]) -> str | None:
        """Returns the model whose vectors are to be searched: the one that they are made of, which is one of `choices`,
        or another one until all of them are made. None if there are none."""
        state = self.state(connection)
        if state is None or state.model not in choices or self.is_complete(connection, state):
            return state.model if state is not None else None
        sql = f"SELECT name FROM {self._schema(connection)}.vector_models WHERE name <> ? ORDER BY number"
        names = _first_column(connection, sql, state.model)
        return names[0] if names else state.model

    def sample(self, connection: sqlite3.Connection) -> TextSample:
        state = self.state(connection)
        return TextSample(state.model if state is not None else None, sample_texts(connection, SQLITE, self.kinds))

    def model_numbers(self, connection: sqlite3.Connection) -> dict[str, int]:
        return dict(connection.execute(f"SELECT name, number FROM {self._schema(connection)}.vector_models").fetchall())

    def model_number(self, connection: sqlite3.Connection, model: str) -> int:
        """Returns the number of a model in this file, or 0, which no model has."""
        sql = f"SELECT number FROM {self._schema(connection)}.vector_models WHERE name = ?"
        row = connection.execute(sql, (model,)).fetchone()
        return int(row[0]) if row else 0

    def count_passages(self, connection: sqlite3.Connection) -> int:
        """Counts the passages that have vectors of the current model."""
        state = self.state(connection)
        if state is None:
            return 0
        number, count = self.model_number(connection, state.model), count_directly(connection)
        return sum(count(f"SELECT count(*) FROM {kind.vectors} WHERE model = ?", (number,)) for kind in self.kinds)

    def coverage(
        self, count: CountRows, state: VectorState | None, kinds: Sequence[VectorKind], old_model: int = 0
    ) -> VectorCoverage:
        """Counts the rows of some kinds that have vectors of the model of `state`, or of the old model of a number."""
        total = missing = 0
        for kind in kinds:
            rows = count(count_sql(kind), (2**63 - 1,))
            total += rows
            if state is None:
                missing += rows
            elif old_model:
                vectors = f"SELECT count(DISTINCT item) FROM {kind.vectors} WHERE model = ?"
                missing += rows - count(vectors, (old_model,))
            else:
                last = state.unfinished.get(kind.name, 0)
                missing += count(count_sql(kind), (last,)) if last else 0
                missing += count(f"SELECT count(*) FROM {kind.queue}", ())
        return VectorCoverage(total, missing)

    def has_missing(
        self, connection: sqlite3.Connection, state: VectorState | None, kinds: Sequence[VectorKind]
    ) -> bool:
        """Whether rows lack vectors. Cheaper than counting them."""
        if state is None:
            return True
        for kind in kinds:
            if state.unfinished.get(kind.name, 0):
                return True
            if connection.execute(f"SELECT 1 FROM {kind.queue} LIMIT 1").fetchone() is not None:
                return True
        return False

    # Maintenance

    def faults(self, connection: sqlite3.Connection) -> Iterator[str]:
        """Yields what is wrong with the vectors of a file, if it has any."""
        if self.state(connection) is None:
            return
        stored = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")}
        for kind in self.kinds:
            if not stored.issuperset(vector_ddl(kind)):
                yield f"{kind.vectors}: a table or trigger is missing"
            elif connection.execute(f"{rows_without_item_sql(kind)} LIMIT 1").fetchone() is not None:
                yield f"{kind.vectors}: has a vector without its row"

    def repair(self, connection: sqlite3.Connection) -> None:
        """Removes vectors without a row and finds rows without vectors again. Vectors that are not damaged stay."""
        state = self.state(connection)
        if state is None:
            return
        stored = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")}
        if not stored.issuperset(self._ddl()):
            self.drop(connection)  # the next use of the library creates them again
            return
        for kind in self.kinds:
            connection.execute(f"DELETE FROM {kind.vectors} WHERE id IN ({rows_without_item_sql(kind)})")
        self._start_over(connection, state.model)

    def _schema(self, connection: sqlite3.Connection) -> str:
        """A reader has all files of the library, which each have tables with these names. A writer has only one, as its
        main database."""
        return self.file if isinstance(connection, JobConnection) and self.file in connection.attached else "main"

    def _ddl(self) -> Iterator[str]:
        for kind in self.kinds:
            yield from vector_ddl(kind)

    def _start_over(self, connection: sqlite3.Connection, model: str) -> VectorState:
        """Rows that have vectors of the model are skipped when their turn comes."""
        unfinished = {
            kind.name: connection.execute(f"SELECT coalesce(max(id), 0) FROM {kind.table}").fetchone()[0]
            for kind in self.kinds
        }
        return self._save(connection, VectorState(_VERSION, model, unfinished))

    def _save(self, connection: sqlite3.Connection, state: VectorState) -> VectorState:
        value = msgspec.json.encode(state).decode()
        connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (_STATE_NAME, value))
        return state

    def _take(
        self, connection: sqlite3.Connection, kind: VectorKind, rowids: Sequence[int], *, has_context: bool
    ) -> tuple[FileBatch, bool]:
        """Returns the first rows whose passages fit into a batch, at least one, and whether that is all of them."""
        passages: dict[int, Sequence[Passage]] = {}
        chars = 0
        for count, rowid in enumerate(rowids, 1):
            for _, own in kind.passages(connection, SQLITE, [rowid], has_context=has_context):
                passages[rowid] = own
                chars += sum(len(passage.text) for passage in own)
            if chars >= BATCH_CHARS:
                return FileBatch(kind=kind, rows=tuple(rowids[:count]), passages=passages), count == len(rowids)
        return FileBatch(kind=kind, rows=tuple(rowids), passages=passages), True


@lru_cache
def vector_tables(database: DatabaseKind) -> VectorTables:
    return VectorTables(database, kinds_of(database))


def count_directly(connection: sqlite3.Connection) -> "CountRows":
    """Returns a function that counts without a cache."""
    return lambda sql, parameters: int(connection.execute(sql, parameters).fetchone()[0])


def _first_column(connection: sqlite3.Connection, sql: str, *parameters: int | str) -> list[Any]:
    return [row[0] for row in connection.execute(sql, parameters)]


# -- tables and triggers -----------------------------------------------------------------------------------------------


def vector_ddl(kind: VectorKind) -> Iterator[str]:
    yield (
        # Rowids are never reused, so vectors that are kept in memory can be checked by their rowid.
        f"CREATE TABLE {kind.vectors} (id INTEGER PRIMARY KEY AUTOINCREMENT, model INTEGER NOT NULL, "
        "item INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL, vector BLOB NOT NULL) STRICT"
    )
    yield f"CREATE INDEX {kind.vectors}_of_item ON {kind.vectors} (item, model)"
    yield f"CREATE TABLE {kind.queue} (id INTEGER PRIMARY KEY) STRICT"
    for event, body in _triggers(kind):
        yield f"CREATE TRIGGER {kind.vectors}_{event} {body}; END"


def rowids_sql(kind: VectorKind) -> str:
    """Selects the rowids up to a given one. Those of deleted rows may be among them."""
    if isinstance(kind, MessageVectors) and kind.is_human_only:
        return (
            "SELECT r.id FROM messages r INDEXED BY messages_human_only "
            "WHERE r.human_only = 1 AND r.deleted = 0 AND r.id <= ?"
        )
    return f"SELECT r.id FROM {kind.table} r WHERE r.id <= ?"


def rows_without_item_sql(kind: VectorKind) -> str:
    """Selects vectors whose row was deleted."""
    match kind:
        case ChunkVectors():
            rows = f"chunks c JOIN media m ON m.id = c.id >> {CHUNK_BITS} WHERE c.id = v.item AND m.deleted = 0"
        case MessageVectors(is_human_only=is_human_only):
            rows = (
                "messages m JOIN conversations c ON c.id = m.conversation_id WHERE m.id = v.item AND m.deleted = 0 "
                f"AND c.deleted = 0 AND m.human_only = {int(is_human_only)}"
            )
        case _:
            rows = f"{kind.table} r WHERE r.id = v.item AND r.deleted = 0"
    return f"SELECT v.id FROM {kind.vectors} v WHERE NOT EXISTS (SELECT 1 FROM {rows})"


@lru_cache
def count_sql(kind: VectorKind) -> str:
    """Counts the live rows up to a rowid. Those of titles are negative in the index."""
    condition = "id <= ?"
    if isinstance(kind, TitleVectors):
        condition = "id < 0 AND id >= -?"
    elif isinstance(kind, MessageVectors):
        condition = "id > 0 AND id <= ?"
    return f"SELECT count(*) FROM {kind.index}_docsize WHERE {condition}"


def _remove(kind: VectorKind, rowids: str) -> str:
    return f"DELETE FROM {kind.vectors} WHERE item IN ({rowids}); DELETE FROM {kind.queue} WHERE id IN ({rowids})"


def _enqueue(kind: VectorKind, rowids: str) -> str:
    return f"INSERT OR IGNORE INTO {kind.queue} {rowids}"


def _triggers(kind: VectorKind) -> Iterator[tuple[str, str]]:
    match kind:
        case ItemVectors(title=title, texts=texts, lists=lists):
            return _row_triggers(kind, (title, *texts, *lists, "deleted"))
        case ChunkVectors():
            return _chunk_triggers(kind)
        case MessageVectors():
            return _message_triggers(kind)
        case _:
            return _row_triggers(kind, ("title", "deleted"))


def _row_triggers(kind: VectorKind, watched: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield "added", f"AFTER INSERT ON {kind.table} BEGIN {_enqueue(kind, 'SELECT new.id')}"
    changed = f"{_remove(kind, 'old.id')}; {_enqueue(kind, 'SELECT new.id WHERE new.deleted = 0')}"
    yield "changed", f"AFTER UPDATE OF {', '.join(watched)} ON {kind.table} {_if_changed(watched)} BEGIN {changed}"
    yield "removed", f"AFTER DELETE ON {kind.table} BEGIN {_remove(kind, 'old.id')}"


def _chunk_triggers(kind: ChunkVectors) -> Iterator[tuple[str, str]]:
    first, end = f"old.id << {CHUNK_BITS}", f"(old.id + 1) << {CHUNK_BITS}"
    chunks = f"SELECT id FROM chunks WHERE id >= {first} AND id < {end}"
    remove = f"DELETE FROM {kind.vectors} WHERE item >= {first} AND item < {end}"
    yield "added", f"AFTER INSERT ON chunks BEGIN {_enqueue(kind, 'SELECT new.id')}"
    changed = f"{_remove(kind, 'old.id')}; {_enqueue(kind, 'SELECT new.id')}"
    yield "changed", f"AFTER UPDATE OF text ON chunks {_if_changed(('text',))} BEGIN {changed}"
    yield "removed", f"AFTER DELETE ON chunks BEGIN {_remove(kind, 'old.id')}"
    watched = ("title", "deleted")
    renamed = f"{remove}; {_enqueue(kind, f'{chunks} AND new.deleted = 0')}"
    yield "renamed", f"AFTER UPDATE OF title, deleted ON media {_if_changed(watched)} BEGIN {renamed}"


def _message_triggers(kind: MessageVectors) -> Iterator[tuple[str, str]]:
    is_own = f"human_only = {int(kind.is_human_only)}"
    is_live = f"new.deleted = 0 AND new.{is_own}"
    watched = ("sender", "content", "conversation_id", "position", "deleted", "human_only")
    changed = f"{_remove(kind, 'old.id')}; {_enqueue(kind, f'SELECT new.id WHERE {is_live}')}"
    yield "added", f"AFTER INSERT ON messages WHEN {is_live} BEGIN {_enqueue(kind, 'SELECT new.id')}"
    yield "changed", f"AFTER UPDATE OF {', '.join(watched)} ON messages {_if_changed(watched)} BEGIN {changed}"
    yield "removed", f"AFTER DELETE ON messages BEGIN {_remove(kind, 'old.id')}"
    all_messages = "SELECT id FROM messages WHERE conversation_id = old.id"
    restored = f"{all_messages} AND deleted = 0 AND {is_own} AND new.deleted = 0"
    hidden = f"{_remove(kind, all_messages)}; {_enqueue(kind, restored)}"
    yield "hidden", f"AFTER UPDATE OF deleted ON conversations {_if_changed(('deleted',))} BEGIN {hidden}"
    if not kind.is_human_only:
        # A message is part of the passage of the one after it, unless it is human-only.
        following = (
            "SELECT id FROM messages WHERE conversation_id = old.conversation_id AND position > old.position "
            "AND deleted = 0 AND human_only = 0 ORDER BY position LIMIT 1"
        )
        changed = f"{_remove(kind, following)}; {_enqueue(kind, following)}"
        condition = f"{_if_changed(watched)} AND (old.human_only = 0 OR new.human_only = 0)"
        yield "context_changed", f"AFTER UPDATE OF {', '.join(watched)} ON messages {condition} BEGIN {changed}"
        yield "context_removed", f"AFTER DELETE ON messages WHEN old.human_only = 0 BEGIN {changed}"


def _if_changed(columns: Sequence[str]) -> str:
    """Writes often set a column to the value it has."""
    old, new = (", ".join(f"{row}.{name}" for name in columns) for row in ("old", "new"))
    return f"WHEN ({old}) IS NOT ({new})" if len(columns) > 1 else f"WHEN {old} IS NOT {new}"


# -- vector memory -----------------------------------------------------------------------------------------------------
# The vectors that are in memory, of all users. If they need more than they may, those that were not used for the
# longest time are dropped; they are read again when they are needed.


@lru_cache
def _has_numpy() -> bool:
    return find_spec("numpy") is not None


_size_of = attrgetter("size_bytes")
# The file of a user, the kind of its vectors and their model.
_MatrixKey = tuple[int, str, int]


class VectorSnapshot(Struct):
    """What one version of a file says about its vectors, so that it is read only once."""

    version: tuple[int, int]
    state: VectorState | None
    # The numbers of models, by name.
    models: Mapping[str, int]
    # By the kinds and the model that were searched.
    statuses: dict[tuple[str, ...], SemanticStatus]


class VectorMemory:
    """`max_bytes` bounds all matrices together, and thereby each of them."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        # Least recently used first.
        self._matrices: OrderedDict[_MatrixKey, VectorMatrix] = OrderedDict()
        self._snapshots: dict[int, VectorSnapshot] = {}

    def require_usable(self) -> None:
        """Raises SemanticUnavailable if vectors cannot be compared here."""
        if not _has_numpy():
            raise SemanticUnavailable("comparing meanings needs numpy; install the extra semantic of florilegium")

    def matrix(self, owner: object, kind: VectorKind, model: int, dimension: int) -> "VectorMatrix":
        """Returns the matrix of a file, which is empty at first. `owner` identifies the file."""
        key = (id(owner), kind.name, model)
        with self._lock:
            if key not in self._matrices:
                from sources.storage.sqlite.vectors.vector_matrix import VectorMatrix  # noqa: PLC0415 - needs numpy

                self._matrices[key] = VectorMatrix(kind, model, dimension, max(1, self._max_bytes // max(1, dimension)))
            self._matrices.move_to_end(key)
            return self._matrices[key]

    def snapshot(self, owner: object, tables: VectorTables, connection: JobConnection) -> VectorSnapshot:
        """Returns what the snapshot of a connection says about the vectors of a file."""
        version = id(connection), connection.data_version(tables.file)
        known = self._snapshots.get(id(owner))
        if known is None or known.version != version:
            state = tables.state(connection)
            models = tables.model_numbers(connection) if state is not None else {}
            known = self._snapshots[id(owner)] = VectorSnapshot(version, state, models, {})
        return known

    def trim(self) -> None:
        """Drops matrices until the rest fits. Must be called after a matrix grew."""
        with self._lock:
            total = sum(map(_size_of, self._matrices.values()))
            while total > self._max_bytes and len(self._matrices) > 1:
                _, dropped = self._matrices.popitem(last=False)
                total -= dropped.size_bytes

    def forget(self, owner: object) -> None:
        """Drops the matrices of a file that is closed."""
        with self._lock:
            self._snapshots.pop(id(owner), None)
            for key in [key for key in self._matrices if key[0] == id(owner)]:
                del self._matrices[key]

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return sum(map(_size_of, self._matrices.values()))
