"""The benchmark of hostile files runs end to end, and tells refused files from accepted ones."""

from bench.hostile_imports import HostileResult
from tests.bench.runs import output_of


def test_small_run_prints_a_row_for_each_format_and_the_result() -> None:
    options = ["--megabytes", "0.001", "--formats", "whatsapp", "librechat"]
    *_, whatsapp, librechat, _, result = output_of("bench.hostile_imports", *options)
    assert whatsapp.startswith("| `whatsapp` | ")
    assert librechat.startswith("| `librechat` | librechat")
    assert result.startswith("RESULT refused_max_s=")
    assert " formats=2 " in result


def test_file_is_accepted_only_if_it_has_items_and_was_read_to_its_end() -> None:
    assert not HostileResult(items=1, reports=5).is_refused
    assert HostileResult(reports=5).is_refused
    assert HostileResult(items=1, problem="given up").is_refused
