"""The benchmark of the sources: it runs from end to end, compares like with like, and reports the worst of its rows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.library import OWNER, REFERENCE, build_library, forget_stale_libraries, kept_library
from bench.plain_search import STATEMENTS, open_plain
from bench.prose import COMMONEST, Prose
from bench.reading_desk import open_desk, user_id_of
from bench.sources import KINDS, Asked, Outcome, Row, percentile
from bench.tenants import Opened, Visited, copy_to_tenants, tenant, visit
from config.paths import DataRoot

ROOT = Path(__file__).parents[2]
TINY = REFERENCE.times(0.003)
NUMBER = r"-?[0-9]+\.[0-9]+"
RESULT = re.compile(
    rf"RESULT worst_ratio=({NUMBER}) worst_added_ms=({NUMBER}) cold_p95_ms=({NUMBER}) tenants_rss_mb=({NUMBER})"
)
DESCRIPTORS = re.compile(r"descriptors (\d+) before, at most (\d+), (\d+) after closing")


def test_quick_run_measures_every_source_and_kind_and_ends_with_the_result() -> None:
    quick = [sys.executable, "-m", "bench.sources", "--quick"]

    ran = subprocess.run(quick, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert ran.returncode == 0, ran.stderr
    *report, last = ran.stdout.splitlines()
    for source in STATEMENTS:
        for kind in KINDS:
            assert sum(bool(re.match(rf"x10? +{source} +{kind} ", line)) for line in report) == 2
    found = RESULT.fullmatch(last)
    assert found
    assert all(float(number) > 0 for number in found.groups())
    held = DESCRIPTORS.search(report[-1])
    assert held
    assert int(held[1]) == int(held[3]) < int(held[2])


# -- the library -------------------------------------------------------------------------------------------------------


async def test_a_library_has_the_sizes_it_was_asked_for(tmp_path: Path) -> None:
    await build_library(tmp_path, TINY)

    async with open_desk(tmp_path) as desk, desk.libraries.library(desk.reader(OWNER)) as library:
        notes, chats = await library.notes.list(1, 0), await library.chats.list(1, 0)
        media, characters = await library.media.list(1, 0), await library.characters.list(1, 0)
        prompts = await library.prompts.list(1, 0)
        assert (notes.total, media.total, chats.total) == (30, 6, 3)
        assert (characters.total, prompts.total) == (1, 2)
        assert len(notes.rows[0].content.split()) == 150
        assert chats.rows[0].message_count == 20


async def test_a_kept_library_is_built_once_and_a_stale_one_goes(tmp_path: Path) -> None:
    first = await kept_library(TINY, tmp_path)
    stale, recent = tmp_path / f"{first.name}0", tmp_path / f"{first.name}1"
    stale.mkdir()
    recent.mkdir()
    os.utime(stale, (1_000, 1_000))
    before = {path: path.stat().st_mtime_ns for path in first.rglob("*.db")}

    again = await kept_library(TINY, tmp_path)
    forget_stale_libraries([again], tmp_path, now_s=recent.stat().st_mtime)

    assert again == first
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*.db")} == before
    assert {*tmp_path.iterdir()} == {first, recent}


@settings(deadline=None)  # the first text of a seed pays for its vocabulary
@given(words=st.integers(1, 200), seed=st.integers(0, 3))
def test_a_seed_and_a_stream_decide_every_word(words: int, seed: int) -> None:
    text = Prose(seed).text(words)

    assert len(text.split()) == words
    assert Prose(seed).text(words) == text
    assert Prose(seed, stream="queries").text(200) != Prose(seed).text(200)


def test_words_are_as_common_as_in_a_language_and_queries_find_some() -> None:
    prose = Prose(1)
    texts = [f" {prose.text(150)} ".lower() for _ in range(300)]
    asked = [prose.words(1) for _ in range(100)]

    assert sum(f" {COMMONEST} " in text for text in texts) > 270
    shares = sorted(sum(f" {word}" in text for text in texts) / len(texts) for word in asked)
    assert 0.0 < shares[len(shares) // 2] < 0.03
    assert shares[-1] < 0.2


# -- like with like ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "query"), [("notes", "herself"), ("media", "herself"), ("prompts", "about"), ("characters", COMMONEST)]
)
async def test_the_plain_statement_and_our_search_find_the_same_items(tmp_path: Path, source: str, query: str) -> None:
    await build_library(tmp_path, REFERENCE.times(0.01))
    async with open_desk(tmp_path) as desk:
        reader = desk.reader(OWNER)
        searched = desk.sources[source]
        async with desk.libraries.library(reader) as library, open_plain(reader.db_paths, desk.settings) as plain:
            rows = await plain.rows(source, plain.match(source, query), 1_000)
            ours = await searched.search(reader, library, searched.search_input(query=query, limit=100))

    assert {row[0] for row in rows} == {match.id for match in ours.found} != set()


async def test_tenants_have_copies_of_their_own(tmp_path: Path) -> None:
    await build_library(tmp_path / "template", TINY)
    copy_to_tenants(tmp_path / "template", tmp_path / "many", 3)

    async with open_desk(tmp_path / "many") as desk:
        async with desk.libraries.library(desk.reader(tenant(0))) as one:
            [note] = (await one.notes.list(1, 0)).rows
            await one.notes.delete(note.id)
            assert (await one.notes.list(1, 0)).total == 29
        async with desk.libraries.library(desk.reader(tenant(1))) as other:
            assert (await other.notes.get(note.id)).title == note.title

    seen = await visit(tmp_path / "many", count=3, visits=2)
    assert seen.descriptors_most > seen.descriptors_before
    assert len({DataRoot(tmp_path).paths_of(user_id_of(tenant(number))).chacha for number in range(3)}) == 3


# -- figures -----------------------------------------------------------------------------------------------------------


def row(source: str, kind: str, *asked: tuple[float, float]) -> Row:
    return Row("x1", source, kind, tuple(Asked(plain, ours) for plain, ours in asked))


def test_the_result_is_the_worst_ordinary_row() -> None:
    rows = (
        row("notes", "one word", (1.0, 1.5), (1.0, 1.7), (1.0, 9.0)),
        row("chats", "question", (10.0, 12.0)),
        row("prompts", "question", (0.1, 2.6)),  # few rows: its ratio says nothing
        row("media", "commonest word", (1.0, 50.0)),  # told in the table
    )
    opened = Opened(first_ms=tuple(range(1, 101)), all_ms=(1.0,))
    outcome = Outcome(rows, opened, Visited(1, 300_000_000, 5, 9, 5))

    assert outcome.as_line() == "RESULT worst_ratio=1.70 worst_added_ms=2.50 cold_p95_ms=95.0 tenants_rss_mb=300.0"
    assert outcome.usual_ms(rows[0]) == 1.7


@given(values=st.lists(st.floats(0, 1e6), min_size=1), percent=st.integers(1, 100))
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(values: list[float], percent: int) -> None:
    found = percentile(values, percent)

    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)
