"""A snippet is one plain line of at most its length, shows where the query is found, and cuts no letter in two."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sources.query import parse
from sources.search.snippets import Highlighter, Snippet, snippet
from sources.text.graphemes import is_grapheme_boundary
from sources.text.segmentation import tokenize
from sources.text.stemming import stem
from sources.text.stopwords import STOPWORDS
from tests.sources.multilingual import DOCUMENTS, PROBES, Probe

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

# How much of a text is read: less than most of these, or all.
SCANNED = st.sampled_from([24, 8_192])


def highlighted(found: Snippet) -> list[str]:
    return [found.text[start:end] for start, end in found.ranges]


def of(query: str, text: str, length: int = 300) -> Snippet:
    return snippet(text, parse(query).terms, length)


# -- what every snippet keeps ------------------------------------------------------------------------------------------


@settings(max_examples=2_500)
@given(TEXTS, QUERIES, st.integers(-5, 60), SCANNED)
def test_a_snippet_keeps_its_length_and_is_one_plain_line(text: str, query: str, length: int, scanned: int) -> None:
    found = Highlighter(parse(query).terms, scan_max_chars=scanned).snippet(text, length)
    assert len(found.text) <= max(1, length)
    assert found.text == " ".join(found.text.split())
    assert not re.search("[\0-\x1f\x7f-\x9f\ud800-\udfff]", found.text)


@settings(max_examples=2_500)
@given(TEXTS, QUERIES, st.integers(1, 60), SCANNED)
def test_ranges_are_in_order_and_inside_and_the_start_is_where_the_passage_begins(
    text: str, query: str, length: int, scanned: int
) -> None:
    found = Highlighter(parse(query).terms, scan_max_chars=scanned).snippet(text, length)
    edges = [edge for bounds in found.ranges for edge in bounds]
    assert edges == sorted(set(edges))
    assert not edges or 0 <= edges[0] <= edges[-1] <= len(found.text)
    assert (found.found_at is None) == (not found.ranges)
    passage = found.text.strip("…")
    if passage:
        assert text[found.start] == passage[0]
    if found.found_at is not None:
        assert text[found.found_at] == found.text[found.ranges[0][0]]


@settings(max_examples=500)
@given(TEXTS, QUERIES, st.integers(1, 60))
def test_no_grapheme_is_cut(text: str, query: str, length: int) -> None:
    line = " ".join(re.sub("[\0-\x1f\x7f-\x9f\ud800-\udfff]", " ", text).split())
    passage = of(query, text, length).text.strip("…")
    places = [at for at in range(len(line)) if line.startswith(passage, at)]
    assert not passage or any(
        is_grapheme_boundary(line, at) and is_grapheme_boundary(line, at + len(passage)) for at in places
    )


@given(st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta,", "(epsilon)"]), max_size=200), st.integers(0, 200))
def test_a_word_is_shown_wherever_it_stands(words: list[str], place: int) -> None:
    text = " ".join([*words[:place], "Zebras", *words[place:]])
    found = of("zebra", text, 50)
    assert highlighted(found) == ["Zebras"]
    assert found.found_at == text.index("Zebras")


# -- the passage -------------------------------------------------------------------------------------------------------


def test_a_short_text_is_shown_whole_with_white_space_collapsed() -> None:
    found = of("museum", " Our \t museum\n\nvisit ", 300)
    assert found == Snippet("Our museum visit", ((4, 10),), start=1, found_at=7)


def test_a_passage_is_centred_on_the_match_and_cut_between_words() -> None:
    found = of("artists", WALK, 60)
    assert found.text == "…old paintings by famous artists; then we had dinner in the…"
    assert WALK[found.start :].startswith("old paintings")


def test_the_passage_with_most_of_the_words_is_chosen() -> None:
    text = f"fox {'x ' * 100}fox fox fox {'y ' * 100}fox trot {'z ' * 100}"
    assert highlighted(of("fox trot", text, 40)) == ["fox", "trot"]


def test_without_a_match_the_beginning_is_shown() -> None:
    assert of("nothing", WALK, 30).text == "We went to the museum…"
    assert of("nothing", WALK, 30).ranges == ()


def test_earlier_queries_tip_the_balance() -> None:
    text = f"the fox sleeps {'x ' * 100} the fox hunts {'y ' * 100}"
    terms, earlier = parse("fox").terms, parse("hunting").terms
    assert "sleeps" in Highlighter(terms).snippet(text, 40).text
    biased = Highlighter(terms, earlier).snippet(text, 40)
    assert "hunts" in biased.text
    assert highlighted(biased) == ["fox"]


def test_a_tiny_snippet_is_still_one() -> None:
    assert [of("dinner", WALK, length).text for length in (-1, 1, 2, 3, 10)] == ["…", "…", "…", "…d…", "…dinner…"]
    assert of("x", "", 10) == Snippet("", (), start=0, found_at=None)


def test_no_snippet_is_longer_than_a_thousand_characters() -> None:
    assert len(of("word", "word " * 5_000, 100_000).text) <= 1_000


# -- what is highlighted -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
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
        ("C++ .net", "c++ on .NET; C++17", ["c++", ".NET", "C++"]),
        ("🎉", "party🎉", ["🎉"]),
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
        ("fox -dog", "fox and dog", ["fox"]),
        ("title:fox", "the fox", ["fox"]),
    ],
)
def test_what_was_looked_for_is_highlighted(query: str, text: str, expected: list[str]) -> None:
    assert highlighted(of(query, text)) == expected


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: ascii(probe.query))
def test_what_a_probe_finds_is_highlighted(probe: Probe) -> None:
    terms = parse(probe.query).terms
    for name in probe.finds:
        document = DOCUMENTS[name]
        assert snippet(f"{document.title}\n{document.body}", terms).ranges, name


# -- long texts --------------------------------------------------------------------------------------------------------


def test_a_long_text_is_read_where_the_words_are() -> None:
    text = f"{'Filler words. ' * 10_000}The zebra met an okapi. {'More filler. ' * 10_000}"
    found = of("okapi zebra", text)
    assert highlighted(found) == ["zebra", "okapi"]
    assert text.startswith("zebra", found.found_at)


def test_a_long_text_is_read_where_most_of_the_words_are() -> None:
    text = f"A zebra. {'Filler words. ' * 2_000}An okapi and a lion. {'More filler. ' * 2_000}"
    assert highlighted(of("zebra okapi lion", text)) == ["okapi", "lion"]


def test_of_a_long_text_without_the_words_the_beginning_is_shown() -> None:
    assert of("zebra", "Zebrafish. " + "Filler words. " * 10_000, 20).text == "Zebrafish. Filler…"


@pytest.mark.parametrize("unit", ["a", " ", "\u0301", "fox ", "東", "🎉", "\n", "aB"])
def test_no_text_is_too_long_or_too_strange(unit: str) -> None:
    found = of("fox 東京 nothing 🎉", unit * 1_000_000, 100)
    assert len(found.text) <= 100


# -- counting ----------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.sampled_from(["fox", "Foxes", "trot", "trotted.", "Straße", "cafés,", "ёлка", "東京", "the"]), max_size=40
    ),
    st.sampled_from(["fox trot", "strasse cafe", "ёлка fox"]),
)
def test_words_are_counted_as_the_index_holds_them(words: list[str], query: str) -> None:
    text = " ".join(words)
    held = Counter(stem(token) for token in tokenize(text))
    terms = parse(query).terms
    assert Highlighter(terms).count(text) == tuple(held[stem(tokenize(term.word.text)[0])] for term in terms)


def test_phrases_pairs_and_beginnings_are_counted_once_each() -> None:
    assert Highlighter(parse('"fox trot"').terms).count("fox trot, fox trots, fox") == (2,)
    assert Highlighter(parse("東京都").terms).count("東京と京都と東京都") == (2, 2)
    assert Highlighter(parse("художники").terms).count("художники и художник") == (2,)
    assert Highlighter(parse("fox").terms, parse("dog").terms).count("fox dog dog") == (1,)


def test_stop_words_are_counted_when_they_are_all_there_is() -> None:
    assert "who" in STOPWORDS
    assert Highlighter(parse("the who").terms).count("The Who, who?") == (1, 2)
