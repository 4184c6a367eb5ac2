"""Tests of aligned forms: the same form as `segment`, and every token traced back to its source."""

import re

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sources.text.alignment import AlignedForm
from sources.text.folding import tone_token
from sources.text.segmentation import normalize_letters, segment, tokenize
from tests.cases import each_case
from tests.sources.multilingual import DOCUMENTS
from tests.sources.text.samples import MIXED_TEXTS
from tests.tiers import examples

PIECES = (
    "C++", "c#", ".NET", "getUserName", "aBaB", "ﾃｽﾄ", "e\u0301", "น้ำ", "½", "ﬁx", "㍻", "\u1112\u1161\u11ab", "গো", "া",
    "東京都", "мир", "مُحَمَّد", "🎉", "👩\u200d💻", "ß", " ", "-", "\n",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | MIXED_TEXTS


def token_sources(text: str) -> list[tuple[str, str]]:
    """Returns each token of a text together with its source."""
    aligned = AlignedForm(text)
    tokens = list(re.finditer("[^ ]+", aligned.full_form))
    sources = aligned.sources_in_full_form([token.span() for token in tokens])
    return [(token[0], text[start:end]) for token, (start, end) in zip(tokens, sources, strict=True)]


@settings(max_examples=examples(250))
@given(TEXTS)
def test_full_form_equals_the_index_form(text: str) -> None:
    aligned = AlignedForm(text)
    assert aligned.full_form == segment(text)
    assert aligned.full_form.startswith(aligned.form)


def tokens_of(source: str) -> list[str]:
    """Returns the tokens of a part of a text, which may be Vietnamese."""
    return [*tokenize(source), *filter(None, [tone_token(normalize_letters(source))])]


@settings(max_examples=examples(250))
@given(TEXTS)
def test_source_of_a_token_contains_the_token(text: str) -> None:
    # The fold of a trademark sign depends on the rest of the text.
    assume("™" not in text)
    for token, source in token_sources(text):
        assert token in " ".join(tokens_of(source)), (token, source)


@each_case("name", DOCUMENTS)
def test_every_token_has_a_source_in_every_language(name: str) -> None:
    text = f"{DOCUMENTS[name].title}\n{DOCUMENTS[name].body}"
    assert [token for token, source in token_sources(text) if token not in tokens_of(source)] == []


@each_case(
    ("text", "expected"),
    [
        ("Straße Ærø", [("strasse", "Straße"), ("aero", "Ærø")]),
        ("cafe\u0301s x", [("cafes", "cafe\u0301s"), ("x", "x")]),
        ("محمدٌ.", [("محمد", "محمدٌ")]),
        ("½", [("1", "½"), ("2", "½")]),
        ("C++ .NET", [("cplusplus", "C++"), ("dotnet", ".NET")]),
        ("東京a都", [("東京", "東京"), ("京", "京"), ("a", "a"), ("都", "都")]),
        ("น้ำตก", [("น้ํา", "น้ำ"), ("าต", "ำต"), ("ตก", "ตก"), ("ก", "ก")]),
        ("🎉x", [("u1f389x", "🎉"), ("x", "x")]),
        ("myFox", [("myfox", "myFox"), ("my", "my"), ("fox", "Fox")]),
    ],
)
def test_tokens_are_traced_to_their_sources(text: str, expected: list[tuple[str, str]]) -> None:
    assert token_sources(text) == expected


def test_span_across_camel_case_words_is_clipped_to_the_first() -> None:
    text = "getUser and nameList"
    aligned = AlignedForm(text)
    start = aligned.full_form.index("user name", len(aligned.form))
    assert aligned.sources_in_full_form([(start, start + len("user name"))]) == [(3, 7)]
    [(start, end)] = aligned.sources_in_full_form([(len("getuser and "), len("getuser and namelist get"))])
    assert text[start:end] == "nameList"
