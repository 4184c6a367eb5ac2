"""The token benchmark: its scripts are valid, it runs end to end, and its figures are correct."""

import re
from pathlib import Path

import pytest

from bench.tokens import (
    BOTH,
    HEADLINE,
    NEITHER,
    SCRIPTS,
    SHORT_PAGE,
    VARIANTS,
    CapViolation,
    Comparison,
    InvalidScript,
    Outcome,
    Session,
    Step,
    pool,
    read_scripts,
    report,
)
from tests.bench.runs import output_of

RESULT = re.compile(r"RESULT saved=(-?\d\.\d{4}) recall_ratio=(\d\.\d{4}) cap_violations=(\d+) page_tokens=(\d+)")

CALLS = """
    [[several_topics]]
    query = "why does the dome stick"
    relevant = ["notes/dome-log"]
    [[one_topic]]
    read = "notes/dome-log"
    query = "azimuth"
    relevant = ["notes/dome-log"]
    says = "chalk"
"""
STEPS = (
    Step(query="dome", relevant=("notes/dome-log", "notes/dome-chalk")),
    Step(query="azimuth", read="notes/dome-log", says="chalk", relevant=("notes/dome-log",)),
)
LOG, CHALK, PASSAGE = "notes/dome-log", "notes/dome-chalk", "notes/dome-log: chalk"


def outcome(ours: Session, baseline: Session, *violations: CapViolation) -> Outcome:
    return Outcome({HEADLINE: Comparison(frozenset([LOG, CHALK, PASSAGE]), (ours, baseline))}, 1900, 10, violations)


def test_quick_run_runs_every_session_and_prints_the_result() -> None:
    *lines, last = output_of("bench.tokens", "--quick")
    for variant in VARIANTS:
        assert sum(line.startswith(f"  {variant.title} ") for line in lines) == len(SCRIPTS) + 1
    result = RESULT.fullmatch(last)
    assert result
    # These figures do not depend on the machine.
    assert float(result[1]) >= 0.5
    assert float(result[2]) >= 1.0
    assert result[3] == "0"
    assert int(result[4]) <= 1_900


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_has_ten_calls_including_reads(name: str) -> None:
    steps = read_scripts()[name]

    assert len(steps) == 10
    assert sum(step.read is not None for step in steps) >= 3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("notes/dome-log", "notes/doom-log", r"unknown items \['notes/doom-log'\]"),
        ('says = "chalk"', "", "expected both `read` and `says`"),
        ("query =", "question =", "tokens.toml: .*question"),
        ("[[one_topic]]", "[[one_topc]]", r"got \['one_topc', 'several_topics'\]"),
    ],
)
def test_invalid_script_is_rejected(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(CALLS.replace(old, new))

    with pytest.raises(InvalidScript, match=message):
        read_scripts(path)


def test_target_of_a_read_is_a_passage_and_of_a_search_are_items() -> None:
    assert [step.targets for step in STEPS] == [{LOG, CHALK}, {PASSAGE}]


def test_variants_differ_only_in_session_and_budgets() -> None:
    search, read = STEPS

    assert dict(BOTH.search(search, "handle").arguments) == {"query": "dome", "limit": SHORT_PAGE, "session": "handle"}
    assert dict(NEITHER.search(search, "handle").arguments) == {"query": "dome", "limit": 20, "dedupe": "off"}
    assert dict(BOTH.search(search, None).arguments) == {"query": "dome", "limit": SHORT_PAGE}
    with_budget, whole = BOTH.read(read).arguments, NEITHER.read(read).arguments
    assert with_budget["uri"] == whole["uri"]
    assert "max_tokens" in with_budget["retrieval"]
    assert whole["retrieval"] == {"mode": "full"}


def test_savings_are_computed_per_target() -> None:
    ours = Session(BOTH, (300, 100), frozenset([LOG, PASSAGE]))
    baseline = Session(NEITHER, (1_000, 600), frozenset([LOG, CHALK, PASSAGE, "media/x"]))

    line = outcome(ours, baseline, CapViolation("full of notes://x", 300, 301)).as_line()

    assert line == "RESULT saved=0.5000 recall_ratio=0.5000 cap_violations=1 page_tokens=1900"


def test_missed_targets_and_cap_violations_are_reported() -> None:
    ours, baseline = Session(BOTH, (400,), frozenset([LOG])), Session(NEITHER, (400,), frozenset([LOG]))
    lines = list(report(outcome(ours, baseline, CapViolation("full of notes://x", 300, 301))))

    assert any(line.endswith("missed: notes/dome-chalk, notes/dome-log: chalk") for line in lines)
    assert lines[-2] == "10 responses checked against their caps: 1 over, 0 over and declared"
    assert lines[-1] == "  full of notes://x: 301 of 300"


def test_pooled_sessions_add_up_tokens_and_targets() -> None:
    targets = frozenset([LOG, CHALK])
    first = Comparison(targets, (Session(BOTH, (100,), targets), Session(NEITHER, (300,), frozenset([LOG]))))
    second = Comparison(targets, (Session(BOTH, (200,), frozenset([LOG])), Session(NEITHER, (300,), targets)))

    both = pool({"first": first, "second": second})

    assert len(both.targets) == 4
    assert (both.ours.tokens, both.baseline.tokens) == ((100, 200), (300, 300))
    assert (both.saved, both.recall_ratio) == (0.5, 1.0)
