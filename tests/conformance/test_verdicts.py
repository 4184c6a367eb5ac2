"""Evaluation of conformance runs: every required scenario must pass, and nothing may fail unexpectedly."""

from tests.conformance.verdicts import (
    Check,
    Outcome,
    Requirements,
    Run,
    Unscored,
    judge,
    problems_of,
    result_line,
    table,
)

SUCCESS, WARNING, FAILURE = Check("a", "SUCCESS"), Check("b", "WARNING", "odd"), Check("c", "FAILURE", "bad")
INFO = Check("d", "INFO")
REQUIREMENTS = Requirements(
    server=["tools-list"],
    not_scored=[
        Unscored("tasks-lifecycle", "server", "extension"),
        Unscored("json-schema", "server", "pending"),
        Unscored("auth/dpop", "client", "extension"),
    ],
)
EXPECTED = ["tasks-lifecycle"]


def make_run(
    tools_list: list[Check] | None, tasks: list[Check] | None, schema: list[Check] | None, app: str = "open"
) -> Run:
    checks = {"tools-list": tools_list, "tasks-lifecycle": tasks, "json-schema": schema}
    verdicts = {name: judge(name, results, is_scored=name == "tools-list") for name, results in checks.items()}
    return Run(app, "2026-07-28", REQUIREMENTS, verdicts)


def test_successful_checks_pass_and_an_expected_failure_is_no_problem() -> None:
    run = make_run([SUCCESS, INFO], [SUCCESS, FAILURE], [SUCCESS])

    assert problems_of(run, EXPECTED) == []
    assert result_line([run]) == "RESULT passed_2026-07-28=1 failed_2026-07-28=0"


def test_a_warning_counts_as_a_failure() -> None:
    run = make_run([SUCCESS, WARNING], [FAILURE], [SUCCESS])

    assert problems_of(run, EXPECTED) == ["open 2026-07-28: tools-list: b: odd"]
    assert result_line([run]) == "RESULT passed_2026-07-28=0 failed_2026-07-28=1"


def test_a_required_scenario_without_successful_checks_fails() -> None:
    assert judge("tools-list", [INFO], is_scored=True).outcome is Outcome.FAILED
    assert judge("json-schema", [INFO], is_scored=False).outcome is Outcome.NOT_APPLICABLE


def test_a_scenario_without_a_result_fails() -> None:
    run = make_run(None, [FAILURE], None)

    assert problems_of(run, EXPECTED) == [
        "open 2026-07-28: tools-list: the suite wrote no result",
        "open 2026-07-28: json-schema: the suite wrote no result",
    ]


def test_an_unexpected_failure_of_an_unscored_scenario_is_a_problem() -> None:
    run = make_run([SUCCESS], [FAILURE], [FAILURE])

    assert problems_of(run, EXPECTED) == ["open 2026-07-28: json-schema: c: bad"]


def test_an_expected_failure_that_passes_must_be_removed_from_the_list() -> None:
    run = make_run([SUCCESS], [SUCCESS], [SUCCESS])

    assert problems_of(run, EXPECTED) == [
        "open 2026-07-28: tasks-lifecycle is expected to fail and did not; remove it from the list"
    ]


def test_only_an_unscored_extension_may_be_expected_to_fail() -> None:
    run = make_run([FAILURE], [FAILURE], [FAILURE])

    assert problems_of(run, ["tools-list", "tasks-lifecycle", "json-schema"]) == [
        "open 2026-07-28: json-schema is expected to fail, but only unscored extensions may be",
        "open 2026-07-28: tools-list is expected to fail, but only unscored extensions may be",
    ]


def test_the_result_line_counts_the_worse_run_and_the_table_shows_both() -> None:
    good, bad = make_run([SUCCESS], [FAILURE], [SUCCESS]), make_run([FAILURE], [FAILURE], [SUCCESS], app="guarded")

    assert result_line([good, bad]) == "RESULT passed_2026-07-28=0 failed_2026-07-28=1"
    row = next(line for line in table([good, bad]).splitlines() if "tools-list" in line)
    assert row.split() == ["tools-list", "pass", "1", "FAIL"]
