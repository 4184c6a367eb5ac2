"""The ladder of modes: what is taken, in which order, and that no budget is ever exceeded."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.tokenizer import count_tokens
from config.errors import InvalidParams
from config.settings import Settings
from sources.items import GetResponse, Mode, ResultItem, RetrievalOptions, short_title, uri_of
from sources.preferences import Preferences, preferences_of
from sources.reading.cursors import START, Position, read_cursor, write_cursor
from sources.reading.documents import Document, read_document
from sources.reading.responses import compose, content_room
from sources.reading.retrieval import Passage, Plan, Room, join, make_plan, take_around, take_forward, take_part
from sources.source import Reading
from sources.text.token_estimates import TokenScale, json_text
from sources.text.word_boundaries import next_word_start, word_boundary_before
from tests.sources.multilingual import DOCUMENTS, SCRIPTS

SETTINGS = Settings()
NOTHING = Preferences()
FAMILY = "👨‍👩‍👧‍👦"
MODES: tuple[Mode, ...] = ("snippet", "chunk", "chunk_with_siblings", "full", "auto")


def plan(mode: Mode = "chunk_with_siblings", **options: Any) -> Plan:
    return make_plan(RetrievalOptions(mode=mode, **options), NOTHING, SETTINGS)


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


def chars(count: int) -> Room:
    """Room for so many characters."""
    return Room(count, TokenScale(1.0))


def slices(text: str, *ranges: tuple[int, int]) -> list[Passage]:
    """Passages of one text, as a chunker or an importer would make them."""
    return [Passage(index, text[a:b], a) for index, (a, b) in enumerate(ranges)]


def whole_chars(answer: GetResponse) -> int:
    """What the answer costs: its content as text, everything around it as JSON."""
    around = json_text(answer).replace(json_text(answer.content), '""', 1)
    return len(around) + len(answer.content)


# -- plans ------------------------------------------------------------------------------------------------------


def test_a_plan_without_options_is_a_snippet_of_300_characters() -> None:
    made = make_plan(None, NOTHING, SETTINGS)

    assert (made.mode, made.snippet_length, made.scale) == ("snippet", 300, TokenScale())
    assert made.prefer_prechunked


@pytest.mark.parametrize(
    ("options", "preferred", "mode"),
    [
        ({"max_tokens": 500}, {}, "chunk_with_siblings"),
        ({}, {"max_tokens": 500}, "chunk_with_siblings"),
        ({}, {}, "snippet"),
    ],
)
def test_auto_takes_siblings_where_a_budget_is_given(
    options: dict[str, Any], preferred: dict[str, Any], mode: str
) -> None:
    made = make_plan(RetrievalOptions(mode="auto", **options), Preferences(**preferred), SETTINGS)

    assert made.mode == mode


def test_options_beat_preferences_and_preferences_beat_settings() -> None:
    preferred = Preferences(snippet_length=50, max_tokens=900, sibling_window=7, chars_per_token=3.0)

    made = make_plan(RetrievalOptions(mode="chunk", snippet_length=60), preferred, SETTINGS)

    assert (made.snippet_length, made.max_tokens, made.window, made.scale) == (60, 900, 7, TokenScale(3.0))


NUMBERS = st.integers(-(10**12), 10**12) | st.none()


@given(
    mode=st.sampled_from(MODES),
    numbers=st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    per_token=st.floats() | st.none(),
)
def test_every_number_of_a_plan_is_moved_into_its_range(
    mode: Mode, numbers: tuple[int | None, ...], per_token: float | None
) -> None:
    length, budget, size, overlap, window = numbers
    made = plan(
        mode,
        snippet_length=length,
        max_tokens=budget,
        chunk_size_tokens=size,
        chunk_overlap_tokens=overlap,
        sibling_window=window,
        chars_per_token=per_token,
    )

    assert 1 <= made.snippet_length <= 1000
    assert 1 <= made.max_tokens <= SETTINGS.retrieval_max_tokens
    assert made.scale.chars_per_token is None or 1 <= made.scale.chars_per_token <= 8
    assert 0 <= made.overlap_chars <= made.chunk_chars / 2
    assert 0 <= made.window <= 50


def test_full_without_a_budget_may_use_the_largest_one() -> None:
    assert plan("full").max_tokens == SETTINGS.retrieval_max_tokens
    assert plan("chunk").max_tokens == SETTINGS.retrieval_default_tokens


def test_a_config_with_a_wrong_value_is_refused_by_name() -> None:
    with pytest.raises(InvalidParams, match=r"config: .*\$\.max_tokens"):
        preferences_of({"max_tokens": "many"})


def test_a_config_may_hold_keys_that_are_not_ours() -> None:
    assert preferences_of({"max_tokens": "800", "theme": "dark"}) == Preferences(max_tokens=800)


# -- siblings ---------------------------------------------------------------------------------------------------

TEN = [Passage(n, str(n) * 10) for n in range(10)]


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (10, "5"),
        (22, "45"),
        (34, "456"),
        (46, "3456"),
        (10_000, "34567"),
    ],
)
def test_siblings_are_taken_nearest_first_and_told_in_reading_order(room: int, expected: str) -> None:
    taken = take_around(TEN, 5, chars(room), window=2)

    assert taken.text == "\n\n".join(digit * 10 for digit in expected)
    assert not taken.truncated


def test_a_side_ends_at_the_first_sibling_that_does_not_fit() -> None:
    passages = [Passage(0, "a"), Passage(1, "b" * 90), Passage(2, "anchor"), Passage(3, "c"), Passage(4, "d")]

    assert take_around(passages, 2, chars(20), window=5).text == "anchor\n\nc\n\nd"


def test_what_neighbours_share_is_said_once() -> None:
    text = "The quick brown fox jumps over the lazy dog."

    taken = take_around(slices(text, (0, 20), (15, 35), (30, 44)), 1, chars(1000), window=1)

    assert taken.text == text


def test_an_overlap_that_is_claimed_but_not_there_loses_no_text() -> None:
    imported = [Passage(0, "alpha beta", 0), Passage(1, "gamma delta", 5)]

    assert join(imported).text == "alpha beta\ngamma delta"


def test_a_passage_inside_its_neighbour_adds_nothing() -> None:
    text = "The quick brown fox jumps over the lazy dog."

    assert join(slices(text, (0, 40), (10, 30))).text == text[:40]


def test_passages_with_a_gap_are_kept_apart() -> None:
    text = "First paragraph.\n\n\nSecond paragraph."

    assert join(slices(text, (0, 16), (19, 36))).text == "First paragraph.\nSecond paragraph."


def test_attachments_name_the_place_of_each_passage_in_the_content() -> None:
    said = [Passage(n, text, None, {"message_index": n}) for n, text in enumerate(("Ada: hi", "Ben: hello"))]

    taken = join(said)

    assert taken.attachments is not None
    assert [taken.text[a["start"] : a["end"]] for a in taken.attachments] == ["Ada: hi", "Ben: hello"]


# -- cuts -------------------------------------------------------------------------------------------------------


def test_an_oversized_first_chunk_is_cut_at_a_word_and_told() -> None:
    taken = take_around([Passage(3, "some words that are too many", 100)], 0, chars(14), window=2)

    assert (taken.text, taken.truncated, taken.end) == ("some words ", True, Position(0, 111))


def test_a_cut_keeps_the_match() -> None:
    text = "word " * 1000 + "needle " + "word " * 1000

    taken = take_part(Passage(0, text, 0), chars(200), focus=text.index("needle"))

    assert "needle" in taken.text
    assert len(taken.text) <= 200


def test_a_cut_never_divides_what_a_reader_sees_as_one_character() -> None:
    text = FAMILY * 20

    taken = take_part(Passage(0, text, 0), chars(2 * len(FAMILY) + 3))

    assert taken.text == FAMILY * 2


def test_a_cluster_no_writer_would_write_is_cut_all_the_same() -> None:
    text = "a" + "\u0301" * 5000

    assert 0 < word_boundary_before(text, 2000) <= 2000


@given(st.text(max_size=200), st.integers(-5, 210))
def test_borders_stay_within_the_text_and_on_their_side(text: str, position: int) -> None:
    place = max(0, position)

    assert 0 <= word_boundary_before(text, place) <= min(place, len(text))
    assert 0 <= next_word_start(text, position) <= max(0, len(text))


# -- reading on -------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(st.text(min_size=1, max_size=600), st.integers(130, 300))
def test_a_text_read_page_by_page_is_the_text(text: str, room: int) -> None:
    read, at = "", 0
    while at < len(text):
        taken = take_forward([Passage(0, text, 0)], chars(room), skip=at)
        assert 0 < len(taken.text) <= room
        read, at = read + taken.text, taken.end.offset

    assert read == text


@settings(max_examples=300)
@given(st.lists(st.text(max_size=300), min_size=1, max_size=12), st.integers(130, 300))
def test_messages_read_page_by_page_are_all_read_once(texts: list[str], room: int) -> None:
    messages = [Passage(index, text) for index, text in enumerate(texts)]
    read = [""] * len(texts)
    at = START
    while at.index < len(messages):
        taken = take_forward(messages[at.index :], chars(room), skip=at.offset)
        assert len(taken.text) <= room
        last = taken.end.index if taken.end.offset else taken.end.index - 1
        if taken.truncated:
            read[last] += taken.text
        else:
            read[at.index] += texts[at.index][at.offset :]
            read[at.index + 1 : last + 1] = texts[at.index + 1 : last + 1]
        assert (taken.end.index, taken.end.offset) > (at.index, at.offset)
        at = taken.end

    assert read == texts


# -- budgets ----------------------------------------------------------------------------------------------------

TITLES = st.text(max_size=300)
TEXTS = st.lists(st.text(max_size=400) | st.just("word " * 200), min_size=1, max_size=9)


@settings(max_examples=2500, deadline=None)
@given(
    title=TITLES,
    tags=st.lists(st.text(max_size=20), max_size=5),
    texts=TEXTS,
    anchor=st.integers(0, 8),
    focus=st.integers(0, 900),
    budget=st.integers(1, 3000),
    per_token=st.floats(0.5, 9),
    window=st.integers(0, 12),
    apart=st.booleans(),
    forward=st.booleans(),
)
def test_no_answer_exceeds_its_budget(
    title: str,
    tags: list[str],
    texts: list[str],
    anchor: int,
    focus: int,
    budget: int,
    per_token: float,
    window: int,
    apart: bool,
    forward: bool,
) -> None:
    made = plan("full" if forward else "chunk_with_siblings", max_tokens=budget, chars_per_token=per_token)
    meta = item(title=short_title(title), tags=tuple(tags))
    offsets = [sum(len(t) for t in texts[:n]) for n in range(len(texts))]
    passages = [
        Passage(n, text, None if apart else offsets[n], {"message_index": n} if apart else None)
        for n, text in enumerate(texts)
    ]
    at = min(anchor, len(texts) - 1)
    room = content_room(meta, made)
    taken = take_forward(passages, room) if forward else take_around(passages, at, room, window, focus)
    try:
        answer = compose(meta, made, "loc", taken, more=True)
    except InvalidParams:
        assert room.weight < 256  # no grapheme and no attachment is longer than half of it
        return

    assert math.ceil(len(answer.content) / (made.scale.chars_per_token or 1)) <= made.max_tokens
    if answer.over_budget is not True:
        assert math.ceil(whole_chars(answer) / (made.scale.chars_per_token or 1)) <= answer.tokens <= made.max_tokens


FRAGMENTS = st.one_of(
    st.sampled_from(sorted(SCRIPTS.values())),
    st.sampled_from([document.body for name, document in DOCUMENTS.items() if name != "lo-country"]),
    st.uuids().map(str),
    st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
    st.dictionaries(st.sampled_from(["id", "url", "note"]), st.integers() | st.booleans() | st.none()).map(json_text),
)
MIXED = st.lists(FRAGMENTS, min_size=1, max_size=60).map("\n".join)


@settings(max_examples=400, deadline=None)
@given(
    title=FRAGMENTS, text=MIXED, mode=st.sampled_from(MODES), budget=st.integers(1, 3000), place=st.integers(0, 9000)
)
def test_no_answer_has_more_tokens_than_its_budget_whatever_it_is_written_in(
    title: str, text: str, mode: Mode, budget: int, place: int
) -> None:
    made = plan(mode, max_tokens=budget, snippet_length=1000)
    reading = Reading(loc={"approx_offset": place})
    try:
        answer = read_document(Document(text), item(title=short_title(title)), made, reading, SETTINGS)
    except InvalidParams:
        assert budget < 100
        return

    assert count_tokens(answer.content) <= budget
    assert count_tokens(json_text(answer)) <= answer.tokens
    assert answer.tokens <= budget or (answer.over_budget is True and budget < 700)


@settings(max_examples=200, deadline=None)
@given(texts=st.lists(FRAGMENTS, min_size=1, max_size=30), budget=st.integers(1, 3000), anchor=st.integers(0, 29))
def test_no_run_of_messages_has_more_tokens_than_its_budget(texts: list[str], budget: int, anchor: int) -> None:
    made = plan(max_tokens=budget)
    about = {"message_id": "6d326fdf-9fc0-5bdd-9235-2d0c08d258f2", "created_at": "2026-11-15T08:30:00.000Z"}
    passages = [Passage(n, text, None, about) for n, text in enumerate(texts)]
    try:
        taken = take_around(passages, min(anchor, len(texts) - 1), content_room(item(), made), window=20)
        answer = compose(item(), made, "loc", taken, more=True)
    except InvalidParams:
        assert budget < 100
        return

    assert count_tokens(json_text(answer)) <= answer.tokens
    assert answer.tokens <= budget or (answer.over_budget is True and budget < 300)


def test_a_budget_too_small_for_what_describes_the_item_is_told() -> None:
    made = plan("chunk", max_tokens=100)
    passage = Passage(0, "word " * 500, 0)

    answer = compose(item(), made, "beginning", take_part(passage, content_room(item(), made)), more=True)

    assert answer.over_budget is True
    assert 50 <= len(answer.content) <= 100
    assert answer.tokens > 100


def test_a_budget_in_which_nothing_fits_is_refused_with_what_would_do() -> None:
    made = plan("chunk", max_tokens=1, chars_per_token=1)
    taken = take_part(Passage(0, "word " * 500, 0), content_room(item(), made))

    with pytest.raises(InvalidParams, match=r"max_tokens: got 1, .*expected 200 or more"):
        compose(item(), made, "beginning", taken, more=True)


# -- cursors ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**31))
def test_a_cursor_leads_back_to_its_place(index: int, offset: int, version: int) -> None:
    cursor = write_cursor("notes://a", version, Position(index, offset))

    assert read_cursor(cursor, "notes://a", version) == Position(index, offset)
    assert len(cursor) <= 64


def test_a_cursor_of_another_item_is_refused() -> None:
    cursor = write_cursor("notes://a", 1, Position(0, 5))

    with pytest.raises(InvalidParams, match="another item"):
        read_cursor(cursor, "notes://b", 1)


def test_a_cursor_of_an_older_version_is_refused_with_both_versions() -> None:
    cursor = write_cursor("notes://a", 1, Position(0, 5))

    with pytest.raises(InvalidParams, match=r"version 1, but .* version 2"):
        read_cursor(cursor, "notes://a", 2)


@given(st.text() | st.binary().map(lambda raw: raw.hex()))
def test_any_other_text_is_no_cursor(text: str) -> None:
    with pytest.raises(InvalidParams, match="cursor"):
        read_cursor(text, "notes://a", 1)


def test_uris_hold_ids_of_any_kind() -> None:
    assert uri_of("media", 12) == "media://12"
    assert uri_of("chats", "a/b", "c d") == "chats://a%2Fb/c%20d"
