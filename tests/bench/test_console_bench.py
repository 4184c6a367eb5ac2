"""The benchmark of the console measures what it says and prints its result."""

import re
import subprocess
import sys
from pathlib import Path

from bench.console import ConsoleOutcome, ConsoleSample, debounce_ms

ROOT = Path(__file__).parents[2]
NUMBER = r"[0-9]+\.[0-9]+"


def test_quick_run_prints_the_result() -> None:
    quick = [sys.executable, "-m", "bench.console", "--quick"]

    completed = subprocess.run(quick, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert completed.returncode == 0, completed.stderr
    last = completed.stdout.splitlines()[-1]
    assert re.fullmatch(rf"RESULT first_result_ms={NUMBER} api_ms={NUMBER} ratio={NUMBER}", last)


def test_ratio_is_that_of_the_medians() -> None:
    samples = [ConsoleSample(first, api) for first, api in ((10.0, 5.0), (30.0, 20.0), (900.0, 21.0))]

    assert ConsoleOutcome(tuple(samples)).as_line() == "RESULT first_result_ms=30.0 api_ms=20.0 ratio=1.50"


def test_debounce_is_read_from_the_script() -> None:
    assert 100 <= debounce_ms() <= 300
