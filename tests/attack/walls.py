"""Removes one of the two walls between the libraries of a PostgreSQL server, to see whether the other is enough."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import asyncpg
from msgspec.structs import replace

from config.postgres.connection import Statement
from sources.storage.postgres.statements import tenant_statement
from sources.storage.postgres.tables import TENANT_ROLE
from tests.servers.postgres import postgres_server

_IS_OWN = re.compile(r' WHERE tenant_id = \$1(?: COLLATE "POSIX")?')


@contextmanager
def statements_without_tenant() -> Iterator[None]:
    """The first wall is gone: statements of this process read and change the rows of all tenants."""
    original = tenant_statement

    def unrestricted(sql: str) -> Statement:
        statement = original(sql)
        return replace(statement, text=_IS_OWN.sub(" WHERE $1::text IS NOT NULL", statement.text))

    with patch("sources.storage.postgres.connection.tenant_statement", unrestricted):
        yield


@contextmanager
def without_row_security() -> Iterator[None]:
    """The second wall is gone: row-level security applies to no database of the server. Tests share the server, so none
    may run meanwhile."""
    create = f"CREATE ROLE {TENANT_ROLE} NOLOGIN"
    _execute(f"DO $$ BEGIN {create}; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    _execute(f"ALTER ROLE {TENANT_ROLE} BYPASSRLS")
    try:
        yield
    finally:
        _execute(f"ALTER ROLE {TENANT_ROLE} NOBYPASSRLS")


def _execute(sql: str) -> None:
    url = postgres_server().url

    async def execute() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(sql)
        await connection.close()

    asyncio.run(execute())


WALLS = {"statements": statements_without_tenant, "row-security": without_row_security}
