"""Full and read-only disks: a clear error, nothing half-written, reads work, and later writes succeed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources.storage.sqlite.file_checks import check_files


def run_failing_disk(failure: str, root: Path) -> list[str]:
    command = [sys.executable, "-m", "tests.sources.storage.sqlite.failing_disk", failure, str(root)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def test_full_disk_raises_an_error_and_loses_nothing(tmp_path: Path) -> None:
    assert run_failing_disk("full", tmp_path / "data") == [
        "DiskFull 507 the disk is full; nothing was written",
        "found all",
        "found all",
        "found all",
    ]
    check_files(tmp_path / "data")


def test_closed_library_is_readable_on_a_full_disk(tmp_path: Path) -> None:
    assert run_failing_disk("full_before_opening", tmp_path / "data") == [
        "found all",
        "DiskFull 507 the disk is full; nothing was written",
        "found all",
    ]
    check_files(tmp_path / "data")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory that its own process cannot write")
def test_read_only_directory_can_be_read_and_writes_raise_an_error(tmp_path: Path) -> None:
    for parent in (tmp_path, *tmp_path.parents):
        if parent.name.startswith(
            ("pytest-", "popen-", "test_")
        ):  # directories of pytest, which only their owner can read
            parent.chmod(0o755)
    message = "nothing was written: the library's file or directory is read-only"
    assert run_failing_disk("read_only", tmp_path / "data") == [
        "found all",
        f"StorageError 500 {message}",
        "found all",
        "found all",
    ]
