"""Every statement on a table of libraries names the tenant, or is refused."""

import pytest

from config.errors import StorageError
from sources.storage.postgres.statements import tenant_statement
from tests.cases import each_case


def _own(table: str) -> str:
    return f"{table} AS NOT MATERIALIZED (SELECT * FROM florilegium_library.{table} WHERE tenant_id = $1)"


@each_case(
    ("sql", "expected"),
    [
        (
            "SELECT m.id FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE c.uuid = ?",
            (
                f"WITH {_own('conversations')}, {_own('messages')} "
                "SELECT m.id FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE c.uuid = $2"
            ),
        ),
        (
            "WITH page AS (SELECT id FROM notes LIMIT ?1) SELECT id FROM page",
            f"WITH {_own('notes')}, page AS (SELECT id FROM notes LIMIT $2) SELECT id FROM page",
        ),
        (
            "SELECT value FROM state WHERE name = 'vectors'",
            f"WITH {_own('state')} SELECT value FROM state WHERE name = 'vectors'",
        ),
        (
            "INSERT INTO state (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
            (
                "INSERT INTO florilegium_library.state (tenant_id, name, value) VALUES ($1, $2, $3) "
                "ON CONFLICT (tenant_id, name) DO NOTHING"
            ),
        ),
        (
            "INSERT INTO vector_queue (kind, id) SELECT e.kind, e.id FROM index_entries e WHERE e.kind = ?",
            (
                f"WITH {_own('index_entries')} INSERT INTO florilegium_library.vector_queue (tenant_id, kind, id) "
                "SELECT $1, e.kind, e.id FROM index_entries e WHERE e.kind = $2"
            ),
        ),
        (
            "UPDATE notes SET title = ? WHERE id = ? OR uuid = ? RETURNING id",
            (
                "UPDATE florilegium_library.notes SET title = $2 WHERE notes.tenant_id = $1 AND (id = $3 OR uuid = $4) "
                "RETURNING id"
            ),
        ),
        (
            "DELETE FROM agents WHERE id IN (SELECT id FROM agents OFFSET ?)",
            (
                f"WITH {_own('agents')} DELETE FROM florilegium_library.agents WHERE agents.tenant_id = $1 "
                "AND (id IN (SELECT id FROM agents OFFSET $2))"
            ),
        ),
        (
            "DELETE FROM index_entries e WHERE e.kind = 1",
            "DELETE FROM florilegium_library.index_entries e WHERE e.tenant_id = $1 AND (e.kind = 1)",
        ),
        ("DELETE FROM index_words", "DELETE FROM florilegium_library.index_words WHERE index_words.tenant_id = $1"),
    ],
)
def test_every_statement_names_the_tenant(sql: str, expected: str) -> None:
    statement = tenant_statement(sql)

    assert statement.text == expected
    assert statement.has_tenant


def test_a_statement_without_tables_has_no_tenant() -> None:
    statement = tenant_statement("SELECT set_config('a', ?, TRUE)")

    assert (statement.text, statement.has_tenant) == ("SELECT set_config('a', $1, TRUE)", False)


@each_case(
    "sql",
    [
        "INSERT INTO notes (id) TABLE other",
        "UPDATE notes SET title = (SELECT title FROM media WHERE id = 1) WHERE id = ?",
        "DELETE FROM notes USING (SELECT id FROM media WHERE id = 1) AS x WHERE notes.id = x.id",
    ],
)
def test_a_form_that_cannot_name_the_tenant_is_refused(sql: str) -> None:
    with pytest.raises(StorageError, match="cannot name the tenant"):
        tenant_statement(sql)
