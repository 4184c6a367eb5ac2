from config.postgres.connection import number_parameters, plain_statement
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
