"""The message benchmark runs end to end, compares equal results, and reports its worst row."""

import re
from pathlib import Path

import msgspec
import pytest

from bench.library import SEED, build_library
from bench.messages import QUICK, Case, Row, RowMismatch, Sample, cases, open_comparison, report, row_keys
from bench.prose import Prose
from tests.bench.runs import output_of

NUMBER = r"[0-9]+\.[0-9]+"


def test_quick_run_measures_every_case_and_prints_the_result() -> None:
    first, *lines, last = output_of("bench.messages", "--quick")
    assert first == "400 messages of one user"
    for endpoint, kind, _ in cases(QUICK.sizes):
        assert sum(bool(re.match(rf"{endpoint} +{kind} +{NUMBER} ", line)) for line in lines) == 1
    result = re.fullmatch(rf"RESULT worst_ratio=({NUMBER})", last)
    assert result
    assert float(result[1]) > 0


async def test_every_case_has_results_and_the_baseline_returns_the_same(tmp_path: Path) -> None:
    await build_library(tmp_path, QUICK.sizes)

    async with open_comparison(tmp_path, QUICK.limits) as comparison:
        for endpoint, kind, make_case in cases(QUICK.sizes):
            prose = Prose(SEED, stream=kind)
            examples = [make_case(prose) for _ in range(20)]
            # Raises if the rows differ.
            samples = [await comparison.sample(case, is_ours_first=True) for case in examples]
            assert any(samples), (endpoint, kind)
            # Two words rarely occur together in such a short history.
            keys = [row_keys(await comparison.request(case).send()) for case in examples]
            assert any(keys) or kind == "two words", (endpoint, kind)


async def test_baseline_with_other_rows_raises_row_mismatch(tmp_path: Path) -> None:
    await build_library(tmp_path, QUICK.sizes)
    other_values = {"limit": 5, "offset": 3}
    case = Case(path="/conversations", arguments={"limit": 5}, statement="list", values=other_values)

    async with open_comparison(tmp_path, QUICK.limits) as comparison:
        with pytest.raises(RowMismatch):
            await comparison.sample(case, is_ours_first=False)


def test_error_response_raises_row_mismatch() -> None:
    response = {"result": {"isError": True, "content": [{"type": "text", "text": "limit: got x"}]}}

    with pytest.raises(RowMismatch):
        row_keys(msgspec.json.encode(response))


def test_result_is_the_worst_row_and_a_row_is_the_median_of_its_samples() -> None:
    steady = Row("msg_search", "rare word", (Sample(1.0, 2.0, 3.0), Sample(2.0, 2.0, 9.0), Sample(1.0, 40.0, 4.0)))
    slower = Row("msg_search", "two words", (Sample(2.0, 5.0, 6.0),))

    *_, result = report([steady, slower])

    assert (steady.baseline_ms, steady.ours_ms, steady.ratio) == (1.0, 2.0, 2.0)
    assert (steady.wall_ms(50), steady.wall_ms(99)) == (4.0, 9.0)
    assert result == "RESULT worst_ratio=2.50"
