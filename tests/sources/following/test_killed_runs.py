"""A run that is killed at any moment is completed by the next one, and nothing is lost or stored twice."""

import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.server.cli.program import EXECUTABLE, Program
from tests.servers.storage import uses_postgres
from tests.sources.following.followed_library import KILLS
from tests.sources.storage.sqlite.file_checks import check_files

pytestmark = pytest.mark.slow("kills processes")

FILES = 150
# Runs take about two seconds, most of it to start.
KILL_AFTER_MAX_S = 4.0


def write_vault(folder: Path, seed: int) -> dict[str, str]:
    """Creates, changes, renames and deletes files, as chosen by the seed. Returns the texts by file name."""
    choose = random.Random(seed)
    (folder / ".obsidian").mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        path = folder / f"note {number}.md"
        match choose.choice("cccrdk"):
            case "c":
                path.write_text(f"Text {number} of round {seed}.")
            case "r" if path.exists():
                path.rename(folder / f"note {number} of {seed}.md")
            case "d" if path.exists():
                path.unlink()
    return {path.name: path.read_text() for path in folder.glob("*.md")}


def stored_texts(program: Program) -> list[str]:
    out = program.home / "out"
    shutil.rmtree(out, ignore_errors=True)
    program.expect("export", str(out))
    lines = (out / "notes.jsonl").read_text().splitlines()
    return sorted(line.partition('"content":"')[2].partition('"')[0] for line in lines)


def run_and_kill(program: Program, after_s: float) -> bool:
    """Returns whether the run was killed before it ended."""
    process = subprocess.Popen(
        [*EXECUTABLE, "follow", "run"],
        cwd=program.home,
        env=program.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(after_s)
    is_running = process.poll() is None
    with suppress(ProcessLookupError):  # it ended meanwhile
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return is_running


def test_killed_runs_are_completed_by_the_next_one(tmp_path: Path) -> None:
    program, choose = Program(tmp_path), random.Random(1)
    vault = tmp_path / "vault"
    vault.mkdir()
    program.expect("follow", "add", str(vault))
    killed = 0
    for number in range(KILLS):
        texts = write_vault(vault, number)
        killed += run_and_kill(program, choose.uniform(0.3, KILL_AFTER_MAX_S))
        if number % 3 == 2:
            continue  # the files change again before the next run
        program.expect("follow", "run")
        assert stored_texts(program) == sorted(texts.values())
    assert killed or KILLS < 10
    program.expect("follow", "run")
    assert stored_texts(program) == sorted(path.read_text() for path in vault.glob("*.md"))
    if not uses_postgres():
        check_files(program.data_dir)
