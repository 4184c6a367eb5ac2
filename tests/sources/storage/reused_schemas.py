"""Libraries of new users in the schemas of earlier tests, because PostgreSQL takes long to create so many tables."""

from config.postgres.sql import quote_schema
from sources.storage.postgres.connection import LibraryConnection
from sources.storage.postgres.schema import LibrarySchema, LibrarySchemas
from tests.servers.postgres import delete_rows_sql

_RELATIONS = "SELECT count(*) FROM pg_catalog.pg_class c WHERE c.relnamespace = CAST(? AS regnamespace)"
_CREATED_RELATIONS = "SELECT pg_catalog.obj_description(CAST(CAST(? AS regnamespace) AS oid), 'pg_namespace')"
_TAKE = """
    DELETE FROM libraries WHERE user_id = (SELECT user_id FROM libraries WHERE strpos(user_id, ?) = 0 LIMIT 1)
    RETURNING schema_name, schema_version
"""
# Indexes that are built when there is enough text.
_LATER_INDEXES = """
    SELECT indexname FROM pg_catalog.pg_indexes
    WHERE schemaname = ? AND (indexname = 'messages_by_trigram' OR starts_with(indexname, 'vectors_hnsw_'))
"""
# Names of users are shorter than the rest of an id.
_ENDING_CHARS = 12


class ReusedSchemas(LibrarySchemas):
    """A library whose user has no id of this test belongs to a test that has ended."""

    def __init__(self, id_ending: str) -> None:
        super().__init__()
        self.begin_test(id_ending)

    def begin_test(self, id_ending: str) -> None:
        """The libraries of all users whose ids end otherwise can be used again."""
        self._id_ending = id_ending[:_ENDING_CHARS]

    def _create_tables(self, connection: LibraryConnection) -> LibrarySchema:
        # A schema that was changed in another way is not considered again.
        while (schema := self._take_unused(connection)) is not None:
            if _restore(connection, schema.name):
                return schema
        schema = super()._create_tables(connection)
        name = quote_schema(schema.name)
        connection.run_script(f"COMMENT ON SCHEMA {name} IS '{_relations(connection, schema.name)}'")
        return schema

    def _take_unused(self, connection: LibraryConnection) -> LibrarySchema | None:
        rows = connection.execute(_TAKE, (self._id_ending,)).fetchall()
        return LibrarySchema(*rows[0]) if rows else None


def _restore(connection: LibraryConnection, schema: str) -> bool:
    """Makes a schema as empty as a new one. Returns False if a test has added or removed relations."""
    indexes = [f"{quote_schema(schema)}.{name}" for (name,) in connection.execute(_LATER_INDEXES, (schema,)).fetchall()]
    if indexes:
        connection.run_script(f"DROP INDEX {', '.join(indexes)}")
    [created] = connection.execute(_CREATED_RELATIONS, (quote_schema(schema),)).fetchall()[0]
    if created != str(_relations(connection, schema)):
        return False
    connection.run_script(delete_rows_sql(schema))
    return True


def _relations(connection: LibraryConnection, schema: str) -> int:
    """Returns the number of relations, which is the comment of a new schema."""
    count: int = connection.execute(_RELATIONS, (quote_schema(schema),)).fetchall()[0][0]
    return count
