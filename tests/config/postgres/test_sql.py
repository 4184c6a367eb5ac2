from config.postgres.sql import number_parameters, plain_statement, together
from tests.cases import each_case


@each_case(
    ("sql", "expected"),
    [
        ("SELECT a FROM notes WHERE id = ? AND b = ?", "SELECT a FROM notes WHERE id = $1 AND b = $2"),
        ("SELECT ?2, ?1, ?1", "SELECT $2, $1, $1"),
        ("SELECT ?12 || ?1, 3 FROM t", "SELECT $12 || $1, 3 FROM t"),
        ("SELECT a::text FROM t", "SELECT a::text FROM t"),
    ],
)
def test_parameters_are_numbered(sql: str, expected: str) -> None:
    assert plain_statement(sql).text == expected


def test_numbers_can_begin_later() -> None:
    assert number_parameters("? ?", first=2) == "$2 $3"
    assert number_parameters("?2 ?1", first=3) == "$4 $3"


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
    assert plain_statement(sql).returns_rows is returns_rows


def test_queries_that_run_together_number_their_parameters_one_after_another() -> None:
    queries = (("SELECT a FROM t WHERE b = ?", 1), ("SELECT ?1 FROM u WHERE d = ?1", 1))
    assert together(queries) == (
        "SELECT (SELECT CAST(json_agg(part) AS TEXT) FROM (SELECT a FROM t WHERE b = ?1) AS part), "
        "(SELECT CAST(json_agg(part) AS TEXT) FROM (SELECT ?2 FROM u WHERE d = ?2) AS part)"
    )
