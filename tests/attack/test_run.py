"""A sample of `make attack` finds nothing and prints the counts. The part about memory also runs on PostgreSQL."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attack.memory import attack_with_unread_responses, attacked_process

pytestmark = pytest.mark.slow("attacks a server")

ROOT = Path(__file__).parents[2]


def test_sample_of_the_attack_finds_nothing() -> None:
    command = [sys.executable, "-m", "tests.attack.run", "--quick"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert completed.returncode == 0, completed.stdout + completed.stderr
    last = completed.stdout.splitlines()[-1]
    names = ("calls", "tokens", "files", "queries", "roles", "follows", "plugins", "sharing")
    counts = re.fullmatch("RESULT leaks=0 " + " ".join(rf"{name}=(\d+)" for name in names), last)
    assert counts is not None
    assert all(int(count) > 0 for count in counts.groups())


async def test_large_texts_of_postgresql_stay_in_memory_no_longer_than_others(
    tmp_path: Path, database_url: str
) -> None:
    async with attacked_process(tmp_path, FLORILEGIUM_STORAGE_URL=database_url) as server:
        part = await attack_with_unread_responses(server, 20)

    assert not part.is_too_much, part.describe()
