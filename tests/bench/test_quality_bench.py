"""The quality benchmark: its collection is valid and its figures are correct."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.cross_source import (
    SETTING,
    SINGLE_HIT_IS_BEST,
    MergedList,
    QueryResult,
    answering_sources,
    best_items,
    gain_range,
    irrelevant_best_items,
    is_single_source,
    measure,
    missing_answers,
    quality,
    reciprocal_rank,
    report,
    result_line,
    unjustified_pages,
)
from bench.quality.collection import ANSWERS, KINDS, SEPARATE_KINDS, InvalidCollection, Query, read_collection
from bench.quality.minmax_scores import scale_as_written, scale_rounded
from tests.bench.runs import run_bench

NUMBER = r"-?[01]\.[0-9]{4}"
# The minimum gain of the ranking: the lower bound of the 95 % interval.
GAIN_MIN = 0.045
# The maximum number of queries without an answer on the first page.
UNANSWERED_MAX = 25
# The minimum nDCG@10 of the queries that name a time; without reading the times it is 0.46.
DATES_MIN = 0.7
RESULT = re.compile(
    rf"RESULT ndcg_minmax=({NUMBER}) ndcg_ours=({NUMBER}) ndcg_gain=({NUMBER}) ndcg_gain_program=({NUMBER}) "
    rf"unanswered_first_page=([0-9]+) meaning_ours=({NUMBER}) dates_ours=({NUMBER}) ndcg_fast=({NUMBER}) "
    rf"unanswered_fast=[0-9]+ meaning_fast=({NUMBER}) dates_fast={NUMBER}"
)

FILES = {
    "notes.toml": """
        [[note]]
        key = "lamp"
        title = "Lamp oil"
        on = 2025-01-01
        text = "Paraffin for the lamp is in the shed, beside the ladder and the old paint."
        [[note]]
        key = "ladder"
        title = "Ladder"
        on = 2025-01-03
        text = "The ladder needs a new rung."
    """,
    "media.toml": """
        [[media]]
        key = "paint"
        title = "Paint"
        type = "article"
        author = "Unknown"
        on = 2025-01-02
        text = "Paint dries slowly."
    """,
    "chats.toml": """
        [[chat]]
        key = "shed"
        title = "Shed"
        on = 2025-01-04
        text = '''
        Ana: Where is the paraffin?
        Ben: In the shed: behind the door.
        '''
    """,
    "characters.toml": """
        [[character]]
        key = "keeper"
        name = "Keeper"
        on = 2025-01-05
        description = "Keeps a lamp."
        personality = "Calm."
        first_message = "Good evening."
    """,
    "prompts.toml": """
        [[prompt]]
        key = "shopping"
        name = "Shopping"
        on = 2025-01-06
        details = "Makes a list."
        system = "Be brief."
        user = "Needed: {{things}}"
    """,
    "queries.toml": """
        [[query]]
        kind = "rare"
        text = "paraffin"
        grades = { "chats/shed" = 3, "notes/lamp" = 2 }
        [[query]]
        kind = "none"
        text = "zebra"
    """,
    "meaning.toml": """
        [[query]]
        kind = "meaning"
        text = "fuel for illumination"
        grades = { "notes/lamp" = 3, "characters/keeper" = 1 }
    """,
    "dates.toml": """
        [[query]]
        kind = "dates"
        text = "ladder on 3 January 2025"
        grades = { "notes/ladder" = 3, "notes/lamp" = 1 }
    """,
}


def write_collection(folder: Path, **changes: tuple[str, str]) -> Path:
    for name, text in FILES.items():
        old, new = changes.get(name.removesuffix(".toml"), ("", ""))
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1) if old else text, encoding="utf-8")
    return folder


def query_result(query: Query, minmax: Sequence[str], ours: Sequence[str]) -> QueryResult:
    minmax_list, our_list = (
        MergedList(tuple(items), tuple(item.split("/")[0] for item in items), 0.5) for items in (minmax, ours)
    )
    return QueryResult(query, minmax_list, our_list, {SINGLE_HIT_IS_BEST: minmax_list})


def best_sources(query: Query) -> set[str]:
    best = max(query.grades.values())
    return {name.split("/")[0] for name, grade in query.grades.items() if grade == best}


# -- the collection ----------------------------------------------------------------------------------------------------


def test_collection_is_large_and_contains_every_kind_of_query() -> None:
    collection = read_collection()

    assert len(collection.notes) >= 160
    assert len(collection.media) >= 45
    assert min(len(media.text.split()) for media in collection.media) >= 200
    assert len(collection.chats) >= 90
    assert sum(len(chat.messages) for chat in collection.chats) >= 550
    assert len(collection.characters) >= 35
    assert len(collection.prompts) >= 80
    assert len(collection.queries) >= 300
    assert {query.kind for query in collection.queries} == {*KINDS, *SEPARATE_KINDS}


def test_every_item_answers_a_query() -> None:
    collection = read_collection()

    answers = {name for query in collection.queries for name, grade in query.grades.items() if grade >= ANSWERS}

    assert set(collection.names) == answers


def test_best_answers_to_queries_by_meaning_are_in_all_sources() -> None:
    queries = [query for query in read_collection().queries if query.kind == "meaning"]

    best = Counter(source for query in queries for source in best_sources(query))

    assert len(queries) >= 60
    assert min(best[source] for source in ("notes", "media", "chats")) >= 15
    assert min(best[source] for source in ("characters", "prompts")) >= 6


def test_chat_line_is_split_at_its_first_colon(tmp_path: Path) -> None:
    [chat] = read_collection(write_collection(tmp_path)).chats

    assert chat.messages == (("Ana", "Where is the paraffin?"), ("Ben", "In the shed: behind the door."))


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("notes", 'key = "ladder"', 'key = "lamp"', "'notes/lamp': expected once, got 2 times"),
        ("notes", "title =", "headline =", "notes.toml: .*headline"),
        ("notes", "[[note]]", "[[notes]]", r"expected only \[\[note\]\]"),
        ("chats", "Ben: In the shed: behind", "behind", "chats/shed: expected lines of the form"),
        ("queries", "zebra", "paraffin", "'paraffin': expected once, got 2 times"),
        ("queries", "notes/lamp", "notes/lantern", "unknown item 'notes/lantern'"),
        ("queries", "= 3", "= 4", r"expected 0\.\.3, got 4"),
        ("queries", '"rare"', '"none"', "of kind 'none': expected no grades"),
        ("queries", '"none"', '"topic"', "of kind 'topic': expected an item with a grade of at least 2"),
        ("queries", '"rare"', '"curious"', "queries.toml: .*curious"),
        ("meaning", "illumination", "ladders", r"'fuel for ladders': expected no word of notes/lamp, got \['ladder'\]"),
        ("meaning", "fuel for illumination", "Paraffin", "'Paraffin': expected no word of notes/lamp"),
    ],
)
def test_invalid_collection_is_rejected(tmp_path: Path, file: str, old: str, new: str, message: str) -> None:
    folder = write_collection(tmp_path, **{file: (old, new)})

    with pytest.raises(InvalidCollection, match=message):
        read_collection(folder)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    (write_collection(tmp_path) / "prompts.toml").unlink()

    with pytest.raises(InvalidCollection, match=r"prompts\.toml"):
        read_collection(tmp_path)


# -- measuring---------------------------------------------------------------------------------------------------------


async def test_hits_of_all_sources_have_the_names_used_in_judgements(tmp_path: Path) -> None:
    collection = read_collection(write_collection(tmp_path))

    [hits, empty, *_] = await measure(collection, tmp_path / "data")

    assert set(hits.ours.items) == set(hits.minmax.items) == {"chats/shed", "notes/lamp"}
    assert sorted(hits.ours.page_sources) == ["chats", "notes"]
    assert (empty.ours.items, empty.minmax.items, empty.ours.best_score) == ((), (), 0.0)


async def test_single_hit_scores_0_by_the_formula_as_written_and_1_by_our_setting(
    tmp_path: Path,
) -> None:
    collection = read_collection(write_collection(tmp_path, queries=('"paraffin"', '"lamp"')))

    [lamp, *_] = await measure(collection, tmp_path / "data")

    assert lamp.minmax.best_score == 0.0
    assert (lamp.variants[SINGLE_HIT_IS_BEST].best_score, lamp.variants[SETTING].best_score) == (1.0, 1.0)
    assert 0.0 < lamp.ours.best_score < 1.0


def test_run_prints_consistent_figures_and_our_ranking_is_better() -> None:
    completed = run_bench("bench.cross_source", "--models", "fast")

    result = RESULT.fullmatch(completed.stdout.splitlines()[-1])
    assert result, completed.stderr
    minmax, ours, gain, gain_program, unanswered, meaning, dates, fast, fast_meaning = map(float, result.groups())
    assert gain == pytest.approx(ours - minmax, abs=2e-4)
    assert gain >= GAIN_MIN
    assert gain_program >= 0.1
    assert unanswered <= UNANSWERED_MAX
    assert dates >= DATES_MIN
    assert fast > ours
    assert fast_meaning > meaning
    assert ": not justified" not in completed.stdout


# -- figures -----------------------------------------------------------------------------------------------------------

QUERY = Query(kind="topic", text="well", grades={"notes/a": 3, "media/b": 2, "chats/c": 1})


def test_reciprocal_rank_is_that_of_the_first_answer() -> None:
    assert reciprocal_rank(["chats/c", "prompts/x", "media/b", "notes/a"], QUERY.grades) == pytest.approx(1 / 3)
    assert reciprocal_rank([f"notes/{place}" for place in range(10)] + ["notes/a"], QUERY.grades) == 0.0


def test_quality_is_the_mean_over_queries() -> None:
    best = MergedList(("notes/a", "media/b", "chats/c"), (), 1.0)
    empty = MergedList((), (), 0.0)

    mean = quality([(QUERY, best), (QUERY, empty)])

    assert mean.ndcg == pytest.approx(0.5)
    assert mean.mrr == 0.5


def test_best_item_of_each_source_is_its_first_in_the_list() -> None:
    merged = MergedList(("chats/x", "notes/a", "chats/c"), (), 1.0)

    assert best_items(merged) == {"chats": "chats/x", "notes": "notes/a"}
    assert irrelevant_best_items(QueryResult(QUERY, merged, merged, {})) == (False, 1)
    assert answering_sources(QUERY) == {"notes", "media"}


def test_query_with_hits_in_four_sources_counts_as_most_sources() -> None:
    one = query_result(QUERY, ["notes/a", "media/b", "chats/c", "prompts/x"], [])

    assert irrelevant_best_items(one) == (True, 1)
    assert any(line.startswith("1 of 1 queries have hits in four or five") for line in report(read_collection(), [one]))


def test_queries_without_an_answer_are_reported_separately() -> None:
    unanswered = Query(kind="none", text="zebra")
    results = [
        query_result(QUERY, [], ["notes/a", "media/b", "chats/c"]),
        query_result(unanswered, ["notes/a"], ["notes/a"]),
    ]

    assert result_line(results) == (
        "RESULT ndcg_minmax=0.0000 ndcg_ours=1.0000 ndcg_gain=1.0000 ndcg_gain_program=1.0000 unanswered_first_page=0"
    )
    assert any(line.startswith("none") and "1 best score" in line for line in report(read_collection(), results))


def test_separate_kinds_are_reported_apart_and_leave_the_other_figures_unchanged() -> None:
    meaning = Query(kind="meaning", text="source of water", grades={"notes/a": 3})
    results = [query_result(QUERY, [], ["notes/a", "media/b", "chats/c"]), query_result(meaning, [], [])]

    lines = report(read_collection(), results)

    assert result_line(results).endswith(" unanswered_first_page=0 meaning_ours=0.0000")
    assert result_line(results).startswith(result_line(results[:1]))
    assert any(line.split() == ["all", "1", "0.0000", "1.0000", "0.0000", "1.0000"] for line in lines)
    assert any(line.split() == ["meaning", "1", "0.0000", "0.0000", "0.0000", "0.0000"] for line in lines)
    assert "  1 of 1 queries have no answer on our first page" in lines


def test_words_of_a_related_item_may_be_in_a_query_by_meaning(tmp_path: Path) -> None:
    folder = write_collection(tmp_path, meaning=("illumination", "keeper"))

    assert read_collection(folder).queries[-2].text == "fuel for keeper"


def test_losses_are_listed_by_query() -> None:
    loss = query_result(QUERY, ["notes/a", "media/b", "chats/c"], [])

    assert "  -1.0000  topic: well" in report(read_collection(), [loss])


def test_single_source_page_is_justified_only_if_no_other_source_answers() -> None:
    page = MergedList(("notes/a",), ("notes",) * 10, 0.5)

    assert is_single_source(page)
    assert missing_answers(QUERY, page) == ["media/b"]
    related_elsewhere = Query(kind="topic", text="x", grades={"notes/a": 3, "chats/c": 1})
    assert missing_answers(related_elsewhere, page) == []
    assert unjustified_pages([QueryResult(query, page, page, {}) for query in (QUERY, related_elsewhere)]) == ["well"]


@pytest.mark.parametrize("sources", [("notes",) * 9, ("notes",) * 9 + ("media",)])
def test_incomplete_page_or_two_sources_are_not_a_single_source_page(sources: tuple[str, ...]) -> None:
    assert not is_single_source(MergedList((), sources, 0.5))


@given(st.lists(st.sampled_from(["notes/a", "media/b", "chats/c", "prompts/x"]), unique=True), st.integers(1, 5))
def test_gain_range_of_equal_queries_is_their_gain(items: list[str], count: int) -> None:
    one = query_result(QUERY, ["prompts/x"], items)
    gain = quality([(QUERY, one.ours)]).ndcg

    low, high = gain_range([one] * count)

    assert low == pytest.approx(gain)
    assert high == pytest.approx(gain)


@given(st.lists(st.floats(-50, -0.01), min_size=1, max_size=20))
def test_minmax_formula_keeps_the_order_and_stays_in_range(ranks: list[float]) -> None:
    ranks.sort()

    scores = scale_as_written(ranks)

    assert scores == sorted(scores, reverse=True)
    assert scores[0] <= 1.0
    assert scores[-1] == 0.0


def test_minmax_formula_scales_ranks_and_gives_a_single_one_0() -> None:
    assert scale_as_written([-4.0, -3.0, -2.0]) == pytest.approx([1.0, 0.5, 0.0])
    assert scale_as_written([-4.0]) == [0.0]
    assert scale_as_written([-4.0, -3.0])[0] < 1.0 == scale_rounded([-4.0, -3.0])[0]
    assert scale_as_written([]) == []
