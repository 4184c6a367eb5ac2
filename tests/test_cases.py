"""Many cases in one test, and the tiers and times of the suite."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import each_case
from tests.tiers import UTF_8_CHARACTERS, InvalidMark, find_characters, slow_reason

ROOT = Path(__file__).parent.parent


@pytest.fixture
def limit() -> int:
    return 3


@each_case("number", [1, 2])
@each_case(("text", "length"), [("a", 1), ("bc", 2)])
def test_cases_are_combined_and_fixtures_are_passed(number: int, text: str, length: int, limit: int) -> None:
    assert len(text) == length
    assert number < limit


@each_case("number", lambda: [1, 2])
def test_each_case_has_its_own_directory(number: int, tmp_path: Path) -> None:
    assert list(tmp_path.iterdir()) == []
    tmp_path.joinpath("file").write_text(str(number))


def test_all_failing_cases_are_reported() -> None:
    @each_case("number", range(4))
    def is_even(number: int) -> None:
        assert number % 2 == 0

    with pytest.raises(AssertionError, match="2 of 4 cases of is_even failed") as caught:
        is_even()
    text = str(caught.value)
    assert "number=1\n" in text
    assert "number=3\n" in text
    assert "number=2\n" not in text
    assert "in is_even" in text


async def test_all_failing_cases_of_a_coroutine_are_reported() -> None:
    @each_case(("number", "text"), [(1, "a"), (2, "b")])
    async def is_one(number: int, text: str) -> None:
        assert number == 1, text

    with pytest.raises(AssertionError, match="1 of 2 cases"):
        await is_one()


def test_cases_must_exist_and_fit_the_test() -> None:
    with pytest.raises(AssertionError, match="without cases"):
        each_case("number", [])
    with pytest.raises(AssertionError, match="without cases"):
        each_case("number", list[int])(lambda number: number)()
    with pytest.raises(AssertionError, match="has no arguments"):
        each_case("number", [1])(lambda text: text)


# -- tiers ------------------------------------------------------------------------------------------------------------


@each_case("arguments", [(), ("",), (" ",), (1,), ("a", "b")])
def test_slow_needs_one_reason(arguments: tuple[object, ...]) -> None:
    with pytest.raises(InvalidMark, match="needs a reason"):
        slow_reason(pytest.mark.slow.with_args(*arguments).mark)


@pytest.mark.slow("encodes every character")
def test_characters_of_utf_8_are_those_that_hypothesis_finds() -> None:
    assert find_characters("utf-8") == UTF_8_CHARACTERS


def test_reason_is_returned() -> None:
    assert slow_reason(pytest.mark.slow("kills processes").mark) == "kills processes"


SUITE = """
import time
import pytest
from hypothesis import given, settings, strategies as st
from tests.tiers import examples

def test_quick(): pass

def test_long(): time.sleep(2.1)

@pytest.mark.slow("waits")
def test_marked(): time.sleep(2.1)

counts = {"default": 0, "explicit": 0}

@given(st.integers())
def test_property(number): counts["default"] += 1

@given(st.integers())
@settings(max_examples=examples(150))
def test_long_property(number): counts["explicit"] += 1

def teardown_module(): print("examples", counts)
"""


def run_suite(directory: Path, suite: str, *options: str) -> str:
    """Runs a suite in a process of its own and returns what it prints."""
    directory.joinpath("test_suite.py").write_text(suite)
    directory.joinpath("pytest.ini").write_text('[pytest]\nmarkers = slow(reason)\naddopts = "--strict-markers"\n')
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "tests.tiers", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("CI", None)
    run = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    return run.stdout + run.stderr


@pytest.mark.slow("runs five suites in processes of their own")
def test_a_run_selects_its_tier_and_reports_times(tmp_path: Path) -> None:
    first, parallel, second, whole = (
        run_suite(tmp_path, SUITE, *options.split())
        for options in ("--tier=first", "--tier=first -n 2 --slowest=1", "--tier=second", "--slowest=2")
    )

    assert "4 passed, 1 deselected" in first
    assert "'default': 10, 'explicit': 10" in first
    for output in (first, parallel):
        assert "1 of 5 tests are left for the second tier" in output
        assert "1 tests took longer than 2 s and do not have the mark slow" in output
        assert "test_suite.py::test_long\n" in output
        assert "test_suite.py::test_marked" not in output
    assert "the 1 slowest tests" in parallel
    assert "slowest" not in first
    assert "3 passed, 2 deselected" in second
    assert "'default': 50, 'explicit': 150" in second
    assert "took longer" not in second
    assert "5 passed" in whole
    assert "test_suite.py::test_marked" in whole
    assert "left for" not in whole


@pytest.mark.slow("runs a suite in a process of its own")
def test_a_mark_without_a_reason_stops_the_run(tmp_path: Path) -> None:
    output = run_suite(tmp_path, "import pytest\n\n@pytest.mark.slow\ndef test_it(): pass\n")
    assert "test_suite.py::test_it" in output
    assert "needs a reason" in output
