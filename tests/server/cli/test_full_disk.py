"""On a full disk, a server starts, and revoking a key, disabling and purging a user work and take effect at once."""

import subprocess
import sys
from pathlib import Path

import pytest

# The disk of the SQLite files is full.
pytestmark = [pytest.mark.sqlite, pytest.mark.slow("fills a disk")]

FULL = "the disk of the control database is full"
READ_ONLY = (
    "the data directory DIR is on a read-only file system; make it writable, or set data_dir to another directory"
)


def test_access_is_withdrawn_on_a_full_disk(tmp_path: Path) -> None:
    command = ["unshare", "-rm", sys.executable, "-m", "tests.server.cli.full_disk_program", str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert process.stdout.splitlines() == [
        "restarted: 200",
        "before: [200, 200, 200]",
        f"user add: 1 florilegium: {FULL}",
        "key revoke: 0 ",
        "user disable: 0 ",
        "user delete: 0 ",
        "after: [401, 401, 401]",
        "user add: 0 ",
        "reserved again: True",
        "repair: 1 florilegium: the disk is full; nothing was written True",
        f"read-only: 1 florilegium: {READ_ONLY}",
        f"read-only: 1 florilegium: {READ_ONLY}",
        "backup: 0 4 users",
        "eve",
        "fail data directory DIR is on a read-only file system; make it writable",
        "ok libraries all of 4 users checked; `florilegium check` checks everything",
    ], process.stderr
