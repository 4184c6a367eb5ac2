"""The benchmark of tokens: its script is sound, it runs from end to end, and its figures are what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.tokens import (
    ARMS,
    BOTH,
    HEADLINE,
    NEITHER,
    SCRIPTS,
    BadScript,
    Breach,
    Comparison,
    Outcome,
    Session,
    Step,
    pool,
    read_scripts,
    report,
)

ROOT = Path(__file__).parents[2]
RESULT = re.compile(r"RESULT saved=(-?\d\.\d{4}) recall_ratio=(\d\.\d{4}) cap_violations=(\d+)")

CALLS = """
    [[several_matters]]
    query = "why does the dome stick"
    relevant = ["notes/dome-log"]
    [[one_matter]]
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


def outcome(ours: Session, plain: Session, *breaches: Breach) -> Outcome:
    return Outcome({HEADLINE: Comparison(frozenset([LOG, CHALK, PASSAGE]), (ours, plain))}, 10, breaches)


def test_quick_run_makes_every_session_and_ends_with_the_result() -> None:
    quick = [sys.executable, "-m", "bench.tokens", "--quick"]

    ran = subprocess.run(quick, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert ran.returncode == 0, ran.stderr
    *lines, last = ran.stdout.splitlines()
    for arm in ARMS:
        assert sum(line.startswith(f"  {arm.title} ") for line in lines) == len(SCRIPTS) + 1
    found = RESULT.fullmatch(last)
    assert found
    # They do not depend on the machine.
    assert float(found[1]) >= 0.5
    assert float(found[2]) >= 1.0
    assert found[3] == "0"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_ten_calls_of_which_some_read(name: str) -> None:
    steps = read_scripts()[name]

    assert len(steps) == 10
    assert sum(step.read is not None for step in steps) >= 3


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("notes/dome-log", "notes/doom-log", r"names \['notes/doom-log'\], which the demo library has not"),
        ('says = "chalk"', "", "expected `read` and `says` both"),
        ("query =", "question =", "tokens.toml: .*question"),
        ("[[one_matter]]", "[[one_mater]]", r"got tables \['one_mater', 'several_matters'\]"),
    ],
)
def test_a_script_that_makes_no_session_is_refused(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(CALLS.replace(old, new))

    with pytest.raises(BadScript, match=complaint):
        read_scripts(path)


def test_a_reading_is_after_its_passage_and_a_search_after_its_items() -> None:
    assert [step.units for step in STEPS] == [{LOG, CHALK}, {PASSAGE}]


def test_the_arms_differ_in_memory_and_budgets_and_in_nothing_else() -> None:
    search, read = STEPS

    assert dict(BOTH.search(search, "handle").arguments) == {"query": "dome", "session": "handle"}
    assert dict(NEITHER.search(search, "handle").arguments) == {"query": "dome", "limit": 20, "dedupe": "off"}
    assert dict(BOTH.search(search, None).arguments) == {"query": "dome"}
    with_budget, whole = BOTH.read(read).arguments, NEITHER.read(read).arguments
    assert with_budget["uri"] == whole["uri"]
    assert "max_tokens" in with_budget["retrieval"]
    assert whole["retrieval"] == {"mode": "full"}


def test_saving_is_counted_for_each_thing_found() -> None:
    ours = Session(BOTH, (300, 100), frozenset([LOG, PASSAGE]))
    plain = Session(NEITHER, (1_000, 600), frozenset([LOG, CHALK, PASSAGE, "media/x"]))

    line = outcome(ours, plain, Breach("full of notes://x", 300, 301)).as_line()

    assert line == "RESULT saved=0.5000 recall_ratio=0.5000 cap_violations=1"


def test_what_was_missed_and_what_was_over_is_told() -> None:
    ours, plain = Session(BOTH, (400,), frozenset([LOG])), Session(NEITHER, (400,), frozenset([LOG]))
    told = list(report(outcome(ours, plain, Breach("full of notes://x", 300, 301))))

    assert any(line.endswith("missed: notes/dome-chalk, notes/dome-log: chalk") for line in told)
    assert told[-2] == "10 answers checked against their caps, 1 over, 0 more over and saying so"
    assert told[-1] == "  full of notes://x: 301 of 300"


def test_sessions_taken_together_add_up_their_tokens_and_what_they_found() -> None:
    wanted = frozenset([LOG, CHALK])
    first = Comparison(wanted, (Session(BOTH, (100,), wanted), Session(NEITHER, (300,), frozenset([LOG]))))
    second = Comparison(wanted, (Session(BOTH, (200,), frozenset([LOG])), Session(NEITHER, (300,), wanted)))

    both = pool({"first": first, "second": second})

    assert len(both.wanted) == 4
    assert (both.ours.tokens, both.plain.tokens) == ((100, 200), (300, 300))
    assert (both.saved, both.recall_ratio) == (0.5, 1.0)
