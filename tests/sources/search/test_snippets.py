"""Tests of snippets: one plain line within the length limit that highlights the matches and splits no grapheme."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sources.query import parse
from sources.search.snippets import Highlighter, Snippet
from sources.search.term_matching import TermCounter
from sources.text.folding import is_grapheme_boundary
from sources.text.segmentation import segment
from tests.cases import each_case
from tests.sources.multilingual import DOCUMENTS, SEARCH_CASES, SearchCase
from tests.sources.text.samples import MIXED_TEXTS
from tests.tiers import examples

WALK = (
    "We went to the museum  yesterday and\nlooked at old paintings by famous artists; then we had dinner in the "
    "harbour and talked about happiness."
)
TEXTS = st.one_of(
    st.text(max_size=300),
    st.lists(
        st.sampled_from(
            [
                "fox", "Foxes", "trot", "the", "Straße", "CAFÉ", "東京都", "京都に", "ёлка", "मौसम", "مُحَمَّد", "น้ำ",
                "C++", "🎉", "👩‍💻", "\n\n", "  ", "\t", "\0", "\ud800", "e\u0301", ".", "-", "　", "ﬁx",
                "getFoxName", "x" * 40,
            ]
        ),
        max_size=80,
    ).flatmap(lambda parts: st.sampled_from(["", " "]).map(lambda gap: gap.join(parts))),
)  # fmt: skip
QUERIES = st.sampled_from(
    [
        "fox",
        "fox trot",
        '"fox trot"',
        "strasse cafe",
        "東京都",
        "ёлки",
        "मौसम",
        "محمد",
        "น้ำ",
        "C++ 🎉",
        "name",
        "nothing",
    ]
)

# How much of a text is scan_size: less than most of these texts, or all of it.
SCAN_SIZES = st.sampled_from([24, 8_192])


def highlights(result: Snippet) -> list[str]:
    return [result.text[start:end] for start, end in result.ranges]


def make_snippet(query: str, text: str, length: int = 300) -> Snippet:
    return Highlighter(parse(query).terms).snippet(text, length)


# -- properties of every snippet---------------------------------------------------------------------------------------


@settings(max_examples=examples(500))
@given(TEXTS, QUERIES, st.integers(-5, 60), SCAN_SIZES)
def test_snippet_is_one_plain_line_within_its_length(text: str, query: str, length: int, scan_size: int) -> None:
    result = Highlighter(parse(query).terms, scan_max_chars=scan_size).snippet(text, length)
    assert len(result.text) <= max(1, length)
    assert result.text == " ".join(result.text.split())
    assert not re.search("[\0-\x1f\x7f-\x9f\ud800-\udfff]", result.text)


@settings(max_examples=examples(500))
@given(TEXTS, QUERIES, st.integers(1, 60), SCAN_SIZES)
def test_ranges_are_ordered_and_inside_the_text_and_offsets_point_into_the_original(
    text: str, query: str, length: int, scan_size: int
) -> None:
    result = Highlighter(parse(query).terms, scan_max_chars=scan_size).snippet(text, length)
    edges = [edge for bounds in result.ranges for edge in bounds]
    assert edges == sorted(set(edges))
    assert not edges or 0 <= edges[0] <= edges[-1] <= len(result.text)
    passage = result.text.strip("…")
    if passage:
        assert text[result.start] == passage[0]


@settings(max_examples=examples(250))
@given(TEXTS, QUERIES, st.integers(1, 60))
def test_no_grapheme_is_split(text: str, query: str, length: int) -> None:
    line = " ".join(re.sub("[\0-\x1f\x7f-\x9f\ud800-\udfff]", " ", text).split())
    passage = make_snippet(query, text, length).text.strip("…")
    positions = [index for index in range(len(line)) if line.startswith(passage, index)]
    assert not passage or any(
        is_grapheme_boundary(line, index) and is_grapheme_boundary(line, index + len(passage)) for index in positions
    )


@given(st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta,", "(epsilon)"]), max_size=200), st.integers(0, 200))
def test_match_is_shown_wherever_it_is(words: list[str], position: int) -> None:
    text = " ".join([*words[:position], "Zebras", *words[position:]])
    result = make_snippet("zebra", text, 50)
    assert highlights(result) == ["Zebras"]
    assert result.start + result.ranges[0][0] - result.text.startswith("…") == text.index("Zebras")


# -- the passage -------------------------------------------------------------------------------------------------------


def test_short_text_is_shown_as_a_whole_with_collapsed_white_space() -> None:
    result = make_snippet("museum", " Our \t museum\n\nvisit ", 300)
    assert result == Snippet("Our museum visit", ((4, 10),), start=1)


def test_passage_is_centered_on_the_match_and_cut_between_words() -> None:
    result = make_snippet("artists", WALK, 60)
    assert result.text == "…old paintings by famous artists; then we had dinner in the…"
    assert WALK[result.start :].startswith("old paintings")


def test_passage_with_most_terms_is_chosen() -> None:
    text = f"fox {'x ' * 100}fox fox fox {'y ' * 100}fox trot {'z ' * 100}"
    assert highlights(make_snippet("fox trot", text, 40)) == ["fox", "trot"]


def test_beginning_is_shown_without_a_match() -> None:
    assert make_snippet("nothing", WALK, 30).text == "We went to the museum…"
    assert make_snippet("nothing", WALK, 30).ranges == ()


def test_earlier_queries_decide_between_equal_passages() -> None:
    text = f"the fox sleeps {'x ' * 100} the fox hunts {'y ' * 100}"
    terms, earlier = parse("fox").terms, parse("hunting").terms
    assert "sleeps" in Highlighter(terms).snippet(text, 40).text
    biased = Highlighter(terms, earlier).snippet(text, 40)
    assert "hunts" in biased.text
    assert highlights(biased) == ["fox"]


def test_tiny_snippet_stays_within_its_length() -> None:
    assert [make_snippet("dinner", WALK, length).text for length in (-1, 1, 2, 3, 10)] == [
        "…",
        "…",
        "…",
        "…d…",
        "…dinner…",
    ]
    assert make_snippet("x", "", 10) == Snippet("", (), start=0)


def test_snippet_has_at_most_a_thousand_characters() -> None:
    assert len(make_snippet("word", "word " * 5_000, 100_000).text) <= 1_000


# -- highlights --------------------------------------------------------------------------------------------------------


@each_case(
    ("query", "text", "expected"),
    [
        ("painted artist", WALK, ["paintings", "artists"]),
        ("happy visible shape", "Happiness, visibility and shaping", ["Happiness", "visibility", "shaping"]),
        ("art", "start the art, artisans (Art)", ["art", "Art"]),
        ("organi*", "Organizations and organs, organic", ["Organizations", "organs", "organic"]),
        ('"fox trot"', "The fox - trots away; foxtrot, fox", ["fox - trots"]),
        ("fox-trot", "A fox-trot", ["fox-trot"]),
        ('"the fox tro"', "the fox trots", []),
        ("10:30", "At 10.30, not 10 or 30", ["10.30"]),
        ("1.2.3", "v1.2.3 and 1.2.3", ["v1.2.3", "1.2.3"]),
        ("getUserName", "x.getUserName() or get_user_name", ["getUserName", "get_user_name"]),
        ("user name", "getUserName", ["UserName"]),
        ("users named", "name: getUserName", ["name", "User"]),
        ('"user name"', "getUserName", ["UserName"]),
        ('"name list"', "getName listAll", ["Name"]),
        ("C++ .net", "c++ on .NET; C++17", ["c++", ".NET", "C++"]),
        ("🎉", "party🎉", ["🎉"]),
        ("eyed", "wide-eyed eyeing", ["eyed"]),
        ("naive cafe", "Naïve Café CAFE\u0301", ["Naïve", "Café", "CAFE\u0301"]),
        ("strasse oeuvre", "Große Straße, l’œuvre", ["Straße", "œuvre"]),
        ("fix", "a ﬁx and ½ more fix", ["ﬁx", "fix"]),
        ("художник", "Картины художников", ["художников"]),
        ("елка", "У Ёлки ёлка", ["ёлка"]),
        ("θαλασσα", "η Θάλασσα", ["Θάλασσα"]),
        ("محمد", "قال مُحَمَّد اليوم", ["مُحَمَّد"]),
        ("हिन्दी", "कल हिन्दी।", ["हिन्दी"]),
        ("Đà Nẵng", "du lịch Đà Nẵng", ["Đà", "Nẵng"]),
        ("東京都", "東京と京都と東京都", ["東京", "京都", "東京都"]),
        ('"東京都"', "東京と京都と東京都", ["東京都"]),
        ('"東京都 2024"', "これは東京都2024年", ["東京都2024"]),
        ("iphone", "我的iPhone手机", ["iPhone"]),
        ("น้ำ", "ดื่มน้ำ", ["น้ำ"]),
        ("章", "第三章介绍", ["章"]),
        ("한국", "\u1112\u1161\u11ab\u1100\u116e\u11a8", ["\u1112\u1161\u11ab\u1100\u116e\u11a8"]),
        ("fox -dog", "fox and dog", ["fox"]),
        ("title:fox", "the fox", ["fox"]),
    ],
)
def test_matches_are_highlighted(query: str, text: str, expected: list[str]) -> None:
    assert highlights(make_snippet(query, text)) == expected


@each_case("case", SEARCH_CASES)
def test_match_is_highlighted_in_every_language(case: SearchCase) -> None:
    highlighter = Highlighter(parse(case.query).terms)
    for name in case.finds:
        document = DOCUMENTS[name]
        assert highlighter.snippet(f"{document.title}\n{document.body}").ranges, name


# -- long texts --------------------------------------------------------------------------------------------------------


def test_long_text_is_scanned_around_the_matches() -> None:
    text = f"{'Filler words. ' * 10_000}The zebra met an okapi. {'More filler. ' * 10_000}"
    result = make_snippet("okapi zebra", text)
    assert highlights(result) == ["zebra", "okapi"]
    assert text[result.start :].startswith(result.text.strip("…"))


def test_long_text_is_scanned_around_most_of_the_terms() -> None:
    text = f"A zebra. {'Filler words. ' * 2_000}An okapi and a lion. {'More filler. ' * 2_000}"
    assert highlights(make_snippet("zebra okapi lion", text)) == ["okapi", "lion"]


def test_beginning_of_a_long_text_without_matches_is_shown() -> None:
    assert make_snippet("zebra", "Zebrafish. " + "Filler words. " * 10_000, 20).text == "Zebrafish. Filler…"


@each_case("unit", ["a", " ", "\u0301", "fox ", "東", "🎉", "\n", "aB"])
def test_any_text_of_any_length_gives_a_snippet(unit: str) -> None:
    result = make_snippet("fox 東京 nothing 🎉", unit * 1_000_000, 100)
    assert len(result.text) <= 100


# -- agreement with scoring --------------------------------------------------------------------------------------------

WORDS = (
    "fox", "Foxes", "trot", "the", "happy", "happiness", "hoping", "hope", "eyed", "eyes", "visible", "visibility",
    "running", "v1.2.3", "10:30", "Straße", "CAFÉ", "cafe\u0301s", "naïve", "ﬁx", "½", "ёлка", "Ёлки", "मौसम",
    "مُحَمَّد", "東京都", "京都に", "都", "テスト", "ﾃｽﾄ", "한국어", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "น้ำ",
    "น้ำตก", "ตลาด", "C++", "C#", ".NET", "🎉", "👩\u200d💻", "getFoxName", "parseHTTPResponse", "userName",
    "foo_bar", "\n\n", "  ", "\t", "\0", "\ud800", ".", "　",
)  # fmt: skip
SHORT_TEXTS = st.lists(
    st.tuples(st.sampled_from(WORDS), st.sampled_from(["", " ", " ", "-"])).map("".join), max_size=12
).map("".join)
SCORED_QUERIES = st.sampled_from(
    (
        "fox trot", '"fox trot"', "happy hope visible eyed", "run* organi*", "1.2.3 10:30", "strasse naive cafe",
        "fix ½", "ёлки", "मौसम محمد", "東京都", '"東京都"', '"東京都 fox"', "都", "テスト", "한국어", "น้ำ ตลาด",
        '"น้ำตก"', "C++ 🎉", "c# .net", "user names", "http response", '"fox name"', "getFoxName get_fox", "nothing",
    )
)  # fmt: skip


@settings(max_examples=examples(500))
@given(text=SHORT_TEXTS | MIXED_TEXTS, query=SCORED_QUERIES)
def test_term_is_highlighted_if_and_only_if_it_is_scored(text: str, query: str) -> None:
    terms = parse(query).terms
    is_scored = [count > 0 for count in TermCounter(terms).count(segment(text))]
    assert [bool(Highlighter([term]).snippet(text, 1_000).ranges) for term in terms] == is_scored


@pytest.mark.slow("tries every language")
@each_case("case", SEARCH_CASES)
def test_term_is_highlighted_if_and_only_if_it_is_scored_in_every_language(case: SearchCase) -> None:
    for document in DOCUMENTS.values():
        text = f"{document.title}\n{document.body}"
        for term in parse(case.query).terms:
            [count] = TermCounter([term]).count(segment(text))
            assert bool(Highlighter([term]).snippet(text, 1_000).ranges) == (count > 0), (term.word.text, text)


def test_highlighter_tells_whether_a_text_matches() -> None:
    highlighter = Highlighter(parse("fox").terms, bias=parse("dog").terms)
    assert highlighter.matches("getFoxName")
    assert not highlighter.matches("dogs")


@each_case("name", DOCUMENTS)
def test_texts_that_are_scanned_together_have_the_same_snippets(name: str) -> None:
    terms = parse(DOCUMENTS[name].body[:120]).terms
    texts = [one.body for one in DOCUMENTS.values()]
    alone, together = Highlighter(terms), Highlighter(terms)
    together.scan(texts)
    assert [together.snippet(text, 80) for text in texts] == [alone.snippet(text, 80) for text in texts]
    assert any(alone.snippet(text).ranges for text in texts)


def test_phrase_does_not_match_across_texts_that_are_scanned_together() -> None:
    highlighter = Highlighter(parse('"синее море"').terms)
    highlighter.scan(["небо синее", "море шумит"])
    assert highlighter.snippet("небо синее").ranges == highlighter.snippet("море шумит").ranges == ()


def test_vietnamese_word_with_other_marks_is_highlighted_by_its_letters_alone() -> None:
    terms = [term for term in parse("tiếng").terms if any(map(str.isdigit, term.word.alternatives[0].tokens[0]))]
    text = "Tiếng Việt, tiêng, tiếngx và TIẾNG"
    assert [text[start:end] for start, end in Highlighter(terms).ranges(text)] == ["Tiếng", "TIẾNG"]
