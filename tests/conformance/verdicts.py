"""Evaluates the results of the official suite: the scenarios that a revision requires, and their outcomes.

The suite's own rules are applied strictly: a warning counts as a failure, and a required scenario must have at least
one successful check. All functions are pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

EXTENSION = "extension"


class Outcome(Enum):
    PASSED = "pass"
    FAILED = "FAIL"
    NOT_APPLICABLE = "n/a"


class Unscored(Struct, frozen=True):
    """A scenario that a revision runs but does not require, with the suite's reason."""

    scenario: str
    leg: str
    reason: str


class Requirements(Struct, frozen=True):
    """The server part of one of the suite's `requirements/*.yaml`."""

    server: list[str]
    not_scored: list[Unscored]

    def reasons(self) -> dict[str, str]:
        """Returns why scenarios are not scored, by name."""
        return {entry.scenario: entry.reason for entry in self.not_scored if entry.leg == "server"}

    def scenarios(self) -> list[str]:
        return [*self.server, *self.reasons()]


class Check(Struct, frozen=True, rename="camel"):
    """One entry of a scenario's `checks.json`."""

    id: str
    status: str
    error_message: str = ""


class Verdict(Struct, frozen=True):
    """The outcome of one scenario. `problems` are the suite's messages."""

    scenario: str
    outcome: Outcome
    successes: int
    problems: tuple[str, ...] = ()


class Run(Struct, frozen=True):
    """The results of one revision on one server."""

    app: str
    revision: str
    requirements: Requirements
    verdicts: Mapping[str, Verdict]

    def scored(self, outcome: Outcome) -> int:
        return sum(self.verdicts[name].outcome is outcome for name in self.requirements.server)


def judge(scenario: str, checks: Sequence[Check] | None, is_scored: bool) -> Verdict:
    """Evaluates the checks of a scenario; None if it has no result."""
    if checks is None:
        return Verdict(scenario, Outcome.FAILED, 0, ("the suite wrote no result",))
    successes = sum(check.status == "SUCCESS" for check in checks)
    problems = tuple(f"{check.id}: {check.error_message}" for check in checks if check.status in ("FAILURE", "WARNING"))
    if problems:
        return Verdict(scenario, Outcome.FAILED, successes, problems)
    if successes:
        return Verdict(scenario, Outcome.PASSED, successes)
    if is_scored:
        return Verdict(scenario, Outcome.FAILED, 0, ("nothing was checked",))
    return Verdict(scenario, Outcome.NOT_APPLICABLE, 0)


def problems_of(run: Run, expected: Iterable[str]) -> list[str]:
    """Returns the problems of a run, one sentence each."""
    reasons, expected = run.requirements.reasons(), set(expected)
    label = f"{run.app} {run.revision}"
    problems = [
        f"{label}: {name} is expected to fail, but only unscored extensions may be"
        for name in sorted(expected & set(run.requirements.scenarios()))
        if reasons.get(name) != EXTENSION
    ]
    for name, verdict in run.verdicts.items():
        if verdict.outcome is Outcome.FAILED and name not in expected:
            problems += [f"{label}: {name}: {problem}" for problem in verdict.problems]
        if verdict.outcome is not Outcome.FAILED and name in expected:
            problems.append(f"{label}: {name} is expected to fail and did not; remove it from the list")
    return problems


def table(runs: Sequence[Run]) -> str:
    """Returns a table with a line per scenario and a column per server."""
    lines = []
    for revision in dict.fromkeys(run.revision for run in runs):
        same = [run for run in runs if run.revision == revision]
        lines.append(f"{revision:64}" + "".join(f"{run.app:>14}" for run in same))
        reasons = same[0].requirements.reasons()
        for name in same[0].requirements.scenarios():
            label = f"  {name}" + (f" (not scored: {reasons[name]})" if name in reasons else "")
            lines.append(f"{label:64}" + "".join(f"{_cell(run.verdicts[name]):>14}" for run in same))
        lines.append("")
    return "\n".join(lines)


def _cell(verdict: Verdict) -> str:
    return f"{verdict.outcome.value} {verdict.successes}" if verdict.successes else verdict.outcome.value


def result_line(runs: Sequence[Run]) -> str:
    """Returns the counts of scored scenarios, for the worse run of each revision."""
    figures = []
    for revision in dict.fromkeys(run.revision for run in runs):
        same = [run for run in runs if run.revision == revision]
        figures.append(f"passed_{revision}={min(run.scored(Outcome.PASSED) for run in same)}")
        figures.append(f"failed_{revision}={max(run.scored(Outcome.FAILED) for run in same)}")
    return "RESULT " + " ".join(figures)


def read_requirements(value: Any) -> Requirements:
    return msgspec.convert(value, Requirements)
