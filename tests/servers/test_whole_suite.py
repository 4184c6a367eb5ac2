"""A run of the whole suite is a failure if no test used PostgreSQL or Valkey. Runs of a part need not use them."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow("runs suites in processes of their own")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite with the configuration of this one and a test that needs no server."""
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = checks\n")
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "checks" / "test_nothing.py").write_text("def test_nothing(): pass\n")
    return tmp_path


def run_suite(suite: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_whole_suite_fails_if_no_test_used_a_server(suite: Path) -> None:
    outcome = run_suite(suite)

    assert outcome.returncode == 1, outcome.stdout
    assert "1 passed" in outcome.stdout
    for name in ("postgresql", "valkey"):
        assert f"{name}: no test used it, so this run of the whole suite has failed" in outcome.stdout
    assert "storage of the servers that tests start: SQLite" in outcome.stdout
    assert "citus: not tested, TEST_CITUS_URL is not set" in outcome.stdout


def test_part_of_the_suite_needs_no_server(suite: Path) -> None:
    outcome = run_suite(suite, "checks/test_nothing.py")

    assert outcome.returncode == 0, outcome.stdout
    assert "no test used it" not in outcome.stdout
