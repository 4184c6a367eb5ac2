"""The statements of the tables in PostgreSQL's spelling."""

from config.postgres.sql import qualify
from sources.storage.postgres.connection import to_postgres
from tests.cases import each_case


@each_case(
    ("sql", "expected"),
    [
        (
            "SELECT id FROM json_each(?) wanted CROSS JOIN notes ON uuid = wanted.value",
            "SELECT id FROM json_array_elements_text(?::json) AS wanted (value) JOIN notes ON uuid = wanted.value",
        ),
        (
            "DELETE FROM t WHERE x NOT IN (SELECT value FROM json_each(?1))",
            "DELETE FROM t WHERE x NOT IN (SELECT value FROM json_array_elements_text(?1::json) AS elements (value))",
        ),
        (
            "name = ?1 COLLATE NOCASE ORDER BY name = ?1 DESC",
            'lower(name) = lower(?1::text COLLATE "C") ORDER BY name = ?1 DESC',
        ),
        (
            "json_extract(conversations.metadata, ?) IN (?)",
            "((conversations.metadata)::json #>> string_to_array(substr(?, 3), '.')) IN (?)",
        ),
    ],
)
def test_spellings_of_sqlite_are_translated(sql: str, expected: str) -> None:
    assert to_postgres(sql) == expected


def test_every_table_gets_the_schema_and_no_function_does() -> None:
    sql = to_postgres("SELECT r.id FROM json_each(?) wanted CROSS JOIN notes r ON r.id = CAST(wanted.value AS BIGINT)")
    schema = f"u_{'a' * 26}"
    assert qualify(sql, schema).text == (
        "SELECT r.id FROM json_array_elements_text($1::json) AS wanted (value) "
        f'JOIN "{schema}".notes r ON r.id = CAST(wanted.value AS BIGINT)'
    )
