"""The benchmark of messages: it runs from end to end, compares like with like, and reports the worst of its rows."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.library import SEED, build_library
from bench.messages import (
    QUICK,
    Asked,
    DifferentRows,
    Question,
    Row,
    open_sides,
    questions,
    report,
    told_in,
)
from bench.prose import Prose

ROOT = Path(__file__).parents[2]
NUMBER = r"[0-9]+\.[0-9]+"


def test_quick_run_measures_every_kind_of_question_and_ends_with_the_result() -> None:
    quick = [sys.executable, "-m", "bench.messages", "--quick"]

    ran = subprocess.run(quick, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert ran.returncode == 0, ran.stderr
    first, *lines, last = ran.stdout.splitlines()
    assert first == "400 messages of one user"
    for what, kind, _ in questions(QUICK.sizes):
        assert sum(bool(re.match(rf"{what} +{kind} +{NUMBER} ", line)) for line in lines) == 1
    found = re.fullmatch(rf"RESULT worst_ratio=({NUMBER})", last)
    assert found
    assert float(found[1]) > 0


async def test_each_question_finds_something_and_the_plain_statement_finds_the_same(tmp_path: Path) -> None:
    await build_library(tmp_path, QUICK.sizes)

    async with open_sides(tmp_path, QUICK.limits) as sides:
        for what, kind, asking in questions(QUICK.sizes):
            prose = Prose(SEED, stream=kind)
            asked = [asking(prose) for _ in range(20)]
            # It raises where the rows differ.
            measured = [await sides.ask(question, is_ours_first=True) for question in asked]
            assert any(measured), (what, kind)
            # Two words together are too rare in so short a history.
            found = [told_in(await sides.request(question).send()) for question in asked]
            assert any(found) or kind == "two words", (what, kind)


async def test_a_statement_that_fetches_other_rows_is_noticed(tmp_path: Path) -> None:
    await build_library(tmp_path, QUICK.sizes)
    other = {"limit": 5, "offset": 3}
    question = Question(path="/conversations", arguments={"limit": 5}, statement="listed", values=other)

    async with open_sides(tmp_path, QUICK.limits) as sides:
        with pytest.raises(DifferentRows):
            await sides.ask(question, is_ours_first=False)


def test_an_answer_that_is_an_error_is_no_answer() -> None:
    refused = {"result": {"isError": True, "content": [{"type": "text", "text": "limit: got x"}]}}

    with pytest.raises(DifferentRows):
        told_in(msgspec.json.encode(refused))


def test_the_result_is_the_worst_of_the_rows_and_a_row_the_median_of_its_queries() -> None:
    steady = Row("msg_search", "rare word", (Asked(1.0, 2.0, 3.0), Asked(2.0, 2.0, 9.0), Asked(1.0, 40.0, 4.0)))
    slower = Row("msg_search", "two words", (Asked(2.0, 5.0, 6.0),))

    *_, result = report([steady, slower])

    assert (steady.plain_ms, steady.ours_ms, steady.ratio) == (1.0, 2.0, 2.0)
    assert (steady.wall_ms(50), steady.wall_ms(99)) == (4.0, 9.0)
    assert result == "RESULT worst_ratio=2.50"
