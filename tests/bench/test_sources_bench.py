"""The source benchmark runs end to end, compares equal results, and reports its worst row."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.baseline_search import STATEMENTS, open_baseline
from bench.library import OWNER, REFERENCE, build_library, cached_library, delete_stale_libraries
from bench.local_runtime import open_local_runtime, user_id_for
from bench.prose import MOST_COMMON_WORD, Prose
from bench.sources import KINDS, Outcome, Row, Sample, percentile
from bench.tenants import FirstSearches, VisitResult, copy_to_tenants, tenant, visit
from config.paths import DataRoot
from tests.bench.runs import output_of

TINY = REFERENCE.times(0.003)
NUMBER = r"-?[0-9]+\.[0-9]+"
RESULT = re.compile(
    rf"RESULT worst_ratio=({NUMBER}) worst_added_ms=({NUMBER}) cold_p95_ms=({NUMBER}) tenants_rss_mb=({NUMBER})"
)
DESCRIPTORS = re.compile(r"descriptors (\d+) before, at most (\d+), (\d+) after closing")


def test_quick_run_measures_every_source_and_kind_and_prints_the_result() -> None:
    *report, last = output_of("bench.sources", "--quick")
    for source in STATEMENTS:
        for kind in KINDS:
            assert sum(bool(re.match(rf"x10? +{source} +{kind} ", line)) for line in report) == 2
    result = RESULT.fullmatch(last)
    assert result
    assert all(float(number) > 0 for number in result.groups())
    descriptors = DESCRIPTORS.search(report[-1])
    assert descriptors
    assert int(descriptors[1]) == int(descriptors[3]) < int(descriptors[2])


# -- the library -------------------------------------------------------------------------------------------------------


async def test_library_has_the_given_sizes(tmp_path: Path) -> None:
    await build_library(tmp_path, TINY)

    async with (
        open_local_runtime(tmp_path) as runtime,
        runtime.libraries.library(runtime.context_for(OWNER)) as library,
    ):
        notes, chats = await library.notes.list(1, 0), await library.chats.list(1, 0)
        media, characters = await library.media.list(1, 0), await library.characters.list(1, 0)
        prompts = await library.prompts.list(1, 0)
        assert (notes.total, media.total, chats.total) == (30, 6, 3)
        assert (characters.total, prompts.total) == (1, 2)
        assert len(notes.rows[0].content.split()) == 150
        assert chats.rows[0].message_count == 20


async def test_cached_library_is_built_once_and_stale_ones_are_deleted(tmp_path: Path) -> None:
    first = await cached_library(TINY, tmp_path)
    stale, recent = tmp_path / f"{first.name}0", tmp_path / f"{first.name}1"
    stale.mkdir()
    recent.mkdir()
    os.utime(stale, (1_000, 1_000))
    before = {path: path.stat().st_mtime_ns for path in first.rglob("*.db")}

    again = await cached_library(TINY, tmp_path)
    delete_stale_libraries([again], tmp_path, now_s=recent.stat().st_mtime)

    assert again == first
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*.db")} == before
    assert {*tmp_path.iterdir()} == {first, recent}


@settings(deadline=None)  # the first text of a seed builds the vocabulary
@given(words=st.integers(1, 200), seed=st.integers(0, 3))
def test_texts_are_determined_by_seed_and_stream(words: int, seed: int) -> None:
    text = Prose(seed).text(words)

    assert len(text.split()) == words
    assert Prose(seed).text(words) == text
    assert Prose(seed, stream="queries").text(200) != Prose(seed).text(200)


def test_word_frequencies_resemble_natural_language() -> None:
    prose = Prose(1)
    texts = [f" {prose.text(150)} ".lower() for _ in range(300)]
    queries = [prose.words(1) for _ in range(100)]

    assert sum(f" {MOST_COMMON_WORD} " in text for text in texts) > 270
    shares = sorted(sum(f" {word}" in text for text in texts) / len(texts) for word in queries)
    assert 0.0 < shares[len(shares) // 2] < 0.03
    assert shares[-1] < 0.2


# -- equal results -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "query"),
    [("notes", "herself"), ("media", "herself"), ("prompts", "about"), ("characters", MOST_COMMON_WORD)],
)
async def test_baseline_and_our_search_return_the_same_items(tmp_path: Path, source: str, query: str) -> None:
    await build_library(tmp_path, REFERENCE.times(0.01))
    async with open_local_runtime(tmp_path) as runtime:
        context = runtime.context_for(OWNER)
        searched = runtime.sources[source]
        async with (
            runtime.libraries.library(context) as library,
            open_baseline(context.db_paths, runtime.settings) as baseline,
        ):
            rows = await baseline.rows(source, baseline.match(source, query), 1_000)
            ours = await searched.search(context, library, searched.search_input(query=query, limit=100))

    assert {row[0] for row in rows} == {hit.id for hit in ours.hits} != set()


async def test_tenants_have_separate_copies(tmp_path: Path) -> None:
    await build_library(tmp_path / "template", TINY)
    copy_to_tenants(tmp_path / "template", tmp_path / "many", 3)

    async with open_local_runtime(tmp_path / "many") as runtime:
        async with runtime.libraries.library(runtime.context_for(tenant(0))) as one:
            [note] = (await one.notes.list(1, 0)).rows
            await one.notes.delete(note.id)
            assert (await one.notes.list(1, 0)).total == 29
        async with runtime.libraries.library(runtime.context_for(tenant(1))) as other:
            assert (await other.notes.get(note.id)).title == note.title

    visits = await visit(tmp_path / "many", count=3, visits=2)
    assert visits.descriptors_peak > visits.descriptors_before
    assert len({DataRoot(tmp_path).paths_of(user_id_for(tenant(number))).chacha for number in range(3)}) == 3


# -- figures -----------------------------------------------------------------------------------------------------------


def row(source: str, kind: str, *samples: tuple[float, float]) -> Row:
    return Row("x1", source, kind, tuple(Sample(baseline, ours) for baseline, ours in samples))


def test_result_is_the_worst_ordinary_row() -> None:
    rows = (
        row("notes", "one word", (1.0, 1.5), (1.0, 1.7), (1.0, 9.0)),
        row("chats", "question", (10.0, 12.0)),
        row("prompts", "question", (0.1, 2.6)),  # few rows: its ratio is meaningless
        row("media", "commonest word", (1.0, 50.0)),  # in the table only
    )
    first_searches = FirstSearches(first_ms=tuple(range(1, 101)), all_ms=(1.0,))
    outcome = Outcome(rows, first_searches, VisitResult(1, 300_000_000, 5, 9, 5))

    assert outcome.as_line() == "RESULT worst_ratio=1.70 worst_added_ms=2.50 cold_p95_ms=95.0 tenants_rss_mb=300.0"
    assert outcome.typical_ms(rows[0]) == 1.7


@given(values=st.lists(st.floats(0, 1e6), min_size=1), percent=st.integers(1, 100))
def test_percentile_is_the_smallest_value_that_enough_values_do_not_exceed(values: list[float], percent: int) -> None:
    result = percentile(values, percent)

    assert sum(value <= result for value in values) * 100 >= percent * len(values)
    assert sum(value < result for value in values) * 100 < percent * len(values)
