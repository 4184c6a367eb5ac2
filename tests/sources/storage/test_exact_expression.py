"""The query language of the exact search, compared with FTS5 itself."""

import random
import sqlite3
from contextlib import closing

import pytest

from sources.storage.search.exact_expression import TextCounts, count_phrases, match_texts, parse
from sources.storage.search.exact_snippets import ExactHighlighter, exact_tokens, read_phrases

_WORDS = ("tea", "milk", "tee", "teas", "content", "honey", "NEAR", "x", "naïve", "日", "C")
_SIGNS = (
    "AND", "OR", "NOT", "(", ")", "{", "}", ":", ",", "+", "*", "-", "^", '"tea milk"', '"', '""', "NEAR(",
    "content :", "3", "2", ";", "'", '"."',
)  # fmt: skip


def _expression(choose: random.Random) -> str:
    parts = [choose.choice(_WORDS if choose.random() < 0.55 else _SIGNS) for _ in range(choose.randint(1, 7))]
    return " ".join(parts)


@pytest.mark.parametrize("seed", range(4))
def test_matches_and_syntax_errors_are_those_of_fts5(seed: int) -> None:
    choose = random.Random(seed)
    valid = 0
    for _ in range(20):
        texts = [(n, " ".join(choose.choices(_WORDS, k=choose.randint(0, 12)))) for n in range(1, 13)]
        with closing(sqlite3.connect(":memory:")) as database:
            database.execute("CREATE VIRTUAL TABLE t USING fts5 (content, tokenize='unicode61')")
            database.executemany("INSERT INTO t (rowid, content) VALUES (?, ?)", texts)
            for _ in range(60):
                text = _expression(choose)
                if text.startswith("*"):  # a command
                    continue
                try:
                    expected = {rowid for (rowid,) in database.execute("SELECT rowid FROM t WHERE t MATCH ?", (text,))}
                except sqlite3.OperationalError:
                    assert parse(text) is None, text
                    continue
                expression = parse(text)
                assert expression is not None, text
                valid += 1
                assert {match.rowid for match in match_texts(expression, texts, 99, None).matches} == expected, text
    assert valid > 100


@pytest.mark.parametrize(
    "text",
    ["tea", "tea milk", "tea OR honey", "te*", '"tea milk" OR x', "NEAR(tea milk, 2)", "tea NOT milk", "^tea OR milk"],
)
def test_ranks_are_those_of_fts5(text: str) -> None:
    choose = random.Random(7)
    texts = [(n, " ".join(choose.choices(_WORDS, k=choose.randint(1, 12)))) for n in range(1, 41)]
    expression = parse(text)
    assert expression is not None
    tokens = [exact_tokens(content) for _, content in texts]
    containing = [sum(count_phrases(phrase, own) is not None for own in tokens) for phrase in expression.counted]

    matches = match_texts(expression, texts, 99, TextCounts(len(texts), containing)).matches

    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE VIRTUAL TABLE t USING fts5 (content, tokenize='unicode61')")
        database.executemany("INSERT INTO t (rowid, content) VALUES (?, ?)", texts)
        rows = database.execute("SELECT rowid, rank FROM t WHERE t MATCH ? ORDER BY rank, rowid", (text,)).fetchall()
    assert [match.rowid for match in matches] == [rowid for rowid, _ in rows]
    assert [match.rank for match in matches] == pytest.approx([rank for _, rank in rows])
    assert rows


def test_too_many_parentheses_are_a_syntax_error_and_not_a_recursion() -> None:
    assert parse("(" * 90 + "tea" + ")" * 90) is not None
    assert parse("(" * 50_000 + "tea" + ")" * 50_000) is None


def test_snippets_of_ascii_texts_are_those_of_the_same_text_with_accents() -> None:
    """The tokens of texts in ASCII are found in another way."""
    choose = random.Random(3)
    parts = ("tea", "Tea", "milk", "x_y", "9", "C++", "<b>", "  ", ".", ". ", ": ", "...", "\n", "")
    highlighters = [
        ExactHighlighter(read_phrases(text)) for text in ("tea", "milk*", '"tea milk"', "x OR tea", '"x y"*', "nothing")
    ]
    for _ in range(400):
        words = choose.choices(parts, k=choose.choice((0, 1, 5, 30, 90)))
        plain = "".join([word + choose.choice((" ", "", ". ", " - ")) for word in words])
        for highlighter in highlighters:
            accented = highlighter.snippet(plain.replace("e", "é").replace("i", "í"))
            assert accented.replace("é", "e").replace("í", "i") == highlighter.snippet(plain)
