"""The overload and neighbour benchmarks run end to end, and their figures mean what they say."""

import re
from typing import Any

import msgspec
import pytest

from bench.callers import CallResult, Outcome, classify
from bench.load import UnexpectedResponse
from bench.neighbour import NeighbourResult
from bench.overload import Level, OverloadResult
from tests.bench.runs import output_of


def test_quick_overload_run_measures_every_level_and_prints_the_result() -> None:
    *report, last = output_of("bench.overload", "--quick")

    assert [line.split("  ")[0] for line in report[2:5]] == ["2", "16", "16, calling at once"]
    assert re.fullmatch(r"RESULT goodput_16_ratio=[0-9.]+ refused_p99_ms=[0-9]+ recovery_s=[0-9.]+", last)


def test_quick_neighbour_run_measures_three_situations_and_prints_the_result() -> None:
    *report, last = output_of("bench.neighbour", "--quick")

    assert [line.split("  ")[0] for line in report[2:5]] == [
        "alone",
        "with 8 searchers",
        "with an import and 16 searchers",
    ]
    assert re.fullmatch(r"RESULT search_p99_x=[0-9.]+ import_p99_x=[0-9.]+", last)


# -- outcomes ----------------------------------------------------------------------------------------------------------


def response_body(*statuses: str, **more: Any) -> bytes:
    sources = {f"source {number}": {"status": status} for number, status in enumerate(statuses)}
    return msgspec.json.encode({"id": 7, "result": {"structuredContent": {"sources": sources}, **more}})


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (200, response_body(), "complete"),
        (200, response_body("ok", "timeout"), "partial"),
        (200, response_body("timeout", "skipped", "error", "timeout", "timeout"), "empty"),
        (200, b'{"id":7,"result":{"isError":true}}', "refused"),
        (503, b"busy", "refused"),
    ],
)
def test_responses_are_classified(status: int, body: bytes, outcome: Outcome) -> None:
    assert classify(status, body, 7) == outcome


@pytest.mark.parametrize(("status", "body"), [(500, b"{}"), (200, b"<html>"), (200, b'{"id":8,"result":{}}')])
def test_unexpected_response_ends_the_measurement(status: int, body: bytes) -> None:
    with pytest.raises(UnexpectedResponse):
        classify(status, body, 7)


# -- figures -----------------------------------------------------------------------------------------------------------


def calls(outcome: Outcome, *wall_ms: float) -> tuple[CallResult, ...]:
    return tuple(CallResult(0, outcome, 0.1 * number, ms) for number, ms in enumerate(wall_ms, 1))


def test_goodput_counts_complete_answers_and_is_compared_with_the_best_level() -> None:
    few = Level(4, False, calls("complete", *[10.0] * 40), 2.0, 1.0)
    many = Level(512, False, (*calls("complete", *[900.0] * 30), *calls("refused", 5.0, 7.0)), 2.0, 2.0)
    impatient = Level(512, True, calls("complete", *[900.0] * 80), 2.0, 2.0)
    result = OverloadResult((few, many, impatient), calls("complete", 10.0, 10.0))

    assert (few.goodput, many.goodput, result.peak) == (20.0, 15.0, 20.0)
    assert result.as_line() == "RESULT goodput_512_ratio=0.75 refused_p99_ms=7 recovery_s=0.10"


def test_recovery_ends_with_the_last_incomplete_answer() -> None:
    answers = (*calls("complete", 1.0), CallResult(0, "partial", 0.5, 1.0), CallResult(0, "complete", 0.8, 1.0))

    assert OverloadResult((), answers).recovery_s == 0.8
    assert OverloadResult((), answers[:2]).recovery_s == float("inf")


def test_neighbours_are_compared_by_the_99th_percentile() -> None:
    result = NeighbourResult((10.0,) * 99 + (20.0,), (60.0,) * 100, (100.0,) * 100, 1.0, 1.0, 1.0)

    assert result.as_line().startswith("RESULT search_p99_x=")
    assert result.import_ratio > result.search_ratio > 1
