"""The benchmark of the models runs end to end, with both models."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_quick_run_covers_a_library_with_both_models_and_prints_the_result() -> None:
    quick = [sys.executable, "-m", "bench.embed", "--quick"]

    completed = subprocess.run(quick, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert completed.returncode == 0, completed.stderr
    *_, last = completed.stdout.splitlines()
    names = re.findall(r" (\w+)=[0-9.]+", last)
    assert last.startswith("RESULT ")
    assert names == [
        "fast_messages_per_cpu_s",
        "minilm_messages_per_cpu_s",
        "fast_query_ms",
        "minilm_query_ms",
        "cover_100k_s_fast",
        "cover_100k_s_minilm",
        "bytes_per_passage_fast",
        "bytes_per_passage_minilm",
        "bytes_per_passage",
        "search_p99_x",
    ]
