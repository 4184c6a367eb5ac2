"""Runs the official conformance suite against the fixture app, open and behind authentication, both revisions.

`python -m tests.conformance.run` prints a table and a RESULT line; it ends with 1 unless everything is as it should be.
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
from tests.clients.programs import Ended
from tests.conformance.app import guarded_app, open_app
from tests.conformance.verdicts import (
    Check,
    Requirements,
    Run,
    complaints,
    judge,
    read_requirements,
    result_line,
    table,
)

REVISIONS = ("2025-11-25", "2026-07-28")
EXPECTED_FAILURES = Path(__file__).parent / "expected_failures.yml"
APPS: Mapping[str, Callable[[], AbstractAsyncContextManager[str]]] = {"open": open_app, "guarded": guarded_app}
# A whole revision takes a few seconds; each scenario has a limit of its own inside the suite.
SUITE_TIMEOUT_S = 300
_RESULT_DIRECTORY = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d{2}-\d{2}T[\d-]+Z\Z")


class Report(Struct, frozen=True):
    runs: list[Run]
    complaints: list[str]


async def run_suite() -> Report:
    """Every revision against every app, one after the other: the suite measures short times."""
    suite = packages() / "@modelcontextprotocol" / "conformance"
    requirements, expected = await _read_lists(suite)
    runs: list[Run] = []
    found: list[str] = []
    for name, app in APPS.items():
        async with app() as url:
            for revision in REVISIONS:
                run, ended = await _run_revision(suite, name, url, revision, requirements[revision])
                runs.append(run)
                problems = complaints(run, expected)
                if ended.code and not problems:
                    problems = [f"{name} {revision}: the suite ended with {ended.code}: {ended.stderr[-500:]}"]
                found += problems
    return Report(runs, found)


async def _read_lists(suite: Path) -> tuple[dict[str, Requirements], list[str]]:
    """The suite's own requirement sets, and our list of expected failures."""
    files = [*(suite / "requirements" / f"{revision}.yaml" for revision in REVISIONS), EXPECTED_FAILURES]
    ended = await run_node("read_yaml.mjs", *map(str, files), timeout_s=30)
    if ended.code:
        raise RuntimeError(f"the requirement sets could not be read: {ended.stderr}")
    *sets, expected = msgspec.json.decode(ended.stdout)
    return dict(zip(REVISIONS, map(read_requirements, sets), strict=True)), expected["server"]


async def _run_revision(
    suite: Path, app: str, url: str, revision: str, requirements: Requirements
) -> tuple[Run, Ended]:
    with tempfile.TemporaryDirectory() as directory:
        ended = await run_node(
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
    return Run(app, revision, requirements, verdicts), ended


def _read_checks(directory: Path) -> dict[str, list[Check]]:
    found = {}
    for file in directory.glob("*/checks.json"):
        if named := _RESULT_DIRECTORY.match(file.parent.name):
            found[named["scenario"]] = msgspec.json.decode(file.read_bytes(), type=list[Check])
    return found


def main() -> int:
    report = asyncio.run(run_suite())
    print(table(report.runs))
    for complaint in report.complaints:
        print(complaint)
    print(result_line(report.runs))
    return 1 if report.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
