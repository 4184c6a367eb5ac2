"""Texts and an FTS5 helper shared by the tests of folding, segmentation and stemming."""

import sqlite3
from contextlib import closing

from hypothesis import strategies as st

# Letters of many scripts with their marks, punctuation, white space, control characters, emoji and lone surrogates.
MIXED_TEXTS = st.text(
    st.one_of(
        st.sampled_from("abzABZ019 .,'-+#_*/\0\n\tßæİıéĕøłñ™…“”　àế"),
        st.sampled_from("аЯёйЁґїαάςΩאבֶ־ابأةىً٣کی"),
        st.sampled_from("東京都のテスﾃﾞ中文한국어กำแ้ខ្ញុំကျောင်းປະລາວ。、"),
        st.sampled_from("कक़हि्दी।தமிழ்বাংলা"),
        st.sampled_from("🎉❤\ufe0f👩\u200d💻🇩🇪🏽\u0301\u200b\u00ad\ud800\udfff"),
    ),
    max_size=60,
)


def fts5_tokens(texts: list[str], tokenizer: str) -> list[list[str]]:
    """Returns the tokens that FTS5 indexes for each text, in order."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f'CREATE VIRTUAL TABLE texts USING fts5 (body, tokenize="{tokenizer}")')
        database.execute("CREATE VIRTUAL TABLE terms USING fts5vocab (texts, instance)")
        database.executemany("INSERT INTO texts (rowid, body) VALUES (?, ?)", enumerate(texts))
        tokens: list[list[str]] = [[] for _ in texts]
        for term, row in database.execute("SELECT term, doc FROM terms ORDER BY doc, offset"):
            tokens[row].append(term)
    return tokens
