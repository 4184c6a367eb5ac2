import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from sources.storage.postgres.search.tsquery import index_tokens
from sources.storage.tables.sql import index_form
from sources.text.segmentation import TOKENIZER

_WORDS = (
    "running", "Organization", "naïve", "Straße", "ﬁnance", "東京都へ行く", "한국어", "hello_world", "fooBarBaz", "C++",
    "v1.2.3", "don't", "😀", "ЁЛКА", "йод", "हिन्दी", "ภาษาไทย", "Việt", "tiếng", "œuvre", "Ǆ", "ΣΊΣΥΦΟΣ", "٣٤", "½",
    "a\u0301", "أحمد", "lighthouse", "poly", "generalizations", "x" * 70, "İstanbul", "Kelvin", "ſharp",
)  # fmt: skip
_characters = st.characters(max_codepoint=0x2FFF, exclude_categories=("Cs", "Cc", "Cn"))
_texts = st.lists(st.one_of(st.sampled_from(_WORDS), st.text(_characters))).map(" ".join)


def _fts5_tokens(form: str) -> list[str]:
    connection = sqlite3.connect(":memory:")
    connection.execute(f'CREATE VIRTUAL TABLE t USING fts5 (text, tokenize="{TOKENIZER}")')
    connection.execute("CREATE VIRTUAL TABLE words USING fts5vocab (t, instance)")
    connection.execute("INSERT INTO t VALUES (?)", (form,))
    tokens = [term for (term,) in connection.execute('SELECT term FROM words ORDER BY "offset"')]
    connection.close()
    return tokens


@given(_texts)
def test_tokens_are_those_of_the_fts5_index(text: str) -> None:
    form = index_form(text)
    indexed = text if form is None else form
    assert index_tokens(indexed) == _fts5_tokens(indexed)


@given(_texts, _texts)
def test_tokens_of_several_messages_and_a_date_are_those_of_the_fts5_index(one: str, other: str) -> None:
    forms = [text if (form := index_form(text)) is None else form for text in (f"Ana: {one}", f"Bo: {other}")]
    indexed = " ".join([*forms, "7 May 2023"])
    assert index_tokens(indexed) == _fts5_tokens(indexed)
