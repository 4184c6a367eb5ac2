"""Libraries of new users in the schemas of earlier tests, because PostgreSQL takes long to create so many tables."""

from config.postgres.sql import quote_schema
from sources.storage.postgres.connection import LibraryConnection
from sources.storage.postgres.schemas import LibrarySchema, LibrarySchemas
from tests.servers.postgres import delete_rows_sql

_RELATIONS = "SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
# The comment of a schema is the number of relations that it was created with. A test may have added some.
_FIND = f"""
    SELECT user_id FROM libraries l JOIN pg_catalog.pg_namespace s ON s.nspname = l.schema_name
    WHERE strpos(user_id, ?) = 0
        AND pg_catalog.obj_description(s.oid, 'pg_namespace') = ({_RELATIONS} WHERE n.oid = s.oid)::text
    LIMIT 1
"""
_TAKE = "DELETE FROM libraries WHERE user_id = ? RETURNING schema_name, schema_version"
# Names of users are shorter than the rest of an id.
_ENDING_CHARS = 12


class ReusedSchemas(LibrarySchemas):
    """A library whose user has no id of this test belongs to a test that has ended."""

    def __init__(self, id_ending: str) -> None:
        super().__init__()
        self._id_ending = id_ending[:_ENDING_CHARS]

    def _create_tables(self, connection: LibraryConnection) -> LibrarySchema:
        unused = connection.execute(_FIND, (self._id_ending,)).fetchone()
        if unused is None:
            schema = super()._create_tables(connection)
            [relations] = connection.execute(f"{_RELATIONS} WHERE n.nspname = ?", (schema.name,)).fetchone() or (0,)
            connection.run_script(f"COMMENT ON SCHEMA {quote_schema(schema.name)} IS '{relations}'")
            return schema
        [row] = connection.execute(_TAKE, unused).fetchall()
        schema = LibrarySchema(*row)
        connection.run_script(delete_rows_sql(schema.name))
        return schema
