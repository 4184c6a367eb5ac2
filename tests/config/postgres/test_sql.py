import pytest

from config.errors import StorageError
from config.postgres.sql import qualify, qualify_together
from tests.cases import each_case

SCHEMA = "u_" + "a" * 26
S = f'"{SCHEMA}"'


@each_case(
    ("sql", "expected"),
    [
        ("SELECT a FROM notes WHERE id = ?", "SELECT a FROM {s}.notes WHERE id = $1"),
        ("SELECT ?2, ?1, ?1", "SELECT $2, $1, $1"),
        ("INSERT INTO notes (a, b) VALUES (?, ?)", "INSERT INTO {s}.notes (a, b) VALUES ($1, $2)"),
        ("UPDATE notes SET a = ? WHERE notes.id = ?", "UPDATE {s}.notes SET a = $1 WHERE notes.id = $2"),
        (
            "DELETE FROM notes WHERE a IN (SELECT b FROM tags)",
            "DELETE FROM {s}.notes WHERE a IN (SELECT b FROM {s}.tags)",
        ),
        ("SELECT 1 FROM a, b JOIN c ON a.x = b.y, d", "SELECT 1 FROM {s}.a, {s}.b JOIN {s}.c ON a.x = b.y, {s}.d"),
        ("SELECT f(a, b), c FROM t", "SELECT f(a, b), c FROM {s}.t"),
        ("SELECT 1 FROM t ORDER BY a, b", "SELECT 1 FROM {s}.t ORDER BY a, b"),
        ("SELECT a FROM t, unnest($1) AS x", "SELECT a FROM {s}.t, unnest($1) AS x"),
        ("SELECT a FROM (SELECT b FROM t) AS x, y", "SELECT a FROM (SELECT b FROM {s}.t) AS x, {s}.y"),
        ("WITH x AS (SELECT 1 FROM t) SELECT 1 FROM x", "WITH x AS (SELECT 1 FROM {s}.t) SELECT 1 FROM x"),
        (
            "WITH RECURSIVE x (n) AS (SELECT a FROM t), y AS (SELECT 1) SELECT 1 FROM x JOIN y ON TRUE",
            "WITH RECURSIVE x (n) AS (SELECT a FROM {s}.t), y AS (SELECT 1) SELECT 1 FROM x JOIN y ON TRUE",
        ),
        (
            "INSERT INTO t (a) VALUES (?) ON CONFLICT (a) DO UPDATE SET b = excluded.b",
            "INSERT INTO {s}.t (a) VALUES ($1) ON CONFLICT (a) DO UPDATE SET b = excluded.b",
        ),
        ("INSERT INTO t SELECT a FROM x", "INSERT INTO {s}.t SELECT a FROM {s}.x"),
        ("SELECT 1 FROM t WHERE a IS DISTINCT FROM b", "SELECT 1 FROM {s}.t WHERE a IS DISTINCT FROM b"),
        ("SELECT 1 FROM t FOR UPDATE", "SELECT 1 FROM {s}.t FOR UPDATE"),
        ("SELECT '? FROM x' FROM t -- FROM y", "SELECT '? FROM x' FROM {s}.t -- FROM y"),
        ("SELECT a::text, :x FROM t WHERE b = :x", "SELECT a::text, $1 FROM {s}.t WHERE b = $1"),
        ("SELECT 1 FROM pg_catalog.pg_class", "SELECT 1 FROM pg_catalog.pg_class"),
        (
            "CREATE TABLE IF NOT EXISTS t (a TEXT REFERENCES users (id) ON DELETE CASCADE)",
            "CREATE TABLE IF NOT EXISTS {s}.t (a TEXT REFERENCES {s}.users (id) ON DELETE CASCADE)",
        ),
        ("CREATE UNIQUE INDEX i ON t (a) WHERE b > 0", "CREATE UNIQUE INDEX i ON {s}.t (a) WHERE b > 0"),
        ("CREATE INDEX IF NOT EXISTS i ON t USING gin (a)", "CREATE INDEX IF NOT EXISTS i ON {s}.t USING gin (a)"),
        ("DROP INDEX IF EXISTS i", "DROP INDEX IF EXISTS {s}.i"),
        ("ALTER TABLE t ADD COLUMN a TEXT", "ALTER TABLE {s}.t ADD COLUMN a TEXT"),
        ("DELETE FROM t USING x WHERE t.a = x.a", "DELETE FROM {s}.t USING {s}.x WHERE t.a = x.a"),
        ("TRUNCATE TABLE t", "TRUNCATE TABLE {s}.t"),
        ("SELECT EXISTS (SELECT 1 FROM a) OR EXISTS (SELECT 1 FROM b)", None),
    ],
)
def test_every_table_gets_the_schema(sql: str, expected: str | None) -> None:
    expected = expected or "SELECT EXISTS (SELECT 1 FROM {s}.a) OR EXISTS (SELECT 1 FROM {s}.b)"

    assert qualify(sql, SCHEMA).text == expected.replace("{s}", S)


def test_named_parameters_keep_their_order() -> None:
    statement = qualify("UPDATE t SET a = :b, b = :a WHERE c = :b", SCHEMA)

    assert statement.arguments({"a": 1, "b": 2}) == [2, 1]


@each_case("schema", ["public", 'u_a"; DROP', "u_" + "a" * 25, "U_" + "A" * 26, "", "florilegium\n"])
def test_other_names_of_schemas_are_rejected(schema: str) -> None:
    with pytest.raises(StorageError):
        qualify("SELECT 1 FROM t", schema)


@each_case(
    ("sql", "returns_rows"),
    [
        ("SELECT 1", True),
        ("INSERT INTO t VALUES (1) RETURNING id", True),
        ("DELETE FROM t", False),
        ("WITH x AS (SELECT 1) SELECT 1 FROM x", True),
    ],
)
def test_statements_that_return_rows_are_recognized(sql: str, returns_rows: bool) -> None:
    assert qualify(sql, SCHEMA).returns_rows is returns_rows


def test_queries_that_run_together_number_their_parameters_one_after_another() -> None:
    queries = [("SELECT a FROM t WHERE b = ? AND c = '$1'", 1), ("SELECT ?1 FROM u WHERE d = ?1", 1)]
    assert qualify_together(queries, SCHEMA) == (
        f"SELECT (SELECT CAST(json_agg(part) AS TEXT) FROM (SELECT a FROM {S}.t WHERE b = $1 AND c = '$1') AS part), "
        f"(SELECT CAST(json_agg(part) AS TEXT) FROM (SELECT $2 FROM {S}.u WHERE d = $2) AS part)"
    )
