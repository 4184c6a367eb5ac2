"""Revoking a key, disabling and purging a user work on a full disk and take effect at once."""

import subprocess
import sys
from pathlib import Path

import pytest

# The disk of the SQLite files is full.
pytestmark = pytest.mark.sqlite

FULL = "the disk of the control database is full"


def test_access_is_withdrawn_on_a_full_disk(tmp_path: Path) -> None:
    command = ["unshare", "-rm", sys.executable, "-m", "tests.server.cli.full_disk_program", str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert process.stdout.splitlines() == [
        "before: [200, 200, 200]",
        f"user add: 1 florilegium: {FULL}",
        "key revoke: 0 ",
        "user disable: 0 ",
        "user delete: 0 ",
        "after: [401, 401, 401]",
        "user add: 0 ",
        "reserved again: True",
    ], process.stderr
