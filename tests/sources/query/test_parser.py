"""Tests of the query parser: any text is parsed within its limits, and `read_as` reports every reinterpretation."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
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
from sources.query.grammar import render
from sources.text.segmentation import TOKENIZER, segment
from sources.times import TimeMention
from sources.times.words import CalendarDate, Instant
from tests.cases import each_case
from tests.sources.multilingual import DOCUMENTS, SEARCH_CASES, SearchCase
from tests.tiers import examples

EXPECTED_DATE = "expected a date such as 2024-05-31, yesterday or 7d"

ANY_QUERY = st.one_of(
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
    """Compiles an expression for FTS5. Tokens contain no quotation marks."""
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


class LibraryIndex:
    """The multilingual documents in an FTS5 table."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.execute(f'CREATE VIRTUAL TABLE library USING fts5 (title, body, tokenize="{TOKENIZER}")')
        rows = [(segment(document.title), segment(document.body)) for document in DOCUMENTS.values()]
        database.executemany("INSERT INTO library VALUES (?, ?)", rows)

    def find(self, query: ParsedQuery) -> list[str]:
        """Returns the names of the matching documents, best first."""
        if query.expression is None:
            return []
        sql = "SELECT rowid FROM library WHERE library MATCH ? ORDER BY bm25(library, 2, 1)"
        return [list(DOCUMENTS)[row - 1] for (row,) in self._database.execute(sql, (to_fts5(query.expression),))]


@pytest.fixture(scope="module")
def library() -> Iterator[LibraryIndex]:
    with closing(sqlite3.connect(":memory:")) as database:
        yield LibraryIndex(database)


def render_query(text: str, limits: QueryLimits | None = None) -> str | None:
    expression = parse(text, limits or QueryLimits()).expression
    return None if expression is None else render(expression)


def only_word(text: str) -> Word:
    expression = parse(text).expression
    assert isinstance(expression, Word)
    return expression


# -- matches -----------------------------------------------------------------------------------------------------------


@each_case("case", SEARCH_CASES)
def test_query_finds_the_expected_documents_and_no_others(case: SearchCase, library: LibraryIndex) -> None:
    names = set(library.find(parse(case.query)))
    assert names >= set(case.finds)
    assert not names & set(case.misses)


def test_search_cases_cover_every_document_in_many_languages() -> None:
    assert len(SEARCH_CASES) >= 150
    assert len({name.partition("-")[0] for name in DOCUMENTS}) >= 20
    assert {name for case in SEARCH_CASES for name in case.finds} == set(DOCUMENTS)


@settings(max_examples=examples(250))
@given(text=ANY_QUERY)
def test_no_text_raises_or_matches_the_whole_library(text: str, library: LibraryIndex) -> None:
    query = parse(text)
    assert len(library.find(query)) < len(DOCUMENTS)
    if query.expression is None:
        assert query.read_as
        assert query.terms == ()


@given(text=ANY_QUERY)
def test_parsing_is_deterministic(text: str) -> None:
    assert parse(text) == parse(text)


@each_case("text", ["", " ", "!!!", "()", '""', "...", "*", "-", "—", "\0", "\ud800", "''", "AND", "(OR)"])
def test_query_without_words_searches_for_nothing_and_says_so(text: str) -> None:
    query = parse(text)
    assert query.expression is None
    assert query.read_as is not None
    assert query.read_as.startswith("searched for nothing; ")


# -- plain words -------------------------------------------------------------------------------------------------------


def test_any_plain_word_may_match_and_stop_words_are_dropped() -> None:
    query = parse("What did Anna say about the trip?")
    same = parse("Anna say trip?")
    assert (query.expression, query.terms) == (same.expression, same.terms)
    assert render_query("What did Anna say about the trip?") == "Anna OR say OR trip"
    assert (query.has_operators, query.read_as, query.is_truncated) == (False, None, False)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Sông nào dài nhất của châu Phi?", "Sông dài nhất châu Phi"),
        ("متى ولد الشاعر؟", "ولد الشاعر"),
        ("भारत की राजधानी क्या है?", "भारत राजधानी"),
        ("Ποια είναι η πρωτεύουσα;", "πρωτεύουσα"),
        ("แม่น้ำคืออะไร", "แม่น้ำ"),
        ("का से है", "का से है"),
        ("คืออะไร", "คืออะไร"),
    ],
)
def test_stop_words_of_languages_that_their_letters_tell_are_dropped(text: str, same: str) -> None:
    assert parse(text).terms == parse(same).terms != ()


def test_stop_words_are_kept_if_there_are_no_other_words() -> None:
    assert render_query("to be or not to be") == "to OR be OR or OR not"
    assert render_query("The Who") == "The OR Who"


def test_documents_with_all_words_and_with_one_word_match(library: LibraryIndex) -> None:
    names = library.find(parse("Who planted tomatoes at the release party?"))
    assert set(names) >= {"en-garden", "en-party"}


def test_words_with_the_same_stem_are_counted_as_one_term() -> None:
    (term,) = parse("run running runs").terms
    assert (term.word.text, term.count) == ("run", 3)


PLAIN_WORDS = ("tea", "Teas", "green", "the", "Of", "a", "C", "NASA", "and", "to", "hoping", "hope,", "Why?", "so...")


@given(st.lists(st.sampled_from(PLAIN_WORDS), min_size=1, max_size=8).map(" ".join), st.integers(1, 4))
def test_brackets_around_plain_words_have_no_effect(text: str, max_terms: int) -> None:
    limits = QueryLimits(max_terms=max_terms)
    assert parse(text, limits) == parse(f"({text})", limits)


def test_single_letters_are_dropped_unless_they_are_names() -> None:
    assert render_query("vitamin C for a x") == "vitamin OR C"
    assert render_query("plan B, step 3") == "plan OR B OR step OR 3"
    assert render_query("I saw A") == "saw"


def test_contractions_of_stop_words_are_dropped() -> None:
    assert render_query("What's wrong? I don't know; Anna's dog") == "wrong OR know OR Anna OR dog"


def test_compound_word_matches_as_a_phrase_and_in_parts() -> None:
    assert [term.word.text for term in parse("fox-trot").terms] == ["fox-trot", "fox", "trot"]
    assert parse("fox-trot").terms[0].word.alternatives == (
        Phrase("fox-trot", ("fox", "trot")),
        Phrase("foxtrot", ("foxtrot",)),
    )


@each_case(
    ("text", "tokens"),
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
def test_special_word_is_a_single_term(text: str, tokens: set[tuple[str, ...]]) -> None:
    assert {phrase.tokens for phrase in only_word(text).alternatives} == tokens


def test_unspaced_sentence_is_split_into_pairs_without_particles() -> None:
    assert render_query("東京都で本を") == "東京 OR 京都 OR 都で OR で本 OR 本を"
    assert render_query("それは京都です") == "は京 OR 京都 OR 都で"
    assert render_query("それです") == "それ OR れで OR です"


def test_single_letter_of_an_unspaced_script_is_a_prefix() -> None:
    assert only_word("章").alternatives == (Prefix("章", ("章",)),)


def test_other_endings_match_only_in_languages_that_are_not_stemmed() -> None:
    assert only_word("художники").alternatives[1:] == (Prefix("художни", ("художни",)),)
    assert only_word("painters").alternatives == (Phrase("painters", ("painters",)),)
    english = parse("the naïve painters").terms
    assert all(len(term.word.alternatives) == 1 for term in english)
    assert all(len(term.word.alternatives) == 1 for term in parse("Python 编程语言").terms)


# -- operators ---------------------------------------------------------------------------------------------------------


@each_case(
    ("text", "expected"),
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
def test_and_or_not_operators_are_obeyed(text: str, expected: str) -> None:
    assert render_query(text) == expected
    assert parse(text).has_operators
    assert parse(text).read_as is None


@each_case(
    ("text", "expected"),
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
        ("cats ;-)", "cats"),
    ],
)
def test_any_word_may_match_without_and_or_or(text: str, expected: str) -> None:
    assert render_query(text) == expected
    assert not parse(text).has_operators
    assert parse(text).read_as is None


def test_excluded_words_are_not_scored_and_match_only_literally() -> None:
    query = parse("кошки -собаками")
    assert [term.word.text for term in query.terms] == ["кошки"]
    assert isinstance(query.expression, Without)
    assert query.expression.drop == Word("собаками", (Phrase("собаками", ("собаками",)),))


def test_exclusion_alone_searches_for_nothing_and_says_so() -> None:
    for text in ("-cats", "NOT cats", 'NOT "wild cats" -dogs', "-(cats OR dogs)"):
        assert parse(text).expression is None
        assert parse(text).read_as == "searched for nothing; ignored an exclusion (it needs another term to search for)"


@each_case(
    ("text", "read_as"),
    [
        ("cats AND", "searched for cats; ignored AND (it needs a term on each side)"),
        ("OR cats", "searched for cats; ignored OR (it needs a term on each side)"),
        ("cats AND OR dogs", "searched for cats OR dogs; ignored AND (it needs a term on each side)"),
        ("cats NOT", "searched for cats; ignored NOT (it needs a term after it)"),
        ("cats OR (dogs", "searched for cats OR dogs; ignored an unmatched bracket"),
        ("cats) OR dogs", "searched for cats OR dogs; ignored an unmatched bracket"),
        ("(cats dogs", "searched for cats OR dogs; ignored an unmatched bracket"),
        ("NEAR(cats dogs, 5)", "searched for cats OR dogs; ignored NEAR (it has no meaning here)"),
        ("^cats", "searched for cats; ignored ^ (it has no meaning here)"),
        ("cats OR NOT dogs", "searched for cats; ignored an exclusion (it needs another term to search for)"),
        ('say "hello world', "searched for say OR hello OR world; ignored an unmatched quotation mark"),
        ('a 5" disk', "searched for 5 OR disk; ignored an unmatched quotation mark"),
    ],
)
def test_dangling_operators_and_marks_are_ignored_and_reported(text: str, read_as: str) -> None:
    assert parse(text).read_as == read_as


# -- quotations and prefixes -------------------------------------------------------------------------------------------


def test_quotation_in_a_sentence_is_preferred_and_its_words_match_too(library: LibraryIndex) -> None:
    query = parse('"planted tomatoes" party garden')
    assert set(library.find(query)) == {"en-garden", "en-party"}
    assert [word.text for word in query.preferred] == ["planted tomatoes"]
    assert [term.word.text for term in query.terms] == ["planted tomatoes", "planted", "tomatoes", "party", "garden"]


def test_query_of_quotations_alone_is_literal(library: LibraryIndex) -> None:
    query = parse('"planted tomatoes" "party garden"')
    assert (query.is_literal, library.find(query)) == (True, [])
    assert query.relaxed is not None
    assert set(library.find(query.relaxed)) == {"en-garden", "en-party"}


def test_quotation_keeps_stop_words_and_order() -> None:
    assert only_word('"to be or not"').alternatives == (Phrase("to be or not", ("to", "be", "or", "not")),)


def test_typographic_quotation_marks_are_accepted() -> None:
    assert (
        render_query("“fox trot”")
        == render_query("«fox trot»")
        == render_query("‹fox trot›")
        == render_query("「fox trot」")
        == render_query("『fox trot』")
        == render_query("《fox trot》")
        == render_query("‘fox trot’")
        == render_query("„fox trot“")
        == render_query('"fox trot"')
    )


def test_quoted_unspaced_run_may_continue_in_the_text() -> None:
    assert only_word('"東京都"').alternatives == (Phrase("東京都", ("東京", "京都")),)
    assert only_word('"東京 大阪"').alternatives == (Phrase("東京 大阪", ("東京", "京", "大阪")),)
    assert only_word('"第3章"').alternatives == (Prefix("第3章", ("第", "3", "章")),)


def test_prefix_also_matches_words_with_a_shorter_stem() -> None:
    assert only_word("organi*").alternatives == (Prefix("organi", ("organi",)), Phrase("organ", ("organ",)))
    assert only_word("care*").alternatives == (Prefix("care", ("care",)),)


def test_prefix_matches_every_word_that_begins_with_it() -> None:
    words = sorted({word.lower() for topic in topics.values() for word in re.findall("[A-Za-z]{6,}", topic)})
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f'CREATE VIRTUAL TABLE words USING fts5 (body, tokenize="{TOKENIZER}")')
        database.executemany("INSERT INTO words (rowid, body) VALUES (?, ?)", enumerate(words))
        for row, word in list(enumerate(words))[::7]:
            prefix = only_word(f"{word[: 3 + row % (len(word) - 3)]}*")
            sql = "SELECT 1 FROM words WHERE words MATCH ? AND rowid = ?"
            assert database.execute(sql, (to_fts5(prefix), row)).fetchone(), (prefix.text, word)


@each_case(
    ("text", "read_as"),
    [
        ("ca*", "searched for ca; ignored * (it needs at least 3 letters before it)"),
        ("*cats*", "searched for cats; ignored * (it works only at the end of a word)"),
        ("ca*ts", 'searched for "ca ts"; ignored * (it works only at the end of a word)'),
    ],
)
def test_misplaced_stars_are_ignored_and_reported(text: str, read_as: str) -> None:
    assert parse(text).read_as == read_as


def test_star_after_an_unspaced_run_needs_no_note() -> None:
    assert only_word("東京*").alternatives == only_word('"東京"').alternatives
    assert parse("東京*").read_as is None


# -- filters -----------------------------------------------------------------------------------------------------------


def test_filters_are_extracted_from_the_query() -> None:
    query = parse(
        'source:notes tag:work,home Tag:"long walks" type:video sender:Ann cats after:2024-05-01 before:2024-06-01'
    )
    assert query.filters == Filters(
        sources=("notes",),
        tags=("work", "home", "long walks"),
        types=("video",),
        senders=("Ann",),
        after=TimeMention(CalendarDate(2024, 5, 1), "2024-05-01"),
        before=TimeMention(CalendarDate(2024, 6, 1), "2024-06-01"),
    )
    assert query.expression == only_word("cats")
    assert query.read_as is None


def test_and_next_to_a_filter_is_part_of_it() -> None:
    for text in ("cats AND tag:work", "tag:work AND cats", "cats AND after:2024-05-01 AND tag:work"):
        assert (render_query(text), parse(text).filters.tags, parse(text).read_as) == ("cats", ("work",), None)


def test_timestamp_filter_names_an_instant() -> None:
    after = parse("cats after:2024-05-01T10:00:00Z").filters.after
    assert after is not None
    assert after.expression == Instant(datetime(2024, 5, 1, 10, tzinfo=UTC))


@each_case("value", ["7d", "2h", "yesterday", "2026-11", "2026", '"last week"', '"August 2023"', "gestern"])
def test_date_filter_accepts_words(value: str) -> None:
    query = parse(f"cats after:{value}")
    assert query.filters.after is not None
    assert (query.filters.after.words, query.read_as) == (value.strip('"'), None)


def test_query_of_filters_alone_has_no_expression() -> None:
    query = parse("tag:work after:2024-05-01")
    assert query.expression is None
    assert query.filters.tags == ("work",)
    assert query.read_as == "filter only, newest first"


@each_case(
    ("text", "note"),
    [
        ("cats after:whenever", f"treated after:whenever as words ({EXPECTED_DATE})"),
        ("cats before:2024-13-01", f"treated before:2024-13-01 as words ({EXPECTED_DATE})"),
        ("cats before:2024-05-011", f"treated before:2024-05-011 as words ({EXPECTED_DATE})"),
        ("cats lang:en", "treated lang: as a word (it is not a filter)"),
        ("tag: cats", "treated tag: as a word (it has no value)"),
        ("cats -tag:work", "ignored -tag:work (only words and titles can be excluded)"),
        ("cats NOT tag:work", "ignored -tag:work (only words and titles can be excluded)"),
    ],
)
def test_invalid_filter_is_reported(text: str, note: str) -> None:
    query = parse(text)
    assert note in (query.read_as or "")
    assert query.filters == Filters()


@each_case("text", ["std::vector", "10:30", "https://example.org", "C:\\temp", "note:", "ratio 3:1"])
def test_colon_inside_a_word_is_not_a_filter(text: str) -> None:
    assert parse(text).read_as is None


def test_title_filter_is_required(library: LibraryIndex) -> None:
    assert library.find(parse("title:garden tomatoes")) == ["en-garden"]
    assert library.find(parse("title:garden party")) == []
    assert render_query('title:"long walk" dogs') == 'title:"long walk" AND dogs'
    assert render_query("cats -title:dogs") == "cats NOT title:dogs"
    assert render_query("title:cats OR dogs") == "title:cats OR dogs"


# -- limits ------------------------------------------------------------------------------------------------------------


@each_case(
    ("text", "limits", "expected", "note"),
    [
        ("cats " + "x" * 2_000, QueryLimits(max_chars=4), "cats", "used only the first 4 characters"),
        ("cats x", QueryLimits(max_chars=4), "cats", "used only the first 4 characters"),
        ("one two three", QueryLimits(max_terms=2), "one OR two", "used only the first 2 terms"),
        ("one AND two AND three", QueryLimits(max_terms=2), "one AND two", "used only the first 2 terms"),
        ("cat* dog*", QueryLimits(max_prefixes=1), "cat* OR dog", "used * only in the first 1 words that end with it"),
    ],
)
def test_query_over_a_limit_is_truncated_and_reported(text: str, limits: QueryLimits, expected: str, note: str) -> None:
    query = parse(text, limits)
    assert query.read_as == f"searched for {expected}; {note}"
    assert query.is_truncated


def test_long_phrase_is_truncated() -> None:
    query = parse('"one two three"', QueryLimits(max_phrase_tokens=2))
    assert isinstance(query.expression, Word)
    assert query.expression.alternatives[0].tokens == ("one", "two")
    assert query.is_truncated


def test_brackets_nested_too_deep_are_ignored_and_reported() -> None:
    query = parse("a AND (b OR (c AND d))", QueryLimits(max_nesting=1))
    assert query.read_as == "searched for a AND (b OR (c AND d)); ignored brackets nested more than 1 deep"
    assert parse("(" * 400 + "cats OR dogs" + ")" * 400).expression == parse("cats OR dogs").expression


@given(text=ANY_QUERY)
def test_parsed_query_never_exceeds_its_limits(text: str) -> None:
    limits = QueryLimits(max_chars=50, max_terms=3, max_nesting=2, max_prefixes=1, max_phrase_tokens=2)
    query = parse(text, limits)
    alternatives = [phrase for term in query.terms for phrase in term.word.alternatives]
    assert len(query.terms) <= 3
    assert all(1 <= len(phrase.tokens) <= 2 for phrase in alternatives)
    assert len([term for term in query.terms if term.word.text.endswith("*")]) <= 1


@given(text=ANY_QUERY)
def test_tokens_contain_only_letters_and_digits(text: str) -> None:
    alternatives = [phrase for term in parse(text).terms for phrase in term.word.alternatives]
    tokens = [token for phrase in alternatives for token in phrase.tokens]
    assert [token for token in tokens if segment(token).split()[:1] != [token]] == []
