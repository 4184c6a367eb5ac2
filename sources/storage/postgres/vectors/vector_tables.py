"""The vectors of a library: which rows have them, which still need them, and of which model they are.

The tables are created when a model is first used. From then on every write removes the vectors of the rows whose text
it changed, in its own transaction, and adds the rows to a queue (`changed_rows.py`). New vectors are made later, in
batches, newest rows first. The queue is stored, so an interrupted run continues where it stopped.

After a change of the model, all rows are in the queue, and the vectors of the previous model stay until it is empty.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from config.postgres.connection import PostgresConnection
from sources.semantic.model import ModelInfo
from sources.storage.postgres.index.entries import (
    CHARACTER_ENTRIES,
    CHAT_ENTRIES,
    HUMAN_ONLY_ENTRIES,
    MEDIA_ENTRIES,
    NOTE_ENTRIES,
    OBSERVATION_ENTRIES,
    PROMPT_ENTRIES,
)
from sources.storage.postgres.vectors.extension import VectorExtension
from sources.storage.postgres.vectors.passages import VectorRow, read_digests, read_passages
from sources.storage.search.meaning import CountRows
from sources.storage.search.passages import Passage
from sources.storage.vectors.passage_batch import BATCH_CHARS, BATCH_ROWS, PassageBatch, VectorCoverage

# Tables of another version are dropped and created again.
_VERSION = 1
_STATE_NAME = "vectors"
# Rows whose text is read at once. Together they may have more than a batch can hold.
_READ_ROWS = 20
# Vectors of an old model that are deleted in one transaction.
_DROPPED_ROWS = 5_000
# Sources with few rows come first.
_KIND_ORDER = [
    kind.number
    for kind in (
        NOTE_ENTRIES,
        CHARACTER_ENTRIES,
        PROMPT_ENTRIES,
        OBSERVATION_ENTRIES,
        HUMAN_ONLY_ENTRIES,
        CHAT_ENTRIES,
        MEDIA_ENTRIES,
    )
]
_SELECT_STATE = f"SELECT value FROM state WHERE name = '{_STATE_NAME}'"
_SAVE_STATE = "INSERT INTO state (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_QUEUE_ALL = """
    INSERT INTO vector_queue (kind, id) SELECT e.kind, e.id FROM index_entries e
    WHERE NOT EXISTS (SELECT 1 FROM vectors v WHERE v.kind = e.kind AND v.id = e.id AND v.model = ?)
    ON CONFLICT DO NOTHING
"""
_QUEUED = """
    SELECT ordered.kind, queued.id FROM unnest(CAST(? AS SMALLINT[])) WITH ORDINALITY AS ordered (kind, place)
    JOIN LATERAL (
        SELECT q.id FROM vector_queue q WHERE q.kind = ordered.kind ORDER BY q.id DESC LIMIT ?
    ) AS queued ON TRUE ORDER BY ordered.place, queued.id DESC LIMIT ?
"""
_DELETE_OLD = """
    DELETE FROM vectors v USING (SELECT kind, id, model, passage FROM vectors WHERE model <> ? LIMIT ?) AS old
    WHERE v.kind = old.kind AND v.id = old.id AND v.model = old.model AND v.passage = old.passage
"""
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
    state = msgspec.json.decode(row[0], type=LibraryVectorState) if row else None
    return state if state is not None and state.version == _VERSION else None


def save_state(connection: PostgresConnection, state: LibraryVectorState) -> LibraryVectorState:
    connection.execute(_SAVE_STATE, (_STATE_NAME, msgspec.json.encode(state).decode()))
    return state


def create_tables(connection: PostgresConnection, extension: VectorExtension, model: str) -> LibraryVectorState:
    """Creates the tables unless they exist. If the vectors are of another model, new ones are made for all rows."""
    state = read_state(connection)
    if state is None:
        for statement in _ddl(extension):
            connection.execute(statement)
        state = LibraryVectorState(_VERSION, "", {})
    if state.model == model:
        return state
    number = state.numbers.get(model) or max(state.numbers.values(), default=0) + 1
    connection.execute(_QUEUE_ALL, (number,))
    return save_state(connection, replace(state, model=model, numbers={**state.numbers, model: number}))


def clear_vectors(connection: PostgresConnection) -> None:
    """Removes the vectors of a library whose rows are replaced."""
    if read_state(connection) is not None:
        connection.execute("DELETE FROM vectors")
        connection.execute("DELETE FROM vector_queue")


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
    _delete_listed(connection, "vectors", unchanged, f" AND t.model = {state.number:d}")
    _insert(connection, extension, state.number, stored)
    _delete_listed(connection, "vector_queue", unchanged)
    return len(stored)


def drop_old_vectors(connection: PostgresConnection) -> bool:
    """Deletes one batch of the vectors of other models. Returns whether there may be more."""
    state = read_state(connection)
    if state is None or not state.has_old_models:
        return False
    old_indexes = [index for index in state.indexes if index[0] != state.number]
    for index in old_indexes:
        connection.execute(f"DROP INDEX IF EXISTS {hnsw_index_name(*index)}")
    is_finished = not connection.execute(_DELETE_OLD, (state.number, _DROPPED_ROWS)).rowcount
    indexes = tuple(index for index in state.indexes if index not in old_indexes)
    numbers = {state.model: state.number} if is_finished else state.numbers
    save_state(connection, replace(state, numbers=numbers, indexes=indexes))
    return not is_finished


# What there is


def previous_model(connection: PostgresConnection, current: str) -> str | None:
    """Returns the model whose vectors are to be searched while those of the current model are made."""
    state = read_state(connection)
    if state is None:
        return None
    if state.model != current:
        return state.model
    others = [name for name in state.numbers if name != current]
    return others[0] if others and has_queue(connection) else None


def count_passages(connection: PostgresConnection) -> int:
    """Counts the passages that have vectors of the current model."""
    state = read_state(connection)
    if state is None:
        return 0
    return int(connection.execute("SELECT count(*) FROM vectors WHERE model = ?", (state.number,)).fetchall()[0][0])


def is_queued(connection: PostgresConnection, kind: int) -> bool:
    return connection.execute("SELECT 1 FROM vector_queue WHERE kind = ? LIMIT 1", (kind,)).fetchone() is not None


def kind_coverage(count: CountRows, kind: int, state: LibraryVectorState | None, old_model: int = 0) -> VectorCoverage:
    """Counts the rows of a kind that have vectors of the model of `state`, or of the old model of a number."""
    rows = count("SELECT count(*) FROM index_entries WHERE kind = ?", (kind,))
    if state is None:
        return VectorCoverage(rows, rows)
    if old_model:
        sql = "SELECT count(DISTINCT id) FROM vectors WHERE kind = ? AND model = ?"
        return VectorCoverage(rows, rows - count(sql, (kind, old_model)))
    return VectorCoverage(rows, count("SELECT count(*) FROM vector_queue WHERE kind = ?", (kind,)))


def library_coverage(connection: PostgresConnection, state: LibraryVectorState | None) -> VectorCoverage:
    [(rows,)] = connection.execute("SELECT count(*) FROM index_entries").fetchall()
    if state is None:
        return VectorCoverage(rows, rows)
    [(missing,)] = connection.execute("SELECT count(*) FROM vector_queue").fetchall()
    return VectorCoverage(rows, missing)


def encode_vector(vector: bytes) -> str:
    """Returns a vector in the text form of pgvector."""
    return f"[{','.join(map(str, array('b', vector)))}]"


def hnsw_index_name(model: int, kind: int) -> str:
    return f"vectors_hnsw_{model:d}_{kind:d}"


def _ddl(extension: VectorExtension) -> tuple[str, ...]:
    return (
        "DROP TABLE IF EXISTS vectors",
        "DROP TABLE IF EXISTS vector_queue",
        f"""CREATE TABLE vectors (
            kind SMALLINT NOT NULL,
            id BIGINT NOT NULL,
            model SMALLINT NOT NULL,
            passage INTEGER NOT NULL,
            char_start INTEGER NOT NULL,
            char_end INTEGER NOT NULL,
            digest BIGINT NOT NULL,
            vector {extension.vector_type} NOT NULL,
            PRIMARY KEY (kind, id, model, passage)
        )""",
        "CREATE TABLE vector_queue (kind SMALLINT NOT NULL, id BIGINT NOT NULL, PRIMARY KEY (kind, id))",
    )


def _insert(
    connection: PostgresConnection, extension: VectorExtension, model: int, stored: Sequence[tuple[Any, ...]]
) -> None:
    if not stored:
        return
    connection.execute(
        "INSERT INTO vectors (kind, id, model, passage, char_start, char_end, digest, vector) "
        f"SELECT kind, id, {model:d}, passage, char_start, char_end, digest, CAST(vector AS {extension.vector_type}) "
        "FROM unnest(CAST(? AS SMALLINT[]), CAST(? AS BIGINT[]), CAST(? AS INTEGER[]), CAST(? AS INTEGER[]), "
        "CAST(? AS INTEGER[]), CAST(? AS BIGINT[]), CAST(? AS TEXT[])) "
        "AS made (kind, id, passage, char_start, char_end, digest, vector)",
        [list(column) for column in zip(*stored, strict=True)],
    )


def _delete_listed(connection: PostgresConnection, table: str, rows: Sequence[VectorRow], condition: str = "") -> None:
    if rows:
        kinds, ids = ([row[place] for row in rows] for place in (0, 1))
        sql = f"DELETE FROM {table} t USING {_LISTED} WHERE t.kind = listed.kind AND t.id = listed.id{condition}"
        connection.execute(sql, (kinds, ids))
