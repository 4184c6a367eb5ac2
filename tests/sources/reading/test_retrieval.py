"""Retrieval modes: which text is returned, in which order, and that no budget is ever exceeded."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.tokenizer import count_tokens
from config.errors import InvalidParams
from config.settings import Settings
from sources.items import (
    GetResponse,
    Mode,
    RequestDefaults,
    ResultItem,
    RetrievalOptions,
    request_defaults,
    short_title,
    uri_of,
)
from sources.reading.cursors import START, Position, read_cursor, write_cursor
from sources.reading.documents import Document, build_response, content_budget, read_document
from sources.reading.retrieval import (
    ContentBudget,
    ItemPassage,
    RetrievalPlan,
    join,
    plan_retrieval,
    take_around,
    take_forward,
    take_part,
)
from sources.source import GetArguments
from sources.text.segmentation import next_word_start, word_boundary_before
from sources.text.token_estimates import TokenScale, json_text
from tests.cases import each_case
from tests.sources.multilingual import DOCUMENTS, SCRIPTS
from tests.tiers import examples

SETTINGS = Settings()
NO_DEFAULTS = RequestDefaults()
FAMILY = "👨‍👩‍👧‍👦"
MODES: tuple[Mode, ...] = ("snippet", "chunk", "chunk_with_siblings", "full", "auto")


def plan(mode: Mode = "chunk_with_siblings", **options: Any) -> RetrievalPlan:
    return plan_retrieval(RetrievalOptions(mode=mode, **options), NO_DEFAULTS, SETTINGS)


def item(**changes: Any) -> ResultItem:
    fields: dict[str, Any] = {
        "id": "n1",
        "source": "notes",
        "title": "A note",
        "snippet": None,
        "uri": "notes://n1",
        "score": 1.0,
        "created_at": "2026-11-15T08:30:00.000Z",
        "last_modified": "2026-11-15T08:30:00.000Z",
        "version": 1,
        "tags": (),
    }
    return ResultItem(**{**fields, **changes})


def chars(count: int) -> ContentBudget:
    """A budget of `count` characters."""
    return ContentBudget(count, TokenScale(1.0))


def slices(text: str, *ranges: tuple[int, int]) -> list[ItemPassage]:
    """Passages of one text, as a chunker or an importer makes them."""
    return [ItemPassage(index, text[a:b], a) for index, (a, b) in enumerate(ranges)]


def total_chars(response: GetResponse) -> int:
    """The size of a response: its content as text, everything else as JSON."""
    envelope = json_text(response).replace(json_text(response.content), '""', 1)
    return len(envelope) + len(response.content)


# -- plans ------------------------------------------------------------------------------------------------------


def test_plan_without_options_is_a_snippet_of_300_characters() -> None:
    retrieval = plan_retrieval(None, NO_DEFAULTS, SETTINGS)

    assert (retrieval.mode, retrieval.snippet_length, retrieval.scale) == ("snippet", 300, TokenScale())
    assert retrieval.prefer_prechunked


@each_case(
    ("options", "defaults", "mode"),
    [
        ({"max_tokens": 500}, {}, "chunk_with_siblings"),
        ({}, {"max_tokens": 500}, "chunk_with_siblings"),
        ({}, {}, "snippet"),
    ],
)
def test_auto_reads_siblings_if_a_budget_is_set(options: dict[str, Any], defaults: dict[str, Any], mode: str) -> None:
    retrieval = plan_retrieval(RetrievalOptions(mode="auto", **options), RequestDefaults(**defaults), SETTINGS)

    assert retrieval.mode == mode


def test_options_override_request_defaults_and_these_override_settings() -> None:
    defaults = RequestDefaults(snippet_length=50, max_tokens=900, sibling_window=7, chars_per_token=3.0)

    retrieval = plan_retrieval(RetrievalOptions(mode="chunk", snippet_length=60), defaults, SETTINGS)

    assert (retrieval.snippet_length, retrieval.max_tokens, retrieval.window, retrieval.scale) == (
        60,
        900,
        7,
        TokenScale(3.0),
    )


NUMBERS = st.integers(-(10**12), 10**12) | st.none()


@given(
    mode=st.sampled_from(MODES),
    numbers=st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    per_token=st.floats() | st.none(),
)
def test_every_number_of_a_plan_is_clamped(
    mode: Mode, numbers: tuple[int | None, ...], per_token: float | None
) -> None:
    length, budget, size, overlap, window = numbers
    retrieval = plan(
        mode,
        snippet_length=length,
        max_tokens=budget,
        chunk_size_tokens=size,
        chunk_overlap_tokens=overlap,
        sibling_window=window,
        chars_per_token=per_token,
    )

    assert 1 <= retrieval.snippet_length <= 1000
    assert 1 <= retrieval.max_tokens <= SETTINGS.retrieval_max_tokens
    assert retrieval.scale.chars_per_token is None or 1 <= retrieval.scale.chars_per_token <= 8
    assert 0 <= retrieval.overlap_chars <= retrieval.chunk_chars / 2
    assert 0 <= retrieval.window <= 50


def test_full_mode_without_a_budget_uses_the_maximum() -> None:
    assert plan("full").max_tokens == SETTINGS.retrieval_max_tokens
    assert plan("chunk").max_tokens == SETTINGS.retrieval_default_tokens


def test_config_with_a_wrong_value_is_rejected_by_name() -> None:
    with pytest.raises(InvalidParams, match=r"config: .*\$\.max_tokens"):
        request_defaults({"max_tokens": "many"})


def test_unknown_config_keys_are_ignored() -> None:
    assert request_defaults({"max_tokens": "800", "theme": "dark"}) == RequestDefaults(max_tokens=800)


# -- siblings ---------------------------------------------------------------------------------------------------

TEN = [ItemPassage(n, str(n) * 10) for n in range(10)]


@each_case(
    ("budget", "expected"),
    [
        (10, "5"),
        (22, "45"),
        (34, "456"),
        (46, "3456"),
        (10_000, "34567"),
    ],
)
def test_siblings_are_chosen_nearest_first_and_returned_in_reading_order(budget: int, expected: str) -> None:
    excerpt = take_around(TEN, 5, chars(budget), window=2)

    assert excerpt.text == "\n\n".join(digit * 10 for digit in expected)
    assert not excerpt.truncated


def test_each_side_ends_at_the_first_sibling_that_does_not_fit() -> None:
    passages = [
        ItemPassage(0, "a"),
        ItemPassage(1, "b" * 90),
        ItemPassage(2, "anchor"),
        ItemPassage(3, "c"),
        ItemPassage(4, "d"),
    ]

    assert take_around(passages, 2, chars(20), window=5).text == "anchor\n\nc\n\nd"


def test_overlap_of_adjacent_passages_is_returned_once() -> None:
    text = "The quick brown fox jumps over the lazy dog."

    excerpt = take_around(slices(text, (0, 20), (15, 35), (30, 44)), 1, chars(1000), window=1)

    assert excerpt.text == text


def test_false_overlap_loses_no_text() -> None:
    imported = [ItemPassage(0, "alpha beta", 0), ItemPassage(1, "gamma delta", 5)]

    assert join(imported).text == "alpha beta\ngamma delta"


def test_passage_contained_in_its_neighbour_adds_no_text() -> None:
    text = "The quick brown fox jumps over the lazy dog."

    assert join(slices(text, (0, 40), (10, 30))).text == text[:40]


def test_passages_with_a_gap_are_separated() -> None:
    text = "First paragraph.\n\n\nSecond paragraph."

    assert join(slices(text, (0, 16), (19, 36))).text == "First paragraph.\nSecond paragraph."


def test_attachments_contain_the_range_of_each_passage_in_the_content() -> None:
    messages = [ItemPassage(n, text, None, {"message_index": n}) for n, text in enumerate(("Ada: hi", "Ben: hello"))]

    excerpt = join(messages)

    assert excerpt.attachments is not None
    assert [excerpt.text[a["start"] : a["end"]] for a in excerpt.attachments] == ["Ada: hi", "Ben: hello"]


# -- truncation -------------------------------------------------------------------------------------------------------


def test_oversized_chunk_is_cut_at_a_word_boundary_and_marked_truncated() -> None:
    excerpt = take_around([ItemPassage(3, "some words that are too many", 100)], 0, chars(14), window=2)

    assert (excerpt.text, excerpt.truncated, excerpt.end) == ("some words ", True, Position(0, 111))


def test_truncation_keeps_the_match() -> None:
    text = "word " * 1000 + "needle " + "word " * 1000

    excerpt = take_part(ItemPassage(0, text, 0), chars(200), focus=text.index("needle"))

    assert "needle" in excerpt.text
    assert len(excerpt.text) <= 200


def test_truncation_never_splits_a_grapheme() -> None:
    text = FAMILY * 20

    excerpt = take_part(ItemPassage(0, text, 0), chars(2 * len(FAMILY) + 3))

    assert excerpt.text == FAMILY * 2


def test_extremely_long_grapheme_is_split() -> None:
    text = "a" + "\u0301" * 5000

    assert 0 < word_boundary_before(text, 2000) <= 2000


@given(st.text(max_size=200), st.integers(-5, 210))
def test_boundaries_stay_within_the_text_and_on_their_side(text: str, position: int) -> None:
    start = max(0, position)

    assert 0 <= word_boundary_before(text, start) <= min(start, len(text))
    assert 0 <= next_word_start(text, position) <= max(0, len(text))


# -- paging -----------------------------------------------------------------------------------------------------


@settings(max_examples=examples(150))
@given(st.text(min_size=1, max_size=600), st.integers(130, 300))
def test_pages_of_a_text_add_up_to_the_text(text: str, budget: int) -> None:
    pages, offset = "", 0
    while offset < len(text):
        excerpt = take_forward([ItemPassage(0, text, 0)], chars(budget), skip=offset)
        assert 0 < len(excerpt.text) <= budget
        pages, offset = pages + excerpt.text, excerpt.end.offset

    assert pages == text


@settings(max_examples=examples(150))
@given(st.lists(st.text(max_size=300), min_size=1, max_size=12), st.integers(130, 300))
def test_pages_of_messages_contain_every_message_once(texts: list[str], budget: int) -> None:
    messages = [ItemPassage(index, text) for index, text in enumerate(texts)]
    parts = [""] * len(texts)
    start = START
    while start.index < len(messages):
        excerpt = take_forward(messages[start.index :], chars(budget), skip=start.offset)
        assert len(excerpt.text) <= budget
        last = excerpt.end.index if excerpt.end.offset else excerpt.end.index - 1
        if excerpt.truncated:
            parts[last] += excerpt.text
        else:
            parts[start.index] += texts[start.index][start.offset :]
            parts[start.index + 1 : last + 1] = texts[start.index + 1 : last + 1]
        assert (excerpt.end.index, excerpt.end.offset) > (start.index, start.offset)
        start = excerpt.end

    assert parts == texts


# -- budgets ----------------------------------------------------------------------------------------------------

TITLES = st.text(max_size=300)
TEXTS = st.lists(st.text(max_size=400) | st.just("word " * 200), min_size=1, max_size=9)


@settings(max_examples=examples(500))
@given(
    title=TITLES,
    tags=st.lists(st.text(max_size=20), max_size=5),
    texts=TEXTS,
    anchor=st.integers(0, 8),
    focus=st.integers(0, 900),
    budget=st.integers(1, 3000),
    per_token=st.floats(0.5, 9),
    window=st.integers(0, 12),
    standalone=st.booleans(),
    forward=st.booleans(),
)
def test_no_response_exceeds_its_budget(
    title: str,
    tags: list[str],
    texts: list[str],
    anchor: int,
    focus: int,
    budget: int,
    per_token: float,
    window: int,
    standalone: bool,
    forward: bool,
) -> None:
    retrieval = plan("full" if forward else "chunk_with_siblings", max_tokens=budget, chars_per_token=per_token)
    meta = item(title=short_title(title), tags=tuple(tags))
    offsets = [sum(len(t) for t in texts[:n]) for n in range(len(texts))]
    passages = [
        ItemPassage(n, text, None if standalone else offsets[n], {"message_index": n} if standalone else None)
        for n, text in enumerate(texts)
    ]
    index = min(anchor, len(texts) - 1)
    text_budget = content_budget(meta, retrieval)
    if forward:
        excerpt = take_forward(passages, text_budget)
    else:
        excerpt = take_around(passages, index, text_budget, window, focus)
    try:
        response = build_response(meta, retrieval, "loc", excerpt, more=True)
    except InvalidParams:
        assert text_budget.weight < 256  # no grapheme and no attachment is longer than half of it
        return

    assert math.ceil(len(response.content) / (retrieval.scale.chars_per_token or 1)) <= retrieval.max_tokens
    if response.over_budget is not True:
        assert total_chars(response) <= retrieval.budget
        assert response.tokens <= retrieval.max_tokens


FRAGMENTS = st.one_of(
    st.sampled_from(sorted(SCRIPTS.values())),
    st.sampled_from([document.body for name, document in DOCUMENTS.items() if name != "lo-country"]),
    st.uuids().map(str),
    st.datetimes().map(lambda time: time.isoformat() + "Z"),
    st.dictionaries(st.sampled_from(["id", "url", "note"]), st.integers() | st.booleans() | st.none()).map(json_text),
)
MIXED = st.lists(FRAGMENTS, min_size=1, max_size=60).map("\n".join)


@settings(max_examples=examples(200))
@given(
    title=FRAGMENTS, text=MIXED, mode=st.sampled_from(MODES), budget=st.integers(1, 3000), offset=st.integers(0, 9000)
)
def test_no_response_has_more_tokens_than_its_budget_in_any_script(
    title: str, text: str, mode: Mode, budget: int, offset: int
) -> None:
    retrieval = plan(mode, max_tokens=budget, snippet_length=1000)
    args = GetArguments(loc={"approx_offset": offset})
    try:
        response = read_document(Document(text), item(title=short_title(title)), retrieval, args, SETTINGS)
    except InvalidParams:
        assert budget < 100
        return

    assert count_tokens(response.content) <= budget
    assert count_tokens(json_text(response)) <= budget or (response.over_budget is True and budget < 700)


@settings(max_examples=examples(100))
@given(texts=st.lists(FRAGMENTS, min_size=1, max_size=30), budget=st.integers(1, 3000), anchor=st.integers(0, 29))
def test_no_run_of_messages_has_more_tokens_than_its_budget(texts: list[str], budget: int, anchor: int) -> None:
    retrieval = plan(max_tokens=budget)
    attachment = {"message_id": "6d326fdf-9fc0-5bdd-9235-2d0c08d258f2", "created_at": "2026-11-15T08:30:00.000Z"}
    passages = [ItemPassage(n, text, None, attachment) for n, text in enumerate(texts)]
    try:
        excerpt = take_around(passages, min(anchor, len(texts) - 1), content_budget(item(), retrieval), window=20)
        response = build_response(item(), retrieval, "loc", excerpt, more=True)
    except InvalidParams:
        assert budget < 100
        return

    assert count_tokens(json_text(response)) <= budget or (response.over_budget is True and budget < 300)


def test_budget_smaller_than_the_metadata_is_reported() -> None:
    retrieval = plan("chunk", max_tokens=100)
    passage = ItemPassage(0, "word " * 500, 0)

    response = build_response(
        item(), retrieval, "beginning", take_part(passage, content_budget(item(), retrieval)), more=True
    )

    assert response.over_budget is True
    assert 50 <= len(response.content) <= 100
    assert response.tokens <= 25


def test_budget_too_small_for_any_content_is_rejected() -> None:
    retrieval = plan("chunk", max_tokens=1, chars_per_token=1)
    excerpt = take_part(ItemPassage(0, "word " * 500, 0), content_budget(item(), retrieval))

    with pytest.raises(InvalidParams, match=r"max_tokens: expected 200 or more, got 1,"):
        build_response(item(), retrieval, "beginning", excerpt, more=True)


# -- cursors ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**31))
def test_cursor_round_trips(index: int, offset: int, version: int) -> None:
    cursor = write_cursor("notes://a", version, Position(index, offset))

    assert read_cursor(cursor, "notes://a", version) == Position(index, offset)
    assert len(cursor) <= 64


def test_cursor_of_another_item_is_rejected() -> None:
    cursor = write_cursor("notes://a", 1, Position(0, 5))

    with pytest.raises(InvalidParams, match="another item"):
        read_cursor(cursor, "notes://b", 1)


def test_cursor_of_an_older_version_is_rejected_with_both_versions() -> None:
    cursor = write_cursor("notes://a", 1, Position(0, 5))

    with pytest.raises(InvalidParams, match=r"expected a cursor of version 2, got one of version 1"):
        read_cursor(cursor, "notes://a", 2)


@given(st.text() | st.binary().map(lambda raw: raw.hex()))
def test_any_other_text_is_rejected_as_cursor(text: str) -> None:
    with pytest.raises(InvalidParams, match="cursor"):
        read_cursor(text, "notes://a", 1)


def test_uris_quote_ids_of_any_kind() -> None:
    assert uri_of("media", 12) == "media://12"
    assert uri_of("chats", "a/b", "c d") == "chats://a%2Fb/c%20d"
