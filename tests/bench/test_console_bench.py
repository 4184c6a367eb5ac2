"""The benchmark of the console measures what it says and prints its result."""

import re

from bench.console import ConsoleOutcome, ConsoleSample, debounce_ms
from tests.bench.runs import output_of

NUMBER = r"[0-9]+\.[0-9]+"


def test_quick_run_prints_the_result() -> None:
    last = output_of("bench.console", "--quick")[-1]
    assert re.fullmatch(rf"RESULT first_result_ms={NUMBER} api_ms={NUMBER} ratio={NUMBER}", last)


def test_ratio_is_that_of_the_medians() -> None:
    samples = [ConsoleSample(first, api) for first, api in ((10.0, 5.0), (30.0, 20.0), (900.0, 21.0))]

    assert ConsoleOutcome(tuple(samples)).as_line() == "RESULT first_result_ms=30.0 api_ms=20.0 ratio=1.50"


def test_debounce_is_read_from_the_script() -> None:
    assert 100 <= debounce_ms() <= 300
