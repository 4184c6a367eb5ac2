"""Many libraries in PostgreSQL: one is built through the product, the others are copies of it inside the database.

A copy has the tables and indexes of the migrations. Its rows are those of the first library, with the mark of its user
at the end of every title, so that an answer shows whose library it came from.
"""

import asyncio
import base64
import os
import time
from collections.abc import Sequence
from typing import Any

import asyncpg
from msgspec import Struct

from auth.context import READ, SCOPES, ClientId, Principal, build_context
from auth.tokens import mint_token
from bench.library import SEED, Sizes, fill
from bench.prose import Prose
from config.paths import UserId
from config.postgres.sql import qualify
from config.settings import Settings
from server.lifespan import open_runtime
from server.runtime import Runtime
from sources.storage.postgres.schema import FIRST_VERSION, LIBRARY_MIGRATIONS, LIBRARY_STATEMENTS

# 1,000 items: 600 notes, 100 media, 50 conversations with 200 messages, 30 characters and 20 prompts.
THOUSAND_ITEMS = Sizes(
    notes=600,
    note_words=60,
    media=100,
    media_words=120,
    conversations=50,
    messages_each=4,
    message_words=40,
    characters=30,
    prompts=20,
)
_TITLES = {"notes": "title", "media": "title", "conversations": "title", "characters": "name", "prompts": "name"}
_COPIES_AT_ONCE = 3
_TOKEN_LIFETIME_S = 7200.0


class LibraryUser(Struct, frozen=True):
    """`mark` ends every title of the user's library."""

    mark: str
    token: str
    schema: str


class LibrarySizes(Struct, frozen=True):
    """What libraries take in the database, in bytes, and how long one copy took."""

    empty_bytes: float
    full_bytes: float
    relations: float
    copy_s: float


async def build_users(
    settings: Settings, count: int, sizes: Sizes = THOUSAND_ITEMS
) -> tuple[list[LibraryUser], LibrarySizes]:
    """Creates users who have a library each."""
    names = [f"reader{number:04d}" for number in range(count)]
    async with open_runtime(settings) as runtime:
        ids = [(await runtime.registry.add_user(name)).id for name in names]
        await _fill_first(runtime, ids[0], names[0], sizes)
    pool = await asyncpg.create_pool(settings.storage_url, min_size=_COPIES_AT_ONCE, max_size=_COPIES_AT_ONCE)
    async with pool:
        original = await pool.fetchval("SELECT schema_name FROM florilegium.libraries WHERE user_id = $1", ids[0])
        await _mark(pool, original, _mark_of(0))
        empty_bytes, relations = await _measure_empty(pool)
        copier = LibraryCopier(pool, original, await _columns(pool, original))
        before, started_at = await _database_bytes(pool), time.perf_counter()
        schemas = [original, *await copier.copy_all(ids[1:])]
        copy_s = (time.perf_counter() - started_at) / max(1, count - 1)
        full_bytes = (await _database_bytes(pool) - before) / max(1, count - 1)
        await pool.execute("ANALYZE florilegium.libraries")
    users = [
        LibraryUser(_mark_of(number), _token(settings, name), schema)
        for number, (name, schema) in enumerate(zip(names, schemas, strict=True))
    ]
    return users, LibrarySizes(empty_bytes, full_bytes, relations, copy_s)


async def _fill_first(runtime: Runtime, user_id: UserId, name: str, sizes: Sizes) -> None:
    principal = Principal(user_id, name, ClientId("bench"), frozenset(SCOPES), "local", "bench")
    context = build_context(principal, runtime.data_root, "bench")
    async with runtime.libraries.library(context) as library:
        await fill(library, sizes, Prose(SEED))


class LibraryCopier:
    """Copies a library with its tables first, then the rows, then the indexes, which is several times as fast as
    inserting rows one by one."""

    def __init__(self, pool: "asyncpg.Pool[Any]", original: str, columns: dict[str, list[str]]) -> None:
        self._pool = pool
        self._original = original
        self._columns = columns
        statements = _statements()
        self._indexes = [sql for sql in statements if sql.lstrip().startswith("CREATE INDEX")]
        self._tables = [sql for sql in statements if sql not in self._indexes]

    async def copy_all(self, user_ids: Sequence[UserId]) -> list[str]:
        schemas = [new_schema() for _ in user_ids]
        numbers = iter(range(len(user_ids)))

        async def work() -> None:
            for number in numbers:
                await self._copy(user_ids[number], schemas[number], _mark_of(number + 1))

        await asyncio.gather(*(work() for _ in range(_COPIES_AT_ONCE)))
        return schemas

    async def _copy(self, user_id: UserId, schema: str, mark: str) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(f'CREATE SCHEMA "{schema}"; {_script(self._tables, schema)}')
            await connection.execute("; ".join(self._rows(schema, mark)))
            await connection.execute(_script(self._indexes, schema))
            await connection.execute(
                "INSERT INTO florilegium.libraries (user_id, schema_name, schema_version, created_at) "
                "VALUES ($1, $2, $3, $4)",
                user_id,
                schema,
                FIRST_VERSION + len(LIBRARY_MIGRATIONS),
                time.time(),
            )

    def _rows(self, schema: str, mark: str) -> list[str]:
        original_mark, statements = _mark_of(0), []
        for table, names in self._columns.items():
            title, columns = _TITLES.get(table), ", ".join(f'"{name}"' for name in names)
            values = [
                f"replace({name}, '{original_mark}', '{mark}')" if name == title else f'"{name}"' for name in names
            ]
            statements.append(
                f'INSERT INTO "{schema}".{table} ({columns}) '
                f'SELECT {", ".join(values)} FROM "{self._original}".{table} ON CONFLICT DO NOTHING'
            )
        return statements


def new_schema() -> str:
    return "u_" + base64.b32encode(os.urandom(16)).decode().rstrip("=").lower()


def _statements() -> list[str]:
    return [*LIBRARY_STATEMENTS, *(sql for migration in LIBRARY_MIGRATIONS for sql in migration.statements)]


def _script(statements: Sequence[str], schema: str) -> str:
    return "; ".join(qualify(sql, schema).text for sql in statements)


def _mark_of(number: int) -> str:
    return f"[reader {number:04d}]"


def _token(settings: Settings, name: str) -> str:
    now = time.time()
    return mint_token(settings, name, (READ,), lifetime_s=_TOKEN_LIFETIME_S, now=now, client_id="bench")


async def _mark(pool: "asyncpg.Pool[Any]", schema: str, mark: str) -> None:
    for table, column in _TITLES.items():
        await pool.execute(f"UPDATE \"{schema}\".{table} SET {column} = {column} || ' ' || $1", mark)


async def _columns(pool: "asyncpg.Pool[Any]", schema: str) -> dict[str, list[str]]:
    """Returns the columns of each table, those first that others refer to."""
    rows = await pool.fetch(
        "SELECT c.relname AS name, array_agg(a.attname::text ORDER BY a.attnum) AS columns, c.oid AS oid "
        "FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
        "AND a.attgenerated = '' WHERE c.relkind = 'r' AND c.relnamespace = $1::regnamespace "
        "GROUP BY c.relname, c.oid ORDER BY c.oid",
        schema,
    )
    return {row["name"]: row["columns"] for row in rows}


async def _measure_empty(pool: "asyncpg.Pool[Any]", count: int = 10) -> tuple[float, float]:
    """Returns the bytes of an empty schema, with its part of the catalogs, and its relations."""
    before, statements = await _database_bytes(pool), _statements()
    schemas = [new_schema() for _ in range(count)]
    for schema in schemas:
        await pool.execute(f'CREATE SCHEMA "{schema}"; {_script(statements, schema)}')
    size = (await _database_bytes(pool) - before) / count
    sql = (
        "WITH own AS (SELECT oid, reltoastrelid FROM pg_class WHERE relnamespace = $1::regnamespace) "
        "SELECT count(*) FROM pg_class WHERE oid IN (SELECT oid FROM own UNION SELECT reltoastrelid FROM own UNION "
        "SELECT indexrelid FROM pg_index JOIN own ON own.reltoastrelid = indrelid)"
    )
    relations = await pool.fetchval(sql, schemas[0])
    for schema in schemas:
        await pool.execute(f'DROP SCHEMA "{schema}" CASCADE')
    return size, relations


async def _database_bytes(pool: "asyncpg.Pool[Any]") -> int:
    size: int = await pool.fetchval("SELECT pg_database_size(current_database())")
    return size
