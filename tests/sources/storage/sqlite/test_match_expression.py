"""FTS5 expressions: user input is always quoted and can always be parsed."""

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sources.query import AllOf, AnyOf, Expression, Phrase, Prefix, Title, Without, Word, parse
from sources.storage.sqlite.search.fts5_engine import match_text
from tests.cases import each_case
from tests.tiers import examples


def word(*tokens: str) -> Word:
    return Word(" ".join(tokens), (Phrase(" ".join(tokens), tokens),))


@each_case(
    ("expression", "expected"),
    [
        (word("tea"), '"tea"'),
        (word("green", "tea"), '"green tea"'),
        (Word("te*", (Prefix("te", ("te",)),)), '"te"*'),
        (Word("v1.2", (Phrase("1 2", ("1", "2")), Phrase("v1 2", ("v1", "2")))), '("1 2" OR "v1 2")'),
        (Title(word("tea")), '{title} : ("tea")'),
        (AnyOf((word("a"), word("b"))), '("a" OR "b")'),
        (AllOf((word("a"), AnyOf((word("b"), word("c"))))), '("a" AND ("b" OR "c"))'),
        (Without(word("a"), word("b")), '("a" NOT "b")'),
        (word('a" OR "b'), '"a"" OR ""b"'),
    ],
)
def test_every_token_of_an_expression_is_quoted(expression: Expression, expected: str) -> None:
    assert match_text(expression, "title") == expected


def test_fields_restrict_the_whole_expression() -> None:
    expression = AnyOf((word("a"), Title(word("b"))))
    assert match_text(expression, "name", ("name", "details")) == '{name details} : (("a" OR {name} : ("b")))'


def test_phrases_are_restricted_to_columns_and_words_are_not() -> None:
    expression = AllOf((word("green", "tea"), word("milk"), Title(word("two", "words"))))
    expected = '({title own} : ("green tea") AND "milk" AND {title} : ("two words"))'
    assert match_text(expression, "title", phrase_columns=("title", "own")) == expected


@pytest.fixture(scope="module")
def table() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE texts USING fts5 (title, text)")
    connection.execute("INSERT INTO texts VALUES ('tea', 'green leaves')")
    yield connection
    connection.close()


@settings(max_examples=examples(250))
@given(query=st.text(st.sampled_from("ab \"'()*+-:^{}.,;~&|ANDORNOTEtitle:京é🎉\\"), max_size=40))
def test_fts5_parses_the_expression_of_any_query(table: sqlite3.Connection, query: str) -> None:
    expression = parse(query).expression
    if expression is not None:
        for columns in ((), ("title",)):
            table.execute(
                "SELECT 1 FROM texts WHERE texts MATCH ?", (match_text(expression, "title", columns),)
            ).fetchall()
