"""Whatever is typed is read as it was meant, within its limits, and what was read otherwise is told."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pydoc_data.topics import topics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sources.query import (
    AllOf,
    AnyOf,
    Expression,
    Filters,
    ParsedQuery,
    Phrase,
    Prefix,
    QueryLimits,
    Title,
    Without,
    Word,
    parse,
)
from sources.query.expression import render
from sources.text.segmentation import TOKENIZER, segment
from tests.sources.multilingual import DOCUMENTS, PROBES, Probe

TYPED = st.one_of(
    st.text(max_size=80),
    st.text('ab "()*-:.\'AND ORNOT\0\n東京🎉é', max_size=60),
    st.lists(
        st.sampled_from(
            [
                "AND", "OR", "NOT", "(", ")", '"', "-", "-x", "*", "fox", "the", "fox-trot", "C++", "run*", "ab*",
                "poly*", "tag:x", "-tag:x", "title:fox", 'title:"a b"', "after:2024-01-01", "before:soon", "foo:bar",
                "東京都", "章", "ёлка", "v1.2.3", "10:30", "🎉", '"fox trot"', "NEAR(a b, 3)", "^x", "{a b}:c",
                "a@b.co", "\ud800", "\0",
            ]
        ),
        max_size=40,
    ).map(" ".join),
)  # fmt: skip


def to_fts5(expression: Expression) -> str:
    """All that an engine has to know of a query; tokens hold no quotation marks."""
    match expression:
        case Word(alternatives=alternatives):
            return f"({' OR '.join(map(phrase_to_fts5, alternatives))})"
        case Title(word=word):
            return f"title : {to_fts5(word)}"
        case AnyOf(parts=parts):
            return f"({' OR '.join(map(to_fts5, parts))})"
        case AllOf(parts=parts):
            return f"({' AND '.join(map(to_fts5, parts))})"
        case Without(keep=keep, drop=drop):
            return f"({to_fts5(keep)} NOT {to_fts5(drop)})"


def phrase_to_fts5(phrase: Phrase | Prefix) -> str:
    return f'"{" ".join(phrase.tokens)}"{"*" if isinstance(phrase, Prefix) else ""}'


class Shelf:
    """The multilingual library in an index of its own."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.execute(f'CREATE VIRTUAL TABLE shelf USING fts5 (title, body, tokenize="{TOKENIZER}")')
        rows = [(segment(document.title), segment(document.body)) for document in DOCUMENTS.values()]
        database.executemany("INSERT INTO shelf VALUES (?, ?)", rows)

    def find(self, query: ParsedQuery) -> list[str]:
        """The names of what is found, best first."""
        if query.expression is None:
            return []
        sql = "SELECT rowid FROM shelf WHERE shelf MATCH ? ORDER BY bm25(shelf, 2, 1)"
        return [list(DOCUMENTS)[row - 1] for (row,) in self._database.execute(sql, (to_fts5(query.expression),))]


@pytest.fixture(scope="module")
def shelf() -> Iterator[Shelf]:
    with closing(sqlite3.connect(":memory:")) as database:
        yield Shelf(database)


def shown(text: str, limits: QueryLimits | None = None) -> str | None:
    expression = parse(text, limits or QueryLimits()).expression
    return None if expression is None else render(expression)


def only_word(text: str) -> Word:
    expression = parse(text).expression
    assert isinstance(expression, Word)
    return expression


# -- what is found -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: ascii(probe.query))
def test_a_probe_finds_what_it_must_and_nothing_that_it_must_not(probe: Probe, shelf: Shelf) -> None:
    found = set(shelf.find(parse(probe.query)))
    assert found >= set(probe.finds)
    assert not found & set(probe.misses)


def test_the_set_is_large_and_speaks_many_languages() -> None:
    assert len(PROBES) >= 150
    assert len({name.partition("-")[0] for name in DOCUMENTS}) >= 20
    assert {name for probe in PROBES for name in probe.finds} == set(DOCUMENTS)


@settings(max_examples=500)
@given(typed=TYPED)
def test_nothing_typed_raises_or_finds_the_whole_library(typed: str, shelf: Shelf) -> None:
    query = parse(typed)
    assert len(shelf.find(query)) < len(DOCUMENTS)
    if query.expression is None:
        assert query.read_as
        assert query.terms == ()


@given(typed=TYPED)
def test_reading_is_a_function_of_the_text(typed: str) -> None:
    assert parse(typed) == parse(typed)


@pytest.mark.parametrize(
    "nothing", ["", " ", "!!!", "()", '""', "...", "*", "-", "—", "\0", "\ud800", "''", "AND", "(OR)"]
)
def test_a_query_without_a_word_is_nothing_and_says_so(nothing: str) -> None:
    query = parse(nothing)
    assert query.expression is None
    assert query.read_as is not None
    assert query.read_as.startswith("nothing (")


# -- plain words -------------------------------------------------------------------------------------------------------


def test_any_plain_word_will_do_and_stop_words_are_dropped() -> None:
    query = parse("What did Anna say about the trip?")
    assert query == parse("Anna say trip?")
    assert shown("What did Anna say about the trip?") == "Anna OR say OR trip"
    assert (query.explicit, query.read_as, query.truncated) == (False, None, False)


def test_stop_words_are_looked_for_when_nothing_else_is_there() -> None:
    assert shown("to be or not to be") == "to OR be OR or OR not"
    assert shown("The Who") == "The OR Who"


def test_hits_that_hold_all_words_are_found_with_those_that_hold_one(shelf: Shelf) -> None:
    found = shelf.find(parse("Who planted tomatoes at the release party?"))
    assert set(found) >= {"en-garden", "en-party"}


def test_words_with_the_same_stem_are_one_term_counted() -> None:
    (term,) = parse("run running runs").terms
    assert (term.word.text, term.count) == ("run", 3)


MERE_WORDS = ("tea", "Teas", "green", "the", "Of", "a", "C", "NASA", "and", "to", "hoping", "hope,", "Why?", "so...")


@given(st.lists(st.sampled_from(MERE_WORDS), min_size=1, max_size=8).map(" ".join), st.integers(1, 4))
def test_mere_words_mean_the_same_in_brackets_that_group_nothing(typed: str, max_terms: int) -> None:
    limits = QueryLimits(max_terms=max_terms)
    assert parse(typed, limits) == parse(f"({typed})", limits)


def test_single_letters_are_dropped_unless_they_name_something() -> None:
    assert shown("vitamin C for a x") == "vitamin OR C"
    assert shown("plan B, step 3") == "plan OR B OR step OR 3"
    assert shown("I saw A") == "saw"


def test_contractions_of_stop_words_say_nothing() -> None:
    assert shown("What's wrong? I don't know; Anna's dog") == "wrong OR know OR Anna OR dog"


def test_words_joined_by_punctuation_are_looked_for_together_and_apart() -> None:
    assert [term.word.text for term in parse("fox-trot").terms] == ["fox-trot", "fox", "trot"]
    assert parse("fox-trot").terms[0].word.alternatives == (Phrase("fox-trot", ("fox", "trot")),)


@pytest.mark.parametrize(
    ("typed", "tokens"),
    [
        ("10:30", {("10", "30")}),
        ("R&D", {("r", "d")}),
        ("C++", {("cplusplus",)}),
        ("(c#),", {("csharp",)}),
        ("1.2.3", {("1", "2", "3"), ("v1", "2", "3")}),
        ("V1.2", {("1", "2"), ("v1", "2")}),
        ("getUserName", {("getusername",), ("get", "user", "name")}),
        ("🎉", {("u1f389x",)}),
        ("Straße", {("strasse",), ("stras",)}),
        ("-5", {("5",)}),
        ("--verbose", {("verbose",)}),
        ("https://www.example", {("example",)}),
    ],
)
def test_a_peculiar_word_is_one_word(typed: str, tokens: set[tuple[str, ...]]) -> None:
    assert {found.tokens for found in only_word(typed).alternatives} == tokens


def test_a_sentence_without_spaces_is_found_by_its_pairs_without_the_particles() -> None:
    assert shown("東京都で本を") == "東京 OR 京都 OR 都で OR で本 OR 本を"
    assert shown("それは京都です") == "は京 OR 京都 OR 都で"
    assert shown("それです") == "それ OR れで OR です"


def test_one_letter_of_an_unspaced_script_is_found_as_a_beginning() -> None:
    assert only_word("章").alternatives == (Prefix("章", ("章",)),)


def test_other_endings_are_looked_for_only_in_other_languages() -> None:
    assert only_word("художники").alternatives[1:] == (Prefix("художни", ("художни",)),)
    assert only_word("painters").alternatives == (Phrase("painters", ("painters",)),)
    english = parse("the naïve painters").terms
    assert all(len(term.word.alternatives) == 1 for term in english)
    assert all(len(term.word.alternatives) == 1 for term in parse("Python 编程语言").terms)


# -- operators ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "reading"),
    [
        ("cats AND dogs", "cats AND dogs"),
        ("cats dogs AND birds", "(cats AND dogs) AND birds"),
        ("cats OR dogs birds", "cats OR (dogs AND birds)"),
        ("(cats OR dogs) AND birds", "(cats OR dogs) AND birds"),
        ("cats AND NOT dogs", "cats NOT dogs"),
        ("NOT cats AND dogs", "dogs NOT cats"),
        ("cats OR dogs NOT birds", "cats OR (dogs NOT birds)"),
        ("NOT NOT cats AND dogs", "cats AND dogs"),
        ("NOT (cats NOT dogs) AND birds", "birds NOT (cats NOT dogs)"),
        ("how to bake bread AND butter", "(bake AND bread) AND butter"),
        ("a AND b", "a AND b"),
        ("fox-trot AND 東京都", "fox-trot AND 東京都"),
        ('"fox trot" OR tango', '"fox trot" OR tango'),
    ],
)
def test_and_or_not_are_obeyed(typed: str, reading: str) -> None:
    assert shown(typed) == reading
    assert parse(typed).explicit
    assert parse(typed).read_as is None


@pytest.mark.parametrize(
    ("typed", "reading"),
    [
        ("cats -dogs", "cats NOT dogs"),
        ("cats birds -dogs -fish", "(cats OR birds) NOT (dogs OR fish)"),
        ('cats -"wild dogs"', 'cats NOT "wild dogs"'),
        ("cats -(wild dogs)", "cats NOT (wild AND dogs)"),
        ("cats birds -(dogs OR fish)", "(cats OR birds) NOT (dogs OR fish)"),
        ("cats NOT dogs", "cats NOT dogs"),
        ("cats and dogs or birds", "cats OR dogs OR birds"),
        ("cats - dogs", "cats OR dogs"),
        ("(cats dogs) :)", "cats OR dogs"),
        ("NEAR(cats dogs, 5)", "NEAR OR cats OR dogs OR 5"),
    ],
)
def test_without_and_or_any_word_will_do(typed: str, reading: str) -> None:
    assert shown(typed) == reading
    assert not parse(typed).explicit
    assert parse(typed).read_as is None


def test_what_is_excluded_is_neither_scored_nor_inflected() -> None:
    query = parse("кошки -собаками")
    assert [term.word.text for term in query.terms] == ["кошки"]
    assert isinstance(query.expression, Without)
    assert query.expression.drop == Word("собаками", (Phrase("собаками", ("собаками",)),))


def test_exclusion_alone_is_nothing_and_says_so() -> None:
    for typed in ("-cats", "NOT cats", 'NOT "wild cats" -dogs', "-(cats OR dogs)"):
        assert parse(typed).expression is None
        assert parse(typed).read_as == "nothing (what is excluded needs something to be excluded from)"


@pytest.mark.parametrize(
    ("typed", "read_as"),
    [
        ("cats AND", "cats (AND joined nothing and was ignored)"),
        ("OR cats", "cats (OR joined nothing and was ignored)"),
        ("cats AND OR dogs", "cats OR dogs (AND joined nothing and was ignored)"),
        ("cats NOT", "cats (NOT excluded nothing and was ignored)"),
        ("cats OR (dogs", "cats OR dogs (a bracket without a partner was ignored)"),
        ("cats) OR dogs", "cats OR dogs (a bracket without a partner was ignored)"),
        ("cats OR NOT dogs", "cats (what is excluded needs something to be excluded from)"),
        ('say "hello world', "say OR hello OR world (a quotation mark without a partner was ignored)"),
        ('a 5" disk', "5 OR disk (a quotation mark without a partner was ignored)"),
    ],
)
def test_signs_that_join_nothing_are_ignored_and_told(typed: str, read_as: str) -> None:
    assert parse(typed).read_as == read_as


# -- quotations and beginnings -----------------------------------------------------------------------------------------


def test_a_quotation_is_required_and_words_beside_it_only_rank(shelf: Shelf) -> None:
    query = parse('"planted tomatoes" party garden')
    assert set(shelf.find(query)) == {"en-garden"}
    assert set(shelf.find(parse('"planted tomatoes" party'))) == {"en-garden"}
    assert [term.word.text for term in query.terms] == ["planted tomatoes", "party", "garden"]


def test_a_quotation_keeps_its_stop_words_and_its_order() -> None:
    assert only_word('"to be or not"').alternatives == (Phrase("to be or not", ("to", "be", "or", "not")),)


def test_quotation_marks_of_any_keyboard_quote() -> None:
    assert shown("“fox trot”") == shown("«fox trot»") == shown("„fox trot“") == shown('"fox trot"')


def test_a_quoted_run_may_go_on_in_the_text() -> None:
    assert only_word('"東京都"').alternatives == (Phrase("東京都", ("東京", "京都")),)
    assert only_word('"東京 大阪"').alternatives == (Phrase("東京 大阪", ("東京", "京", "大阪")),)
    assert only_word('"第3章"').alternatives == (Prefix("第3章", ("第", "3", "章")),)


def test_a_beginning_finds_words_whose_stem_is_shorter() -> None:
    assert only_word("organi*").alternatives == (Prefix("organi", ("organi",)), Phrase("organ", ("organ",)))
    assert only_word("care*").alternatives == (Prefix("care", ("care",)),)


def test_a_beginning_finds_the_words_that_begin_so_whatever_their_stem() -> None:
    words = sorted({word.lower() for topic in topics.values() for word in re.findall("[A-Za-z]{6,}", topic)})
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f'CREATE VIRTUAL TABLE shelf USING fts5 (body, tokenize="{TOKENIZER}")')
        database.executemany("INSERT INTO shelf (rowid, body) VALUES (?, ?)", enumerate(words))
        for row, word in list(enumerate(words))[::7]:
            stump = only_word(f"{word[: 3 + row % (len(word) - 3)]}*")
            sql = "SELECT 1 FROM shelf WHERE shelf MATCH ? AND rowid = ?"
            assert database.execute(sql, (to_fts5(stump), row)).fetchone(), (stump.text, word)


@pytest.mark.parametrize(
    ("typed", "read_as"),
    [
        ("ca*", "ca (* needs at least 3 letters before it)"),
        ("*cats*", "cats (* only works at the end of a word)"),
        ("ca*ts", '"ca ts" (* only works at the end of a word)'),
    ],
)
def test_other_stars_are_ignored_and_told(typed: str, read_as: str) -> None:
    assert parse(typed).read_as == read_as


def test_a_star_after_an_unspaced_run_needs_no_telling() -> None:
    assert only_word("東京*").alternatives == only_word('"東京"').alternatives
    assert parse("東京*").read_as is None


# -- filters -----------------------------------------------------------------------------------------------------------


def test_filters_are_taken_out_of_the_words() -> None:
    query = parse(
        'source:notes tag:work,home Tag:"long walks" type:video sender:Ann cats after:2024-05-01 before:2024-06-01'
    )
    assert query.filters == Filters(
        sources=("notes",),
        tags=("work", "home", "long walks"),
        types=("video",),
        senders=("Ann",),
        after=date(2024, 5, 1),
        before=date(2024, 6, 1),
    )
    assert query.expression == only_word("cats")
    assert query.read_as is None


def test_an_and_beside_a_filter_belongs_to_it() -> None:
    for typed in ("cats AND tag:work", "tag:work AND cats", "cats AND after:2024-05-01 AND tag:work"):
        assert (shown(typed), parse(typed).filters.tags, parse(typed).read_as) == ("cats", ("work",), None)


def test_a_moment_is_the_day_it_lies_in() -> None:
    assert parse("cats after:2024-05-01T10:00:00Z").filters.after == date(2024, 5, 1)


def test_filters_alone_are_no_words_to_search_for() -> None:
    query = parse("tag:work after:2024-05-01")
    assert query.expression is None
    assert query.filters.tags == ("work",)
    assert query.read_as == "nothing (the query holds no word)"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("cats after:yesterday", "after:yesterday is not a day like 2024-05-31 and was read as words"),
        ("cats before:2024-13-01", "before:2024-13-01 is not a day like 2024-05-31 and was read as words"),
        ("cats before:2024-05-011", "before:2024-05-011 is not a day like 2024-05-31 and was read as words"),
        ("cats lang:en", "lang: is not a filter and was read as a word"),
        ("tag: cats", "tag: has no value and was read as a word"),
        ("cats -tag:work", "tag:work cannot be excluded and was ignored"),
        ("cats NOT tag:work", "tag:work cannot be excluded and was ignored"),
    ],
)
def test_what_is_no_filter_is_told(typed: str, told: str) -> None:
    query = parse(typed)
    assert told in (query.read_as or "")
    assert query.filters == Filters()


@pytest.mark.parametrize("typed", ["std::vector", "10:30", "https://example.org", "C:\\temp", "note:", "ratio 3:1"])
def test_a_colon_in_a_word_is_just_a_colon(typed: str) -> None:
    assert parse(typed).read_as is None


def test_a_title_is_required_like_a_filter(shelf: Shelf) -> None:
    assert shelf.find(parse("title:garden tomatoes")) == ["en-garden"]
    assert shelf.find(parse("title:garden party")) == []
    assert shown('title:"long walk" dogs') == 'title:"long walk" AND dogs'
    assert shown("cats -title:dogs") == "cats NOT title:dogs"
    assert shown("title:cats OR dogs") == "title:cats OR dogs"


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "limits", "reading", "told"),
    [
        ("cats " + "x" * 2_000, QueryLimits(max_chars=4), "cats", "only the first 4 characters were read"),
        ("one two three", QueryLimits(max_terms=2), "one OR two", "only the first 2 terms were read"),
        ("one AND two AND three", QueryLimits(max_terms=2), "one AND two", "only the first 2 terms were read"),
        (
            "cat* dog*",
            QueryLimits(max_prefixes=1),
            "cat* OR dog",
            "only the first 1 words with * were read as beginnings",
        ),
    ],
)
def test_over_a_limit_the_rest_is_left_out_and_told(typed: str, limits: QueryLimits, reading: str, told: str) -> None:
    query = parse(typed, limits)
    assert query.read_as == f"{reading} ({told})"
    assert query.truncated


def test_long_phrases_are_cut_and_told() -> None:
    query = parse('"one two three"', QueryLimits(max_phrase_tokens=2))
    assert isinstance(query.expression, Word)
    assert query.expression.alternatives[0].tokens == ("one", "two")
    assert query.truncated


def test_brackets_nested_too_deep_are_ignored_and_told() -> None:
    query = parse("a AND (b OR (c AND d))", QueryLimits(max_nesting=1))
    assert query.read_as == "a AND (b OR (c AND d)) (brackets nested deeper than 1 were ignored)"
    assert parse("(" * 400 + "cats OR dogs" + ")" * 400).expression == parse("cats OR dogs").expression


@given(typed=TYPED)
def test_no_query_exceeds_its_limits(typed: str) -> None:
    limits = QueryLimits(max_chars=50, max_terms=3, max_nesting=2, max_prefixes=1, max_phrase_tokens=2)
    query = parse(typed, limits)
    alternatives = [found for term in query.terms for found in term.word.alternatives]
    assert len(query.terms) <= 3
    assert all(1 <= len(found.tokens) <= 2 for found in alternatives)
    assert len([term for term in query.terms if term.word.text.endswith("*")]) <= 1


@given(typed=TYPED)
def test_tokens_are_plain_letters_and_digits_to_any_engine(typed: str) -> None:
    alternatives = [found for term in parse(typed).terms for found in term.word.alternatives]
    tokens = [token for found in alternatives for token in found.tokens]
    assert [token for token in tokens if segment(token).split()[:1] != [token]] == []
