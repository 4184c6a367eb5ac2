"""The vectors of a library: which rows have them, which still need them, and of which model they are.

The table is created when the extension is first used. Once a library has a model, every write removes the vectors of
the rows whose text it changed, in its own transaction, and adds the rows to a queue. New vectors
are made later, in batches, newest rows first. The queue is stored, so an interrupted run continues where it stopped.

After a change of the model, all rows are in the queue, and the vectors of the previous model stay until it is empty.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import time
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from auth.postgres_control import CONTROL_SCHEMA_NAME
from config.postgres.connection import PostgresConnection
from sources.semantic.model import ModelInfo, SemanticUnavailable
from sources.storage.embedding import BATCH_CHARS, BATCH_ROWS, Passage, PassageBatch, TextSample, VectorCoverage
from sources.storage.postgres.connection import LibraryConnection, claim, is_held, release
from sources.storage.postgres.index.entries import (
    CHAT_ENTRIES,
    ENTRY_KINDS,
    HUMAN_ONLY_ENTRIES,
    MEDIA_ENTRIES,
    TABLE_ENTRIES,
)
from sources.storage.postgres.tables import LIBRARY_SCHEMA, vectors_table
from sources.storage.tables.dialect import POSTGRES
from sources.storage.tables.sql import SAVE_STATE, Delete, Insert
from sources.storage.vector_kinds import ALL_KINDS, TITLE_VECTORS, VectorKind, sample_texts

# -- passages ----------------------------------------------------------------------------------------------------------
# The passages of rows, which are the same as on SQLite, and a number that changes with them.
#
# A row is identified as its entry in the full-text index is: by the number of its kind and a rowid, which is negative
# for the title of a conversation.

# The number of a kind and the rowid of an index entry.
VectorRow = tuple[int, int]

_DIGEST_BYTES = 8
# By the number of the kind, and whether rowids are negative.
_KINDS = {(ENTRY_KINDS[kind.index].number, kind is TITLE_VECTORS): kind for kind in ALL_KINDS}


def kind_number(kinds: Sequence[VectorKind]) -> int:
    """Returns the number of the kind that these kinds have in PostgreSQL, where titles belong to messages."""
    [number] = {ENTRY_KINDS[kind.index].number for kind in kinds}
    return number


def read_passages(
    connection: PostgresConnection, rows: Iterable[VectorRow], *, has_context: bool
) -> dict[VectorRow, list[Passage]]:
    """Returns the passages of the live rows among these."""
    by_kind: dict[tuple[int, bool], list[int]] = {}
    for number, rowid in rows:
        by_kind.setdefault((number, rowid < 0), []).append(abs(rowid))
    return {
        (key[0], -rowid if key[1] else rowid): passages
        for key, rowids in by_kind.items()
        for rowid, passages in _KINDS[key].passages(connection, POSTGRES, rowids, has_context=has_context)
    }


def read_digests(connection: PostgresConnection, rows: Iterable[VectorRow]) -> dict[VectorRow, int]:
    """Returns a number for each live row that changes with its passages. The context of a message is always part of
    them, so that a change of it does not depend on the model."""
    digests = {}
    for row, passages in read_passages(connection, rows, has_context=True).items():
        digest = blake2b(digest_size=_DIGEST_BYTES)
        for passage in passages:
            text = passage.text.encode()
            digest.update(f"{passage.start} {passage.end} {len(text)} ".encode() + text)
        digests[row] = int.from_bytes(digest.digest(), signed=True)
    return digests


# -- extension ---------------------------------------------------------------------------------------------------------
# The extension pgvector: where it is installed, and why it cannot be used. The search path is empty, so its types and
# operators are named with a schema.

_FIND = """SELECT n.nspname, e.extversion FROM pg_catalog.pg_extension e
    JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"""
# In a block of its own, so that a refusal does not end the transaction of the caller.
_CREATE = f"""DO $$ BEGIN
    CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA {CONTROL_SCHEMA_NAME};
EXCEPTION WHEN OTHERS THEN NULL;
END $$"""
# The first version with `halfvec`, and the first with iterative scans of an HNSW index.
_MIN_VERSION = (0, 7)
_ITERATIVE_SCANS = (0, 8)
_HAS_TABLE = f"SELECT to_regclass('{LIBRARY_SCHEMA}.vectors') IS NOT NULL"
# Keeps processes that start at the same time from creating the table twice.
_TABLE_LOCK = 7_305_126_186
# How long an absent extension is not looked for again.
_ABSENT_FOR_S = 30.0
_ABSENT = (
    "semantic search in PostgreSQL needs the extension pgvector; install it on the database server and run "
    "`CREATE EXTENSION vector` as an administrator of the database"
)


class VectorExtension(Struct, frozen=True):
    """`schema` is a quoted identifier, `version` has its first numbers."""

    schema: str
    version: tuple[int, ...]

    @property
    def vector_type(self) -> str:
        """Half the size of `vector`, and exact for the numbers that vectors consist of: -127 to 127."""
        return f"{self.schema}.halfvec"

    @property
    def has_iterative_scans(self) -> bool:
        return self.version >= _ITERATIVE_SCANS

    def product(self, one: str, other: str) -> str:
        """Returns the SQL expression of the negative inner product, which the index orders by."""
        return f"{one} OPERATOR({self.schema}.<#>) {other}"


class KnownExtension(Struct):
    """What is known about the extension, or why it cannot be used. All libraries of a process share it."""

    found: VectorExtension | str = ""
    checked_at: float = float("-inf")

    @property
    def is_current(self) -> bool:
        return isinstance(self.found, VectorExtension) or time.monotonic() - self.checked_at < _ABSENT_FOR_S


def require_extension(found: VectorExtension | str) -> VectorExtension:
    if isinstance(found, str):
        raise SemanticUnavailable(found)
    return found


def find_extension(connection: PostgresConnection) -> VectorExtension | str:
    """Looks for the extension, or installs it if the server has it and the role of the connection may. Returns the
    reason if it cannot be used."""
    row = connection.execute(_FIND).fetchone()
    if row is None:
        connection.run_script(_CREATE)
        row = connection.execute(_FIND).fetchone()
    if row is None:
        return _ABSENT
    schema, version = row
    numbers = tuple(int(number) for number in version.split(".")[:2])
    if numbers < _MIN_VERSION:
        return f"semantic search in PostgreSQL needs pgvector 0.7 or newer, but the database has {version}"
    doubled = schema.replace('"', '""')
    return VectorExtension(f'"{doubled}"', numbers)


def prepare_vectors(connection: PostgresConnection) -> VectorExtension | str:
    """Also creates the table of vectors, in a transaction of the control data."""
    found = find_extension(connection)
    if isinstance(found, VectorExtension) and not connection.execute(_HAS_TABLE).fetchall()[0][0]:
        connection.execute("SELECT pg_advisory_xact_lock(?)", (_TABLE_LOCK,))
        if not connection.execute(_HAS_TABLE).fetchall()[0][0]:
            connection.run_script("; ".join(vectors_table(found.vector_type)))
    return found


# Vectors of another version are deleted and made again.
_VERSION = 1
_STATE_NAME = "vectors"
# Rows whose text is read at once. Together they may have more than a batch can hold.
_READ_ROWS = 20
# Vectors of an old model that are deleted in one transaction.
_DROPPED_ROWS = 5_000
# Sources with few rows come first.
_KIND_ORDER = [kind.number for kind in (*TABLE_ENTRIES.values(), HUMAN_ONLY_ENTRIES, CHAT_ENTRIES, MEDIA_ENTRIES)]
_SELECT_STATE = f"SELECT value FROM state WHERE name = '{_STATE_NAME}'"
# With the kinds that have a row in the queue, and those that have a vector of a model.
_SELECT_STORED = f"""
    SELECT s.value, ARRAY(SELECT kind FROM unnest(CAST(?1 AS SMALLINT[])) AS listed (kind)
            WHERE EXISTS (SELECT 1 FROM vector_queue q WHERE q.kind = listed.kind)),
        ARRAY(SELECT kind FROM unnest(CAST(?1 AS SMALLINT[])) AS listed (kind)
            WHERE EXISTS (SELECT 1 FROM vectors v WHERE v.kind = listed.kind
                AND v.model = CAST(CAST(s.value AS JSON) -> 'numbers' ->> CAST(?2 AS TEXT) AS SMALLINT)))
    FROM state s WHERE s.name = '{_STATE_NAME}'
"""
_QUEUE_ALL = Insert(
    "vector_queue",
    "kind, id",
    """e.kind, e.id FROM index_entries e
    WHERE NOT EXISTS (SELECT 1 FROM vectors v WHERE v.kind = e.kind AND v.id = e.id AND v.model = ?)""",
    key="*",
)
_QUEUED = """
    SELECT ordered.kind, queued.id FROM unnest(CAST(? AS SMALLINT[])) WITH ORDINALITY AS ordered (kind, place)
    JOIN LATERAL (
        SELECT q.id FROM vector_queue q WHERE q.kind = ordered.kind ORDER BY q.id DESC LIMIT ?
    ) AS queued ON TRUE ORDER BY ordered.place, queued.id DESC LIMIT ?
"""
_DELETE_OLD = Delete(
    "vectors",
    "(kind, id, model, passage) IN (SELECT kind, id, model, passage FROM vectors WHERE model <> ? LIMIT ?)",
)
_LISTED = "unnest(CAST(? AS SMALLINT[]), CAST(? AS BIGINT[])) AS listed (kind, id)"


class LibraryVectorState(Struct, frozen=True):
    """`model` is the one that vectors are made of, `numbers` are those of all models that have vectors, by id.
    `indexes` are the HNSW indexes that can be used: the number of a model and that of a kind."""

    version: int
    model: str
    numbers: Mapping[str, int]
    indexes: tuple[tuple[int, int], ...] = ()

    @property
    def number(self) -> int:
        return self.numbers[self.model]

    @property
    def has_old_models(self) -> bool:
        return len(self.numbers) > 1


def read_state(connection: PostgresConnection) -> LibraryVectorState | None:
    """Returns None if the library has no vectors, or those of another version."""
    row = connection.execute(_SELECT_STATE).fetchone()
    return _decode_state(row[0]) if row else None


def _decode_state(text: str) -> LibraryVectorState | None:
    state = msgspec.json.decode(text, type=LibraryVectorState)
    return state if state.version == _VERSION else None


class StoredVectors(Struct, frozen=True):
    """What a search needs to know: the numbers of the kinds of which rows need vectors, and of those that have vectors
    of the searched model."""

    state: LibraryVectorState | None = None
    queued: Sequence[int] = ()
    stored: Sequence[int] = ()


def stored_vectors(connection: PostgresConnection, model: str) -> StoredVectors:
    """Read once in each transaction, for all sources of a search."""
    known: StoredVectors | None = connection.known.get(("vectors", model))
    if known is None:
        row = connection.execute(_SELECT_STORED, (_KIND_ORDER, model)).fetchone()
        known = StoredVectors(_decode_state(row[0]), row[1], row[2]) if row else StoredVectors()
        connection.known["vectors", model] = known
    return known


def save_state(connection: PostgresConnection, state: LibraryVectorState) -> LibraryVectorState:
    connection.execute(SAVE_STATE, (_STATE_NAME, msgspec.json.encode(state).decode()))
    return state


def start_model(connection: PostgresConnection, model: str) -> LibraryVectorState:
    """If the vectors are of another model, new ones are made for all rows."""
    state = read_state(connection)
    if state is None:
        connection.execute(Delete("vectors"))
        state = LibraryVectorState(_VERSION, "", {})
    if state.model == model:
        return state
    number = state.numbers.get(model) or max(state.numbers.values(), default=0) + 1
    connection.execute(_QUEUE_ALL, (number,))
    return save_state(connection, replace(state, model=model, numbers={**state.numbers, model: number}))


def clear_vectors(connection: PostgresConnection) -> None:
    """Removes the vectors of a library whose rows are replaced."""
    if read_state(connection) is not None:
        connection.execute(Delete("vectors"))
        connection.execute(Delete("vector_queue"))


# Making vectors


def has_queue(connection: PostgresConnection) -> bool:
    return connection.execute("SELECT 1 FROM vector_queue LIMIT 1").fetchone() is not None


def next_batch(connection: PostgresConnection, *, has_context: bool) -> PassageBatch | None:
    """Returns rows that need vectors, or None if all have them."""
    rows: list[VectorRow] = connection.execute(_QUEUED, (_KIND_ORDER, BATCH_ROWS, BATCH_ROWS)).fetchall()
    if not rows:
        return None
    passages: dict[VectorRow, Sequence[Passage]] = {}
    chars = 0
    for start in range(0, len(rows), _READ_ROWS):
        read = read_passages(connection, rows[start : start + _READ_ROWS], has_context=has_context)
        for place, row in enumerate(rows[start : start + _READ_ROWS], start + 1):
            if row in read:
                passages[row] = read[row]
                chars += sum(len(passage.text) for passage in read[row])
            if chars >= BATCH_CHARS:
                return PassageBatch(rows=tuple(rows[:place]), passages=passages)
    return PassageBatch(rows=tuple(rows), passages=passages)


def save_vectors(
    connection: PostgresConnection,
    extension: VectorExtension,
    model: ModelInfo,
    batch: PassageBatch,
    vectors: Sequence[bytes],
) -> int:
    """Stores the vectors of the rows that did not change since the batch was read. Returns their number."""
    state = read_state(connection)
    if state is None or state.model != model.id:
        return 0
    current = read_passages(connection, batch.rows, has_context=model.has_context)
    unchanged = [row for row in batch.rows if list(batch.passages.get(row, ())) == current.get(row, [])]
    is_unchanged = set(unchanged)
    digests = read_digests(connection, unchanged)
    remaining = iter(vectors)
    stored: list[tuple[Any, ...]] = []
    for row, passages in batch.passages.items():
        own = [next(remaining) for _ in passages]
        if row in is_unchanged:
            for number, (passage, vector) in enumerate(zip(passages, own, strict=True)):
                stored.append((*row, number, passage.start, passage.end, digests[row], encode_vector(vector)))
    _delete_listed(connection, "vectors", unchanged, f" AND vectors.model = {state.number:d}")
    if stored:
        insert = Insert(
            "vectors",
            "kind, id, model, passage, char_start, char_end, digest, vector",
            f"kind, id, {state.number:d}, passage, char_start, char_end, digest, "
            f"CAST(vector AS {extension.vector_type}) "
            "FROM unnest(CAST(? AS SMALLINT[]), CAST(? AS BIGINT[]), CAST(? AS INTEGER[]), CAST(? AS INTEGER[]), "
            "CAST(? AS INTEGER[]), CAST(? AS BIGINT[]), CAST(? AS TEXT[])) "
            "AS made (kind, id, passage, char_start, char_end, digest, vector)",
        )
        connection.execute(insert, [list(column) for column in zip(*stored, strict=True)])
    _delete_listed(connection, "vector_queue", unchanged)
    return len(stored)


def drop_old_vectors(connection: PostgresConnection) -> bool:
    """Deletes one batch of the vectors of other models. Returns whether there may be more."""
    state = read_state(connection)
    if state is None or not state.has_old_models:
        return False
    is_finished = not connection.execute(_DELETE_OLD, (state.number, _DROPPED_ROWS)).rowcount
    indexes = tuple(index for index in state.indexes if index[0] == state.number)
    numbers = {state.model: state.number} if is_finished else state.numbers
    save_state(connection, replace(state, numbers=numbers, indexes=indexes))
    return not is_finished


# What there is


def searched_model(connection: PostgresConnection, choices: Collection[str]) -> str | None:
    """Returns the model whose vectors are to be searched: the one that they are made of, which is one of `choices`, or
    another one until all of them are made. None if there are none."""
    state = read_state(connection)
    if state is None or state.model not in choices:
        return state.model if state is not None else None
    others = [name for name in state.numbers if name != state.model]
    return others[0] if others and has_queue(connection) else state.model


def sample(connection: PostgresConnection) -> TextSample:
    state = read_state(connection)
    return TextSample(state.model if state is not None else None, sample_texts(connection, POSTGRES, ALL_KINDS))


def count_passages(connection: PostgresConnection) -> int:
    """Counts the passages that have vectors of the current model."""
    state = read_state(connection)
    if state is None:
        return 0
    return int(connection.execute("SELECT count(*) FROM vectors WHERE model = ?", (state.number,)).fetchall()[0][0])


def count_missing(
    connection: PostgresConnection, state: LibraryVectorState | None, kind: int | None = None, old_model: int = 0
) -> VectorCoverage:
    """Counts the rows of the library or of a kind, and those without vectors of the model of `state`, or, of a kind, of
    the old model of a number."""
    of_kind, kinds = ("", ()) if kind is None else (" WHERE kind = ?1", (kind,))
    rows = missing = f"(SELECT count(*) FROM index_entries{of_kind})"
    if old_model:
        missing = f"{rows} - (SELECT count(DISTINCT id) FROM vectors{of_kind} AND model = {old_model:d})"
    elif state is not None:
        missing = f"(SELECT count(*) FROM vector_queue{of_kind})"
    return VectorCoverage(*connection.execute(f"SELECT {rows}, {missing}", kinds).fetchall()[0])


def encode_vector(vector: bytes) -> str:
    """Returns a vector in the text form of pgvector."""
    return f"[{','.join(map(str, array('b', vector)))}]"


def hnsw_index_prefix(tenant: str) -> str:
    return f"vectors_hnsw_{tenant}_"


def _delete_listed(connection: PostgresConnection, table: str, rows: Sequence[VectorRow], condition: str = "") -> None:
    if rows:
        kinds, ids = ([row[place] for row in rows] for place in (0, 1))
        is_listed = f"{table}.kind = listed.kind AND {table}.id = listed.id{condition}"
        connection.execute(Delete(table, is_listed, using=_LISTED), (kinds, ids))


# -- changed rows ------------------------------------------------------------------------------------------------------
# Keeps the vectors of a library consistent with its text, in the transaction that changes the text.

_OF_KIND = "kind = ? AND id = ANY(CAST(? AS BIGINT[]))"
_IS_LIVE = "EXISTS (SELECT 1 FROM index_entries e WHERE e.kind = {0}.kind AND e.id = {0}.id)"
# Constants only, so that each is translated once.
_DELETE_DEAD = tuple(
    Delete(table, f"{_OF_KIND} AND NOT {_IS_LIVE.format(table)}") for table in ("vectors", "vector_queue")
)
_DIGESTS = f"SELECT id, min(digest) FROM vectors WHERE {_OF_KIND} GROUP BY id"
_DELETE = Delete("vectors", _OF_KIND)
_QUEUE_CHANGED = Insert(
    "vector_queue",
    "kind, id",
    """e.kind, e.id FROM index_entries e WHERE e.kind = ? AND e.id = ANY(CAST(? AS BIGINT[]))
    AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.kind = e.kind AND v.id = e.id)""",
    key="*",
)


def update_vectors(connection: PostgresConnection, indexed: Mapping[int, Collection[int]]) -> None:
    """Removes the vectors of rows that were deleted or whose passages changed, and adds rows without vectors to the
    queue. `indexed` are the entries of the full-text index that were made again or removed: their rowids by the number
    of their kind. Does nothing if the library has no vectors."""
    if not any(indexed.values()) or read_state(connection) is None:
        return
    for kind, changed_rowids in indexed.items():
        if not changed_rowids:
            continue
        rowids = sorted(changed_rowids)
        for statement in _DELETE_DEAD:
            connection.execute(statement, (kind, rowids))
        stored = {(kind, rowid): digest for rowid, digest in connection.execute(_DIGESTS, (kind, rowids))}
        if stored:
            # A row that is indexed again may have the passages that it had before. Then its vectors stay.
            current = read_digests(connection, stored)
            changed = [rowid for (_, rowid), digest in stored.items() if current.get((kind, rowid)) != digest]
            if changed:
                connection.execute(_DELETE, (kind, changed))
        connection.execute(_QUEUE_CHANGED, (kind, rowids))


# -- hnsw index --------------------------------------------------------------------------------------------------------
# HNSW indexes of the vectors of a library: one for each model and source that has many passages. Such an index is
# partial, with the vectors of one library: in an index of all libraries, the nearest would be those of others.

# How many dimensions pgvector can index with two bytes each.
_DIMENSIONS_MAX = 4_000
_LEASE_NAME = "hnsw_lease"
# A build of a million vectors can take an hour. One that failed, and would fail again, is tried again after this time.
_LEASE_S = 7_200
_COUNT = "SELECT kind, count(*) FROM vectors WHERE model = ? GROUP BY kind HAVING count(*) >= ? ORDER BY kind"
_VECTOR = "SELECT CAST(vector AS TEXT) FROM vectors WHERE model = ? AND kind = ? LIMIT 1"


class HnswIndex(Struct, frozen=True):
    tenant: str
    model: int
    kind: int
    dimension: int

    def statements(self, extension: VectorExtension) -> tuple[str, ...]:
        """Removes what an interrupted build left, and the index of a model that is no longer used. The dimension is
        that of the model, because an index needs one and the table has vectors of any."""
        prefix = hnsw_index_prefix(self.tenant)
        name = f"{prefix}{self.model:d}_{self.kind:d}"
        vector = f"(CAST(vector AS {extension.vector_type}({self.dimension:d})))"
        old = [f"{prefix}{model:d}_{self.kind:d}" for model in range(max(1, self.model - 3), self.model)]
        return (
            *(f"DROP INDEX CONCURRENTLY IF EXISTS {LIBRARY_SCHEMA}.{one}" for one in (*old, name)),
            (
                f"CREATE INDEX CONCURRENTLY {name} ON {LIBRARY_SCHEMA}.vectors "
                f"USING hnsw ({vector} {extension.schema}.halfvec_ip_ops) "
                f"WHERE tenant_id = '{self.tenant}' AND model = {self.model:d} AND kind = {self.kind:d}"
            ),
        )


def start_build(connection: LibraryConnection, min_passages: int, owner: str) -> HnswIndex | None:
    """Returns the index to build, unless another process builds one."""
    index = None if has_queue(connection) else find_missing(connection, min_passages)
    return index if index is not None and claim(connection, _LEASE_NAME, owner, _LEASE_S) else None


def find_missing(connection: LibraryConnection, min_passages: int) -> HnswIndex | None:
    state = read_state(connection)
    if state is None or not min_passages or is_held(connection, _LEASE_NAME):
        return None
    for kind, _ in connection.execute(_COUNT, (state.number, min_passages)):
        if (state.number, kind) not in state.indexes:
            [(vector,)] = connection.execute(_VECTOR, (state.number, kind)).fetchall()
            dimension = vector.count(",") + 1
            index = HnswIndex(connection.tenant or "", state.number, kind, dimension)
            return index if dimension <= _DIMENSIONS_MAX else None
    return None


def finish_build(index: HnswIndex, owner: str, connection: PostgresConnection) -> None:
    state = read_state(connection)
    if state is not None:
        save_state(connection, replace(state, indexes=(*state.indexes, (index.model, index.kind))))
    release(connection, _LEASE_NAME, owner)
