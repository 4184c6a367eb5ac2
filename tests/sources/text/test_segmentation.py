"""The tokens of a text are the same on both sides of a search, in every script, and FTS5 agrees with all of them."""

import re
import sqlite3
from pydoc_data.topics import topics
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.text.segmentation import (
    FOLDING,
    STOPWORDS,
    TOKENIZER,
    content_stems,
    fold,
    fold_narrow,
    is_even,
    is_level,
    is_narrow,
    runs,
    segment,
    stem,
    tokens,
    units,
    words,
)
from tests.sources.multilingual import DOCUMENTS

UNSTEMMED = TOKENIZER.removeprefix("porter ")
# Letters of many scripts with their marks, signs, spaces, controls, emoji and half surrogate pairs.
MIXED = st.text(
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
    """What FTS5 indexes for each text, in order."""
    with sqlite3.connect(":memory:") as database:
        database.execute(f'CREATE VIRTUAL TABLE shelf USING fts5 (body, tokenize="{tokenizer}")')
        database.execute("CREATE VIRTUAL TABLE terms USING fts5vocab (shelf, instance)")
        database.executemany("INSERT INTO shelf (rowid, body) VALUES (?, ?)", enumerate(texts))
        found: list[list[str]] = [[] for _ in texts]
        for term, row in database.execute("SELECT term, doc FROM terms ORDER BY doc, offset"):
            found[row].append(term)
    database.close()
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Plain, English: text.", "plain english text"),
        ("C++17 and C# under .NET", "cplusplus 17 and csharp under dotnet"),
        ("i++; a#b; g++", "iplusplus asharp b gplusplus"),
        ("getUserName(x)", "getusername x get user name"),
        ("parseHTTPResponse", "parsehttpresponse parse http response"),
        ("foo_bar.py", "foo bar py"),
        ("HTTPServer URLs", "httpserver urls"),
        ("Straße STRASSE", "strasse strasse"),
        ("İstanbul Isparta ısparta", "istanbul isparta isparta"),
        ("Ὀδυσσεύς ΟΔΥΣΣΕΥΣ", "οδυσσευσ οδυσσευσ"),
        ("Ёлка, ёж, йод", "елка еж йод"),
        ("مُحَمَّد أسماء ـمكتبةـ", "محمد اسماء مكتبه"),
        ("سَنة ٢٠٢٣", "سنه 2023"),
        ("סֵפֶר־חדש", "ספר חדש"),
        ("हिन्दी है।", "हिन्दी है"),
        ("Đà Nẵng / Da\u0300 Na\u0306\u0303ng", "da nang da nang"),
        ("smørrebrød œuvre Łódź", "smorrebrod oeuvre lodz"),
        ("naïve café’s", "naive cafe s"),
        ("東京都", "東京 京都 都"),
        ("第3章", "第 3 章"),
        ("ﾃｽﾄ ﾃﾞｰﾀ", "テス スト ト デー ータ タ"),
        ("㍻ ㈱", "平成 成 株"),
        ("한국어", "한국 국어 어"),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8", "한국 국"),
        ("ชาวนา", "ชา าว วน นา า"),
        ("ខ្ញុំ", "ខ្ញុំ ញុំ"),
        ("iPhone手机", "iphone 手机 机 i phone"),
        ("🎉party", "u1f389x party"),
        ("👩‍💻 ❤️", "u1f469x u1f4bbx u2764x"),
        ("Windows™ ½ ﬁx m²", "windows 1 2 fix m2"),
        ("a\0b\ud800c", "a b c"),
        ("!?…", ""),
        ("", ""),
    ],
)
def test_a_text_becomes_its_tokens(text: str, expected: str) -> None:
    assert tokens(text) == expected.split()


@given(MIXED)
def test_fts5_finds_exactly_our_tokens_in_a_segmented_text(text: str) -> None:
    assert fts5_tokens([segment(text)], UNSTEMMED) == [tokens(text)]


def test_fts5_finds_exactly_our_tokens_in_every_language() -> None:
    texts = [document.body for document in DOCUMENTS.values()]
    assert fts5_tokens([segment(text) for text in texts], UNSTEMMED) == [tokens(text) for text in texts]


@given(MIXED)
def test_tokens_do_not_depend_on_how_accents_and_syllables_are_spelled(text: str) -> None:
    assert tokens(normalize("NFD", text)) == tokens(normalize("NFC", text))


@given(MIXED)
def test_segmenting_twice_changes_nothing_but_unspaced_runs(text: str) -> None:
    spaced = " ".join(words(text))
    assert segment(segment(spaced)) == segment(spaced)


@pytest.mark.parametrize(
    "text",
    [
        "\0" * 1_000,
        "\ud800" * 1_000,
        "aB" * 500_000,
        "+" * 1_000_000,
        "C++" * 300_000,
        "東" * 1_000_000,
        "ก้" * 500_000,
        "\u0301" * 1_000_000,
        "🎉" * 300_000,
        "é" * 1_000_000,
        "plain words " * 800_000,
        "".join(map(chr, range(0x10000))),
    ],
    ids=lambda text: f"{len(text)} of {text[:12]!a}",
)
def test_no_text_is_too_long_or_too_strange(text: str) -> None:
    found = segment(text)
    assert found == segment(text)
    assert "\0" not in found
    assert found.encode().decode() == found


def test_a_long_word_of_changing_case_is_data_and_not_spelled_out() -> None:
    assert tokens("aB" * 40) == ["ab" * 40]


# -- folding -----------------------------------------------------------------------------------------------------------


@given(MIXED)
def test_folding_the_fast_way_is_folding(text: str) -> None:
    if is_narrow(text):
        assert fold_narrow(text) == text.translate(FOLDING)
        assert len(fold_narrow(text)) == len(text)


def test_every_character_taken_for_simple_is_simple() -> None:
    everything = [chr(code) for code in (*range(0x20000), *range(0xE0000, 0xE0200))]
    fold_of = {character: character.translate(FOLDING) for character in everything}
    assert [c for c in everything if is_even(c) and len(fold_of[c]) != 1] == []
    level = [c for c in everything if is_level(c)]
    assert [c for c in level if fold_of[c] != (c.lower() if c.isalnum() else " ")] == []
    narrow = [c for c in everything if is_narrow(c)]
    assert [c for c in narrow if fold_of[c] != fold_narrow(c)] == []


def test_the_folding_table_does_not_grow_without_end() -> None:
    fold("".join(map(chr, range(0x10000))))
    assert len(FOLDING) <= FOLDING.limit < 0x10000


def test_words_and_runs_divide_a_text() -> None:
    text = "Die Straße in 東京都 und หน้า 5"
    assert words(text) == ["die", "strasse", "in", "und", "5"]
    assert runs(text) == ["東京都", "หน้า"]


def test_a_unit_is_a_letter_with_its_marks() -> None:
    assert units("น้ำ") == ["น้ำ"]
    assert units("ขอบคุณ") == ["ข", "อ", "บ", "คุ", "ณ"]
    assert units("東京") == ["東", "京"]


# -- stemming ----------------------------------------------------------------------------------------------------------


ENGLISH = sorted({word.lower() for topic in topics.values() for word in re.findall("[A-Za-z]+", topic)})
ROOTS = """
    hop happi relat generaliz organ univers troubl conflat fall fizz sky nation oper decis form analog y ye s ee
"""
ENDINGS = """
    s es ies sses ss ed ing eed y ational tional enci anci izer logi bli alli entli eli ousli ization ation ator alism
    iveness fulness ousness aliti iviti biliti icate ative alize iciti ical ful ness al ance ence er ic able ible ant
    ement ment ent ion sion tion ou ism ate iti ous ive ize e l ll ly
"""


def test_stems_are_those_of_fts5() -> None:
    roots, endings = ROOTS.split(), ENDINGS.split()
    made = [root + one + two for root in roots for one in endings for two in ["", *endings[::5]]]
    samples = [*ENGLISH, *made, "a" * 64, "nations" * 10]
    assert len(samples) > 10_000
    expected = dict(zip(samples, fts5_tokens(samples, "porter unicode61"), strict=True))
    assert {word: [stem(word)] for word in samples} == expected


@given(st.text("aeiouystlnrgdbez", min_size=1, max_size=12))
def test_stems_of_made_up_words_are_those_of_fts5(word: str) -> None:
    assert fts5_tokens([word], "porter unicode61") == [[stem(word)]]


@given(MIXED)
def test_stems_of_any_token_are_those_of_fts5(text: str) -> None:
    ours = [stem(token) for token in tokens(text) if token.isascii() or not re.search("[a-z]", token)]
    theirs = fts5_tokens([segment(text)], TOKENIZER)[0]
    assert [token for token in ours if token not in theirs] == []


def test_content_of_a_title_is_its_stems_without_stop_words() -> None:
    assert content_stems("The Running of the Bulls, 牛") == {"run", "bull", "牛"}


def test_stop_words_are_tokens() -> None:
    assert len(STOPWORDS) >= 150
    assert {token for word in STOPWORDS for token in tokens(word)} == STOPWORDS
