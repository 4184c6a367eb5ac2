"""The judge of the judges: a run is good only if everything required was shown and nothing failed unexpectedly."""

from tests.conformance.verdicts import (
    Check,
    Outcome,
    Requirements,
    Run,
    Unscored,
    complaints,
    judge,
    result_line,
    table,
)

GOOD, WARNED, FAILED = Check("a", "SUCCESS"), Check("b", "WARNING", "odd"), Check("c", "FAILURE", "bad")
NOTE = Check("d", "INFO")
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
    verdicts = {name: judge(name, found, is_scored=name == "tools-list") for name, found in checks.items()}
    return Run(app, "2026-07-28", REQUIREMENTS, verdicts)


def test_good_checks_pass_and_an_expected_failure_is_no_complaint() -> None:
    run = make_run([GOOD, NOTE], [GOOD, FAILED], [GOOD])

    assert complaints(run, EXPECTED) == []
    assert result_line([run]) == "RESULT passed_2026-07-28=1 failed_2026-07-28=0"


def test_a_warning_counts_like_a_failure() -> None:
    run = make_run([GOOD, WARNED], [FAILED], [GOOD])

    assert complaints(run, EXPECTED) == ["open 2026-07-28: tools-list: b: odd"]
    assert result_line([run]) == "RESULT passed_2026-07-28=0 failed_2026-07-28=1"


def test_a_required_scenario_that_showed_nothing_has_failed() -> None:
    assert judge("tools-list", [NOTE], is_scored=True).outcome is Outcome.FAILED
    assert judge("json-schema", [NOTE], is_scored=False).outcome is Outcome.NOT_APPLICABLE


def test_a_scenario_without_a_result_has_failed_scored_or_not() -> None:
    run = make_run(None, [FAILED], None)

    assert complaints(run, EXPECTED) == [
        "open 2026-07-28: tools-list: the suite left no result",
        "open 2026-07-28: json-schema: the suite left no result",
    ]


def test_an_unscored_failure_that_nobody_expected_is_a_complaint() -> None:
    run = make_run([GOOD], [FAILED], [FAILED])

    assert complaints(run, EXPECTED) == ["open 2026-07-28: json-schema: c: bad"]


def test_an_expected_failure_that_passes_is_stale() -> None:
    run = make_run([GOOD], [GOOD], [GOOD])

    assert complaints(run, EXPECTED) == [
        "open 2026-07-28: tasks-lifecycle is expected to fail and did not; remove it from the list"
    ]


def test_only_an_unscored_extension_may_be_expected_to_fail() -> None:
    run = make_run([FAILED], [FAILED], [FAILED])

    assert complaints(run, ["tools-list", "tasks-lifecycle", "json-schema"]) == [
        "open 2026-07-28: json-schema is expected to fail, but only unscored extensions may be",
        "open 2026-07-28: tools-list is expected to fail, but only unscored extensions may be",
    ]


def test_the_result_line_counts_the_worse_run_and_the_table_shows_both() -> None:
    good, bad = make_run([GOOD], [FAILED], [GOOD]), make_run([FAILED], [FAILED], [GOOD], app="guarded")

    assert result_line([good, bad]) == "RESULT passed_2026-07-28=0 failed_2026-07-28=1"
    row = next(line for line in table([good, bad]).splitlines() if "tools-list" in line)
    assert row.split() == ["tools-list", "pass", "1", "FAIL"]
