"""HNSW indexes of the vectors of a library: one for each model and source that has many passages."""

from msgspec import Struct
from msgspec.structs import replace

from config.postgres.connection import PostgresConnection
from config.postgres.sql import quote_schema
from sources.storage.postgres.leases import claim, is_held, release
from sources.storage.postgres.vectors.extension import VectorExtension
from sources.storage.postgres.vectors.vector_tables import hnsw_index_name, read_state, save_state

# How many dimensions pgvector can index with two bytes each.
_DIMENSIONS_MAX = 4_000
_LEASE_NAME = "hnsw_lease"
# A build of a million vectors can take an hour. One that failed, and would fail again, is tried again after this time.
_LEASE_S = 7_200
_COUNT = "SELECT kind, count(*) FROM vectors WHERE model = ? GROUP BY kind HAVING count(*) >= ? ORDER BY kind"
_VECTOR = "SELECT CAST(vector AS TEXT) FROM vectors WHERE model = ? AND kind = ? LIMIT 1"


class HnswIndex(Struct, frozen=True):
    model: int
    kind: int
    dimension: int

    def statement(self, schema: str, extension: VectorExtension) -> str:
        """The dimension is that of the model, because an index needs one and the table has vectors of any."""
        name = hnsw_index_name(self.model, self.kind)
        vector = f"(CAST(vector AS {extension.vector_type}({self.dimension:d})))"
        return (
            f"CREATE INDEX CONCURRENTLY {name} ON {quote_schema(schema)}.vectors "
            f"USING hnsw ({vector} {extension.schema}.halfvec_ip_ops) "
            f"WHERE model = {self.model:d} AND kind = {self.kind:d}"
        )


def find_missing(connection: PostgresConnection, min_passages: int) -> HnswIndex | None:
    """Returns an index that would help and does not exist."""
    state = read_state(connection)
    if state is None or not min_passages or is_held(connection, _LEASE_NAME):
        return None
    for kind, _ in connection.execute(_COUNT, (state.number, min_passages)):
        if (state.number, kind) not in state.indexes:
            [(vector,)] = connection.execute(_VECTOR, (state.number, kind)).fetchall()
            dimension = vector.count(",") + 1
            return HnswIndex(state.number, kind, dimension) if dimension <= _DIMENSIONS_MAX else None
    return None


def claim_build(connection: PostgresConnection, owner: str, index: HnswIndex) -> bool:
    """Removes what an interrupted build left. Returns False if another process builds an index."""
    if not claim(connection, _LEASE_NAME, owner, _LEASE_S):
        return False
    connection.execute(f"DROP INDEX IF EXISTS {hnsw_index_name(index.model, index.kind)}")
    return True


def finish_build(index: HnswIndex, owner: str, connection: PostgresConnection) -> None:
    """Lets searches use the index."""
    state = read_state(connection)
    if state is not None:
        save_state(connection, replace(state, indexes=(*state.indexes, (index.model, index.kind))))
    release(connection, _LEASE_NAME, owner)
