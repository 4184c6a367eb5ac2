"""Many libraries in PostgreSQL: one is built through the product, the others are copies of its rows.

A copy has the mark of its user at the end of every title, so that an answer shows whose library it came from, and the
lexemes of its own tenant.
"""

import asyncio
import io
import itertools
import statistics
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
from config.settings import Settings
from server.lifespan import open_runtime
from server.runtime import Runtime
from sources.storage.postgres import PostgresLibraries
from sources.storage.postgres.tables import LIBRARY_SCHEMA, TENANT_TABLES

# 200 items: 120 notes, 20 media, 10 conversations with 40 messages, 6 characters and 4 prompts.
TWO_HUNDRED_ITEMS = Sizes(
    notes=120,
    note_words=60,
    media=20,
    media_words=120,
    conversations=10,
    messages_each=4,
    message_words=40,
    characters=6,
    prompts=4,
)
_TITLES = {"notes": "title", "media": "title", "conversations": "title", "characters": "name", "prompts": "name"}
_COPIES_AT_ONCE = 2
_TENANTS_PER_COPY = 20
_TOKEN_LIFETIME_S = 7200.0


class LibraryUser(Struct, frozen=True):
    """`mark` ends every title of the user's library."""

    mark: str
    token: str
    tenant: str


class LibrarySizes(Struct, frozen=True):
    """What libraries take in the database, in bytes, and how long it takes to create an empty one and to copy one. All
    relations of the database are counted, before and after the libraries were created."""

    empty_bytes: float
    full_bytes: float
    relations: tuple[int, int]
    create_ms: float
    copy_s: float


async def build_users(
    settings: Settings, count: int, sizes: Sizes = TWO_HUNDRED_ITEMS
) -> tuple[list[LibraryUser], LibrarySizes]:
    """Creates users who have a library each."""
    names = [f"reader{number:04d}" for number in range(count)]
    async with open_runtime(settings) as runtime:
        pool = await asyncpg.create_pool(settings.storage_url, min_size=_COPIES_AT_ONCE, max_size=_COPIES_AT_ONCE)
        async with pool:
            first = (await runtime.registry.add_user(names[0])).id
            await _fill_first(runtime, first, names[0], sizes)
            before, relations = await _database_bytes(pool), await _count_relations(pool)
            ids, created_ms = [first], []
            for name in names[1:]:
                ids.append((await runtime.registry.add_user(name)).id)
                created_ms.append(await _create_library(runtime, ids[-1]))
            empty = await _database_bytes(pool)
            rows = await pool.fetch("SELECT user_id, tenant_id FROM florilegium.tenants")
            tenant_of = {row["user_id"]: row["tenant_id"] for row in rows}
            tenants = [tenant_of[user_id] for user_id in ids]
            await _mark(pool, tenants[0], _mark_of(0))
            started_at = time.perf_counter()
            await _copy_all(pool, tenants)
            copy_s = (time.perf_counter() - started_at) / max(1, count - 1)
            full = await _database_bytes(pool)
            measured = LibrarySizes(
                empty_bytes=(empty - before) / max(1, count - 1),
                full_bytes=(full - empty) / max(1, count - 1),
                relations=(relations, await _count_relations(pool)),
                create_ms=statistics.median(created_ms or [0.0]),
                copy_s=copy_s,
            )
    users = [
        LibraryUser(_mark_of(number), _token(settings, name), tenant)
        for number, (name, tenant) in enumerate(zip(names, tenants, strict=True))
    ]
    return users, measured


async def _fill_first(runtime: Runtime, user_id: UserId, name: str, sizes: Sizes) -> None:
    principal = Principal(user_id, name, ClientId("bench"), frozenset(SCOPES), "local", "bench")
    context = build_context(principal, runtime.data_root, "bench")
    async with runtime.libraries.library(context) as library:
        await fill(library, sizes, Prose(SEED))


async def _create_library(runtime: Runtime, user_id: UserId) -> float:
    """Returns how long it took, in milliseconds."""
    assert isinstance(runtime.libraries, PostgresLibraries)
    database = await runtime.libraries._database(user_id)  # noqa: SLF001 - what is measured
    started_at = time.perf_counter()
    await database._open("library")  # noqa: SLF001 - as above
    return (time.perf_counter() - started_at) * 1000


async def _copy_all(pool: "asyncpg.Pool[Any]", tenants: Sequence[str]) -> None:
    """Copies the rows of the first tenant to the others with COPY. The full-text indexes and the largest primary key
    are built afterwards, and foreign keys are not checked: that would take most of the time. Ends as autovacuum leaves
    the tables."""
    # Lexemes begin with the tenant, too, so that replacing it in the text that COPY reads is enough.
    texts = {}
    for table in TENANT_TABLES:
        name = f"{LIBRARY_SCHEMA}.{table}"
        if await pool.fetchval("SELECT to_regclass($1) IS NOT NULL", name):  # not vectors, without pgvector
            # The few rows of an empty library would conflict.
            await pool.execute(f"DELETE FROM {name} WHERE tenant_id <> $1", tenants[0])
            text = io.BytesIO()
            await pool.copy_from_query(f"SELECT * FROM {name} WHERE tenant_id = $1", tenants[0], output=text)
            texts[table] = text.getvalue()
    indexes = await pool.fetch(
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = $1 AND indexdef LIKE '%USING gin%'",
        LIBRARY_SCHEMA,
    )
    for name, _ in indexes:
        await pool.execute(f"DROP INDEX {LIBRARY_SCHEMA}.{name}")
    words = f"ALTER TABLE {LIBRARY_SCHEMA}.index_words"
    await pool.execute(f"{words} DROP CONSTRAINT index_words_pkey")
    numbers = iter(range(1, len(tenants)))

    async def work() -> None:
        async with pool.acquire() as connection:
            await connection.execute("SET session_replication_role = replica")
            while batch := list(itertools.islice(numbers, _TENANTS_PER_COPY)):
                replaced = [(tenants[number].encode(), _mark_of(number).encode()) for number in batch]
                for table, text in texts.items():
                    copies = [
                        text.replace(tenants[0].encode(), tenant).replace(_mark_of(0).encode(), mark)
                        for tenant, mark in replaced
                    ]
                    source = io.BytesIO(b"".join(copies))
                    await connection.copy_to_table(table, schema_name=LIBRARY_SCHEMA, source=source, timeout=None)

    await asyncio.gather(*(work() for _ in range(_COPIES_AT_ONCE)))
    async with pool.acquire() as connection:
        await connection.execute("SET maintenance_work_mem = '1GB'")
        await connection.execute(f"{words} ADD PRIMARY KEY (tenant_id, word)", timeout=None)
        for _, definition in indexes:
            await connection.execute(definition, timeout=None)
        await connection.execute("VACUUM (ANALYZE)", timeout=None)


def _mark_of(number: int) -> str:
    return f"[reader {number:04d}]"


def _token(settings: Settings, name: str) -> str:
    now = time.time()
    return mint_token(settings, name, (READ,), lifetime_s=_TOKEN_LIFETIME_S, now=now, client_id="bench")


async def _mark(pool: "asyncpg.Pool[Any]", tenant: str, mark: str) -> None:
    for table, column in _TITLES.items():
        sql = f"UPDATE {LIBRARY_SCHEMA}.{table} SET {column} = {column} || ' ' || $1 WHERE tenant_id = $2"
        await pool.execute(sql, mark, tenant)


async def _count_relations(pool: "asyncpg.Pool[Any]") -> int:
    count: int = await pool.fetchval("SELECT count(*) FROM pg_class")
    return count


async def _database_bytes(pool: "asyncpg.Pool[Any]") -> int:
    size: int = await pool.fetchval("SELECT pg_database_size(current_database())")
    return size
