"""Every statement on a table of libraries names the tenant, or is refused."""

import pytest

from config.errors import StorageError
from sources.storage.postgres.statements import tenant_statement
from sources.storage.tables.sql import Delete, Insert, Update
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
            "SELECT id FROM matched_entries WHERE tsv @@ ?",
            (
                "WITH matched_entries AS NOT MATERIALIZED (SELECT * FROM florilegium_library.index_entries "
                'WHERE tenant_id = $1 COLLATE "POSIX") SELECT id FROM matched_entries WHERE tsv @@ $2'
            ),
        ),
        (
            Insert("state", "name, value", key="name", condition="state.value < excluded.value"),
            (
                "INSERT INTO florilegium_library.state (tenant_id, name, value) VALUES ($1, $2, $3) "
                "ON CONFLICT (tenant_id, name) DO UPDATE SET value = excluded.value WHERE state.value < excluded.value"
            ),
        ),
        (
            Insert("notes", "id, title", values="(SELECT max(id) FROM media), ?", key="*", returning="id"),
            (
                f"WITH {_own('media')} INSERT INTO florilegium_library.notes (tenant_id, id, title) "
                "VALUES ($1, (SELECT max(id) FROM media), $2) ON CONFLICT DO NOTHING RETURNING id"
            ),
        ),
        (
            Insert("vector_queue", "kind, id", "e.kind, e.id FROM index_entries e WHERE e.kind = ?"),
            (
                f"WITH {_own('index_entries')} INSERT INTO florilegium_library.vector_queue (tenant_id, kind, id) "
                "SELECT $1, e.kind, e.id FROM index_entries e WHERE e.kind = $2"
            ),
        ),
        (
            Update("notes", "title = ?", "id = ? OR uuid = ?"),
            "UPDATE florilegium_library.notes SET title = $2 WHERE notes.tenant_id = $1 AND (id = $3 OR uuid = $4)",
        ),
        (
            Update("notes", "title = (SELECT title FROM media WHERE id = ?)", "id = ?"),
            (
                f"WITH {_own('media')} UPDATE florilegium_library.notes "
                "SET title = (SELECT title FROM media WHERE id = $2) WHERE notes.tenant_id = $1 AND (id = $3)"
            ),
        ),
        (
            Delete("agents", "id IN (SELECT id FROM agents OFFSET ?)"),
            (
                f"WITH {_own('agents')} DELETE FROM florilegium_library.agents WHERE agents.tenant_id = $1 "
                "AND (id IN (SELECT id FROM agents OFFSET $2))"
            ),
        ),
        (
            Delete("index_entries", "index_entries.id = x.id", using="unnest(?) AS x (id)", returning="id"),
            (
                f"WITH {_own('index_entries')} DELETE FROM florilegium_library.index_entries "
                "USING unnest($2) AS x (id) WHERE index_entries.tenant_id = $1 AND (index_entries.id = x.id) "
                "RETURNING id"
            ),
        ),
        (
            Delete("index_words"),
            "DELETE FROM florilegium_library.index_words WHERE index_words.tenant_id = $1 AND (TRUE)",
        ),
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
        "INSERT INTO notes (id) VALUES (?)",
        "UPDATE notes SET title = ?",
        " DELETE FROM notes WHERE id = ?",
        "MERGE INTO notes USING media ON FALSE WHEN NOT MATCHED THEN DO NOTHING",
        "TRUNCATE notes",
    ],
)
def test_a_form_that_cannot_name_the_tenant_is_refused(sql: str) -> None:
    with pytest.raises(StorageError, match="cannot name the tenant"):
        tenant_statement(sql)
