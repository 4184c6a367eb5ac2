"""Runs of benchmarks as programs."""

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
# A quick run takes seconds, but not on a busy machine.
_TIMEOUT_S = 600


def run_bench(module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)


def output_of(module: str, *arguments: str) -> list[str]:
    """Returns the lines of a run that must succeed."""
    completed = run_bench(module, *arguments)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout.splitlines()
