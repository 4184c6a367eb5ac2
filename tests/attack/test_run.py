"""A sample of `make attack` finds nothing and prints the counts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow("attacks a server")

ROOT = Path(__file__).parents[2]


def test_sample_of_the_attack_finds_nothing() -> None:
    command = [sys.executable, "-m", "tests.attack.run", "--quick"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert completed.returncode == 0, completed.stdout + completed.stderr
    last = completed.stdout.splitlines()[-1]
    names = ("calls", "tokens", "files", "queries", "roles", "follows", "plugins")
    counts = re.fullmatch("RESULT leaks=0 " + " ".join(rf"{name}=(\d+)" for name in names), last)
    assert counts is not None
    assert all(int(count) > 0 for count in counts.groups())
