"""Runs the official conformance suite for both revisions against the fixture app, with and without authentication.

`python -m tests.conformance.run` prints a table and a RESULT line, and exits with 1 if there are problems.
"""

import asyncio
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.clients.node_tools import packages, run_node
from tests.clients.programs import ProgramResult
from tests.conformance.app import authenticated_app, open_app
from tests.conformance.verdicts import (
    Check,
    Requirements,
    Run,
    judge,
    problems_of,
    read_requirements,
    result_line,
    table,
)

REVISIONS = ("2025-11-25", "2026-07-28")
EXPECTED_FAILURES = Path(__file__).parent / "expected_failures.yml"
APPS: Mapping[str, Callable[[], AbstractAsyncContextManager[str]]] = {"open": open_app, "guarded": authenticated_app}
# A revision takes a few seconds; the suite has its own limit for each scenario.
SUITE_TIMEOUT_S = 300
_RESULT_DIRECTORY = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d{2}-\d{2}T[\d-]+Z\Z")


class Report(Struct, frozen=True):
    runs: list[Run]
    problems: list[str]


async def run_suite() -> Report:
    """Runs every revision against every app, one after the other, because the suite measures short times."""
    suite = packages() / "@modelcontextprotocol" / "conformance"
    requirements, expected = await _read_lists(suite)
    runs: list[Run] = []
    problems: list[str] = []
    for name, app in APPS.items():
        async with app() as url:
            for revision in REVISIONS:
                run, result = await _run_revision(suite, name, url, revision, requirements[revision])
                runs.append(run)
                run_problems = problems_of(run, expected)
                if result.code and not run_problems:
                    run_problems = [f"{name} {revision}: the suite exited with {result.code}: {result.stderr[-500:]}"]
                problems += run_problems
    return Report(runs, problems)


async def _read_lists(suite: Path) -> tuple[dict[str, Requirements], list[str]]:
    """Reads the suite's requirement sets and the list of expected failures."""
    files = [*(suite / "requirements" / f"{revision}.yaml" for revision in REVISIONS), EXPECTED_FAILURES]
    result = await run_node("read_yaml.mjs", *map(str, files), timeout_s=30)
    if result.code:
        raise RuntimeError(f"cannot read the requirement sets: {result.stderr}")
    *sets, expected = msgspec.json.decode(result.stdout)
    return dict(zip(REVISIONS, map(read_requirements, sets), strict=True)), expected["server"]


async def _run_revision(
    suite: Path, app: str, url: str, revision: str, requirements: Requirements
) -> tuple[Run, ProgramResult]:
    with tempfile.TemporaryDirectory() as directory:
        result = await run_node(
            str(suite / "dist" / "index.js"),
            "server",
            *("--url", url),
            *("--requirements", revision),
            *("--expected-failures", str(EXPECTED_FAILURES)),
            *("--output-dir", directory),
            timeout_s=SUITE_TIMEOUT_S,
        )
        checks = _read_checks(Path(directory))
    verdicts = {
        name: judge(name, checks.get(name), is_scored=name in requirements.server) for name in requirements.scenarios()
    }
    return Run(app, revision, requirements, verdicts), result


def _read_checks(directory: Path) -> dict[str, list[Check]]:
    checks = {}
    for file in directory.glob("*/checks.json"):
        if match := _RESULT_DIRECTORY.match(file.parent.name):
            checks[match["scenario"]] = msgspec.json.decode(file.read_bytes(), type=list[Check])
    return checks


def main() -> int:
    report = asyncio.run(run_suite())
    print(table(report.runs))
    for problem in report.problems:
        print(problem)
    print(result_line(report.runs))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
