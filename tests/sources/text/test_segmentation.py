"""Tests of the index form: the same tokens for documents and queries, in every script, and in agreement with FTS5."""

from itertools import pairwise
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.text.segmentation import (
    DEPENDENT_SIGNS,
    TOKENIZER,
    encode_latin1,
    has_camel_case,
    has_dependent_sign,
    letter_clusters,
    segment,
    spaced_words,
    tokenize,
    unspaced_runs,
)
from tests.cases import each_case
from tests.sources.multilingual import DOCUMENTS
from tests.sources.text.samples import MIXED_TEXTS, fts5_tokens

UNSTEMMED = TOKENIZER.removeprefix("porter ")


@each_case(
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
        ("soft\u00adhyphen, C\u00ad++ and get\u00adUserName", "softhyphen cplusplus and getusername get user name"),
        ('Café\n\u00ad["naïve", "東京"]', "cafe naive 東京 京"),
        ("a\0b\ud800c", "a b c"),
        ("!?…", ""),
        ("", ""),
    ],
)
def test_text_is_split_into_folded_tokens(text: str, expected: str) -> None:
    assert tokenize(text) == expected.split()


@given(MIXED_TEXTS)
def test_fts5_indexes_exactly_our_tokens(text: str) -> None:
    assert fts5_tokens([segment(text)], UNSTEMMED) == [segment(text).split()]


def test_fts5_indexes_exactly_our_tokens_in_every_language() -> None:
    texts = [document.body for document in DOCUMENTS.values()]
    assert fts5_tokens([segment(text) for text in texts], UNSTEMMED) == [segment(text).split() for text in texts]


@given(MIXED_TEXTS)
def test_tokens_are_independent_of_unicode_normalization(text: str) -> None:
    assert tokenize(normalize("NFD", text)) == tokenize(normalize("NFC", text))


@given(MIXED_TEXTS)
def test_segmentation_of_spaced_words_is_idempotent(text: str) -> None:
    spaced = " ".join(spaced_words(text))
    assert segment(segment(spaced)) == segment(spaced)


@pytest.mark.slow("generates long texts")
@each_case(
    "text",
    [
        "\0" * 1_000,
        "\ud800" * 1_000,
        "aB" * 100_000,
        "+" * 200_000,
        "C++" * 60_000,
        "東" * 200_000,
        "ก้" * 100_000,
        "\u0301" * 200_000,
        "🎉" * 60_000,
        "é" * 200_000,
        "plain words " * 160_000,
        "".join(map(chr, range(0x10000))),
    ],
)
def test_any_text_of_any_length_is_segmented(text: str) -> None:
    form = segment(text)
    assert form == segment(text)
    assert "\0" not in form
    assert form.encode().decode() == form


@given(st.text(alphabet="aBc 1.é", max_size=8))
def test_camel_case_is_a_small_letter_before_a_capital(text: str) -> None:
    assert has_camel_case(encode_latin1(text)) == any(a in "ac" and b == "B" for a, b in pairwise(text))


def test_long_word_of_mixed_case_is_not_split_into_camel_case_parts() -> None:
    assert tokenize("aB" * 40) == ["ab" * 40]


def test_text_is_divided_into_spaced_words_and_unspaced_runs() -> None:
    text = "Die Straße in 東京都 und หน้า 5"
    assert spaced_words(text) == ["die", "strasse", "in", "und", "5"]
    assert unspaced_runs(text) == ["東京都", "หน้า"]


def test_letter_cluster_is_a_letter_with_its_marks() -> None:
    assert letter_clusters("น้ำ") == ["น้ำ"]
    assert letter_clusters("ขอบคุณ") == ["ข", "อ", "บ", "คุ", "ณ"]
    assert letter_clusters("東京") == ["東", "京"]


def test_set_of_dependent_signs_has_the_letters_that_clusters_continue_with() -> None:
    letters = map(chr, range(0x10000))
    assert {letter for letter in letters if has_dependent_sign(letter)} == DEPENDENT_SIGNS
