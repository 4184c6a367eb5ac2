"""The backup script and the restore drill, on real data directories."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import ROOT

pytestmark = pytest.mark.slow("runs scripts that copy whole data directories")

SCRIPTS = ROOT / "deploy" / "scripts"


class DataDirectory:
    """A data directory with two users, and commands that use it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FLORILEGIUM_")}
        self._environ = {**kept, "PATH": commands, "FLORILEGIUM_DATA_DIR": str(folder / "data"), "TMPDIR": str(folder)}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self._environ, cwd=self._folder, capture_output=True, text=True, timeout=120, check=False
        )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataDirectory:
    directory = DataDirectory(tmp_path_factory.mktemp("backup"))
    for user in ("ada", "ben"):
        assert directory.run("florilegium", "user", "add", user).returncode == 0
        added = directory.run("florilegium", "add", "notes", "--user", user, "--title", f"Tea of {user}", "Steep it.")
        assert added.returncode == 0, added.stderr
    return directory


def test_backups_are_made_tried_and_rotated(data: DataDirectory, tmp_path: Path) -> None:
    for day in ("20260101T033000Z", "20260102T033000Z"):
        (tmp_path / day).mkdir()
    (tmp_path / "mine").mkdir()

    made = data.run(str(SCRIPTS / "backup.sh"), str(tmp_path), "2")

    assert made.returncode == 0, made.stderr
    assert "can be restored" in made.stdout
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[0] == "20260102T033000Z"
    assert names[-1] == "mine"
    assert len(names) == 3
    assert (tmp_path / names[1] / "control.db").stat().st_mode & 0o077 == 0


def test_a_damaged_backup_fails_the_drill_and_leaves_nothing(data: DataDirectory, tmp_path: Path) -> None:
    assert data.run("florilegium", "backup", str(tmp_path / "saved")).returncode == 0
    victim = next((tmp_path / "saved").rglob("chacha.db"))
    content = bytearray(victim.read_bytes())
    content[5000:5100] = bytes(byte ^ 0xFF for byte in content[5000:5100])
    victim.write_bytes(content)
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    drill = data.run("env", f"TMPDIR={scratch}", str(SCRIPTS / "restore-drill.sh"), str(tmp_path / "saved"))

    assert drill.returncode != 0
    assert "can be restored" not in drill.stdout
    assert list(scratch.iterdir()) == []


def test_a_backup_that_fails_deletes_no_other(data: DataDirectory, tmp_path: Path) -> None:
    (tmp_path / "20260101T033000Z").mkdir()
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("backup.sh", "restore-drill.sh"):
        shutil.copy(SCRIPTS / name, tools / name)
    (tools / "restore-drill.sh").write_text("#!/bin/sh\nexit 1\n")

    made = data.run(str(tools / "backup.sh"), str(tmp_path), "0")

    assert made.returncode != 0
    assert (tmp_path / "20260101T033000Z").is_dir()


def test_what_a_failed_backup_left_is_deleted_by_a_later_one(data: DataDirectory, tmp_path: Path) -> None:
    for name in ("20260101T033000Z.partial", "mine.partial"):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1, 1))
    (tmp_path / "20260102T033000Z.partial").mkdir()  # of a backup that is still running

    assert data.run(str(SCRIPTS / "backup.sh"), str(tmp_path), "2").returncode == 0

    partial = sorted(path.name for path in tmp_path.glob("*.partial"))
    assert partial == ["20260102T033000Z.partial", "mine.partial"]
