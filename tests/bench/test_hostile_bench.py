"""The benchmark of hostile files runs end to end, and tells refused files from accepted ones."""

import subprocess
import sys
from pathlib import Path

from bench.hostile_imports import HostileResult

ROOT = Path(__file__).parents[2]


def test_small_run_prints_a_row_for_each_format_and_the_result() -> None:
    options = ["--megabytes", "0.001", "--formats", "whatsapp", "librechat"]
    command = [sys.executable, "-m", "bench.hostile_imports", *options]

    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert completed.returncode == 0, completed.stderr
    *_, whatsapp, librechat, _, result = completed.stdout.splitlines()
    assert whatsapp.startswith("| `whatsapp` | ")
    assert librechat.startswith("| `librechat` | librechat")
    assert result.startswith("RESULT refused_max_s=")
    assert " formats=2 " in result


def test_file_is_accepted_only_if_it_has_items_and_was_read_to_its_end() -> None:
    assert not HostileResult(items=1, reports=5).is_refused
    assert HostileResult(reports=5).is_refused
    assert HostileResult(items=1, problem="given up").is_refused
