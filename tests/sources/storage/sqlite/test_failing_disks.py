"""A disk that is full or read-only: a clear error, nothing half-written, reads go on, and the next write works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources.storage.sqlite.files import check_files


def happened(what: str, root: Path) -> list[str]:
    command = [sys.executable, "-m", "tests.sources.storage.sqlite.failing_disk", what, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_full_disk_is_told_and_loses_nothing_that_was_written(tmp_path: Path) -> None:
    assert happened("full", tmp_path / "data") == [
        "DiskFull 507 the disk is full; nothing was written",
        "found all",
        "found all",
        "found all",
    ]
    check_files(tmp_path / "data")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory that its own process cannot write")
def test_a_read_only_directory_can_be_read_and_says_why_it_cannot_be_written(tmp_path: Path) -> None:
    for above in (tmp_path, *tmp_path.parents):
        if above.name.startswith(("pytest-", "popen-", "test_")):  # what pytest made, and closed to others
            above.chmod(0o755)
    sentence = "nothing was written: the library's file or directory is read-only"
    assert happened("read_only", tmp_path / "data") == [
        "found all",
        f"StorageError 500 {sentence}",
        "found all",
        "found all",
    ]
