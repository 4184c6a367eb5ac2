"""Runs the official conformance suite: both revisions, with and without authentication."""

import pytest

from tests.conformance.run import run_suite
from tests.conformance.verdicts import result_line, table

pytestmark = pytest.mark.slow("runs the official suite of TypeScript")


async def test_every_required_scenario_of_both_revisions_passes() -> None:
    report = await run_suite()

    assert report.problems == [], table(report.runs)
    assert result_line(report.runs) == (
        "RESULT passed_2025-11-25=30 failed_2025-11-25=0 passed_2026-07-28=37 failed_2026-07-28=0"
    )
