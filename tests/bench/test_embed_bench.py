"""The benchmark of the models runs end to end, with both models."""

import re

from tests.bench.runs import output_of


def test_quick_run_covers_a_library_with_both_models_and_prints_the_result() -> None:
    *_, last = output_of("bench.embed", "--quick")
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
