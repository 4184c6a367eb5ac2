"""Extensions of PostgreSQL. The search path is empty, so their types and operators are named with a schema."""

import re

from msgspec import Struct

from config.postgres.connection import PostgresConnection
from config.postgres.errors import driver_errors, is_connection_lost

_FIND = """SELECT n.nspname, e.extversion FROM pg_catalog.pg_extension e
    JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = ?"""


class InstalledExtension(Struct, frozen=True):
    """`schema` is a quoted identifier, `version` has its first numbers."""

    schema: str
    version: tuple[int, ...]


def find_extension(connection: PostgresConnection, name: str) -> InstalledExtension | None:
    """Returns where an extension is. Installs it first, if the server has it and the role of the connection may."""
    row = connection.execute(_FIND, (name,)).fetchone()
    if row is None:
        # Without a savepoint, a refusal would end the transaction of the caller.
        connection.run_script("SAVEPOINT extension")
        try:
            connection.run_script(f"CREATE EXTENSION IF NOT EXISTS {name} WITH SCHEMA florilegium")
        except driver_errors() as error:
            if is_connection_lost(error):
                raise
            connection.run_script("ROLLBACK TO SAVEPOINT extension")
            return None
        row = connection.execute(_FIND, (name,)).fetchone()
    if row is None:
        return None
    schema, version = row
    doubled = schema.replace('"', '""')
    return InstalledExtension(f'"{doubled}"', tuple(int(number) for number in re.findall(r"\d+", version)[:2]))
